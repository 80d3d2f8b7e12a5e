"""Neurons and probes against loops and least squares written out here, and features whose seat is known (S28)."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sheet_models import SPECS, loaded

import glassformer as gf
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain import probing

TEXT = "고양이가 생선을 먹었다"
OTHERS = [
    "개가 밤에 짖었다",
    "a cat sat on a mat",
    "별이 빛난다 a star 별이",
    "the star of the film",
    "물을 마신다",
    "개가 물을 본다 a b a",
]


def of(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def balanced(guess, has):
    return (guess[has].mean() + (1 - guess[~has]).mean()) / 2


def test_thresholds_are_the_best_of_all():
    x, has = of(0, 30, 5).round(decimals=1), of(1, 30) > 0.3
    x[:, 4] = torch.where(has, -2.0, 1.0) + 0.1 * of(2, 30)  # parted, those with the property below
    by = probing.thresholds(x, has)
    values, truth = x.numpy(), has.numpy()
    for f in range(5):
        places = np.unique(values[:, f])
        cuts = [(a + b) / 2 for a, b in pairwise(places)]
        wanted = max(
            balanced((side * (values[:, f] - cut) > 0).astype(float), truth) for cut in cuts for side in (1, -1)
        )
        assert by.accuracy[f].item() == pytest.approx(wanted)
        assert probing.balanced(probing.told(x, by, f), has).item() == pytest.approx(wanted)
    assert by.accuracy[4] == 1 and by.side[4] == -1 and int(by.accuracy.argmax()) == 4
    both = torch.stack([probing.told(x, by, f) for f in range(5)], 1)
    assert probing.balanced(both, has).tolist() == pytest.approx(by.accuracy.tolist())
    assert probing.thresholds(torch.zeros(4, 1).double(), torch.tensor([True, False] * 2)).accuracy.item() == 0.5


def test_a_probe_is_a_regression_in_which_both_kinds_count_alike():
    x, has = of(3, 40, 6), of(4, 40) > 0.8
    w, b = probing.regressions(x, has, (1.0, 0.1))[1]
    weight = np.where(has, 1 / has.sum(), 1 / (~has).sum()) / 2
    target, root = np.where(has, 1.0, -1.0), np.sqrt(weight)[:, None]
    away = x.numpy() - weight @ x.numpy()
    size = 0.1 * (weight[:, None] * away**2).sum(0).mean()
    tall = np.vstack((root * away, np.sqrt(size) * np.eye(6)))
    wanted = np.linalg.lstsq(tall, np.concatenate((root[:, 0] * (target - weight @ target), np.zeros(6))), rcond=None)[
        0
    ]
    assert w.numpy() == pytest.approx(wanted)
    assert float(weight @ (x.numpy() @ w.numpy()) + b) == pytest.approx(weight @ target, abs=1e-6)


def test_what_is_spread_over_many_neurons_is_told_by_a_probe_alone():
    x, ids = of(5, 600, 20), torch.arange(600) % 300
    for has, one in ((x.sum(1) > 0, False), (x[:, 7] > 0.2, True)):
        by, (w, b) = probing.thresholds(x[:450], has[:450]), probing.probe(x[:450], has[:450])
        best = int(by.accuracy.argmax())
        alone = probing.balanced(probing.told(x[450:], by, best), has[450:]).item()
        whole = probing.balanced(x[450:] @ w + b > 0, has[450:]).item()
        assert whole > 0.85 and (alone > 0.97 and best == 7 if one else alone < 0.7), (alone, whole)
    labels = probing.by_heart(ids, 0.3, 0)
    assert torch.equal(labels[:300], labels[300:]) and labels[:300].sum() == 90
    w, b = probing.probe(x[:450], labels[:450])
    assert probing.balanced(x[450:] @ w + b > 0, labels[450:]).item() < 0.65  # these numbers do not know the token


def test_a_control_has_labels_of_both_kinds_where_it_is_learnt_and_where_it_is_tried():
    """Else its accuracy is no longer about 1/2 by chance, and selectivity would be too large."""
    x, reached = of(5, 60, 8), []
    for seed in range(40):
        ids, held = torch.arange(60) % 12, torch.arange(60) >= 54  # of the twelve kinds six are held
        has = torch.rand(60, generator=torch.Generator().manual_seed(seed)) < 0.5
        held_ids = has[held].sum()
        if 0 < int(held_ids) < 6:
            reached.append(probing.tell(x, has, held, ids, seed).control)
    assert None not in reached and sum(reached) / len(reached) == pytest.approx(0.5, abs=0.08)
    alike = torch.zeros(60, dtype=torch.long)  # one kind of token: no labels can part it
    has = torch.arange(60) % 2 == 0
    assert probing.tell(x, has, torch.arange(60) >= 50, alike, 0).control is None


@pytest.mark.parametrize("feature", ["begins", "hangul", "repeated"])
def test_neurons_of_a_model_are_its_own(feature):
    trace = loaded().trace(TEXT)
    one = gf.explain("neurons", trace, texts=OTHERS, feature=feature, layer=0, top=200)
    texts = [trace, *(trace.loaded.trace(text) for text in OTHERS)]
    values, has, held, around = [], [], [], []
    for k, text in enumerate(texts):
        ids = text.stacks[0].tokens[0].tolist()
        for cell in text.cells("token"):
            if not cell.source:
                continue
            [t] = cell.tokens
            values.append(text["blocks.0.channel.hidden"][0, t].double())
            before = text.text[: cell.start]
            has.append(
                {
                    "begins": cell.source.startswith(" ") or not before or before.endswith(" "),
                    "hangul": any("가" <= letter <= "힣" for letter in cell.source),
                    "repeated": ids[t] in ids[:t],
                }[feature]
            )
            held.append(k == 3)
            around.append(f"[{text.text[cell.start : cell.end]}]")
    x, has, held = torch.stack(values), torch.tensor(has), torch.tensor(held)
    by = probing.thresholds(x[~held], has[~held])
    best = int(by.accuracy.argmax())
    alone = probing.balanced(probing.told(x[held], by, best), has[held]).item()
    w, b = probing.probe(x[~held], has[~held])
    whole = probing.balanced(x[held] @ w + b > 0, has[held]).item()
    lines = [line.values for line in one.figure("probe").lines]
    assert one.figure("probe").x == ("0", "1") and (lines[0][0], lines[1][0]) == pytest.approx((alone, whole))
    checks = {check.name: check.value for check in one.checks}
    assert checks == pytest.approx({"distributed": whole - alone, "selectivity": whole - lines[2][0]})
    assert one.figure("neurons").rows[0] == [best, pytest.approx(by.accuracy[best].item()), pytest.approx(alone)]
    rows = one.figure("contexts").rows
    order = x[:, best].argsort(descending=True).tolist()
    assert [row[1] for row in rows] == pytest.approx(x[order, best].tolist(), rel=1e-6)
    assert all(around[i] in row[0] for i, row in zip(order[:5], rows[:5], strict=True))
    assert [row[2] == "✓" for row in rows[:5]] == [bool(has[i]) for i in order[:5]]
    chosen = gf.explain("neurons", trace, texts=OTHERS, feature=feature, layer=0, neuron=3, top=1)
    assert chosen.figure("contexts").rows[0][1] == pytest.approx(x[:, 3].max().item(), rel=1e-6)


def test_what_neurons_refuse():
    trace = loaded().trace(TEXT)
    for settings, said in (
        ({}, "give 4 at least, a line each"),
        ({"texts": OTHERS, "neuron": 10_000}, "there is no neuron 10000"),
        ({"texts": OTHERS, "layer": 5}, "there is no layer 5"),
        (
            {"texts": ["별이 진다"] * 5, "feature": "hangul"},
            "feature: it is had by all tokens of these texts, or by none",
        ),
    ):
        with pytest.raises(InputError, match=said):
            gf.explain("neurons", trace, **settings)
    with pytest.raises(UnsupportedError, match="neurons does not apply"):
        gf.explain("neurons", loaded(SPECS["no-channel"]).trace(TEXT))
