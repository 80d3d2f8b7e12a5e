"""contexts: one word in many contexts: how alike its vectors stay, layer by layer, and a map of its senses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ...errors import InputError
from ...trace import Trace
from ..contexts import (
    anisotropy,
    explainable,
    explainable_by_chance,
    explained_along,
    grouped,
    principal,
    self_similarity,
    shuffled,
    standing,
    two_groups,
    unit,
)
from ..explainer import Explainer, Limit, Report, Settings, block_of, known, line, number, numbers
from ..explanation import Check, Explanation, HeatMap, Line, Point, Points, Said, Series
from ..texts import runs_of
from .journey import called, stations, way
from .two import AFTER, two_texts

if TYPE_CHECKING:
    from ...text_trace import TextTrace

MOST = 400  # occurrences
NEAR = 18  # characters of a context to either side
DRAWS = 100  # controls of a silhouette
WORDS = 400  # words whose vectors tell what any two have in common


class ContextsSpec(Settings, frozen=True, tag="contexts"):
    """texts: the other texts, a line each. word: whose contexts these are, "" for the word that stands in them most
    often. senses: what each text is about, with commas between, the run's own first ("coffee,sky,sky"); "" where two
    groups are to be found. layer: whose vectors are drawn (-1 the last). seed: of controls."""

    texts: str = ""
    word: str = ""
    senses: str = ""
    layer: int = -1
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {"seed": Limit(most=2**31)}


@dataclass(frozen=True)
class Context:
    """One occurrence: the number of its text, what is around it, its tokens, and its sense."""

    text: int
    around: str
    tokens: list[int]
    sense: str


def made(trace: TextTrace, settings: ContextsSpec, report: Report) -> Explanation:
    """Figures "likeness", "variance", "silhouette", "map", "pairs"; checks "fixed", "explainable", "silhouette",
    "chance"."""
    texts = list(runs_of(trace, settings.texts, own=True, report=report))
    word = settings.word or _frequent(texts)
    contexts = _contexts(texts, word, _senses(settings.senses, len(texts)))
    names = stations(trace, trace.stacks[-1])
    own = [[one.tokens for one in contexts if one.text == k] for k in range(len(texts))]
    vectors = torch.cat([way(text, names, spots) for text, spots in zip(texts, own, strict=True) if spots], 1)
    others, called_others = _others(texts, names, settings.seed)
    likeness, alike = _likeness(names, vectors, others, called_others)
    strange = torch.tensor([word.casefold() not in one for one in called_others])
    variance, beyond = _variance(names, vectors, others[:, strange], settings.seed)
    at = len(names) - len(trace.stacks[-1].model.blocks) + _layer(trace, settings.layer)
    given = _numbered([one.sense for one in contexts]) if settings.senses else None
    clusters, found = _clusters(names, vectors, given, settings.seed)
    groups = two_groups(unit(vectors[at])) if given is None else given
    called_as = [one.sense or str(k + 1) for one, k in zip(contexts, groups.tolist(), strict=True)]
    points = _map(word, vectors[at], contexts, called_as)
    figures = (likeness, variance, clusters, points, _pairs(vectors[at], contexts))
    same = len({tuple(_ids(texts[one.text], one)) for one in contexts}) == 1
    checks = (
        Check("fixed", FIXED, number(alike[0].item()), bool(abs(alike[0] - 1) < 1e-6) if same else None),
        Check("explainable", BEYOND, None if beyond[at] != beyond[at] else number(beyond[at].item())),
        Check("silhouette", SILHOUETTE, number(found[at][0])),
        Check("chance", CHANCE, number(found[at][1])),
    )
    return Explanation("contexts", TITLE, CLAIM, figures, checks, line("contexts", settings))


def _layer(trace: Trace, layer: int) -> int:
    block_of(trace.stacks[-1], layer)  # refuses one that there is not
    return layer % len(trace.stacks[-1].model.blocks)


def _ids(text: TextTrace, one: Context) -> list[int]:
    return text.stacks[-1].tokens[0][one.tokens].tolist()


def _words(text: TextTrace) -> list[tuple[str, list[int]]]:
    """The words of a text, and their tokens."""
    cells = ((cell.source.strip(), list(cell.tokens)) for cell in text.cells("word"))
    return [(word, tokens) for word, tokens in cells if any(map(str.isalnum, word))]


def _frequent(texts: list[TextTrace]) -> str:
    counts = Counter(word for text in texts for word, _ in _words(text))
    word, count = max(counts.items(), key=lambda one: (one[1], len(one[0])), default=("", 0))
    if count < 2:
        raise InputError("word: no word stands in these texts twice; give texts, a line each, with a word in common")
    return word


def _senses(senses: str, count: int) -> list[str]:
    found = [one.strip() for one in senses.split(",")] if senses else [""] * count
    if len(found) != count:
        raise InputError(f"senses: {len(found)} for {count} texts; give one for each, that of the run's own text first")
    if senses and (len(set(found)) < 2 or "" in found):
        raise InputError("senses: there must be two different ones at least, and none empty; or leave them out")
    return found


def _numbered(senses: list[str]) -> Tensor:
    known = sorted(set(senses))
    if len(known) < 2:
        raise InputError(f"senses: the word has one sense here, {known[0]}; give texts in which it has another")
    return torch.tensor([known.index(one) for one in senses])


def _contexts(texts: list[TextTrace], word: str, senses: list[str]) -> list[Context]:
    """Every occurrence of the word: as a word where it stands as one at least twice, else wherever its letters are; so
    too where it has a sense there alone, as 별 in 나라별 beside 밤하늘의 별."""
    whole = _occurring(texts, word, senses, True)
    enough = len(whole) > 1
    if enough and _of(whole) == set(senses):
        return whole
    found = _occurring(texts, word, senses, False)
    if enough and _of(whole) == _of(found):
        return whole
    if len(found) < 2:
        raise InputError(
            f"word: {word!r} stands in these texts {len(found)} times, and contexts are compared; give more texts"
        )
    return found


def _occurring(texts: list[TextTrace], word: str, senses: list[str], whole: bool) -> list[Context]:
    spots = [standing(text, word, whole) for text in texts]
    count = sum(map(len, spots))
    if count > MOST:
        raise InputError(f"word: {word!r} stands in these texts {count} times; give at most {MOST}")
    return [
        Context(k, around, tokens, senses[k])
        for k, (text, some) in enumerate(zip(texts, spots, strict=True))
        for around, tokens in zip(_around(text, some), some, strict=True)
    ]


def _of(contexts: list[Context]) -> set[str]:
    return {one.sense for one in contexts}


def _around(text: TextTrace, spots: list[list[int]]) -> list[str]:
    """The text around each occurrence, the word in brackets."""
    cells = {i: cell for cell in text.cells("token") for i in cell.tokens}
    found = []
    for spot in spots:
        start, end = cells[spot[0]].start, cells[spot[-1]].end
        start += len(text.text[start:end]) - len(text.text[start:end].lstrip())
        left, right = text.text[:start][-NEAR:], text.text[end:][:NEAR]
        found.append(f"{left}[{text.text[start:end]}]{right}".replace("\n", " ").strip())
    return found


def _others(texts: list[TextTrace], names: list[str], seed: int) -> tuple[Tensor, list[str]]:
    """The vectors `l m d` of words of all kinds in the same texts, and which words they are."""
    words, parts = list[str](), list[Tensor]()
    for k in torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist():
        some = _words(texts[k])[: WORDS - len(words)]
        words += [word.casefold() for word, _ in some]
        parts += [way(texts[k], names, [tokens for _, tokens in some])] if some else []
    return torch.cat(parts, 1), words


def _likeness(names: list[str], vectors: Tensor, others: Tensor, words: list[str]) -> tuple[Series, Tensor]:
    """How alike the word's vectors are, those of different words, and how far each is from its fixed vector."""
    alike = self_similarity(vectors)
    common = anisotropy(others, words)
    fixed = torch.cosine_similarity(vectors, vectors[:1], dim=-1).mean(1)
    lines = ((OWN, alike), (COMMON, common), (ADJUSTED, alike - common), (AGAINST, fixed))
    drawn = tuple(Line(said, known(one)) for said, one in lines)
    return Series("likeness", LIKENESS, tuple(map(called, names)), AFTER, COSINE, drawn), alike


