"""Measures of faithfulness against an answer whose truth is known, and rank correlations against pairs counted here."""

import dataclasses
import json
from itertools import combinations

import msgspec
import numpy as np
import pytest
import torch
from sheet_models import SPECS, loaded, stack

import glassformer as gf
from glassformer.bench import faithfulness as bench
from glassformer.block import BlockSpec
from glassformer.errors import InputError
from glassformer.explain import explained
from glassformer.explain.faithfulness import SHARES, compared, faithfulness, kendall, ranks, spearman
from glassformer.explain.kinds.attribution import ATTRIBUTION
from glassformer.mixers.recurrent import LstmSpec

TEXT = "고양이가 생선을 먹었다"


class Sum:
    """An answer that is the sum of a weight for each token that is there; 100 without the token that is no weight."""

    def __init__(self, weights):
        self.weights = torch.tensor(weights, dtype=torch.float64)
        self.length = len(weights)
        self.removable = [i for i, one in enumerate(weights) if one]
        self.asked = 0

    def nothing_gone(self, runs):
        return torch.zeros(runs, self.length, dtype=torch.bool)

    def without(self, gone, baseline, report):
        self.asked += len(gone)
        assert not gone[:, self.weights == 0].any()
        return (~gone).double() @ self.weights


def test_an_additive_answer_has_the_measures_of_its_sums():
    weights = [0.0, *np.random.default_rng(0).permutation(np.arange(1.0, 41.0)).tolist()]
    answer = Sum(weights)
    found = faithfulness(answer, answer.weights * 3, "mask", orders=40, seed=1)
    assert found.baseline == "mask" and found.places == tuple(range(1, 41)) and found.whole == 820 == found.empty + 820
    largest = sorted(weights, reverse=True)
    counts = [1, 2, 4, 8, 20]  # 1, 5, 10, 20, 50 % of 40
    assert len(counts) == len(SHARES)
    assert found.own.comprehensiveness == pytest.approx([sum(largest[:k]) for k in counts])
    assert found.own.sufficiency == pytest.approx([820 - sum(largest[:k]) for k in counts])
    assert found.reverse.comprehensiveness == pytest.approx([k * (k + 1) / 2 for k in counts])
    assert found.single == pytest.approx(weights[1:])
    assert found.own.spearman == pytest.approx(1) and found.own.kendall == pytest.approx(1)
    assert found.reverse.spearman == pytest.approx(-1) and found.reverse.kendall == pytest.approx(-1)
    table = {name: rest for name, *rest in found.table()}
    own, mean, deviation, reverse = table["comprehensiveness"]
    assert own == pytest.approx(np.mean([sum(largest[:k]) for k in counts]))
    assert mean == pytest.approx(np.mean(counts) * 20.5, abs=4 * deviation / 40**0.5) and reverse < mean < own
    own, mean, deviation, reverse = table["spearman"]
    assert abs(mean) < 4 * deviation / 40**0.5 and deviation == pytest.approx(39**-0.5, rel=0.4)
    assert table["deletion"][0] < table["deletion"][1] < table["deletion"][3]
    assert table["insertion"][0] > table["insertion"][1] > table["insertion"][3]
    assert found.own.deletion[0] == 820 and found.own.deletion[-1] == 0 == found.own.insertion[0]
    assert len(found.counts) == 17 and found.counts[0] == 0 and found.counts[-1] == 40


def test_an_area_is_that_under_the_line():
    found = faithfulness(Sum([2.0, 1.0]), torch.tensor([2.0, 1.0]), orders=2)
    assert found.counts == (0, 1, 2) and found.own.deletion == (3, 1, 0) and found.own.insertion == (0, 2, 3)
    assert found.own.area(found.own.deletion, found.counts) == pytest.approx((3 + 1) / 4 + (1 + 0) / 4)


def test_each_text_is_run_once():
    answer = Sum([1.0, 2.0, 3.0])
    faithfulness(answer, torch.tensor([1.0, 2.0, 3.0]), orders=50)
    assert answer.asked == 8  # every part of three tokens


def test_several_attributions_beside_the_same_random_orders():
    answer = Sum([1.0, 2.0, 3.0, 4.0])
    scores = {"right": answer.weights, "wrong": torch.tensor([2.0, 1.0, 4.0, 3.0])}
    found = compared(answer, scores, orders=7, seed=2)
    for name, one in scores.items():
        assert found[name] == faithfulness(answer, one, orders=7, seed=2)
    assert found["right"].random == found["wrong"].random and found["right"].own != found["wrong"].own


