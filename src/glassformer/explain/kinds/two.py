"""two: the same word in two texts, and where its vectors part."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import ClassVar

import torch

from ...data.display import Cell
from ...errors import InputError
from ...trace import Trace
from ..contexts import standing
from ..explainer import Explainer, Limit, Report, Settings, line, number, numbers, of_text
from ..explanation import Check, Explanation, Line, Said, Series, Table
from .journey import called, distances, keeps_width, stations, way


class TwoSpec(Settings, frozen=True, tag="two"):
    """second: the other text. word: what both have in common, "" for the longest run of tokens that they share behind
    what both begin with, the later of two (of characters where they share no token); at and second_at: which of its
    occurrences in either text, from 0."""

    second: str = ""
    word: str = ""
    at: int = 0
    second_at: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {"at": Limit(), "second_at": Limit()}


Places = list[list[int]]  # the tokens of each occurrence


def made(trace: Trace, settings: TwoSpec, report: Report) -> Explanation:
    """Figures "distance" and "cosine" between the word's two vectors, "journeys", how far each has gone, and
    "occurrences", where the word stands: text (0 or 1), occurrence, first and last token, whether it is the chosen."""
    if not settings.second:
        raise InputError("second: the other text is empty; give one that has a word in common with this one")
    other = trace.loaded.trace(settings.second, limit_bytes=trace.limit_bytes, edits=trace.edits)
    texts = (trace, other)
    word, places = _common(texts) if not settings.word else _given(texts, settings.word)
    chosen = [
        _chosen(name, found, at)
        for name, found, at in zip(("at", "second_at"), places, (settings.at, settings.second_at), strict=True)
    ]
    names = stations(trace, trace.stacks[-1])
    one, two = (way(text, names, [found])[:, 0] for text, found in zip(texts, chosen, strict=True))
    relative = 2 * (one - two).norm(dim=-1) / (one.norm(dim=-1) + two.norm(dim=-1)).clamp(min=1e-30)

    def series(name: str, title: Said, unit: Said, *lines: Line) -> Series:
        return Series(name, title, tuple(map(called, names)), AFTER, unit, lines)

    label, cosine = Said(word, word), torch.cosine_similarity(one, two, dim=-1)
    gone = [Line(Said(t.text, t.text), numbers(distances(v))) for t, v in zip(texts, (one, two), strict=True)]
    spots = [(i, k, spot) for i, found in enumerate(places) for k, spot in enumerate(found)]
    rows = [[i, k, spot[0], spot[-1], int(spot == chosen[i])] for i, k, spot in spots]
    figures = (
        series("distance", DISTANCE, Said("relative", "상대 거리"), Line(label, numbers(relative))),
        series("cosine", COSINE, Said("cosine", "코사인"), Line(label, numbers(cosine))),
        series("journeys", JOURNEYS, Said("of ‖e‖", "‖e‖에 대한 비율"), *gone),
        Table("occurrences", OCCURRENCES, COLUMNS, rows),
    )
    ids = [[int(text.stacks[-1].tokens[0, i]) for i in spot] for text, spot in zip(texts, chosen, strict=True)]
    checks = (Check("fixed", FIXED, number(relative[0].item()), bool(relative[0] == 0) if ids[0] == ids[1] else None),)
    return Explanation("two", TITLE, CLAIM, figures, checks, line("two", settings))


def _chosen(name: str, found: Places, at: int) -> list[int]:
    if at >= len(found):
        raise InputError(f"{name}: there is no occurrence {at}; there are {len(found)} (0 to {len(found) - 1})")
    return found[at]


def _common(texts: tuple[Trace, Trace]) -> tuple[str, tuple[Places, Places]]:
    """The longest run of tokens, in characters, that both texts have, the later of two, and every place where it
    stands; one that begins both texts, or follows the same beginning, only where there is no other: there its contexts
    do not differ yet."""
    ids = [text.stacks[-1].tokens[0].tolist() for text in texts]
    cells: list[Cell] = texts[0].cells("token")
    sizes = [len(cell.source.strip()) if cell.source else -1 for cell in cells]  # no special token
    prefix = next((i for i, (one, two) in enumerate(zip(*ids, strict=False)) if one != two), min(map(len, ids)))
    best = _longest(ids, sizes, prefix) or _longest(ids, sizes, 0)
    if best is None:
        return _given(texts, _characters(texts[0].text, texts[1].text))
    run = ids[0][best[0] : best[1]]
    spots = [_standing(run, one) for one in ids]
    return texts[0].text[cells[best[0]].start : cells[best[1] - 1].end].strip(), (spots[0], spots[1])


def _longest(ids: list[list[int]], sizes: list[int], prefix: int) -> tuple[int, int] | None:
    """Where the longest common run is in the first text, [first, last); none that first stands in both within the same
    `prefix` tokens."""
    best, size = None, 1
    runs = [0] * (len(ids[1]) + 1)  # how long the run is that ends at this place and the one before in the other text
    for i, one in enumerate(ids[0]):
        new = [runs[j] + 1 if one == two and sizes[i] >= 0 else 0 for j, two in enumerate(ids[1])]
        if i < min(prefix, len(new)):
            new[i] = 0
        runs = [0, *new]
        k = max(runs)
        first, found = i - k + 1, sum(sizes[i - k + 1 : i + 1])
        if k and found >= size and not _standing(ids[0][first : i + 1], ids[0][:prefix]):
            best, size = (first, i + 1), found
    return best


def _characters(one: str, two: str) -> str:
    """The longest run of characters in both, without the blanks around it."""
    found = SequenceMatcher(None, one, two, autojunk=False).find_longest_match()
    word = one[found.a : found.a + found.size].strip()
    if not word:
        raise InputError("second: the two texts have nothing in common; give texts with a common word")
    return word


def _standing(run: list[int], ids: list[int]) -> Places:
    return [list(range(i, i + len(run))) for i in range(len(ids) - len(run) + 1) if ids[i : i + len(run)] == run]


def _given(texts: tuple[Trace, Trace], word: str) -> tuple[str, tuple[Places, Places]]:
    """Where a word stands in both: the tokens that hold some of it."""
    spots = [standing(text, word) for text in texts]
    for text, found in zip(texts, spots, strict=True):
        if not found:
            raise InputError(f"word: {word!r} is not in {text.text!r}; give a word that both texts have")
    return word, (spots[0], spots[1])


AFTER = Said("after", "지난 곳")
TITLE = Said("One word in two contexts", "두 문맥 속의 같은 단어")
DISTANCE = Said("How far apart the word's two vectors are", "단어의 두 벡터가 떨어진 거리")
COSINE = Said("The cosine between them", "두 벡터 사이의 코사인")
JOURNEYS = Said("How far each has left the fixed vector", "각 벡터가 고정된 벡터에서 떠나온 거리")
OCCURRENCES = Said("Where the word stands", "단어가 있는 자리")
COLUMNS = (
    Said("text", "텍스트"),
    Said("occurrence", "몇 번째"),
    Said("first token", "첫 토큰"),
    Said("last token", "마지막 토큰"),
    Said("chosen", "선택"),
)
CLAIM = Said(
    "2‖a_l − b_l‖ / (‖a_l‖ + ‖b_l‖) and cos(a_l, b_l): a_l and b_l are the vectors of the same word in the two "
    "texts behind block l. From the table both get the same vector; what parts them is their context (and their "
    "position).",
    "2‖a_l − b_l‖ / (‖a_l‖ + ‖b_l‖)와 cos(a_l, b_l): a_l과 b_l은 두 텍스트에서 같은 단어가 블록 l을 지난 뒤의 "
    "벡터입니다. 표에서 꺼낸 벡터는 같으며, 둘을 갈라놓는 것은 문맥(과 위치)입니다.",
)
FIXED = Said(
    "Distance of the two fixed vectors: 0 where the word is the same tokens in both, since the table knows no context",
    "고정된 두 벡터의 거리(두 텍스트에서 같은 토큰이면 0, 임베딩 표에는 문맥이 없으므로)",
)


def two_texts(trace: Trace) -> bool:
    """Whether vectors of a word can be compared between texts: of one stack of one width, with a tokenizer."""
    return of_text(trace) and len(trace.stacks) == 1 and keeps_width(trace) and trace.loaded.tokenizer is not None


TWO = Explainer("two", TITLE, TwoSpec, made, two_texts, ("fixed",))
