"""Causal tracing: where in the network the answer to a text can be given back (Meng et al. 2022, section 2.1).

The text is spoilt, by noise on the vectors of its subject or by another text's tokens, and the answer f with it. Then
the vector of one layer at one place is put back as it was in the clean run, and all behind it is worked out anew:

    effect of (layer l, place s) = f(spoilt, with the clean vector at (l, s)) − f(spoilt)

Every cell is a run, of which those of one layer are made together, from that layer on. To first order all cells follow
from one way back, ⟨∂f/∂x_ls, clean x_ls − spoilt x_ls⟩ (attribution patching, Nanda 2022); how well is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ..block import BlockState
from ..errors import InputError
from .answer import Answer
from .entry import tables
from .explainer import Report, quiet

Part = Literal["resid", "mixer", "channel"]
Way = Literal["exact", "gradient", "both"]
PIECES = 4  # of a text whose beginning is read once for the cells of a piece


@dataclass(frozen=True)
class Traced:
    """The effects of all cells, in the unit of f, in fp64.

    clean, spoilt   f of the text, and of the spoilt one (the mean of all draws)
    exact, gradient `l t`, the effects by running the model and to first order; None: not asked for. NaN in a layer that
                    does not have the part
    errors          `l t`, the standard error of the exact ones over the draws of noise; None: there was one draw
    layers          the layers, by number
    """

    clean: float
    spoilt: float
    exact: Tensor | None
    gradient: Tensor | None
    errors: Tensor | None
    layers: tuple[int, ...]


def spoilt_by_noise(answer: Answer, subject: list[int], noise: float, draws: int, seed: int) -> list[Tensor]:
    """Vectors `1 s d` of the text with Gaussian noise on its subject, of `noise` times the deviation of all numbers of
    the table; one for each draw."""
    if not subject:
        raise InputError("subject: it has no token; name a word of the text, or places as 3,7")
    deviation = torch.cat([one.flatten() for one in tables(answer.stack.model).values()]).std()
    drawn, made = torch.Generator().manual_seed(seed), []
    for _ in range(draws):
        x = answer.rows.clone()
        some = torch.randn(len(subject), x.shape[-1], generator=drawn)
        x[0, subject] += noise * deviation * some.to(x)
        made.append(x)
    return made


def traced(
    answer: Answer,
    spoilt: list[Tensor],
    *,
    part: Part = "resid",
    window: int = 1,
    way: Way = "exact",
    report: Report = quiet,
) -> Traced:
    """Causal tracing of an answer over all layers and places of the stack that reads the spoilt vectors.

    part    what is put back: the residual behind a block, or what its mixer or channel mixer gives
    window  so many layers together, around each (of mixer and channel; what is put back in the residual replaces all
            that layers below did)
    """
    if window != 1 and part == "resid":
        raise InputError("window: the residual holds what all layers below did; use window=1, or part=mixer, channel")
    names = _names(answer, part)
    entries = {i: answer.stack.entry(i) for i in range(len(answer.stack.model.blocks) + 1)}
    wanted = frozenset([*names.values(), *entries.values()])
    with torch.no_grad():
        clean = answer.recording(wanted)
        right = answer.of_rows(answer.rows, clean).item()
    exact, gradient, wrong = [], [], []
    for i, x in enumerate(spoilt):
        seen = answer.recording(wanted)
        with torch.enable_grad() if way != "exact" else torch.no_grad():
            f = answer.of_rows(x.clone().requires_grad_(way != "exact"), seen)
            if way != "exact":
                gradient.append(_first_order(f, clean.values, seen.values, names))
        wrong.append(f.item())
        if way != "gradient":
            told = _share(report, i, len(spoilt))
            runs = _Runs(answer, clean.values, seen.values, names, entries, window, wrong[-1])
            exact.append(runs.cells(told) - wrong[-1])
    errors = torch.stack(exact).std(0) / len(exact) ** 0.5 if len(exact) > 1 else None
    means = [torch.stack(some).mean(0) if some else None for some in (exact, gradient)]
    return Traced(right, sum(wrong) / len(wrong), *means, errors, tuple(range(len(entries) - 1)))


@torch.no_grad()
def put_back(answer: Answer, spoilt: Tensor, layer: int) -> float:
    """f of a spoilt text with the clean residual behind a layer put back at all places, which has to be that of the
    clean text."""
    name = answer.stack.entry(layer + 1)
    clean = answer.trace[name][:1]
    return answer.of_rows(spoilt, answer.changing({name: lambda value: clean.expand_as(value)})).item()


def restored(x: Tensor, clean: Tensor, places: Tensor) -> Tensor:
    """x `b t d` with the vectors of clean `1 t d` at the place of each row."""
    x = x.clone()
    x[torch.arange(len(x)), places] = clean[0, places].to(x)
    return x


def _names(answer: Answer, part: Part) -> dict[int, str]:
    """The tapped value of the part in each layer that has one."""
    known, found = answer.trace.names(), {}
    for i, block in enumerate(answer.stack.model.blocks):
        at = {
            "resid": f"{block.path}.resid_out",
            "mixer": f"{block.path}.mixer.out",
            "channel": f"{block.path}.channel.out",
        }
        if at[part] in known:
            found[i] = at[part]
    if not found:
        raise InputError(f"part: no layer of this model has a {part} whose output is added; use part=resid")
    return found


@dataclass(frozen=True)
class _Runs:
    """The values of the clean and of the spoilt run by name; names of the part in each layer that has one, entries of
    what enters each block and leaves the last, window as in `traced`, f of the spoilt text."""

    answer: Answer
    clean: Mapping[str, Tensor]
    spoilt: Mapping[str, Tensor]
    names: Mapping[int, str]
    entries: Mapping[int, str]
    window: int
    f: float

    def cells(self, report: Report) -> Tensor:
        """f `l t` with the clean part put back at each layer and place; where nothing was spoilt it is f itself. What
        stands before some places is read once for all of their runs, where the stack looks back only."""
        last, length = len(self.entries) - 1, self.clean[self.entries[0]].shape[1]
        found = torch.full((last, length), torch.nan, dtype=torch.float64)
        found[list(self.names)] = self.f
        end = self.answer.place + 1 if self.answer.streams else length  # nothing behind the answer's place moves it
        size = max(1, min(self.answer.at_once(), -(-end // PIECES) if self.answer.streams else length))
        for start in range(0, end, size):
            past = None
            if self.answer.streams and start:
                entering = [self.spoilt[self.entries[i]][:, :start].detach() for i in range(last)]
                past = self.answer.past(entering)
            for layer in self.names:
                report(start * last + layer * size, end * last)
                places = self._spoilt_at(layer)[start : min(start + size, end)].nonzero()[:, 0] + start
                if len(places):
                    found[layer, places] = self._put_back(layer, places, past, start)
        return found

    def _near(self, layer: int) -> list[int]:
        """The layers that are put back together."""
        near = range(layer - (self.window - 1) // 2, layer + self.window // 2 + 1)
        return [i for i in near if i in self.names]

    def _spoilt_at(self, layer: int) -> Tensor:
        """bool `t`: where what is put back differs from what is there."""
        names = [self.names[i] for i in self._near(layer)]
        return torch.stack([(self.clean[name] != self.spoilt[name]).any(-1)[0] for name in names]).any(0).cpu()

    def _put_back(self, layer: int, places: Tensor, past: Sequence[BlockState] | None, start: int) -> Tensor:
        """f with the part put back at each of some places, `k`; behind a past from `start` on."""
        answer, near = self.answer, self._near(layer)
        whole = self.names[layer] == self.entries[layer + 1]  # then no more than the blocks behind it need be run
        begin = 0 if answer.hands else layer + 1 if whole else near[0]
        x = self.spoilt[self.entries[begin]].detach().expand(len(places), -1, -1)
        x = restored(x, self.clean[self.entries[begin]], places) if whole and begin else x
        start = 0 if past is None else start
        clean = {self.names[i]: self.clean[self.names[i]][:, start:] for i in near}
        probe = answer.changing(
            {name: partial(restored, clean=own, places=places - start) for name, own in clean.items()}
        )
        if past is None:
            return answer.after(begin, x, probe).cpu().double()
        return answer.behind(past, begin, x[:, start : answer.place + 1], probe).cpu().double()


def _first_order(
    f: Tensor, clean: Mapping[str, Tensor], spoilt: Mapping[str, Tensor], names: Mapping[int, str]
) -> Tensor:
    """⟨∂f/∂x, clean x − spoilt x⟩ `l t`."""
    values = [spoilt[name] for name in names.values()]
    grads = torch.autograd.grad(f.sum(), values, allow_unused=True)
    found = torch.full((max(names) + 1, values[0].shape[1]), torch.nan, dtype=torch.float64)
    for (layer, name), value, grad in zip(names.items(), values, grads, strict=True):
        apart = (clean[name] - value).detach().cpu().double()[0]
        found[layer] = 0.0 if grad is None else (grad.cpu().double()[0] * apart).sum(-1)
    return found


def _share(report: Report, i: int, of: int) -> Report:
    """The report of one of several equal parts of the work."""
    return lambda done, all: report(i * all + done, of * all)
