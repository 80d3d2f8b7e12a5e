"""--edit: an edit as words, in the terminal and back."""

import json

import numpy as np
import pytest
import torch
from cli_runs import refused, run
from sheet_models import loaded, stack

import glassformer as gf
from glassformer.errors import InputError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec
from glassformer.nn.pool import PooledSpec
from glassformer.page.again import plainly
from glassformer.terminal.edits import edit_of, words_of

TEXT = "고양이가 생선을 먹었다"
EDITS = {
    "zero blocks.3.mixer.z h=0": gf.zero("blocks.3.mixer.z", h=0),
    "mean blocks.0.mixer.z h=0,2": gf.mean("blocks.0.mixer.z", h=[0, 2]),
    "scale blocks.0.mixer.out 0.5": gf.scale("blocks.0.mixer.out", 0.5),
    "add positions -3 t=-1": gf.add("positions", -3, t=-1),
    "noise embed.out 0.1 t=2": gf.noise("embed.out", 0.1, t=2),
    "zero blocks.3.mixer.z t=1: h=0": gf.zero("blocks.3.mixer.z", t=slice(1, None), h=0),
    "mean blocks.0.mixer.z t=-4:-1": gf.mean("blocks.0.mixer.z", t=slice(-4, -1)),
    "zero embed.out t=0:6:2": gf.zero("embed.out", t=slice(0, 6, 2)),
    "resample blocks.0.mixer.z seed=3 h=1": gf.resample("blocks.0.mixer.z", 3, h=1),
    "cut blocks.0.mixer t=5 s=1,2": gf.cut("blocks.0.mixer", t=5, s=[1, 2]),
    "cut blocks.0.mixer s=2 h=0 renormalise=no": gf.cut("blocks.0.mixer", s=2, h=0, renormalise=False),
    'patch blocks.2.resid_out run="The dog" t=3': gf.patch("blocks.2.resid_out", "The dog", t=3),
    'patch embed.out run="a \\"b\\" \'c\' \\\\ 고양이" t=3 there.t=4': gf.patch(
        "embed.out", "a \"b\" 'c' \\ 고양이", t=3, there={"t": 4}
    ),
    "patch embed.out ids=3,1,4 t=1": gf.patch("embed.out", [3, 1, 4], t=1),
}


@pytest.mark.parametrize("text", EDITS)
def test_words_are_the_edit(text):
    found, wanted = edit_of(text), EDITS[text]
    for part in ("name", "kind", "where", "value", "seed", "renormalise", "run", "there"):
        assert getattr(found, part) == getattr(wanted, part), part
    assert words_of(found) == text
    assert eval(found.line, {"gf": gf}).where == wanted.where and type(found.value) is type(wanted.value)


def test_the_seed_of_noise():
    assert edit_of("noise embed.out 0.1 seed=7").seed == 7
    assert words_of(edit_of("noise embed.out 0.1 seed=7 t=2")) == "noise embed.out 0.1 seed=7 t=2"
    assert edit_of("noise embed.out 0.1 seed=7").line == "gf.noise('embed.out', 0.1, seed=7)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no edit"),
        ("zero", "this is no edit"),
        ("erase blocks.0.mixer.z", "this is no edit"),
        ("zero blocks.0.mixer.z 3", "zero takes no number; leave 3 out"),
        ("scale blocks.0.mixer.z h=1", "scale takes one number behind the name; it has 0"),
        ("scale blocks.0.mixer.z 1 2", "it has 2"),
        ("scale blocks.0.mixer.z nan", "'nan' is no number"),
        ("zero blocks.0.mixer.z h=a", "'h=a' is no place"),
        ("zero blocks.0.mixer.z =1", "'=1' is no place"),
        ("zero blocks.0.mixer.z t=:x", "'t=:x' is no place"),
        ("cut blocks.0.mixer t=3", "say which tokens are cut off"),
        ("cut blocks.0.mixer t=3 s=1 renormalise=maybe", "renormalise=maybe is not allowed; use yes or no"),
        ("patch embed.out t=3", "give its text, as run='The dog ate'"),
        ("patch embed.out run= t=3", "give its text"),
        ('patch embed.out t=2 run="unclosed', "a quotation mark, or a backslash at the end, does not end"),
        ("resample blocks.0.mixer.z seed=x", "seed=x is not allowed; use a whole number"),
        ("resample blocks.0.mixer.z seed=1,2", "seed=1,2 is not allowed"),
        ("mean blocks.0.mixer.z seed=1", "mean takes no seed; leave it out"),
        ("zero blocks.0.mixer.z h=1 h=2", "one axis is given twice"),
        ("zero blocks.0.mixer.z renormalise=no", "zero takes no renormalise"),
    ],
)
def test_mistakes(text, said):
    with pytest.raises(InputError) as error:
        edit_of(text)
    assert said in str(error.value)


