"""S4D: a linear state-space layer that is the same for every token (Gu, Gupta, Goel & Ré 2022).

    h'(t) = A h(t) + u(t)        y(t) = 2 Re(C h(t)) + D u(t)                              (equation 1, A diagonal)

for each feature by itself, with n/2 complex numbers h that stand for n, as their conjugates need not be kept. With u
held over a step Δ (zero-order hold) it is a recurrence of tokens, and since nothing in it depends on them also one long
convolution with the kernel K_j = 2 Re(C exp(ΔA)^j B̄):

recurrent  token after token
convolved  a whole text by the fast Fourier transform
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..nn.init import InitSpec, Linear
from ..spec import Spec, check_least
from ..state import State
from ..tap import Card
from .base import Cost, TokenMixer
from .mamba import check_deltas, nothing_kept
from .window import edges


class S4DSpec(Spec, frozen=True, tag="s4d"):
    """The diagonal linear state-space layer (S4D).

    state                 numbers n that each feature keeps, two for each complex one
    start                 how A begins: "lin" -1/2 + πik, as frequencies evenly apart; "inv" -1/2 + i n/π (n/(2k+1) - 1)
    delta_min, delta_max  between which the step sizes Δ start, evenly in their logarithm
    """

    state: int = 64
    start: Literal["lin", "inv"] = "lin"
    delta_min: float = 0.001
    delta_max: float = 0.1

    def __post_init__(self) -> None:
        check_least(self, 2, "state")
        check_deltas(self)
        if self.state % 2:
            raise SettingError(f"state: {self.state} is odd; use an even number, two for each complex one")


@dataclass(eq=False)
class S4DState(State):
    """The state `b d n` of each feature, fp32 at least: the real parts of its complex numbers, then the imaginary ones;
    and the document `b` of the newest token, as `window.edges` has it."""

    state: Tensor
    document: Tensor


@dataclass(frozen=True, eq=False)
class System:
    """One step of the recurrence h ← exp(ΔA) h + B̄ u, y = 2 Re(C h), all complex `d n/2`."""

    rate: Tensor  # ΔA
    keep: Tensor  # exp(ΔA)
    write: Tensor  # B̄ = (exp(ΔA) - 1) / A
    read: Tensor  # 2 C


# ---------------------------------------------------------------- the two forms


def recurrent(
    u: Tensor, system: System, state: Tensor, valid: Tensor | None = None, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """u `b t d` token after token, in real numbers: (y `b t d` without D, the state `b d n` after the last one)."""
    decay, turn = (torch.cat((part, part), -1) for part in (system.keep.real, system.keep.imag))
    write, read = as_real(system.write), as_real(system.read.conj())
    y = []
    for i in range(u.shape[1]):
        if first is not None:
            state = torch.where(first[:, i, None, None], 0.0, state)
        real, imag = state.chunk(2, -1)
        after = decay * state + turn * torch.cat((-imag, real), -1) + write * u[:, i, :, None]
        state = after if valid is None else torch.where(valid[:, i, None, None], after, state)
        y.append((state * read).sum(-1))
    return torch.stack(y, 1), state


def convolved(u: Tensor, system: System, state: Tensor | None, keeping: bool) -> tuple[Tensor, Tensor | None]:
    """The same for a text without gaps, as a convolution; state None: nothing before. keeping: whether the state after
    it is worked out as well."""
    t, x = u.shape[1], u.mT
    places, blocks = _powers(system, t)
    spectrum = torch.fft.rfft(x, 2 * t) * torch.fft.rfft(kernel(system, t), 2 * t)
    y, after = torch.fft.irfft(spectrum, 2 * t)[..., :t], None
    if state is not None:
        seen = system.read * system.keep * as_complex(state)
        y = y + ((blocks * seen[:, :, None]) @ places).real.flatten(2)[..., :t]
    if keeping:
        size = places.shape[-1]
        latest_first = F.pad(x.flip(-1), (0, -t % size)).unflatten(-1, (-1, size)).to(places.dtype)
        after = system.write * ((latest_first @ places.mT) * blocks).sum(2)
        after = after if state is None else after + (t * system.rate).exp() * as_complex(state)
    return y.mT, None if after is None else as_real(after)


def kernel(system: System, t: int) -> Tensor:
    """2 Re(C exp(ΔA)^j B̄) for j = 0 … t-1, `d t`."""
    places, blocks = _powers(system, t)
    return ((blocks * (system.read * system.write)[:, None]) @ places).real.flatten(1)[:, :t]


def _powers(system: System, t: int) -> tuple[Tensor, Tensor]:
    """exp(ΔA)^i for the √t places i of a block, `d n/2 i`, and exp(ΔA)^(size·k) for its √t blocks k, `d k n/2`: the
    power of any place is a product of both, so that t of them need 2√t exponentials."""
    size = math.ceil(math.sqrt(t))
    number = torch.arange(size, device=system.rate.device)
    places = (system.rate[..., None] * number).exp()
    return places, (system.rate[:, None] * (size * number[: -(-t // size), None])).exp()


def as_real(x: Tensor) -> Tensor:
    """Complex `… n/2` to real `… n`."""
    return torch.cat((x.real, x.imag), -1)


def as_complex(x: Tensor) -> Tensor:
    """Real `… n` to complex `… n/2`."""
    return torch.complex(*x.chunk(2, -1))


# ---------------------------------------------------------------- the layer


class S4D(TokenMixer):
    """The layer of S4DSpec, `b t d` to `b t d`: every feature through its system, GELU, and a gated linear map (GLU)
    that mixes the features."""

    symbol, called = "SSM", ("the state-space layer", "상태 공간 층")
    written_out = in_parts = ("weights",)
    writes_residual = ("out",)
    cards = {
        "weights": Card(
            "M_ts",
            "K_{t−s} = 2 Re(C exp(ΔA)^{t−s} B̄)",
            "How much each feature of this token takes from each earlier one, whatever the tokens are.",
            "이 토큰의 각 특징이 앞의 각 토큰에서 가져오는 양이며, 토큰의 내용과 관계없이 정해져 있습니다.",
            ("S4", "S8", "S30"),
        ),
        "y": Card(
            "y_t",
            "Σ_j K_j u_{t−j} + D u_t",
            "What is read from the state, together with the token itself.",
            "상태에서 읽은 값에 토큰 자신의 값을 더한 것입니다.",
            ("S8", "S30"),
        ),
        "gate": Card(
            "g_t",
            "σ(GELU(y_t) W_g + b_g)",
            "How far each feature is let through.",
            "특징마다 얼마나 통과시킬지 정하는 게이트입니다.",
            ("S30",),
        ),
        "state": Card(
            "h_n",
            "h_t = exp(ΔA) h_{t−1} + B̄ u_t",
            "The state after the last token, real parts before imaginary ones: all that is kept of the text.",
            "마지막 토큰 뒤의 상태를 실수부, 허수부 순서로 나타낸 것으로, 지금까지의 글에서 남겨 둔 전부입니다.",
            ("S8", "S30"),
        ),
        "out": Card(
            "out_t",
            "(GELU(y_t) W + b) ⊙ g_t",
            "What this layer adds to the token's vector.",
            "이 층이 토큰 벡터에 더하는 값입니다.",
            ("S30",),
        ),
    }

    def __init__(self, spec: S4DSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.dim = spec, dim
        shapes = {
            "log_delta": (dim,),
            "a_log": (dim, spec.state // 2),  # Re A = -exp(a_log)
            "a_imag": (dim, spec.state // 2),
            "c": (dim, spec.state // 2, 2),
            "skip": (dim,),  # D
        }
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.full(shape, float("nan"))))
        self.out = Linear(dim, 2 * dim)

    @torch.no_grad()
    def draw(self, init: InitSpec) -> None:
        """As published: A as `start` says, C and D normal, Δ in its range."""
        n = self.spec.state
        number = torch.arange(n // 2, device=self.a_imag.device)
        self.a_imag.copy_(math.pi * number if self.spec.start == "lin" else n / math.pi * (n / (2 * number + 1) - 1))
        self.a_log.fill_(math.log(0.5))
        self.c.normal_(std=0.5**0.5)  # of a complex number, so that its square is 1 on average
        self.skip.normal_()
        self.log_delta.uniform_(math.log(self.spec.delta_min), math.log(self.spec.delta_max))

    def system(self) -> System:
        """The recurrence of the tokens, in fp32 at least."""
        wide = torch.promote_types(self.c.dtype, torch.float32)
        a = torch.complex(-self.a_log.to(wide).exp(), self.a_imag.to(wide))
        rate = a * self.log_delta.to(wide).exp()[:, None]
        return System(rate, rate.exp(), torch.expm1(rate) / a, 2 * torch.view_as_complex(self.c.to(wide)))

    def empty(self, batch: int, room: int, call: Call) -> S4DState:
        """An empty state."""
        state = nothing_kept(self.out.weight, batch, self.dim, self.spec.state)
        return S4DState(state, state.new_full((batch,), -1, dtype=torch.long))

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, the whole sequence."""
        if not call.plain or call.wants(self, "state"):
            return super().parallel(x, call)
        return self.finish(x, self.mix(x, None, None, None, call)[0], call)

    def step(self, x: Tensor, state: S4DState, call: Call) -> tuple[Tensor, S4DState]:
        """`b t d` after the past."""
        past = state.take()
        valid, first, document = edges(call, past.document)
        y, kept = self.mix(x, past.state, valid, first, call)
        return self.finish(x, y, call), S4DState(call.tap(self)("state", kept, "b d n"), document)

    def finish(self, x: Tensor, y: Tensor, call: Call) -> Tensor:
        """What was read `b t d` with the token itself, through GELU and GLU: of the asked rows, which y has already."""
        tap, x = call.tap(self), call.of_rows(x)
        y = tap("y", (y + self.skip * x).to(x.dtype), "b t d")
        value, gate = self.out(F.gelu(y)).chunk(2, -1)
        return tap("out", value * tap("gate", torch.sigmoid(gate), "b t d"), "b t d")

    def mix(
        self, x: Tensor, state: Tensor | None, valid: Tensor | None, first: Tensor | None, call: Call
    ) -> tuple[Tensor, Tensor | None]:
        """The systems without D: (y `b t d`, the state after it, None where none is asked for). A single token, or a
        text with gaps or several documents, goes token after token."""
        system = self.system()

        def run(u: Tensor) -> tuple[Tensor, Tensor | None]:
            if valid is None and u.shape[1] > 1:
                return convolved(u, system, state, state is not None)
            before = nothing_kept(u, len(u), self.dim, self.spec.state) if state is None else state
            return recurrent(u, system, before, valid, first)

        u = x.to(system.rate.real.dtype)
        y, kept = run(u)
        y = call.of_rows(y)
        if call.wants(self, "weights"):
            some = call.of_heads(kernel(system, u.shape[1]), 0)
            taken = call.tap(self)("weights", laid_out(some, len(u), valid, first, call.rows), "b d t s")
            y = (taken @ u.mT[..., None])[..., 0].mT
            y = y if state is None else y + call.of_rows(run(torch.zeros_like(u))[0])
        return y, kept

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """The output projection, and the recurrence: two for each multiplication, of which a number of the state has
        one with the decay, one with the rotation, one to be written and one to be read. The Fourier transform takes
        fewer for a text of more than some hundred tokens."""
        return Cost(
            self.out.flops(n),
            scan_flops=8 * n * self.dim * self.spec.state,
            state_bytes=self.dim * self.spec.state * max(number_bytes, 4) + 8,
        )


def laid_out(
    kernel: Tensor, batch: int, valid: Tensor | None, first: Tensor | None, rows: Tensor | None = None
) -> Tensor:
    """K_{t-s}, `d t` to `b d t s`: 0 after t, in other documents and where no token is, which is not counted either.
    rows: only these t."""
    places = torch.arange(kernel.shape[1], device=kernel.device)
    rows = places if rows is None else rows
    number = places[None] if valid is None else valid.long().cumsum(1) - 1
    distance = number[:, rows, None] - number[:, None, :]
    open_ = (rows[:, None] >= places)[None]
    if valid is not None:
        document = first.long().cumsum(1)
        open_ = open_ & (document[:, rows, None] == document[:, None, :]) & valid[:, rows, None] & valid[:, None, :]
    taken = torch.where(open_, kernel[:, distance.clamp(min=0)], 0.0).transpose(0, 1)
    return taken.expand(batch, -1, -1, -1)
