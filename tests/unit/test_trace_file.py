"""The file of a trace, and what its caller gives: texts, ids and labels."""

import json
import re

import pytest
import torch
from sheet_models import DIM, SPECS, loaded, model_of, pair, tokens_of

from glassformer.errors import CheckpointError, InputError
from glassformer.stored import StoredTrace
from glassformer.trace import Trace


def test_a_saved_trace_reads_back_the_same(tmp_path):
    run = loaded(SPECS["rope"]).trace("고양이가 생선을 먹었다")
    run.save(tmp_path / "run.safetensors")
    back = StoredTrace(tmp_path / "run.safetensors")
    assert back.names() == run.names()
    for name in run.names():
        assert torch.equal(back[name], run[name])
        assert back.axes(name) == run.axes(name) and back.card(name) == run.card(name)
    assert back.labels("t") == run.labels("t") and back.labels("h", "blocks.0.mixer.z") == run.labels(
        "h", "blocks.0.mixer.z"
    )
    assert torch.equal(back.part("blocks.0.mixer.pattern", h=1, t=-1), run["blocks.0.mixer.pattern"][:, 1, -1])
    assert back.spec == json.loads(json.dumps(back.spec)) and back.spec["dim"] == DIM
    with pytest.raises(InputError, match="did you mean"):
        back["blocks.0.mixer.patern"]
    run.save(tmp_path / "two.safetensors", ["blocks.0.mixer.z", "head.logits"])
    assert StoredTrace(tmp_path / "two.safetensors").names() == ["blocks.0.mixer.z", "head.logits"]


def test_a_saved_pair_knows_both_texts(tmp_path):
    run = loaded(pair()).trace(("the cat", "고양이가"))
    run.save(tmp_path / "run.safetensors")
    back = StoredTrace(tmp_path / "run.safetensors")
    name = "decoder.blocks.0.cross.pattern"
    assert "".join(back.labels("s", name)[1:]).replace("␠", "") == "thecat"
    assert back.labels("s", name) == run.labels("s", name) != run.labels("s") == back.labels("s")


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "run.safetensors"
    Trace(model_of(SPECS["rope"]), tokens_of(1, 7)).save(path)
    data = path.read_bytes()
    for wrong in (data[: len(data) // 2], data[:6], b"", b"not a trace at all, but long enough to be read"):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match="is no trace, or a broken one"):
            StoredTrace(path)
    path.write_bytes(data.replace(b"glassformer-trace-1", b"glassformer-trace-0"))
    with pytest.raises(CheckpointError, match="not a trace of this version"):
        StoredTrace(path)
    path.write_bytes(data.replace(rb"{\"embed.token\"", rb"[\"embed.token\""))
    with pytest.raises(CheckpointError, match="cannot be read"):
        StoredTrace(path)
    for wrong in (rb"b t", rb"b t h h", rb"b t h a"):
        same = rb"\"blocks.0.mixer.q\": \"b t h e\""
        assert same in data
        path.write_bytes(data.replace(same, same.replace(b"b t h e", wrong.ljust(7)), 1))
        with pytest.raises(
            CheckpointError, match=r"the axes .* of 'blocks.0.mixer.q' do not fit its shape \(1, 7, 4, 4\)"
        ):
            StoredTrace(path)
    with pytest.raises(InputError, match="does not exist"):
        StoredTrace(tmp_path / "nothing.safetensors")


# ---------------------------------------------------------------- what the caller gives


def test_labels_are_the_text():
    for method in ("byte", "bpe", "unigram", "char"):
        run = loaded(method=method).trace("고양이가 먹었다")
        labels = run.labels("t")
        assert len(labels) == run.logits.shape[1] and labels == run.labels("s", "blocks.0.mixer.pattern")
        assert not set("Ġ▁\ufffd") & set("".join(labels))
        shown = re.sub(
            "(?:⟨[0-9A-F]{2}⟩)+",
            lambda found: bytes.fromhex(re.sub("[⟨⟩]", "", found[0])).decode(),
            "".join(labels[1:]),
        )
        assert shown.replace("␠", "") == "고양이가먹었다"


def test_ids_are_shown_as_text_where_there_is_a_tokenizer():
    model = loaded()
    run = model.trace("고양이가 먹었다")
    again = model.trace(run.stacks[0].tokens[0].tolist())
    assert again.text == run.text == "고양이가 먹었다" and again.cells() == run.cells()
    assert [cell.text for cell in run.cells()][1:] == ["고양이가", "먹었다"]
    model.tokenizer = None
    assert [cell.text for cell in model.trace([1, 2, 3]).cells()] == ["1", "2", "3"]
    with pytest.raises(InputError, match="no tokenizer"):
        model.trace("text")


@pytest.mark.parametrize("wrong", [[[1, 2], [3]], ["a", "b"], [0.5, 1.5], None, [[[1]]]])
def test_other_inputs_are_refused(wrong):
    with pytest.raises(InputError, match="give a text, a list of token ids, or a batch"):
        loaded().trace(wrong)


def test_wrong_ids_are_refused():
    model = loaded()
    for wrong in ([], [-1], [model.spec.vocab]):
        with pytest.raises(InputError, match="no tokens were given|outside the vocabulary"):
            model.trace(wrong)
    with pytest.raises(InputError, match="the text is empty"):
        model.trace("")


def test_labels_are_those_of_a_row():
    trace = Trace(model_of(SPECS["rope"]), torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert trace.labels("t") == ["1", "2", "3"] and trace.labels("s", "blocks.0.mixer.pattern", b=1) == ["4", "5", "6"]
    with pytest.raises(InputError, match="no index 2"):
        trace.labels("t", b=2)


def test_what_is_no_trace_is_named(tmp_path):
    (tmp_path / "my.txt").write_text("a text", encoding="utf-8")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="is no file; give a file that"):
        StoredTrace(tmp_path)
    with pytest.raises(InputError, match="does not exist; give a file that"):
        StoredTrace(tmp_path / "nothing")
    for name in ("my.txt", "empty"):
        with pytest.raises(CheckpointError, match="is no trace, or a broken one"):
            StoredTrace(tmp_path / name)