def test_places_and_files_are_read_as_they_are_written(capsys, tmp_path):
    said = refused(capsys, "trace", TEXT, "--edit", "zero blocks.0.mixer.z t=5:2")
    assert "axis 't' has no place in 5:2" in said and "slice" not in said
    file = tmp_path / "edits.json"
    file.write_bytes(b"\xef\xbb\xbf" + gf.edits_to_json([gf.zero("blocks.3.mixer.z", h=0)]).encode())
    edited = json.loads(run(capsys, "trace", TEXT, "--json", "--edits", str(file))[1])
    other = json.loads(run(capsys, "trace", TEXT, "--json", "--edit", "zero blocks.3.mixer.z h=0")[1])
    assert edited == other
    for token in ("-99", "99"):
        assert f"token {token}" in refused(capsys, "explain", "ledger", TEXT, "--set", f"token={token}")


def test_a_run_without_a_change_says_that_there_is_none(capsys):
    said = run(capsys, "explain", "effect", TEXT, "--lang", "en")[1]
    assert "Nothing was changed in this run" in " ".join(said.split())
    changed = run(capsys, "explain", "effect", TEXT, "--lang", "en", "--edit", "zero blocks.3.mixer.z h=0")[1]
    assert "Nothing was changed" not in " ".join(changed.split())


def test_trace_prints_the_sheet_of_the_changed_run(capsys):
    status, out, _ = run(
        capsys, "trace", TEXT, "--json", "--edit", "zero positions", "--edit", "zero blocks.3.mixer.z h=0"
    )
    other = gf.load().trace(TEXT, edits=[gf.zero("positions"), gf.zero("blocks.3.mixer.z", h=0)]).sheet()
    assert status == 0
    found = [one["probability"] for one in json.loads(out)["next"]]
    assert found == pytest.approx([one.probability for one in other.next], rel=1e-6)
    plain = [one.probability for one in gf.load().trace(TEXT).sheet().next]
    assert found != pytest.approx(plain, rel=1e-2)


def test_the_temperature_divides_the_logits_of_what_comes_next(capsys):
    model = gf.load()
    for more in ([], ["--layer", "0", "--all-heads"]):
        asked = ["trace", TEXT, "--json", "--by", "token", "--token", "#3", "--temperature", "2.5", *more]
        sheet = json.loads(run(capsys, *asked)[1])
        wanted = gf.explain("next", model.trace(TEXT), token=3, temperature=2.5, top=8).figures[0].rows
        found = [(one["token"], one["logit"], one["probability"]) for one in (sheet[0] if more else sheet)["next"]]
        assert found == [pytest.approx((row[0], row[3], row[4]), rel=1e-6) for row in wanted]
    assert "온도 2.5" in run(capsys, "trace", TEXT, "--temperature", "2.5")[1]
    assert "온도" not in run(capsys, "trace", TEXT)[1]
    lstm = gf.load("lstm").trace(TEXT)
    assert lstm.sheet(temperature=2.0).next[0].probability < lstm.sheet().next[0].probability
    for given in ("0", "-1", "nan", "inf"):
        assert f"--temperature: {float(given)} is not allowed" in refused(capsys, "trace", TEXT, "--temperature", given)


