"""S27: an attention weight is not the whole explanation. Each edge into the last token is cut for itself, and what that
does to the next token stands beside its weight. `python -m glassformer.bench.weights` prints the numbers."""

import pytest
import torch
from sheet_models import loaded

import glassformer as gf
from glassformer.bench import weights
from glassformer.bench.weights import SENTENCES, apart, broken, cut_each, measured, told


def test_what_an_edge_does_is_what_a_run_without_it_says():
    model = loaded()
    model.model.double()
    trace = model.trace("고양이가 생선을 먹었다")
    t = trace.stacks[0].length - 1
    for layer in range(2):
        path = f"blocks.{layer}.mixer"
        found, seen = cut_each(trace, path, t), []
        plain = trace.logits[0, t].double().log_softmax(-1)
        for h in range(4):
            for s in range(t + 1):
                after = model.trace(trace.text, edits=[gf.cut(path, t=t, s=s, h=h)]).logits[0, t].log_softmax(-1)
                seen.append((plain.exp() * (plain - after)).sum().item())
        pattern = trace[f"{path}.pattern"][0, :, t].flatten().tolist()
        assert found.truth.tolist() == pytest.approx(seen, rel=1e-9, abs=1e-15) and max(seen) > 1e-3
        assert found.guesses["weight"].tolist() == pytest.approx(pattern, rel=1e-9)
        numbers = told(found)
        assert numbers["KL most"] == pytest.approx(max(seen)) and numbers["KL random"] == pytest.approx(
            sum(seen) / len(seen)
        )
        assert numbers["KL weight"] == pytest.approx(seen[pattern.index(max(pattern))])
        heavy = torch.tensor(pattern) >= 0.05
        ranks = (torch.tensor(some)[heavy].argsort().argsort().double() for some in (pattern, seen))
        assert numbers["heavy weight"] == pytest.approx(torch.corrcoef(torch.stack([*ranks]))[0, 1].item())


def test_what_does_not_hold_is_told(monkeypatch, capsys):
    rows = {"effect": [0.3, 0.4, 0.5], "length": [0.2] * 3, "weight": [0.1, 0.1, 0.2], "random": [0.01] * 3}
    good = {"all": {f"KL {name}": values for name, values in rows.items()}}
    assert broken(good) == [] and apart(good, "effect", "weight")[0] == pytest.approx(0.8 / 3)
    alike = {"all": good["all"] | {"KL weight": [0.5, 0.4, 0.3]}}
    assert [line.partition(":")[0] for line in broken(alike)] == ["effect over weight"]
    assert len(broken({"all": good["all"] | {"KL weight": [0.0, 0.02, 0.01]}})) == 1  # no more than chance
    monkeypatch.setattr(weights, "measured", lambda model, sentences: alike)
    assert weights.main([]) == 1 and "effect over weight: 0.0000" in capsys.readouterr().out


@pytest.mark.slow
def test_s27_the_largest_weight_is_not_the_largest_effect():
    model = gf.load(dtype="float64")
    assert len(SENTENCES) >= 20
    found = measured(model, SENTENCES)
    print("\n" + "\n".join(weights.lines(found)))
    assert broken(found) == []
    mean = {what: sum(values) / len(values) for what, values in found["all"].items()}
    assert mean["KL weight"] < 0.5 * mean["KL effect"] < 0.5 * mean["KL most"]
    assert abs(mean["rank dealt"]) < 0.1 < 0.9 < mean["rank weight"]  # most edges have little weight and do little
    assert mean["heavy weight"] < mean["rank weight"] - 0.1  # among those that have some it says less