def test_the_table_of_all_methods(tmp_path, capsys, monkeypatch):
    """Each method of each sentence, what the model has not left out; the interval is that of the mean."""
    model = loaded(SPECS["rope"])
    rows = bench.measured(model, [TEXT, "생선을", "고양이가 먹었다"], ("removal", "rollout"), orders=2)
    single = model.trace("고양이가 먹었다")
    one = gf.explain("attribution", single, method="rollout", what="log-probability", measure="delete", orders=2)
    checks = {check.name: check.value for check in one.checks}
    assert rows["comprehensiveness"]["rollout"][-1] == pytest.approx(checks["comprehensiveness"], rel=1e-6)
    assert rows["comprehensiveness"]["reversed rollout"][-1] == pytest.approx(
        checks["comprehensiveness_reversed"], rel=1e-6
    )
    assert rows["sufficiency"]["random"][-1] == pytest.approx(checks["sufficiency_random"], rel=1e-6)
    assert rows["spearman"]["removal"] == pytest.approx([1.0] * len(rows["spearman"]["removal"]))
    lstm = loaded(stack(BlockSpec(mixer=LstmSpec())))
    assert set(bench.measured(lstm, [TEXT], orders=2)["deletion"]) >= {"gradient", "decompx"}
    assert "rollout" not in bench.measured(lstm, [TEXT], ("removal", "rollout"), orders=2)["deletion"]
    values = np.random.default_rng(1).normal(2, 3, 400).tolist()
    mean, low, high = bench.interval(values)
    assert mean == pytest.approx(np.mean(values)) and (high - low) / 2 == pytest.approx(
        1.96 * np.std(values) / 20, rel=0.1
    )
    (tmp_path / "s.txt").write_text(f"{TEXT}\n\n고양이가 먹었다\n", encoding="utf-8")
    monkeypatch.setattr(gf, "load", lambda *given: model)
    assert bench.main([str(tmp_path / "s.txt"), "--methods", "gradient", "removal"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 6 * 5 and all("n=2" in one for one in shown)


def test_what_is_measured_is_kept_and_gone_on_from(tmp_path, capsys, monkeypatch):
    """Cut off anywhere, also in the middle of a line, it ends with the same table; other settings are refused."""
    given, file = tmp_path / "s.txt", tmp_path / "kept"
    given.write_text(f"{TEXT}\n생선을\n고양이가 먹었다\n", encoding="utf-8")
    monkeypatch.setattr(gf, "load", lambda *given: loaded(SPECS["rope"]))
    asked = [str(given), "--methods", "pattern", "removal", "--keep", str(file)]
    assert bench.main(asked) == 0
    whole, text = capsys.readouterr(), file.read_text(encoding="utf-8")
    assert whole.err.count("\n") == 3 and "minus pattern" in whole.out and text.count("\n") == 4
    file.write_text(text[: text.rindex("{") + 9], encoding="utf-8")  # two sentences, and a part of the third one
    assert bench.main(asked) == 0
    again = capsys.readouterr()
    assert again.out == whole.out and again.err.startswith("3/3") and file.read_text(encoding="utf-8") == text
    rows = [json.loads(line)["deletion"] for line in text.splitlines()[1:]]
    apart = np.mean([row["removal"] - row["pattern"] for row in rows if row])
    table = bench.beside([{key: {} for key in bench.MEASURES} | {"deletion": row} for row in rows])
    [shown] = [one for one in table if "removal" in one]
    assert float(shown.split()[2]) == pytest.approx(apart, abs=1e-4)
    for other in (["--baseline", "mean"], ["--most", "2"], ["--methods", "removal"]):
        with pytest.raises(SystemExit, match="2"):
            bench.main([*asked, *other])
        assert "it holds numbers of other" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == text


def test_fewer_than_two_tokens_are_refused():
    with pytest.raises(InputError, match="fewer than two tokens can be taken out"):
        faithfulness(Sum([1.0, 0.0]), torch.tensor([1.0, 0.0]))


def test_rank_correlations_with_ties():
    generator = np.random.default_rng(0)
    for _ in range(20):
        a, b = generator.integers(0, 5, (2, 12)).astype(float)
        wanted = [sum(a < x) + (sum(a == x) - 1) / 2 for x in a]
        assert ranks(a).tolist() == pytest.approx(wanted)
        assert spearman(a, b) == pytest.approx(np.corrcoef(ranks(a), ranks(b))[0, 1])
        pairs = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in combinations(range(12), 2)]
        apart = np.sqrt(sum(x * x for x, _ in pairs) * sum(y * y for _, y in pairs))
        assert kendall(a, b) == pytest.approx(sum(x * y for x, y in pairs) / apart)
    assert spearman(np.ones(3), np.arange(3.0)) is None is kendall(np.arange(3.0), np.ones(3))


def test_no_attribution_is_built_without_its_checks(monkeypatch):
    run = loaded(SPECS["rope"]).trace(TEXT)
    one = gf.explain("attribution", run)
    names = [check.name for check in one.checks]
    assert set(ATTRIBUTION.proves) <= set(names) and all(check.value is None for check in one.checks)
    measured = gf.explain("attribution", run, measure="mask", orders=3)
    assert [check.name for check in measured.checks] == names
    assert all(check.value is not None for check in measured.checks)
    assert "nobody can look there" in measured.checks[0].said.en and "nobody" not in one.checks[0].said.en

    def bare(*given):
        return msgspec.structs.replace(one, checks=one.checks[:3])

    monkeypatch.setitem(explained.EXPLANATIONS, "attribution", dataclasses.replace(ATTRIBUTION, make=bare))
    with pytest.raises(AssertionError, match="says nothing of how faithful it is"):
        gf.explain("attribution", run)


def test_the_figures_are_the_measures():
    run = loaded(SPECS["rope"]).trace(TEXT)
    one = gf.explain("attribution", run, method="removal", measure="delete", what="log-probability", orders=4)
    checks = {check.name: check.value for check in one.checks}
    assert checks["spearman"] == 1 and checks["comprehensiveness"] > checks["comprehensiveness_random"]
    rows = {row[0]: row[1:] for row in one.figure("faithfulness").rows}
    for name in ("comprehensiveness", "sufficiency"):
        assert rows[name][0] == checks[name] and rows[name][3] == checks[f"{name}_reversed"]
    removed, scores = one.figure("removed").values, one.figure("scores").values
    assert (
        removed[0] is None is removed[-1]
        and scores[0] is None is scores[-1]
        and removed[1:-1] == pytest.approx(scores[1:-1])
    )
    curve = one.figure("deletion")
    assert [line.label.en for line in curve.lines] == ["this order", "random orders", "reversed"]
    logs = run.logits[0, -1].log_softmax(-1)
    assert [line.values[0] for line in curve.lines] == pytest.approx([logs.max().item()] * 3, rel=1e-5)
    assert curve.lines[0].values[-1] == pytest.approx(curve.lines[2].values[-1]) and len(curve.lines[1].errors) == len(
        curve.x
    )


class ByHand:
    """ln p of the most probable next token of a text without some tokens, by running shorter, masked and edited texts
    one by one, and its derivatives: nothing of `answer` or `faithfulness` is used."""

    def __init__(self, model, text, baseline):
        self.model, self.baseline, run = model, baseline, model.trace(text)
        self.ids, self.best = run.stacks[0].tokens[0].tolist(), run.logits[0, -1].argmax().item()
        self.places = [t for t, cell in enumerate(run.cells("token")) if cell.source and t < len(self.ids) - 1]

    def told(self, logits):
        return logits[0, -1].double().log_softmax(0)[self.best]

    @torch.no_grad()
    def without(self, gone):
        every = range(len(self.ids))
        if self.baseline == "mean":
            edits = []
            for name, behind in (("token", 0), ("previous", 1)):  # that of the token before is read one place later
                mean = getattr(self.model.model.embed, name).weight.detach().mean(0)
                edits += [gf.replace(f"embed.{name}", mean, t=sorted(t + behind for t in gone))] if gone else []
            return self.told(self.model.trace(self.ids, edits=edits, start=False).logits).item()
        if self.baseline == "mask":
            pos = torch.tensor([[-1 if t in gone else t for t in every]])
            return self.told(self.model.model(torch.tensor([self.ids]), pos=pos)).item()
        return self.told(self.model.model(torch.tensor([[self.ids[t] for t in every if t not in gone]]))).item()

    def scores(self):
        """⟨∂f/∂x_s, x_s⟩ of each token, of what both tables give for it."""
        rows, hooks, embed = [], [], self.model.model.embed

        def kept(module, given, out):
            rows.append(out.detach().requires_grad_())
            return rows[-1]

        for table in (embed.token, embed.previous):
            hooks.append(table.register_forward_hook(kept))
        self.told(self.model.model(torch.tensor([self.ids]))).backward()
        for hook in hooks:
            hook.remove()
        own, before = ((x.grad * x.detach())[0].sum(1).tolist() for x in rows)
        return [own[t] + (before[t + 1] if t + 1 < len(own) else 0.0) for t in range(len(own))]


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ["delete", "mask", "mean"])
def test_the_measures_by_hand(baseline):
    """Of the shipped model, in both languages."""
    model = gf.load()
    for text in ("The cat ate the fish and slept", "고양이가 생선을 먹고 잠을 잤다"):
        own = ByHand(model, text, baseline)
        scores = own.scores()
        order = sorted(own.places, key=lambda t: -scores[t])
        bins = [max(1, int(np.ceil(share * len(order)))) for share in (0.01, 0.05, 0.1, 0.2, 0.5)]
        full = own.without([])
        wanted = {
            "comprehensiveness": np.mean([full - own.without(order[:k]) for k in bins]),
            "comprehensiveness_reversed": np.mean([full - own.without(order[::-1][:k]) for k in bins]),
            "sufficiency": np.mean([full - own.without(order[k:]) for k in bins]),
        }
        single = [full - own.without([t]) for t in own.places]
        ranks = (np.argsort(np.argsort(each)) for each in ([scores[t] for t in own.places], single))
        wanted["spearman"] = np.corrcoef(*ranks)[0, 1]
        one = gf.explain("attribution", model, text, what="log-probability", measure=baseline)
        checks = {check.name: check.value for check in one.checks}
        assert {name: checks[name] for name in wanted} == pytest.approx(wanted, rel=1e-3, abs=1e-4)
        removed = one.figure("removed").values
        assert [removed[t] for t in own.places] == pytest.approx(single, rel=1e-3, abs=1e-4)