def _variance(names: list[str], vectors: Tensor, others: Tensor, seed: int) -> tuple[Series, Tensor]:
    """How much of the word's vectors one fixed vector says, the best one and that of the table; and how much more the
    best one does than among as many vectors of other words, `l`."""
    own, chance = explainable(vectors), explainable_by_chance(others, vectors.shape[1], DRAWS, seed)
    fixed = explained_along(vectors, vectors[0].mean(0))
    mean, errors = chance.mean(0), known(chance.std(0))
    lines = (
        Line(BEST, numbers(own)),
        Line(COMMON_BEST, known(mean), None if None in errors else errors),
        Line(BEST_BEYOND, known(own - mean)),
        Line(OF_TABLE, numbers(fixed)),
    )
    return Series("variance", VARIANCE, tuple(map(called, names)), AFTER, SHARE, lines), own - mean


def _clusters(names: list[str], vectors: Tensor, given: Tensor | None, seed: int) -> tuple[Series, list[list[float]]]:
    """The silhouette behind every block beside its controls; and of each with the share of these that reach it."""
    found, means, deviations = list[list[float]](), list[float](), list[float]()
    for one in unit(vectors):
        controls = shuffled(one, given, DRAWS, seed)
        value = grouped(one, two_groups(one) if given is None else given)
        found.append([value, (controls >= value).double().mean().item()])
        means, deviations = [*means, controls.mean().item()], [*deviations, controls.std().item()]
    values = [number(one[0]) for one in found]
    lines = (Line(GIVEN if given is not None else FOUND, values), Line(CONTROL, means, deviations))
    return Series(
        "silhouette", SILHOUETTES, tuple(map(called, names)), AFTER, Said("silhouette", "실루엣"), lines
    ), found


