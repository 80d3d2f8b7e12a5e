"""Which part each head plays, measured on random tokens that repeat themselves, where no meaning helps.

The scores are the published ones: the previous-token and the induction (prefix-matching) score of Olsson et al. 2022,
there on 25 random tokens repeated 4 times; the weight on equal tokens (duplicate-token heads, Wang et al. 2022); on the
first token (the sink of Xiao et al. 2023); and at a fixed distance (the positional heads of Voita et al. 2019). Beside
each stands what a head gets that weighs all it sees alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from ..trace import Trace
from .explainer import Report, block_of, length_of, quiet
from .looking import at_distances, headed, measured
from .sight import seen_of

if TYPE_CHECKING:
    from ..api import Loaded

SCORES = ("previous", "induction", "duplicate", "sink", "offset")
AT = {"previous": 2, "sink": 3, "duplicate": 5, "induction": 6}  # where `measured` has them
FARTHEST = 8  # tokens to either side that are looked at for a fixed distance
USUAL = 25  # tokens of a run
FEW = 1024  # tokens of a vocabulary of which all are looked at


@dataclass(frozen=True)
class Role:
    """The scores of one head: shares of its weight, by their name in SCORES, None where no token is of that kind.

    offset  the distance at which most of its weight lies, that of the token before and its own aside; its score is the
            share there
    chance  the scores of a head that weighs all it sees alike, at the same distance
    """

    layer: int
    head: int
    scores: dict[str, float | None]
    offset: int
    chance: dict[str, float | None]

    @property
    def best(self) -> str:
        """The name of the largest score."""
        return max(self.scores, key=lambda one: self.scores[one] or 0.0)


@dataclass(frozen=True)
class Runs:
    """Texts of random tokens that repeat themselves: the ids of each; how many stand before the first run; and how many
    a run has."""

    ids: list[list[int]]
    start: int
    length: int


def runs(loaded: Loaded, length: int | None, times: int, rows: int, seed: int, again: bool = True) -> Runs:
    """So many texts: a run of different random tokens, `times` over, behind what stands before every text.

    length: of the run; None: 25, or as many as the context and the vocabulary hold. again: False, for a control, where
    every run has tokens of its own. Raises InputError for a length that the model has no room for.
    """
    known = loaded.tokenizer
    start = [] if known is None else list(known.start)
    vocab = loaded.spec.vocab if known is None else min(loaded.spec.vocab, known.vocab_size)
    plain = [i for i in range(vocab) if _plain(loaded, i)] if vocab < FEW else None
    room = min((loaded.context - len(start) - len(loaded.closing)) // times, vocab if plain is None else len(plain))
    length = min(USUAL, room) if length is None else length
    if not 2 <= length <= room:
        raise InputError(
            f"length: a run of {length} random tokens, {times} times over, does not fit; this model has room for runs "
            f"of 2 to {room}"
        )
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(rows):
        drawn = [_drawn(loaded, length, vocab, plain, generator) for _ in range(1 if again else times)]
        found.append([*start, *itertools.chain(*(drawn * times)[:times]), *loaded.closing])
    return Runs(found, len(start), length)


def _plain(loaded: Loaded, token: int) -> bool:
    """Whether a token stands for some text, as none does that marks a place."""
    return loaded.tokenizer is None or bool(loaded.cells([token], continues=True)[0].source.strip())


def _drawn(loaded: Loaded, count: int, vocab: int, plain: list[int] | None, generator: torch.Generator) -> list[int]:
    """Different random tokens that stand for some text; of a large vocabulary only these are looked at."""
    if plain is not None:
        return [plain[i] for i in torch.randperm(len(plain), generator=generator)[:count].tolist()]
    order = torch.randperm(vocab, generator=generator).tolist()
    return list(itertools.islice((token for token in order if _plain(loaded, token)), count))


def roles(traces: Sequence[Trace], report: Report = quiet) -> list[Role]:
    """The scores of every head that has weights of its own, the mean over several runs."""
    stack = traces[0].stacks[-1]
    names = [headed(traces[0], stack, i) for i in range(len(stack.model.blocks))]
    found = []
    for i, name in enumerate(names):
        if name:
            report(i, len(names))
            found += _of_layer(traces, i, name)
    return found


def _of_layer(traces: Sequence[Trace], layer: int, name: str) -> list[Role]:
    both: list[list[Tensor]] = [[], []]  # of the heads, and of one that weighs all alike: `h score` and `h distance`
    for trace in traces:
        stack = trace.stacks[-1]
        sees = seen_of(block_of(stack, layer).mixer, length_of(stack))
        for found, alike in zip(both, (False, True), strict=True):
            shares = [
                [math.nan if x is None else x for x in row] for row in measured(trace, stack, name, sees, alike=alike)
            ]
            near = at_distances(trace, name, sees, FARTHEST, alike)
            found.append(torch.cat((torch.tensor(shares, dtype=torch.float64), near), 1))
    heads, [even] = (torch.stack(found).mean(0) for found in both)
    far = heads[:, 7:].nan_to_num(-1.0)
    far[:, FARTHEST - 1 : FARTHEST + 1] = -1.0  # the token before, and its own, have names of theirs
    at = far.argmax(1).tolist()
    return [
        Role(layer, h, _scores(row, k), k - FARTHEST, _scores(even, k))
        for h, (row, k) in enumerate(zip(heads, at, strict=True))
    ]


def _scores(row: Tensor, k: int) -> dict[str, float | None]:
    places = AT | {"offset": 7 + k}
    return {one: None if row[places[one]].isnan() else row[places[one]].item() for one in SCORES}
