"""The certificate: sound models pass it, and each kind of damage is found by the line that is about it."""

import json
import sys
import unicodedata
from dataclasses import replace

import pytest
import torch
from published_shapes import folder
from quick import quick_first
from sheet_models import SPECS, loaded, pair

import glassformer as gf
from glassformer.api import Loaded
from glassformer.certificate import CHECKS, paths, subject, tokens, weights
from glassformer.certificate.line import Certificate, judged
from glassformer.data.folder import read_tokenizer
from glassformer.errors import InputError
from glassformer.mixers.attention import Attention
from glassformer.mixers.multihead import SoftmaxAttention
from glassformer.model import Model
from glassformer.named import preset
from glassformer.sources import shipped
from glassformer.tap import Card

QUICK = [one.name for one in CHECKS if not one.slow]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "certificates"


def tiny(name="rope") -> Loaded:
    """A small model with drawn weights and a tokenizer."""
    made = loaded(SPECS[name], "bpe")
    made.name = "tiny"
    return made


def failing(model, quick=True) -> set[str]:
    made = gf.check(model, quick=quick, again=True)
    assert made.passed == (not made.failed)
    return {line.name for line in made.failed}


# ---------------------------------------------------------------- sound models


@pytest.mark.parametrize("name", quick_first(shipped(), set(shipped()) - {"korean-g2p"}))
def test_what_is_shipped_passes(name):
    made = gf.check(name, quick=name not in ("small", "korean-g2p"))
    assert made.passed and made.model == name, repr(made)
    applies = {line.name for line in made.lines if line.status == "passed"}
    assert {"finite", "exact", "names", "glass", "batch"} <= applies
    if name not in ("lenet", "vit"):
        assert set(QUICK) == applies - {"greedy"}
    if name in ("small", "korean-g2p"):
        assert made.line("greedy").detail["of"] >= 40
    for line in made.lines:  # a check that measured nothing would pass everything
        assert line.status != "passed" or line.unit != "count" or line.detail["of"] > 0


@pytest.mark.parametrize("name", ["rope", "full", "window-sinks", "top-k", "relative", "gated"])
def test_models_of_other_kinds_pass(name):
    made = gf.check(tiny(name), again=True)
    assert made.passed, repr(made)
    waits = {line.name for line in made.lines if "reads a text as a whole" in line.reason}
    assert waits == ({"future", "chunks", "cache", "greedy", "original_text"} if name == "full" else set())


def test_an_encoder_decoder_passes():
    made = gf.check(loaded(pair(), "bpe"), again=True)
    assert made.passed and {line.name for line in made.lines[:12] if line.status == "not applicable"} == {"exact"}
    assert made.line("original_fp32").reason.startswith("no published family can be this model")


def test_a_model_without_a_tokenizer_is_run_on_drawn_ids():
    made = gf.check(Loaded(tiny().model), again=True)
    assert made.passed and made.model == ""
    assert {line.name for line in made.lines if "no tokenizer" in line.reason} == {
        *("round_trip", "offsets", "original_ids")
    }


@pytest.mark.parametrize("name", quick_first(["small", "korean-g2p"], ["small"]))
def test_bf16_is_held_against_the_same_weights_in_fp32(name):
    made = gf.check(name, dtype="bfloat16")
    assert made.passed and made.dtype == "bfloat16", repr(made)
    assert made.line("batch").unit == "ratio" and 0.2 < made.line("batch").value < 2
    assert made.line("batch").detail["plain"] > 1e-4, "rounding is what it is held against"
    assert gf.check("vit", dtype="bfloat16").passed


def test_what_rounding_decides_is_not_checked_in_bf16():
    made = gf.check(bf16(tiny("experts")), again=True)
    assert made.passed and any("choose otherwise" in line.reason for line in made.lines), repr(made)


def bf16(model):
    model.model.bfloat16()
    return model


# ---------------------------------------------------------------- damage


