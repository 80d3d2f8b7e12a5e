"""The selective scan of Mamba (Gu & Dao 2023, algorithm 2) in three forms that tests tie together:

    h_t = exp(Δ_t A) ⊙ h_{t-1} + x_t B_t        y_t = h_t · C_t

recurrent  token after token, as it is written above
scan       all chunks of about √n tokens side by side, then from chunk to chunk, then all chunks once more from the
           state in which each of them begins
weights    what each token takes from each earlier one, y = weights · x, for every channel

Shapes: x (the input times its step size) and delta `b t f`, a `f n` below 0, b and c `b t n`, the state `b f n`. All
work in fp32 at least, and give that. A token that is none has x = delta = 0, which leaves the state as it is; `first`
`b t` (`window.edges`) tells where a document begins, with an empty state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG2_E = math.log2(math.e)  # 2^(x·log2 e) = e^x, and on a processor exp2 takes a third of the time of exp
NUMBERS = 1 << 17  # of all states that are worked on at once, so that they stay in a processor's cache
CHANNELS = 64  # but never fewer channels than these, since each is a step of the innermost loop


def recurrent(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Token after token: (y `b t f`, the state after the last one)."""
    x, delta, a, b, c, state = _wide(x, delta, a, b, c, state)
    y = []
    for i in range(x.shape[1]):
        if first is not None:
            state = torch.where(first[:, i, None, None], 0.0, state)
        state = torch.exp(delta[:, i, :, None] * a) * state + x[:, i, :, None] * b[:, i, None, :]
        y.append((state * c[:, i, None, :]).sum(-1))
    return torch.stack(y, 1), state