def test_a_temperature_that_nothing_would_show_is_refused(capsys, tmp_path):
    """By its name: of a page, which is of temperature 1, and of a model without candidates."""
    page = tmp_path / "one.html"
    said = refused(capsys, "trace", TEXT, "--temperature", "2", "--save", str(page))
    assert "--temperature: a page (--save FILE.html) is written of the run at temperature 1" in said
    assert not page.exists()
    block = BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False)))
    for head in (PooledSpec(), PooledSpec(classes=3), None):
        model = loaded(stack(block, head=head))
        assert model.trace("ab").sheet(temperature=1).next == ()
        with pytest.raises(InputError, match="temperature: this model has no candidates for a next token"):
            model.trace("ab").sheet(temperature=2.0)
        if head == PooledSpec(classes=3):
            model.save(tmp_path / "3")
    said = refused(capsys, "trace", "ab", "-m", str(tmp_path / "3"), "--temperature", "2")
    assert "temperature: this model has no candidates" in said
    file = tmp_path / "values.safetensors"  # which holds logits, and no probabilities
    assert run(capsys, "trace", TEXT, "--temperature", "2", "--save", str(file))[0] == 0 and file.exists()


def test_a_picture_is_classified_with_a_change_and_at_a_temperature(capsys, tmp_path):
    image = np.random.default_rng(1).integers(0, 256, (28, 28), dtype=np.uint8)
    np.save(tmp_path / "one.npy", image)
    asked = ["classify", str(tmp_path / "one.npy"), "-m", "vit", "--json"]
    plain = json.loads(run(capsys, *asked)[1])
    changed = json.loads(run(capsys, *asked, "--edit", "zero blocks.0.mixer.out", "--temperature", "2")[1])
    trace = gf.load("vit").trace(image, edits=gf.zero("blocks.0.mixer.out"))
    shares = (trace.logits[0].double() / 2).softmax(0)
    assert {one["number"]: one["probability"] for one in changed} == pytest.approx(dict(enumerate(shares.tolist())))
    assert changed != plain and plain[0]["probability"] > changed[0]["probability"]
    assert "--temperature: 0.0 is not allowed" in refused(capsys, *asked[:-1], "--temperature", "0")


def test_a_text_is_classified_with_a_change_and_at_a_temperature():
    block = BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False)))
    model = loaded(stack(block, head=PooledSpec(classes=3)))
    plain, cold = model.classify("ab"), model.classify("ab", temperature=0.5)
    path = "blocks.0.mixer.out"
    logits = model.trace("ab", edits=gf.zero(path)).logits[0].double()
    shares = logits.softmax(0).tolist()
    found = {one.number: one.value for one in model.classify("ab", edits=gf.zero(path))}
    assert found == pytest.approx(dict(enumerate(shares))) and found != pytest.approx(
        {p.number: p.value for p in plain}
    )
    assert cold[0].value > plain[0].value


def test_a_target_is_given(capsys):
    model = gf.load("korean-g2p")
    found = json.loads(run(capsys, "trace", "값", "-m", "korean-g2p", "--target", "kat", "--json")[1])
    wanted = model.trace(("값", "kat")).alignment(layer=None)
    assert found["alignments"][0]["target"] == list(wanted.target) and found["alignments"][0]["written"] == "kat"
    said = refused(capsys, "trace", "값 값", "-m", "korean-g2p", "--target", "kat")
    assert "--target: this model reads one word at a time, and there are 2" in said
    assert "--target: only an encoder-decoder" in refused(capsys, "trace", TEXT, "--target", "b")


def test_a_place_that_is_not_there_is_refused_in_korean(capsys):
    said = refused(capsys, "trace", TEXT, "--edit", "zero blocks.0.mixer.z h=9", lang="ko")
    assert "'h' 축에 없는 번호입니다: 9" in said
    assert "바꾸는 지시가 아닙니다" in refused(capsys, "trace", TEXT, "--edit", "zero", lang="ko")


# ---------------------------------------------------------------- as data