def test_a_position_that_is_off_by_one_behind_the_cache(monkeypatch):
    step = Model._step

    def late(self, tokens, state, pos, segments, probe):
        if state.length:
            pos = state.next_pos[:, None] + torch.arange(1, tokens.shape[1] + 1)
        return step(self, tokens, state, pos, segments, probe)

    monkeypatch.setattr(Model, "_step", late)
    assert failing(tiny(), quick=False) == {"chunks", "cache", "greedy"}


def test_a_mixer_that_leaks_the_future(monkeypatch):
    parallel = Attention.parallel

    def leaky(self, x, call):
        return parallel(self, x, call) + 0.1 * x.mean(1, keepdim=True)

    monkeypatch.setattr(Attention, "parallel", leaky)
    found = failing(tiny())
    assert {"future", "chunks", "cache"} <= found and not found & {"finite", "names", "round_trip", "glass"}


def test_a_batch_whose_padding_is_read(monkeypatch):
    run = Model.run

    def blind(self, tokens, call):
        return run(self, tokens, replace(call, pos=torch.arange(tokens.shape[1])[None], plain=True))

    monkeypatch.setattr(Model, "run", blind)
    assert failing(tiny()) == {"padding", "batch"}


def test_a_path_that_is_right_by_far_less_than_rounding(monkeypatch):
    """The wider format decides what is a matter of rounding, and a run that is nowhere near it does not count."""
    monkeypatch.setattr(paths, "BOUNDS", {torch.float32: 0.0, torch.float64: 0.0})
    sound = gf.check(tiny(), quick=True, again=True)
    assert sound.passed and {line.unit for line in sound.lines if line.name in ("cache", "glass")} == {"ratio"}
    fast = subject.Text.alone

    def coarse(self, row, probe=None):
        out = fast(self, row, probe)
        return out + 1e-2 * out.sin() if out.dtype == torch.float32 else out

    monkeypatch.setattr(subject.Text, "alone", coarse)
    made = gf.check(tiny(), quick=True, again=True)
    assert {"batch", "cache", "glass"} <= {line.name for line in made.failed}
    assert "next wider number format" in made.line("batch").reason


