"""What each layer would say if it were the last: the logit lens (nostalgebraist 2020) and the tuned lens (Belrose et
al. 2023), which first learns how to read each layer.

logit lens   head(norm(x_l))
tuned lens   head(norm(x_l + x_l A_l + b_l)), with A_l and b_l such that KL(final ‖ lens) is small on given texts

A layer's A and b start as the ridge regression of what is still to be added, x_L − x_l, on x_l; where that has little
to go by it stays near 0, the logit lens. A few steps of gradient on the divergence follow. The last layer's are 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import GlassformerError, InputError
from ..files import home, replacing
from ..rerun import Stack
from ..tap import Probe
from ..trace import Trace
from ..weights import read_safetensors, write_safetensors
from .explainer import Report, quiet
from .quantity import exact

RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the mean square of what is read; that which does best on tokens kept aside
ASIDE = 5  # of so many tokens one is kept aside to choose by
BATCH, RATE = 256, 3e-4  # tokens of a step; of Adam, on numbers of size 1
MOST_BYTES = 1 << 28  # of the vectors that are learnt from; what goes beyond is left out
LEAST = 64  # tokens that a lens can learn from


@dataclass(frozen=True)
class Lens:
    """How each layer is read. a `l d d` and b `l d`, by the number of blocks before it; tokens: of how many it learnt;
    both 0: the logit lens."""

    a: Tensor
    b: Tensor
    tokens: int

    def read(self, x: Tensor, block: int) -> Tensor:
        """What stands for the last vectors `… d`, of those before a block."""
        return x + (x.to(self.a) @ self.a[block] + self.b[block]).to(x)


def spoken(trace: Trace, x: Tensor, rows: Sequence[int]) -> Tensor:
    """Log probabilities `t v` in nats that the last norm and the head make of vectors `t d` in these places."""
    stack = trace.stacks[-1]
    late = tuple(edit for edit in stack.edits if stack.is_late(edit.name))
    call = replace(stack.call, probe=Probe(lambda name: False, late) if late else None, shared={})
    first = next(stack.model.parameters())
    with torch.no_grad():
        whole = torch.zeros(1, stack.length, x.shape[-1], dtype=first.dtype, device=first.device)
        whole[0, list(rows)] = x.to(whole)
        found = stack.model.finish(whole if late else whole[:, list(rows)], call)[0]
        return exact(found[list(rows)] if late else found).log_softmax(-1)


def entering(trace: Trace, block: int) -> Tensor:
    """The vectors `t d` before a block; behind the last one for the number of blocks."""
    return trace[trace.stacks[-1].entry(block)][0]


def divergence(of: Tensor, by: Tensor) -> Tensor:
    """KL(of ‖ by) of log probabilities `t v`, in nats, `t`."""
    return (of.exp() * (of - by)).nan_to_num(0.0).sum(-1)


# ---------------------------------------------------------------- learning to read


@torch.no_grad()
def trained(traces: Sequence[Trace], steps: int, seed: int = 0, report: Report = quiet) -> Lens:
    """The tuned lens of the model of these runs. steps: of gradient for each layer, behind the regression. The first
    token of a text, on which many models rest, has vectors of a size of its own and is left out.

    Of a layer the first of (nothing, regression, regression and gradient) is kept that diverges least on tokens kept
    aside, so that a lens which learns from too little is the logit lens.
    """
    stack, states = traces[0].stacks[-1], gathered(traces)
    blocks, dim = len(states) - 1, states.shape[-1]
    lens = Lens(torch.zeros(blocks + 1, dim, dim), torch.zeros(blocks + 1, dim), states.shape[1])
    aside = torch.arange(states.shape[1]) % ASIDE == ASIDE - 1
    for block in range(blocks):
        report(block, blocks)
        lens.a[block], lens.b[block] = _of_layer(stack, states[block], states[-1], aside, steps, seed)
    return lens


def gathered(traces: Sequence[Trace]) -> Tensor:
    """What enters each block and leaves the last, `l n d` in fp32: of every token of the runs but their first, as many
    as there is room for. Raises InputError where there are too few."""
    count = len(traces[0].stacks[-1].model.blocks) + 1
    dim = traces[0].stacks[-1].model.spec.dim
    room, parts = MOST_BYTES // (4 * count * dim), []
    for trace in traces:
        parts.append(torch.stack([entering(trace, block)[1:].float().cpu() for block in range(count)])[:, :room])
        room -= parts[-1].shape[1]
        if room <= 0:
            break
    found = torch.cat(parts, 1)
    if found.shape[1] < LEAST:
        raise InputError(f"texts: {found.shape[1]} tokens are too few for a lens; give texts with {LEAST} at least")
    return found


Map = tuple[Tensor, Tensor]


def _of_layer(stack: Stack, x: Tensor, last: Tensor, aside: Tensor, steps: int, seed: int) -> Map:
    """A and b of one layer."""
    rest, chosen = last - x, (aside, ~aside)
    kept, learnt = ((x[some], rest[some], last[some]) for some in chosen)
    start = min(
        (regression(learnt[0], learnt[1], ridge) for ridge in RIDGES),
        key=lambda one: (kept[0] @ one[0] + one[1] - kept[1]).square().mean().item(),
    )
    tried = [(torch.zeros_like(start[0]), torch.zeros_like(start[1])), start]
    tried += [descended(stack, learnt[0], learnt[2], start, steps, seed)] if steps else []
    costs = [_cost(stack, kept[0], kept[2], one).item() for one in tried]
    return tried[costs.index(min(costs))]


def regression(x: Tensor, y: Tensor, ridge: float) -> Map:
    """A `d d` and b `d` with the least Σ ‖x A + b − y‖² + λ ‖A‖² over vectors x and y `n d`; λ: ridge times n times the
    mean square of a number of x about its mean."""
    middle, to = x.mean(0), y.mean(0)
    away = (x - middle).double()
    square = away.mT @ away
    weight = ridge * square.diagonal().mean().clamp(min=1e-30)
    a = torch.linalg.solve(square + weight * torch.eye(len(square)).double(), away.mT @ (y - to).double()).float()
    return a, to - middle @ a


def descended(stack: Stack, x: Tensor, last: Tensor, start: Map, steps: int, seed: int) -> Map:
    """A and b after so many steps of Adam on the divergence. Both are learnt as numbers of size 1: as though each
    number of x, and each of what the layers end in, had that size."""
    size, whole = x.std().clamp(min=1e-30), last.std()
    change = [torch.zeros_like(one, requires_grad=True) for one in start]
    optimizer = torch.optim.Adam(change, RATE)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for step in range(steps):
            some = torch.randint(len(x), (min(BATCH, len(x)),), generator=generator)
            a, b = start[0] + change[0] * (whole / size), start[1] + change[1] * whole
            loss = _cost(stack, x[some], last[some], (a, b))
            for one, slope in zip(change, torch.autograd.grad(loss, change), strict=True):
                one.grad = slope
            for group in optimizer.param_groups:
                group["lr"] = RATE * (1 - step / steps)
            optimizer.step()
    return (start[0] + change[0] * (whole / size)).detach(), (start[1] + change[1] * whole).detach()


def _cost(stack: Stack, x: Tensor, last: Tensor, how: Map) -> Tensor:
    """The mean divergence of tokens."""
    parts = zip(x.split(BATCH), last.split(BATCH), strict=True)
    costs = [
        F.kl_div(_logs(stack, one @ how[0] + how[1] + one), _logs(stack, to), log_target=True, reduction="sum")
        for one, to in parts
    ]
    return torch.stack(costs).sum() / len(x)


def _logs(stack: Stack, x: Tensor) -> Tensor:
    """Log probabilities `n v` of vectors `n d`."""
    first = next(stack.model.parameters())
    call = replace(stack.call, probe=None, shared={})
    return stack.model.finish(x.to(first)[None], call)[0].float().log_softmax(-1)


# ---------------------------------------------------------------- what is kept


def alike(text: str) -> str:
    """A hash of a text, the same for texts that differ in blanks and capitals alone."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def kept(model: nn.Module, key: str, make: Callable[[], Lens], texts: Sequence[str]) -> Lens:
    """The lens of a model by what it learns from, out of our own folder; where it is not there it is made, and kept as
    far as that folder can be written to. texts: `alike` of those that it learns from."""
    path = home() / "lenses" / f"{fingerprint(model)}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.safetensors"
    try:
        return _stored(path)
    except (GlassformerError, OSError, KeyError, ValueError):  # not there, or not whole
        lens = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {"a": lens.a, "b": lens.b}
        with replacing(path) as beside:
            shapes = {name: (one.dtype, tuple(one.shape)) for name, one in values.items()}
            about = {"tokens": str(lens.tokens), "texts": " ".join(texts)}
            write_safetensors(beside, shapes, values.__getitem__, about)
    except (GlassformerError, OSError):  # a full disk, a user without a home
        pass
    return lens


def last_kept(model: nn.Module, own: Collection[str]) -> Lens | None:
    """The lens of a model that was kept last, of those that have learnt from none of some texts (`alike`); None where
    there is none."""
    paths = (home() / "lenses").glob(f"{fingerprint(model)}-*.safetensors")
    for path in sorted(paths, key=lambda one: one.stat().st_mtime, reverse=True):
        values, about = read_safetensors(path)
        if "texts" in about and not set(own) & set(about["texts"].split()):  # one that does not say may have
            return _lens(values, about)
    return None


def _stored(path: Path) -> Lens:
    return _lens(*read_safetensors(path))


def _lens(values: Mapping[str, Any], about: Mapping[str, str]) -> Lens:
    return Lens(values["a"], values["b"], int(about["tokens"]))


def fingerprint(model: nn.Module) -> str:
    """A hash of the weights, bit by bit, under their names."""
    found = hashlib.sha256()
    for name, value in model.named_parameters():
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(memoryview(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()))
    return found.hexdigest()[:16]