def _map(word: str, vectors: Tensor, contexts: list[Context], senses: list[str]) -> Points:
    """Each occurrence at its first two principal components."""
    parts, shares = principal(unit(vectors))
    titles = [
        Said(f"{said.en} ({100 * share:.0f} %)", f"{said.ko}({100 * share:.0f}%)")
        for said, share in zip(PARTS, shares.tolist(), strict=False)
    ]
    points = tuple(
        Point(one.around, sense, *numbers(at[:2])) for one, sense, at in zip(contexts, senses, parts, strict=True)
    )
    return Points("map", Said(f"{MAP.en}: {word}", f"{MAP.ko}: {word}"), points, *titles)


def _pairs(vectors: Tensor, contexts: list[Context]) -> HeatMap:
    """The cosine between each two contexts."""
    ways, names = unit(vectors), tuple(one.around for one in contexts)
    return HeatMap("pairs", PAIRS, names, names, numbers(ways @ ways.mT), CONTEXT, CONTEXT, COSINE, "signed")


TITLE = Said("One word in many contexts", "여러 문맥 속의 한 단어")
LIKENESS = Said("How alike the word's vectors are", "단어의 벡터가 서로 비슷한 정도")
COSINE = Said("cosine", "코사인")
OWN = Said("two contexts of the word", "단어의 두 문맥")
COMMON = Said("two different words (control)", "서로 다른 두 단어(대조)")
ADJUSTED = Said("the difference: self-similarity beyond the common direction", "그 차이: 공통된 방향을 뺀 자기 유사도")
AGAINST = Said("the word and its fixed vector", "단어와 그 고정된 벡터")
VARIANCE = Said("How much of the word's vectors one fixed vector can say", "고정된 벡터 하나로 나타낼 수 있는 몫")
SHARE = Said("share of Σ ‖x‖²", "Σ ‖x‖²에서의 비율")
BEST = Said("the best fixed vector (MEV)", "가장 알맞은 고정 벡터(MEV)")
COMMON_BEST = Said("the best one of as many other words (control)", "같은 수의 다른 단어에 가장 알맞은 벡터(대조)")
BEST_BEYOND = Said("the difference", "그 차이")
OF_TABLE = Said("the word's fixed vector in the table", "임베딩 표에 있는 단어의 고정 벡터")
BEYOND = Said(
    "Maximum explainable variance of the vectors on the map beyond that of as many other words",
    "지도에 있는 벡터의 최대 설명 분산에서 같은 수의 다른 단어의 값을 뺀 것",
)
SILHOUETTES = Said("How clearly the senses fall apart", "뜻이 나뉘는 정도")
GIVEN = Said("the given senses", "주어진 뜻")
FOUND = Said("the two groups that were found", "찾아낸 두 무리")
CONTROL = Said("by chance (control)", "우연이면(대조)")
MAP = Said("The contexts as a map", "문맥의 지도")
PARTS = (Said("first principal component", "첫째 주성분"), Said("second", "둘째 주성분"))
PAIRS = Said("How alike each two contexts are", "문맥마다 서로 비슷한 정도")
CONTEXT = Said("context", "문맥")
FIXED = Said(
    "Self-similarity of the fixed vectors: 1 where the word is the same tokens in all texts, since the table knows no "
    "context",
    "고정된 벡터의 자기 유사도(모든 텍스트에서 같은 토큰이면 1, 임베딩 표에는 문맥이 없으므로)",
)
SILHOUETTE = Said("Silhouette of the groups on the map, of unit vectors", "지도에 있는 무리의 실루엣(길이 1인 벡터)")
CHANCE = Said("Share of the controls whose silhouette is as large", "실루엣이 그만큼 큰 대조의 비율")
CLAIM = Said(
    "Self-similarity is the mean of cos(x_i, x_j) over all pairs of contexts (Ethayarajh 2019): x_i is the word's "
    "vector in context i behind block l. In many layers any two vectors point in nearly the same direction, so that "
    "the mean cosine between different words of the same texts is taken off. The maximum explainable variance "
    "σ₁²/Σ σᵢ² (the same, definition 3) is the share of the vectors, with singular values σ, that one fixed vector "
    "says at best; as many vectors of other words are its control. The map shows the first two principal components "
    "of the vectors behind one layer. A silhouette is near 1 where each is much closer to its own group "
    "than to the other, and near 0 where groups say nothing; beside it that of controls: the same senses handed out at "
    "random, or, where two groups are looked for, two that are found in a cloud of the same spread without any.",
    "자기 유사도는 모든 문맥 쌍에 걸친 cos(x_i, x_j)의 평균입니다(Ethayarajh 2019). x_i는 문맥 i에서 블록 l을 지난 "
    "단어의 벡터입니다. 많은 층에서 어느 두 벡터든 거의 같은 방향을 가리키므로, 같은 텍스트에 있는 서로 다른 단어 "
    "사이의 평균 코사인을 뺍니다. 최대 설명 분산 σ₁²/Σ σᵢ²(같은 논문의 정의 3, σ는 특잇값)는 고정된 벡터 하나가 가장 "
    "알맞을 때 나타내는 몫이며, 같은 수의 다른 단어 벡터가 대조입니다. 지도는 한 층을 지난 벡터의 처음 두 "
    "주성분입니다. 실루엣은 저마다 다른 무리보다 자기 "
    "무리에 훨씬 가까우면 1에 가깝고, 무리가 아무것도 말해 주지 않으면 0에 가깝습니다. 대조는 같은 뜻을 무작위로 "
    "나누어 준 것이거나, 두 무리를 찾을 때는 무리 없이 똑같이 퍼진 점들에서 찾은 두 무리입니다.",
)

CONTEXTS = Explainer("contexts", TITLE, ContextsSpec, made, two_texts, ("fixed",))
