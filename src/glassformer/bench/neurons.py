"""One neuron against all of them: who tells a property of Hangul tokens that the model was never told?

    python -m glassformer.bench.neurons TEXT.txt … [--model small] [--most 600]

Two properties, by spelling: that a token is a particle or ends in one (을, 를, 은, 는, 이, 가, 과, 와 at the end of a
word, behind a syllable with a final consonant or without one, as each of them wants it), and that its last syllable has
a final consonant, which none of its bytes says by itself. For each layer of the model, from the hidden layer of its
MLP: the best single neuron with its best threshold, and a linear probe on all neurons (explain.probing), both learnt on
three lines of four and measured on the fourth, by balanced accuracy (chance 0.5). Control: a probe whose labels are
drawn for each kind of token (Hewitt and Liang 2019), so that it has learnt by heart what it knows. A second measure
holds back a quarter of the kinds of token instead, about which nothing can be learnt by heart; of particles there are
so few kinds that it hangs on which ones.

Leaves with status 1 where in some layer the probe tells less than 0.05 more than the control, or, on lines that are
held back, than the best neuron.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..explain.probing import Told, tell
from ..explain.quantity import exact

HELD = 4  # of so many lines, or kinds of token, the last is what is told
MARGIN = 0.05
PARTICLES = {"을": True, "은": True, "이": True, "과": True, "를": False, "는": False, "가": False, "와": False}


@dataclass(frozen=True)
class Tokens:
    """The Hangul tokens of some lines: their ids `n`, numbers of their lines `n`, of each property which have it, and
    of each layer its neurons `n f`, in fp64."""

    ids: Tensor
    lines: Tensor
    has: dict[str, Tensor]
    neurons: list[Tensor]


def final(syllable: str) -> bool:
    """Whether a Hangul syllable has a final consonant, one of the 27 behind none."""
    return (ord(syllable) - 0xAC00) % 28 != 0


def ends_in_particle(text: str, end: int) -> bool:
    """Whether what ends at a place of a text is a particle at the end of a word, by its spelling."""
    if end < 2 or text[end - 1] not in PARTICLES or re.match("[가-힣]", text[end : end + 1]):
        return False
    return bool(re.fullmatch("[가-힣]", text[end - 2])) and final(text[end - 2]) == PARTICLES[text[end - 1]]


PROPERTIES: dict[str, Callable[[str, int], bool]] = {
    "particle": ends_in_particle,
    "final": lambda text, end: final(text[end - 1]),
}


def tokens_of(model: Any, lines: Sequence[str]) -> Tokens:
    """The tokens of lines that are whole Hangul syllables; model: what `gf.load` returns."""
    ids, numbers, has, values = [], [], {name: [] for name in PROPERTIES}, []
    for k, line in enumerate(lines):
        trace = model.trace(line)
        own = trace.stacks[-1].tokens[0].tolist()
        cells = [cell for cell in trace.cells("token") if re.fullmatch("[가-힣]+", cell.text)]
        ids += [own[cell.tokens[0]] for cell in cells]
        numbers += [k] * len(cells)
        for name, holds in PROPERTIES.items():
            has[name] += [holds(trace.text, cell.end) for cell in cells]
        places = [cell.tokens[0] for cell in cells]
        blocks = range(len(trace.stacks[-1].model.blocks))
        values.append([exact(trace[f"blocks.{i}.channel.hidden"][0, places]) for i in blocks])
    truth = {name: torch.tensor(one) for name, one in has.items()}
    return Tokens(torch.tensor(ids), torch.tensor(numbers), truth, [*map(torch.cat, zip(*values, strict=True))])


def measured(tokens: Tokens, seed: int = 0) -> dict[tuple[str, int, str], Told]:
    """How well each property is told in each layer, of held lines and of held kinds of token."""
    kinds = tokens.ids.unique(return_inverse=True)[1]
    order = torch.randperm(int(kinds.max()) + 1, generator=torch.Generator().manual_seed(seed))
    held = {"lines": tokens.lines % HELD == HELD - 1, "kinds": order[kinds] % HELD == HELD - 1}
    return {
        (name, layer, of): tell(x, has, some, tokens.ids, seed)
        for name, has in tokens.has.items()
        for layer, x in enumerate(tokens.neurons)
        for of, some in held.items()
    }


def broken(found: dict[tuple[str, int, str], Told]) -> list[str]:
    """What does not hold, in words."""
    said = []
    for (name, layer, of), one in found.items():
        others = {"the control": one.control} | ({"the best neuron": one.neuron} if of == "lines" else {})
        for other, value in others.items():
            if not one.whole - value >= MARGIN:
                said.append(f"{name}, layer {layer}, held {of}: the probe {one.whole:.3f}, {other} {value:.3f}")
    return said


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.neurons", description=__doc__)
    parser.add_argument("texts", nargs="+", type=Path, help="files with Korean text, a sentence or a few in each line")
    parser.add_argument("--model", default="", help="a shipped name, a folder, or a pulled model")
    parser.add_argument("--most", type=int, default=600, help="lines, taken evenly from all")
    given: Any = parser.parse_args(arguments)
    from .. import load  # by its public name, which stands above this file

    model = load(given.model) if given.model else load()
    lines = [line.strip() for path in given.texts for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if re.search("[가-힣].* ", line)]
    tokens = tokens_of(model, [line[:200] for line in lines[:: max(1, len(lines) // given.most)]][: given.most])
    shares = ", ".join(f"{name} {has.double().mean():.3f}" for name, has in tokens.has.items())
    print(f"{len(tokens.ids):,} Hangul tokens of {len(tokens.ids.unique()):,} kinds; they have: {shares}")
    found = measured(tokens)
    for (name, layer, of), one in found.items():
        assert one.control is not None  # of so many tokens there are labels of both kinds
        print(
            f"{name:9} layer {layer} held {of:5} best neuron {one.neuron:.3f} (number {one.best}), probe "
            f"{one.whole:.3f}, control {one.control:.3f}, selectivity {one.whole - one.control:+.3f}"
        )
    wrong = broken(found)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
