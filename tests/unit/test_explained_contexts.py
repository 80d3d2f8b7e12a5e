"""One word in many contexts against numpy in loops, and groups whose silhouette is known."""

from itertools import combinations

import numpy as np
import pytest
import torch
from sheet_models import loaded

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain.contexts import (
    anisotropy,
    grouped,
    principal,
    self_similarity,
    shuffled,
    silhouette,
    standing,
    two_groups,
)

TEXT = "밤하늘에 별이 빛난다"
OTHERS = ["저 별은 멀다", "이 영화에 별 다섯 개를 준다", "특별한 별 하나"]
STATIONS = ("embed.token", "embed.out", "blocks.0.resid_out", "blocks.1.resid_out")


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def of(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def run():
    return loaded().trace(TEXT)


def test_likeness_of_vectors_is_the_mean_over_pairs():
    vectors, words = of(0, 3, 6, 5), ["a", "b", "a", "c", "b", "d"]
    for l, one in enumerate(vectors.numpy()):
        pairs = list(combinations(range(6), 2))
        assert self_similarity(vectors)[l] == pytest.approx(np.mean([cosine(one[i], one[j]) for i, j in pairs]))
        other = [cosine(one[i], one[j]) for i, j in pairs if words[i] != words[j]]
        assert anisotropy(vectors, words)[l] == pytest.approx(np.mean(other))
    assert self_similarity(vectors[:, :1].expand(3, 4, 5)).tolist() == pytest.approx([1.0] * 3)
    assert anisotropy(vectors, ["a"] * 6).isnan().all()


def test_principal_components_are_those_of_the_covariance():
    points = of(1, 9, 4)
    found, shares = principal(points)
    values, axes = np.linalg.eigh(np.cov(points.numpy().T))
    assert shares.numpy() == pytest.approx(values[::-1] / values.sum())
    own = (points - points.mean(0)).numpy() @ axes[:, ::-1]
    assert np.abs(found.numpy()) == pytest.approx(np.abs(own))
    assert all(column[column.abs().argmax()] > 0 for column in found.T)


def test_silhouettes_are_rousseeuws():
    points, groups = of(2, 12, 3), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3])
    x, found = points.numpy(), []
    for i in range(12):
        away = [np.linalg.norm(x[i] - x[j]) for j in range(12)]
        means = {k: np.mean([away[j] for j in range(12) if j != i and groups[j] == k]) for k in range(3)}
        if groups[i] == 3:  # alone
            found.append(0.0)
            continue
        b = min([means[k] for k in range(3) if k != groups[i]] + [away[11]])
        a = means[int(groups[i])]
        found.append((b - a) / max(a, b))
    assert silhouette(points, groups) == pytest.approx(np.mean(found))
    two = torch.cat((0.1 * of(3, 5, 3), 0.1 * of(4, 4, 3) + 10))[torch.tensor([0, 5, 1, 6, 2, 7, 3, 8, 4])]
    assert two_groups(two).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0] and silhouette(two, two_groups(two)) > 0.95
    assert two_groups(torch.ones(4, 2)).tolist() == [0] * 4


def test_a_word_stands_where_it_begins_a_word():
    model = loaded()
    text = model.trace("특별한 별이 start a star, 별")
    ways = {(word, whole): len(standing(text, word, whole)) for word in ("별", "star") for whole in (False, True)}
    assert ways == {("별", False): 3, ("별", True): 2, ("star", False): 2, ("star", True): 1}
    [tokens] = standing(text, "star", True)
    cells = [cell for cell in text.cells("token") if cell.tokens[0] in tokens]
    assert "star" in text.text[cells[0].start : cells[-1].end] and cells[0].start <= text.text.rindex("star")