def test_edits_as_json_come_back_and_act_alike():
    model = gf.load()
    clean = model.trace("The cat ate the fish")
    given = [
        *EDITS.values(),
        gf.zero("blocks.3.mixer.z", h=np.int64(0), t=np.array([1, 2])),
        gf.patch("blocks.2.resid_out", clean, t=[3, 4], there={"t": slice(2, 4)}),
        gf.add("embed.out", torch.linspace(-1, 1, 4), d=[0, 1, 2, 3]),
    ]
    text = gf.edits_to_json(given)
    data = json.loads(text)
    assert data[0] == {"kind": "zero", "name": "blocks.3.mixer.z", "where": {"h": 0}}
    assert data[-2]["run"] == "The cat ate the fish" and data[-2]["there"] == {"t": "2:4"}
    found = gf.edits_from_json(text)
    assert [one.line for one in found] == [plainly(one).line for one in given]
    assert gf.edits_to_json(found) == text
    some = [1, 2, *range(7, 11), len(given) - 3, len(given) - 2, len(given) - 1]
    for i in some:
        first, second = (model.trace("The dog ate the fish", edits=one).logits for one in (given[i], found[i]))
        assert torch.equal(first, second), given[i].line
    assert gf.edits_from_json(json.dumps(data[0]))[0].line == given[0].line  # one alone


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "these are no edits in JSON"),
        ("[3]", "these are no edits in JSON"),
        ('{"kind": "erase", "name": "a"}', "Invalid enum value 'erase'"),
        ('{"kind": "zero", "name": "a", "wher": {}}', "unknown field `wher`"),
        ('{"kind": "zero", "name": "a", "where": {"there": 1}}', "a: 'there' is no axis"),
        ('{"kind": "zero", "name": "a", "where": {"t": "x"}}', "'x' is no place"),
        ('{"kind": "zero", "name": "a", "value": 3}', "a: zero takes no number; leave 3 out"),
        ('{"kind": "scale", "name": "a"}', "a: scale does not take None; give a number or a tensor"),
        ('{"kind": "noise", "name": "a", "value": -1}', "deviation: -1 is not allowed"),
        ('{"kind": "cut", "name": "a", "where": {"t": 1}}', "a: say which tokens are cut off"),
        ('{"kind": "patch", "name": "a"}', "a: None is no run"),
    ],
)
def test_what_is_no_edit_in_json_is_refused(text, said):
    with pytest.raises(InputError) as error:
        gf.edits_from_json(text)
    assert said in str(error.value)


def test_what_json_cannot_hold_is_refused():
    model = gf.load()
    run_with_edits = model.trace(TEXT, edits=gf.zero("blocks.0.mixer.z", h=1))
    with pytest.raises(InputError, match=r"^embed\.out: what is patched comes from a run that no text gives"):
        gf.edits_to_json(gf.patch("embed.out", run_with_edits))
    with pytest.raises(InputError, match=r"a tensor of 5,000 numbers is too large for JSON, which takes 4,096; patch"):
        gf.edits_to_json(gf.replace("embed.out", torch.zeros(5000)))


def test_a_file_of_edits_and_words_on_the_command_line(capsys, tmp_path):
    file = tmp_path / "edits.json"
    edits = [gf.cut("blocks.1.mixer", t=6, s=2), gf.patch("blocks.2.resid_out", "별이 빛난다", t=2)]
    file.write_text(gf.edits_to_json(edits), encoding="utf-8")
    last = gf.scale("blocks.3.mixer.out", 0.5)
    wanted = [one.probability for one in gf.load().trace(TEXT, edits=[*edits, last]).sheet().next]
    words = [word for one in edits for word in ("--edit", words_of(one))]
    for given in (["--edits", str(file)], words):
        out = run(capsys, "trace", TEXT, "--json", *given, "--edit", words_of(last))[1]
        assert [one["probability"] for one in json.loads(out)["next"]] == pytest.approx(wanted, rel=1e-6)
    assert "cannot be read" in refused(capsys, "trace", TEXT, "--edits", str(tmp_path / "none.json"))
    file.write_text("[{}]")
    said = refused(capsys, "trace", TEXT, "--edits", str(file))
    assert f"--edits {file}: it holds a mistake: these are no edits in JSON: Object missing required field" in said
    assert "편집을 담은 JSON이 아닙니다" in refused(capsys, "trace", TEXT, "--edits", str(file), lang="ko")
    said = refused(capsys, "explore", TEXT, "--no-browser", "--edit", "zero embed.out t=2:5")
    assert "zero embed.out t=2:5: the page cannot ask for this change" in said


