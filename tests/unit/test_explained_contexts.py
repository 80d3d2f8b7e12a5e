"""One word in many contexts against numpy in loops, and groups whose silhouette is known."""

from itertools import combinations

import numpy as np
import pytest
import torch
from pulled import needed
from sheet_models import loaded

import glassformer as gf
from glassformer.bench import senses as bench
from glassformer.errors import InputError
from glassformer.explain.contexts import (
    anisotropy,
    explainable,
    explainable_by_chance,
    explained_along,
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


def test_one_fixed_vector_says_the_share_of_the_largest_singular_value():
    """At best; no other direction says more, and of one vector and of vectors along one line it is all."""
    vectors = of(8, 3, 6, 5)
    for l, one in enumerate(vectors.numpy()):
        values, axes = np.linalg.eigh(one.T @ one)  # the squares of the singular values
        assert explainable(vectors)[l].item() == pytest.approx(values[-1] / np.trace(one.T @ one))
        assert explained_along(vectors, torch.tensor(3 * axes[:, -1]))[l] == pytest.approx(explainable(vectors)[l])
        other = of(9, 5)
        wanted = sum((x @ other.numpy()) ** 2 for x in one) / (other @ other).item() / np.sum(one**2)
        assert explained_along(vectors, other)[l].item() == pytest.approx(wanted) and wanted < explainable(vectors)[l]
    line = of(10, 1, 1, 5) * torch.arange(1.0, 5)[:, None]
    assert explainable(line).tolist() == pytest.approx([1.0]) and explainable(vectors[:, :1]).tolist() == [1.0] * 3
    whole = explainable_by_chance(vectors, 6, 4, 0)
    assert whole.shape == (4, 3) and torch.allclose(whole, explainable(vectors))  # all of them, whatever is drawn
    some = explainable_by_chance(vectors, 2, 50, 0)
    pairs = torch.stack([explainable(vectors[:, list(pair)]) for pair in combinations(range(6), 2)])
    assert all((pairs - one).abs().sum(1).min() < 1e-9 for one in some) and some.std(0).min() > 0
    assert (some.mean(0) > whole[0]).all()  # which is why as many are compared
    assert explainable_by_chance(vectors, 7, 2, 0).isnan().all()


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
    shares = [np.linalg.svd(np.array(some))[1] ** 2 for some in vectors]
    variance = {line.label.en: line.values for line in one.figure("variance").lines}
    best, control, apart = (variance[line.label.en] for line in one.figure("variance").lines[:3])
    assert best == pytest.approx([one[0] / one.sum() for one in shares], rel=1e-6)
    assert apart == pytest.approx(np.subtract(best, control), abs=1e-7)
    others = torch.tensor(np.array([vector for word, vector in words if word != "별"])).movedim(0, 1)
    assert control == pytest.approx(explainable_by_chance(others, 4, 100, 0).mean(0).tolist(), abs=0.05)
    e = np.mean(vectors[0], 0)
    along = [sum((x @ e) ** 2 for x in some) / (e @ e) / np.sum(np.square(some)) for some in vectors]
    assert variance["the word's fixed vector in the table"] == pytest.approx(along, rel=1e-6)
    assert {check.name: check.value for check in one.checks}["explainable"] == pytest.approx(apart[2])
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


def test_a_sense_that_stands_inside_words_alone(run):
    """별 as a word of its own is the star; where a sense has it within words only, all occurrences are looked at."""
    texts = ["저 별은 멀다", "나라별로 나누었다", "이별과 나이별 자료"]
    both = gf.explain("contexts", run, word="별", texts=texts, senses="sky,sky,by,by").figure("map").points
    assert [(one.group, one.label) for one in both[1:3]] == [("sky", "저 [별]은 멀다"), ("by", "나라[별]로 나누었다")]
    assert len(both) == 5
    alone = gf.explain("contexts", run, word="별", texts=texts).figure("map").points
    assert len(alone) == 2 and all("[별]" in one.label for one in alone)


def test_senses_of_a_bench_are_told_from_chance():
    """Of vectors in two far groups and of ones without; and the contexts are such as the bench says."""
    groups = torch.tensor([0] * 6 + [1] * 6)
    apart = torch.cat((of(11, 2, 6, 4), of(12, 2, 6, 4) + torch.tensor([0.0, 9.0])[:, None, None]), 1)
    none, far = bench.measured(apart, groups, draws=199)
    assert far[0] == pytest.approx(silhouette(apart[1] / apart[1].norm(dim=1, keepdim=True), groups))
    assert far[3] == pytest.approx(1 / 200, abs=0.011) and none[3] > 0.02 and far[4] == explainable(apart)[1]
    assert far[0] > far[1] + 3 * far[2]
    for word, senses in bench.WORDS.items():
        assert {len(set(contexts)) for contexts in senses.values()} == {12}
        assert all(text.count(word) == 1 for contexts in senses.values() for text in contexts)
    names, vectors, numbers, same = bench.vectors_of(loaded(), "별", {k: v[:2] for k, v in bench.WORDS["별"].items()})
    assert (names[0], vectors.shape[:2], numbers.tolist()) == ("embed.token", (4, 4), [0, 0, 1, 1]) and same
    assert vectors[0].var(0).max() < 1e-12 < vectors[-1].var(0).max()


@pytest.mark.slow
def test_the_senses_of_real_weights_part_in_context(monkeypatch):
    """SmolLM2-135M: nowhere in the table, clearly in the middle of the network, in English and in Korean."""
    model = gf.load(needed("smollm2-135m", monkeypatch))
    for word, least in (("bank", 0.35), ("별", 0.15)):
        names, vectors, groups, same = bench.vectors_of(model, word, bench.WORDS[word])
        rows = bench.measured(vectors, groups)
        for name, (value, mean, deviation, p, _) in zip(names, rows, strict=True):
            print(f"{word} {name}: {value:.3f} ({mean:.3f} ± {deviation:.3f}, p {p:.3f})")
        assert same and rows[0][0] == 0 and max(row[0] for row in rows) > least
        assert all(row[3] <= 0.002 and row[0] > row[1] + 4 * row[2] for row in rows[14:])


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