@pytest.mark.parametrize("senses", ["", "하늘,하늘,평점,하늘"])
def test_contexts_are_measured_by_hand(run, senses):
    one = gf.explain("contexts", run, word="별", texts=OTHERS, senses=senses, layer=0)
    texts = [run, *(run.loaded.trace(text) for text in OTHERS)]
    at = [text.text.rindex("별") for text in texts]  # not that of 특별한
    spots = [
        [i for cell in t.cells("token") for i in cell.tokens if cell.start <= k < cell.end]
        for t, k in zip(texts, at, strict=True)
    ]
    vectors = [[t[name][0, s].double().mean(0).numpy() for t, s in zip(texts, spots, strict=True)] for name in STATIONS]
    own = [np.mean([cosine(a, b) for a, b in combinations(some, 2)]) for some in vectors]
    words = [
        (cell.source.strip(), [t[name][0, list(cell.tokens)].double().mean(0).numpy() for name in STATIONS])
        for t in texts
        for cell in t.cells("word")
        if cell.source.strip()
    ]
    pairs = [(a, b) for a, b in combinations(words, 2) if a[0] != b[0]]
    common = [np.mean([cosine(a[1][l], b[1][l]) for a, b in pairs]) for l in range(4)]
    found = {line.label.en: line.values for line in one.figure("likeness").lines}
    assert found["two contexts of the word"] == pytest.approx(own, rel=1e-6)
    assert found["two different words (control)"] == pytest.approx(common, rel=1e-6)
    assert found["the difference: self-similarity beyond the common direction"] == pytest.approx(
        np.subtract(own, common)
    )
    fixed = [np.mean([cosine(a, b) for a, b in zip(some, vectors[0], strict=True)]) for some in vectors]
    assert found["the word and its fixed vector"] == pytest.approx(fixed, rel=1e-6)
    there = np.array([v / np.linalg.norm(v) for v in vectors[2]])  # behind block 0
    assert np.array(one.figure("pairs").values) == pytest.approx(there @ there.T)
    points = one.figure("map").points
    away = there - there.mean(0)
    assert np.abs([[p.x, p.y] for p in points]) == pytest.approx(np.abs(away @ np.linalg.svd(away)[2][:2].T), abs=1e-7)
    assert points[0].label == "밤하늘에 [별]이 빛난다" and points[3].label == "특별한 [별] 하나"
    groups = senses.split(",") if senses else [str(k + 1) for k in two_groups(torch.tensor(there)).tolist()]
    assert [p.group for p in points] == groups
    checks = {check.name: check.value for check in one.checks}
    numbers = torch.tensor([sorted(set(groups)).index(one) for one in groups])
    assert checks["silhouette"] == pytest.approx(silhouette(torch.tensor(there), numbers))
    clusters = one.figure("silhouette").lines
    assert clusters[0].values[2] == pytest.approx(checks["silhouette"]) and 0 <= checks["chance"] <= 1
    assert all(low <= 1 for low in clusters[1].values) and max(clusters[1].errors) > 0


def test_the_chance_of_a_silhouette_tells_groups_from_none():
    """Vectors in two far groups against ones without any: of given senses and of groups that are looked for."""
    apart = torch.cat((of(5, 8, 6), of(6, 8, 6) + 8))
    given = torch.tensor([0] * 8 + [1] * 8)
    for groups in (given, None):
        for points, real in ((apart, True), (of(7, 16, 6), False)):
            value = grouped(points, two_groups(points) if groups is None else groups)
            share = (shuffled(points, groups, 100, 0) >= value).double().mean().item()
            assert share <= 0.01 if real else share > 0.05, (groups is None, real)
    assert shuffled(apart, given, 5, 1).tolist() == shuffled(apart, given, 5, 1).tolist()


def test_what_contexts_refuse_and_what_they_choose(run, monkeypatch):
    chosen = gf.explain("contexts", run, texts=["별이 진다", "그 별이 아니다"])
    assert chosen.figure("map").title.ko == "문맥의 지도: 별이" and len(chosen.figure("map").points) == 3
    fixed = chosen.checks[0]
    assert fixed.name == "fixed" and (fixed.passed is None or (fixed.passed and fixed.value == pytest.approx(1)))
    again = loaded().trace("생선을 먹었다 생선을 샀다")
    both = gf.explain("contexts", again)  # two contexts in one text
    assert len(both.figure("map").points) == 2
    inside = gf.explain("contexts", run, word="하늘", texts=["푸른하늘"])  # nowhere at the beginning of a word
    assert len(inside.figure("map").points) == 2
    for settings, said in (
        ({}, "word: no word stands in these texts twice"),
        ({"word": "별"}, "word: '별' stands in these texts 1 times"),
        ({"word": "별", "texts": OTHERS, "senses": "a,b"}, "senses: 2 for 4 texts"),
        ({"word": "별", "texts": OTHERS, "senses": "a,a,a,a"}, "senses: there must be two different ones"),
        ({"word": "별", "texts": [*OTHERS, "없다"], "senses": "a,a,a,a,b"}, "the word has one sense here, a"),
        ({"word": "별", "texts": OTHERS, "layer": 7}, "there is no layer 7"),
    ):
        with pytest.raises(InputError, match=said):
            gf.explain("contexts", run, **settings)
    monkeypatch.setattr("glassformer.explain.kinds.contexts.MOST", 3)
    with pytest.raises(InputError, match="word: '별' stands in these texts 4 times; give at most 3"):
        gf.explain("contexts", run, word="별", texts=["별 별 별"])