def test_a_text_is_continued_with_a_change(capsys):
    """Through the cache and not, as Python does it; another seed, another text."""
    model = gf.load()
    for edit in (
        gf.scale("blocks.1.mixer.z", 3.0, h=1),
        gf.cut("blocks.0.mixer", t=slice(3, None), s=2),
        gf.mean("embed.out"),
    ):
        asked = ["generate", "The movie was", "--seed", "3", "-n", "5", "--json", "--edit", words_of(edit)]
        found = [json.loads(line)["token"] for line in run(capsys, *asked)[1].splitlines()]
        how = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 3, "max_new_tokens": 5}
        assert found == [event.token for event in model.generate("The movie was", edits=edit, **how)]
        watched = []
        ids = model.encode("The movie was")
        for event in model.generate("The movie was", edits=edit, watch=watched.append, **how):
            behind = model.trace(ids, edits=edit, start=False).logits[:, -1]
            torch.testing.assert_close(watched[-1], behind, rtol=1e-4, atol=1e-4)
            ids = [*ids, event.token]


def test_what_python_takes_as_a_number_comes_back_from_json_as_it_was():
    model = gf.load()
    forbidden = gf.replace("blocks.0.mixer.scores", -float("inf"), t=3, s=1)
    wide = np.linspace(0.5, 2.0, model.spec.dim)
    edits = [forbidden, gf.add("embed.out", np.float32(0.25), t=1), gf.scale("embed.out", wide)]
    found = gf.edits_from_json(gf.edits_to_json(edits))
    for one, other in zip(edits, found, strict=True):
        assert torch.equal(*(model.trace(TEXT, edits=edit).logits for edit in (one, other)))
    assert json.loads(gf.edits_to_json(forbidden))[0]["value"] == "-inf"
    assert torch.equal(model.trace(TEXT, edits=eval(forbidden.line)).logits, model.trace(TEXT, edits=forbidden).logits)
    with pytest.raises(InputError, match="'much' is no number"):
        gf.edits_from_json('{"kind": "add", "name": "embed.out", "value": "much"}')


def test_a_patch_of_another_model_is_not_taken_for_one_of_this():
    small, lstm = gf.load(), gf.load("lstm")
    edit = gf.patch("embed.out", lstm.trace(TEXT))
    (again,) = gf.edits_from_json(gf.edits_to_json(edit))
    with pytest.raises(InputError, match="takes what lstm has, and small is run here"):
        small.trace(TEXT, edits=again)
    own = gf.patch("embed.out", small.trace(TEXT))
    (again,) = gf.edits_from_json(gf.edits_to_json(own))
    assert torch.equal(small.trace(TEXT, edits=again).logits, small.trace(TEXT).logits)


def test_gradients_of_edited_scores_are_numbers():
    """Where the mask forbids a score, what acts on it has no part in the gradient."""
    model = gf.load()
    for kind, start in ((gf.scale, 1.0), (gf.add, 0.0), (gf.replace, 0.5)):
        given = torch.tensor(start, requires_grad=True)
        run = model.trace(TEXT, edits=kind("blocks.0.mixer.scores", given))
        gf.differentiable(run)[0, -1].max().backward()
        step = 1e-3 if kind is not gf.replace else 1e-2
        ends = []
        for sign in (1, -1):
            moved = model.trace(TEXT, edits=kind("blocks.0.mixer.scores", start + sign * step))
            ends.append(moved.logits[0, -1, run.logits[0, -1].argmax()].double().item())
        quotient = (ends[0] - ends[1]) / (2 * step)
        assert torch.isfinite(given.grad) and given.grad.item() == pytest.approx(quotient, rel=0.05, abs=2e-3)