def scan(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same in chunks. For the way back it keeps, beside its inputs, only the states in which chunks begin, about √t
    of each row and channel; what lies between is worked out again, in b · t · n numbers for each of some CHANNELS."""
    t = x.shape[1]
    if t == 1:
        return recurrent(x, delta, a, b, c, state, first)
    size = chunk_size(t, x.shape[0])

    def cut(value: Tensor, fill: float = 0.0) -> Tensor:
        """`b t …` to `b k i …`, k chunks of i tokens; what is filled up leaves the state as it is."""
        missing = -t % size
        if missing:
            value = torch.cat((value, value.new_full((value.shape[0], missing, *value.shape[2:]), fill)), 1)
        return value.unflatten(1, (-1, size))

    with torch.autocast(x.device.type, enabled=False):
        x, delta, a, b, c, state = _wide(x, delta, a, b, c, state)
        stays = None if first is None else cut((~first).to(x.dtype), 1.0)
        given = (*(cut(value) for value in (x, delta)), a, *(cut(value) for value in (b, c)), state, stays)
        if torch.is_grad_enabled() and any(value.requires_grad for value in given[:6]):
            y, state, _ = _Scan.apply(*given)
        else:
            y, state, _ = _forward(*given)
    return y.flatten(1, 2)[:, :t], state


def chunk_size(t: int, batch: int = 1) -> int:
    """Tokens of a chunk: as many as there are chunks in all rows together."""
    return min(math.ceil(math.sqrt(t * batch)), t)


def steps(t: int) -> int:
    """How many computations wait for the one before: through a chunk, over all chunks, and through a chunk."""
    return 1 if t == 1 else 2 * chunk_size(t) + math.ceil(t / chunk_size(t))


def scan_flops(t: int, kept: int) -> int:
    """Of t tokens and `kept` numbers of all channels together, token after token: two each for Δ A, x B, the step and
    the reading, one for the exponential."""
    return 9 * t * kept


def weights(
    delta: Tensor, a: Tensor, b: Tensor, c: Tensor, first: Tensor | None = None, rows: Tensor | None = None
) -> Tensor:
    """What token t takes from the input x of token s, Σ_n C_t exp(A (Δ_{s+1} + … + Δ_t)) B_s: `b f t s`, 0 after t and
    in other documents. rows: only these t."""
    delta, a, b, c = _wide(delta, a, b, c)
    places = torch.arange(delta.shape[1], device=delta.device)
    rows = places if rows is None else rows
    open_ = (rows[:, None] >= places)[None]
    between = torch.where(open_[:, None], delta.mT[:, :, None], 0.0).roll(-1, -1)  # at s the step after s
    between[..., -1] = 0.0
    between = between.flip(-1).cumsum(-1).flip(-1)
    if first is not None:
        document = first.long().cumsum(1)
        open_ = open_ & (document[:, rows, None] == document[:, None, :])
    total = torch.zeros_like(between)
    for n in range(a.shape[1]):
        decay = (between * a[:, n, None, None]).exp_()
        total.addcmul_(decay, c[:, None, rows, n, None] * b[:, None, None, :, n])
    return total.masked_fill_(~open_[:, None], 0.0)


def _wide(*values: Tensor) -> tuple[Tensor, ...]:
    return tuple(value.to(torch.promote_types(value.dtype, torch.float32)) for value in values)


# ---------------------------------------------------------------- in chunks: everything below is `b k i …` per token,
# and `b k n f` per state, so that the longest axis is the innermost one


def _blocks(x: Tensor, a: Tensor) -> list[slice]:
    """The channels in blocks of about equal width."""
    batch, chunks, _, channels = x.shape
    most = max(NUMBERS // (batch * chunks * a.shape[1]), CHANNELS)
    each = -(-channels // -(-channels // most))
    return [slice(i, min(i + each, channels)) for i in range(0, channels, each)]


class _Block:
    """One block of channels: what the places i of all chunks have, ready to be multiplied with states `b k n f`."""

    def __init__(self, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, stays: Tensor | None):
        self.rate = a.mT.contiguous() * LOG2_E
        self.size, self.total = x.shape[2], delta.sum(2)[:, :, None]
        self.x, self.delta, self.c = (value[..., None, :].unbind(2) for value in (x, delta, c))
        self.b = b[..., None].unbind(2)
        self.stays = stays

    def decay(self, i: int) -> Tensor:
        """exp(Δ_i A), 0 where a document begins."""
        decay = (self.delta[i] * self.rate).exp2_()
        return decay if self.stays is None else decay * self.stays[:, :, i, None, None]

    def whole(self) -> Tensor:
        """The product of all decays of a chunk."""
        decay = (self.total * self.rate).exp2_()
        return decay if self.stays is None else decay * self.stays.prod(2)[..., None, None]


def _forward(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, stays: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(y `b k i f`, the last state `b f n`, the states in which the chunks begin `b k n f`)."""
    ys, lasts, begins = [], [], []
    for some in _blocks(x, a):
        block, line, y = _Block(x[..., some], delta[..., some], a[some], b, c, stays), [state[:, some].mT], []
        whole = block.whole()
        h = torch.zeros_like(whole)
        for i in range(block.size if x.shape[1] > 1 else 0):
            h.mul_(block.decay(i)).addcmul_(block.x[i], block.b[i])
        for k in range(x.shape[1] - 1):
            line.append(torch.addcmul(h[:, k], whole[:, k], line[-1]))
        begin = torch.stack(line, 1)
        h = begin.clone()
        for i in range(block.size):
            h.mul_(block.decay(i)).addcmul_(block.x[i], block.b[i])
            y.append(block.c[i] @ h)
        ys.append(torch.cat(y, 2))
        lasts.append(h[:, -1].mT)
        begins.append(begin)
    return torch.cat(ys, -1), torch.cat(lasts, 1), torch.cat(begins, -1)


class _Scan(torch.autograd.Function):
    """The scan with its way back, for which PyTorch would keep some six numbers for each of b · t · f · n."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, delta, a, b, c, state, stays):
        return _forward(x, delta, a, b, c, state, stays)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*inputs, output[2])

    @staticmethod
    def backward(ctx, grad_y, grad_state, _):
        """With g_t the gradient of h_t: g_t = C_t ȳ_t + exp(Δ_{t+1} A) ⊙ g_{t+1}, again a scan, from the end."""
        x, delta, a, b, c, state, stays, begin = ctx.saved_tensors
        parts, twice = [], torch.is_grad_enabled()  # with create_graph=True, for second derivatives
        with torch.autocast(x.device.type, enabled=False):
            for some in _blocks(x, a):
                block = _Block(x[..., some], delta[..., some], a[some], b, c, stays)
                # `narrow`: PyTorch's older batching (jacobian(vectorize=True)) has no slice that takes everything.
                place = some.start, some.stop - some.start
                grads = grad_y.narrow(-1, *place), grad_state.narrow(1, *place).mT
                start = _begins(block, state[:, some].mT) if twice else begin[..., some]
                parts.append(_backward(block, a[some].mT, start, *grads))
        dx, ddelta, da, db, dc, dstate = zip(*parts, strict=True)
        return torch.cat(dx, -1), torch.cat(ddelta, -1), torch.cat(da), sum(db), sum(dc), torch.cat(dstate, 1), None


def _begins(block: _Block, state: Tensor) -> Tensor:
    """The states in which the chunks begin, as in `_forward` but with their derivatives; state `b n f`."""
    whole, line = block.whole(), [state]
    h = torch.zeros_like(whole)
    for i in range(block.size):
        h = torch.addcmul(h * block.decay(i), block.x[i], block.b[i])
    for k in range(whole.shape[1] - 1):
        line.append(torch.addcmul(h[:, k], whole[:, k], line[-1]))
    return torch.stack(line, 1)


def _backward(block: _Block, a: Tensor, begin: Tensor, grad_y: Tensor, grad_state: Tensor) -> tuple[Tensor, ...]:
    """The gradients of x, delta, a, b, c and the state before."""
    out, backwards = grad_y.unsqueeze(-2).unbind(2), range(block.size - 1, -1, -1)
    h, came, dc = begin, [], []  # came: exp(Δ_i A) ⊙ h_{i-1}
    for i in range(block.size):
        came.append(h * block.decay(i))
        h = torch.addcmul(came[i], block.x[i], block.b[i])
        dc.append((h @ out[i].mT)[..., 0])
    whole, line = block.whole(), [grad_state]
    back = torch.zeros_like(whole)  # what a chunk by itself sends to the state before it
    for i in backwards:
        back = (back + out[i] * block.c[i].mT) * block.decay(i)
    for k in range(begin.shape[1] - 1, -1, -1):
        line.append(back[:, k] + whole[:, k] * line[-1])
    g = torch.stack(line[-2::-1], 1)
    dx, ddelta, db, da = [], [], [], torch.zeros_like(whole)
    for i in backwards:
        g = g + out[i] * block.c[i].mT
        dx.append((block.b[i].mT @ g)[:, :, 0])
        db.append((g @ block.x[i].mT)[..., 0])
        turned = g * came[i]
        ddelta.append((turned * a).sum(2))
        da = da + turned * block.delta[i]
        g = g * block.decay(i)
    dx, ddelta, db = (torch.stack(value[::-1], 2) for value in (dx, ddelta, db))
    return dx, ddelta, da.sum((0, 1)).mT, db, torch.stack(dc, 2), line[-1].mT