def test_a_traced_path_that_computes_something_else(monkeypatch):
    gather = SoftmaxAttention.gather

    def other(self, z, call):
        return gather(self, z * 1.01 if call.wants(self, "pattern") and self.path.startswith("blocks.1") else z, call)

    monkeypatch.setattr(SoftmaxAttention, "gather", other)
    model = tiny()
    assert failing(model) == {"glass"}
    line = gf.check(model, quick=True).line("glass")
    assert line.detail["blocks"]["blocks.0.resid_out"] < 1e-6 < 1e-4 < line.detail["blocks"]["blocks.1.resid_out"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number(number):
    model = tiny()
    with torch.no_grad():
        model.model.blocks[1].mixer.q.weight[2, 3] = number
    made = gf.check(model, quick=True, again=True)
    line = made.line("finite")
    assert (line.status, line.value, line.reason) == ("failed", 1, "the first is in blocks.1.mixer.q.weight")
    assert made.line("batch").status == "failed" and made.line("batch").value is None
    json.dumps(made.data(), allow_nan=False)


def test_a_weight_that_is_not_the_files(tmp_path):
    tiny().save(tmp_path / "my")
    model = gf.load(tmp_path / "my")
    assert failing(model) == set()
    square = model.model.blocks[0].mixer.out.weight
    with torch.no_grad():
        square.copy_(square.T.clone())
    assert failing(model) == {"exact"}
    half = gf.load(tmp_path / "my", dtype="bfloat16")
    assert gf.check(half, quick=True).line("exact").status == "passed", "the file's numbers, rounded to bf16"


def test_a_file_that_is_gone(tmp_path):
    tiny().save(tmp_path / "my")
    model = gf.load(tmp_path / "my")
    (tmp_path / "my" / "model.safetensors").unlink()  # not cut short: the weights in use are mapped from it
    assert failing(model) == {"exact"}
    (tmp_path / "my" / "model.safetensors").write_bytes(b"cut")
    assert failing(model) == {"exact"}


@pytest.mark.parametrize("spoil", ["card", "path"])
def test_a_name_that_leads_nowhere(monkeypatch, spoil):
    model = tiny()
    mixer = model.model.blocks[0].mixer
    if spoil == "card":
        monkeypatch.setattr(mixer, "cards", mixer.cards | {"q": Card("q", "q", "A query.", "")})
    else:
        monkeypatch.setattr(mixer, "path", "blocks.7.mixer")
    made = gf.check(model, quick=True, again=True)
    assert {line.name for line in made.failed} == {"names"}
    assert made.line("names").reason.startswith(f"the first is blocks.{0 if spoil == 'card' else 7}.mixer.")


def test_a_tokenizer_that_composes_what_it_reads(monkeypatch):
    model = tiny()
    decode = model.tokenizer.decode
    monkeypatch.setattr(model.tokenizer, "decode", lambda ids: unicodedata.normalize("NFC", decode(ids)))
    made = gf.check(model, quick=True, again=True)
    assert {line.name for line in made.failed} == {"round_trip"}
    wrong = made.line("round_trip").detail["wrong"]
    decomposed = {text for text in subject.texts()["decomposed"] if unicodedata.normalize("NFC", text) != text}
    assert decomposed <= set(wrong) and len(wrong) < 20


@pytest.mark.parametrize("shape", ["bert", "t5", "llama2", "qwen2"])
def test_a_tokenizer_that_changes_a_text_gives_its_letters_back(shape, monkeypatch):
    model = Loaded(tiny().model, read_tokenizer(folder(shape)))
    assert tokens.round_trip(model).status in ("not applicable", "passed")
    decode = model.tokenizer.decode
    for broken in (lambda ids: "same", lambda ids: decode(ids)[:-1], lambda ids: decode(ids)[::-1], lambda ids: ""):
        monkeypatch.setattr(model.tokenizer, "decode", broken)
        assert tokens.round_trip(model).status == "failed"


def test_a_tokenizer_whose_places_are_off(monkeypatch):
    model = tiny()
    encode = model.tokenizer.encode

    def late(text, start=False):
        made = encode(text, start)
        return type(made)(made.ids, [(a + 1, b + 1) for a, b in made.offsets], made.byte_offsets, made.special)

    monkeypatch.setattr(model.tokenizer, "encode", late)
    assert failing(model) == {"offsets"}


def test_a_refusal_of_the_model_itself_is_a_failed_line(monkeypatch):
    def refuses(self):
        raise InputError("no weights to be seen")

    monkeypatch.setattr(weights, "finite", refuses)
    line = gf.check(tiny(), quick=True, again=True).line("finite")
    assert (line.status, line.reason) == ("failed", "no weights to be seen")


# ---------------------------------------------------------------- what is kept


def test_a_certificate_is_kept_and_used_again(home):
    model = tiny()
    first, second = gf.check(model, quick=True), gf.check(model, quick=True)
    assert (first.again, second.again) == (False, True) and second.lines == first.lines
    assert [str(file) for file in home.iterdir()] == list(first.kept) == list(second.kept)
    assert not gf.check(model, quick=True, again=True).again
    assert not gf.check(model).again, "the quick half is no certificate"
    assert gf.check(model, quick=True).again and gf.check(model).again, "the whole serves for both"
    half = gf.check(model, quick=True)
    assert half.quick and half.again and [line.name for line in half.lines] == QUICK
    assert len(gf.check(model).lines) > len(QUICK) and gf.check(model).again, "the whole is still kept"


def test_other_weights_tokenizers_formats_and_versions_are_measured_anew(home, monkeypatch):
    gf.check(tiny(), quick=True)
    other = tiny()
    with torch.no_grad():
        other.model.norm.weight[3] += 1e-6
    assert not gf.check(other, quick=True).again
    assert not gf.check(Loaded(tiny().model, loaded(SPECS["rope"], "byte").tokenizer), quick=True).again
    assert not gf.check(bf16(tiny()), quick=True).again
    assert gf.check(tiny(), quick=True).again
    monkeypatch.setattr("glassformer.certificate.kept._code", lambda: "another")
    assert not gf.check(tiny(), quick=True).again


def test_a_kept_certificate_that_is_broken_is_measured_anew(home):
    first = gf.check(tiny(), quick=True)
    [file] = home.iterdir()
    for text in ("{", "[]", "{}", json.dumps(first.data() | {"format": 99}), json.dumps(first.data() | {"lines": [1]})):
        file.write_text(text)
        assert not gf.check(tiny(), quick=True).again
    assert gf.check(tiny(), quick=True).again


def test_it_lies_beside_a_model_of_ours_and_nowhere_else(home, tmp_path):
    tiny().save(tmp_path / "my")
    made = gf.check(tmp_path / "my", quick=True)
    assert made.kept == (str(next(home.iterdir())), str(tmp_path / "my" / "certificate.json"))
    assert made.source == str(tmp_path / "my") and made.model == "my"
    beside = json.loads((tmp_path / "my" / "certificate.json").read_text())
    assert Certificate.of(beside).lines == made.lines and beside["passed"] is True
    assert gf.load(tmp_path / "my").spec == gf.load(tmp_path / "my").spec
    copy = gf.load(tmp_path / "my")
    copy.save(tmp_path / "copy")
    found = gf.check(tmp_path / "copy", quick=True)
    assert found.again and found.model == "copy" and (tmp_path / "copy" / "certificate.json").is_file()
    gf.check("lenet", quick=True)
    assert not (shipped_folder() / "certificate.json").exists()


def shipped_folder():
    from glassformer.sources import SHIPPED

    return SHIPPED / "lenet"


def test_folders_that_cannot_be_written_to_stop_nothing(monkeypatch, tmp_path):
    tiny().save(tmp_path / "my")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("glassformer.certificate.kept.os.access", lambda *_: False)
    made = gf.check(tmp_path / "my", quick=True)
    assert made.passed and made.kept == () and not (tmp_path / "my" / "certificate.json").exists()


# ---------------------------------------------------------------- what it shows


def test_a_certificate_shows_itself():
    made = gf.check("lenet", quick=True)
    assert repr(made).startswith("<certificate of lenet: passed, float32 on cpu>")
    assert "not applicable  cache" in repr(made) and "(at most 1e-05)" in repr(made)
    assert made._repr_html_().count("<tr>") == len(made.lines)


@pytest.mark.parametrize(
    ("value", "status"),
    [(0.9, "passed"), (1.0, "passed"), (1.1, "failed"), (float("nan"), "failed"), (1e400, "failed")],
)
def test_a_line_is_judged_by_its_bound(value, status):
    assert judged("x", value, 1.0).status == status


def test_the_test_set_has_what_breaks_tokenizers():
    texts = subject.texts()
    assert sum(map(len, texts.values())) >= 60
    assert all(unicodedata.normalize("NFC", text) != text for text in texts["decomposed"])
    joined = "".join(text for some in texts.values() for text in some)
    assert "\u200d" in joined and "\u11a8" in joined and "\u3131" in joined and "<|im_end|>" in joined


def test_the_longest_row_passes_what_the_context_holds_on():
    model = gf.build(preset("gpt2", vocab=40, dim=16, blocks=1, heads=2, context=20))
    rows = subject.subject_of(model).rows
    assert max(map(len, rows)) == 20 and len(rows) >= 4


def test_where_transformers_is_not_installed_its_lines_do_not_apply(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    made = gf.check("transformer", again=True)
    lines = [line for line in made.lines if line.name.startswith("original")]
    assert len(lines) == 4 and all(line.status == "not applicable" for line in lines), lines
    assert made.passed and "not installed" in made.line("original_fp32").reason
