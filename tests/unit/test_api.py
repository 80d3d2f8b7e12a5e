"""What people call: models without a tokenizer, folders with an empty file, a start that is no repetition."""

import codecs
import math
import tracemalloc

import numpy as np
import pytest
import torch
from sheet_models import SPECS, loaded

import glassformer as gf
from glassformer.api import Loaded
from glassformer.data.tokenizer import TokenizerSpec, train_tokenizer
from glassformer.errors import GlassformerError, InputError
from glassformer.generate import beams
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.sources import SHIPPED


@pytest.fixture(scope="module")
def bytes_model(tmp_path_factory) -> Loaded:
    source = tmp_path_factory.mktemp("text") / "a.txt"
    source.write_text("고양이가 생선을 먹었다\n", encoding="utf-8")
    tokenizer = train_tokenizer(TokenizerSpec(method="byte", vocab=257), source)
    block = BlockSpec(mixer=AttentionSpec(heads=2))
    loaded = gf.build(ModelSpec(vocab=257, dim=16, context=32, blocks=(block,) * 2))
    loaded.tokenizer = tokenizer
    return loaded


def test_a_model_without_a_tokenizer_continues_token_ids():
    loaded = gf.build("gpt2", vocab=65, dim=32, heads=2, blocks=1, context=16)
    tokens = [event.token for event in loaded.generate([[1, 2]], max_new_tokens=4)]
    for place, token in enumerate(tokens):
        assert token == int(loaded([1, 2, *tokens[:place]])[0, -1].argmax())
    with pytest.raises(InputError, match="give token ids"):
        loaded.generate("a text")


def test_an_empty_file_of_a_folder_is_no_document(bytes_model, tmp_path):
    (tmp_path / "a.txt").write_text("고양이", encoding="utf-8")
    alone = bytes_model.evaluate(tmp_path)
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.txt").write_bytes(codecs.BOM_UTF8)
    assert bytes_model.evaluate(tmp_path) == alone
    (tmp_path / "a.txt").unlink()
    for place in (tmp_path, tmp_path / "b.txt", tmp_path / "c.txt"):
        with pytest.raises(InputError, match="empty; there is no text in it"):
            bytes_model.evaluate(place)


def test_a_score_by_hand(bytes_model, tmp_path):
    """Two files, shorter and longer than the context; each token once, from the half context before it at least."""
    texts = ["고양이", "생선을 먹었다 그리고 또 먹었다 abc"]
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    nats, count = 0.0, 0
    for text in texts:
        ids, known = [bytes_model.tokenizer.end_id, *text.encode()], 1
        for start in range(0, len(ids), 16):
            window = ids[start : start + 33]
            if start + len(window) <= known:
                break
            losses = bytes_model(window[:-1])[0].double().log_softmax(-1)
            for place in range(known, start + len(window)):
                nats, count = nats - losses[place - start - 1, ids[place]].item(), count + 1
            known = start + len(window)
    size = sum(len(text.encode()) for text in texts)
    score = bytes_model.evaluate(tmp_path)
    assert (score.tokens, score.bytes) == (count, size) == (size, size)
    assert score.loss == pytest.approx(nats / size, rel=1e-5)
    assert score.perplexity == pytest.approx(math.exp(nats / size), rel=1e-4)
    assert score.bits_per_byte == pytest.approx(nats / size / math.log(2), rel=1e-5)


def test_a_text_is_evaluated_piece_by_piece(bytes_model, tmp_path, monkeypatch):
    """What is held grows with the windows, not with the text."""
    monkeypatch.setattr(bytes_model.model, "forward", lambda ids, **more: torch.zeros(*ids.shape, 257))
    monkeypatch.setattr("glassformer.data.text._READ_BYTES", 1 << 14)
    path, peaks = tmp_path / "long.txt", []
    for size in (150_000, 450_000):
        path.write_text("the cat saw a dog.\n" * (size // 19))
        tracemalloc.start()
        score = bytes_model.evaluate(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert score.tokens == score.bytes == size // 19 * 19 and score.loss == pytest.approx(math.log(257), rel=1e-5)
    assert peaks[1] - peaks[0] < 0.5 * 300_000


def test_the_start_token_does_not_count_as_repeated(bytes_model):
    """With a penalty the end token would otherwise be held back from the first step on."""
    end = bytes_model.tokenizer.end_id
    settings = {"max_new_tokens": 1, "repetition_penalty": 1e9}
    plain = bytes_model([end])[0, -1]
    (event,) = bytes_model.generate([[end]], **settings)
    assert event.token == int(plain.argmax())
    with_end = gf.build(bytes_model.spec)
    with_end.tokenizer = bytes_model.tokenizer
    with_end.model.head.weight.data[end] += 10 * with_end.model.norm(with_end.model.embed.token.weight[end]).sign()
    (event,) = with_end.generate([[end]], **settings)
    assert event.token == end and event.finished == "end"


def test_what_stands_for_a_model_and_a_trace_in_a_notebook(bytes_model):
    shown = repr(bytes_model)
    count = sum(p.numel() for p in bytes_model.model.parameters())
    assert f"{count:,} parameters, 2 blocks of width 16, vocabulary 257, context 32, float32 on cpu>" in shown
    trace = repr(bytes_model.trace("고양이", edits=[gf.zero("blocks.0.mixer.z", h=0)]))
    assert trace.startswith("<trace of '고양이': 10 tokens, 1 edits") and trace.count("\n") == 0
    assert "2 rows of 3 tokens" in repr(bytes_model.trace([[1, 2, 3], [4, 5, 6]]))
    assert "encoder-decoder" in repr(gf.build("t5", vocab=50, dim=32, blocks=2, heads=2))


def test_number_formats_may_be_those_of_torch():
    assert gf.load(dtype=torch.float64).model.embed.token.weight.dtype == torch.float64
    assert gf.load(dtype="float64").model.embed.token.weight.dtype == torch.float64
    for wrong in (torch.int8, "torch.float64", "nn"):
        with pytest.raises(InputError, match="use float32, bfloat16, float64"):
            gf.load(dtype=wrong)


def test_the_room_behind_a_prompt(bytes_model):
    assert bytes_model.context == 32
    assert bytes_model.room("abc") == 32 - 4 and bytes_model.room(["abc", "a" * 40]) == 32 - 41
    assert bytes_model.room([[1, 2]]) == 30
    events = list(bytes_model.generate("abc", max_new_tokens=28))
    assert [event.finished for event in events] == [None] * 27 + ["length"], "the whole room is used"
    assert all(event.token != bytes_model.tokenizer.end_id for event in events)
    with pytest.raises(InputError, match="at most 28"):
        bytes_model.generate("abc", max_new_tokens=29)
    assert gf.build("t5", vocab=50, dim=32, blocks=2, heads=2, context=16).room([[1] * 15]) == 15


@pytest.mark.parametrize("overlap", [1.0, -0.1, float("nan")])
def test_an_overlap_that_leaves_nothing_is_refused(bytes_model, tmp_path, overlap):
    (tmp_path / "a.txt").write_text("고양이", encoding="utf-8")
    with pytest.raises(InputError, match="overlap: .* is not allowed; use a share from 0 to below 1"):
        bytes_model.evaluate(tmp_path, overlap=overlap)


def test_numbers_and_devices_of_any_library(bytes_model):
    assert gf.load(device=torch.device("cpu")).device == torch.device("cpu")
    trace = bytes_model.trace("cat ate fish")
    for kind in (np.int64, torch.tensor, np.uint8):
        assert trace.sheet(kind(2), layer=kind(1), head=kind(0), top=kind(3)) == trace.sheet(2, layer=1, head=0, top=3)
        assert bytes_model.room([kind(7).reshape(1)]) == 31
    for make in (np.array, torch.tensor, tuple):
        assert torch.equal(bytes_model(make([1, 2])), bytes_model([1, 2]))
        assert list(bytes_model.generate([make([1, 2])], max_new_tokens=2)) == (
            list(bytes_model.generate([[1, 2]], max_new_tokens=2))
        )


def test_an_encoder_decoder_is_called_with_a_pair():
    loaded = gf.build("t5", vocab=50, dim=32, blocks=2, heads=2, context=16)
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    with torch.no_grad():
        wanted = loaded.model(source, target)
    assert torch.equal(loaded(([1, 2, 3], [4, 5])), wanted) and torch.equal(loaded((source, target)), wanted)
    for wrong in ([1, 2, 3], source):
        with pytest.raises(InputError, match=r"give a pair \(source, target\), or a source text"):
            loaded(wrong)
    with pytest.raises(InputError, match="this model has no tokenizer; give token ids"):
        loaded("text")
    with pytest.raises(InputError, match="the pair has 2 sources and 1 targets"):
        loaded(([[1], [2]], [[3]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: gf.load(3), "no model 3; give the path of a folder"),
        (lambda model: gf.load(device=None), "device: 'None' is not known"),
        (lambda model: gf.load(device="cpu:"), "device: 'cpu:' is not known"),
        (lambda model: gf.load(dtype=None), "dtype: 'None' is not allowed"),
        (lambda model: gf.build(3), "3 is no model; give the name of a preset"),
        (lambda model: gf.build("gpt2", dim=10**18), "dim: the model is too large to be built"),
        (lambda model: gf.build("gpt2", vocab=10**30), "dim: the model is too large to be built"),
        (lambda model: model.trace("a").sheet(1.5), "token: 1.5 is not allowed; use a whole number"),
        (lambda model: model.trace("a").sheet(["a"]), "token: .* is not allowed"),
        (lambda model: model.trace("a").sheet(layer="one"), "layer: 'one' is not allowed"),
        (lambda model: model.trace("a").sheet(head=0.0), "head: 0.0 is not allowed"),
        (lambda model: model.trace("a").sheet(top=0), "top: 0 is not allowed; use 1 or more"),
        (lambda model: model.trace("a").sheet(top="all"), "top: 'all' is not allowed"),
        (lambda model: model.trace("a").sheet(np.int64(9)), "there is no row 9"),
        (lambda model: model.trace(None), "give a text, a list of token ids"),
        (lambda model: model([1.5]), "give a text, a list of token ids"),
        (lambda model: model([257]), "257 is outside the vocabulary"),
        (lambda model: model.generate(np.array([1, 2])), "put a single prompt into a list"),
        (lambda model: model.generate(torch.tensor([1, 2])), "put a single prompt into a list"),
        (lambda model: model.generate([]), "no prompts were given"),
        (lambda model: model.generate(None), "prompts are a list"),
        (lambda model: model.room([1, 2]), "put a single prompt into a list"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(bytes_model, call, message):
    with pytest.raises(GlassformerError, match=message):
        call(bytes_model)


def test_rows_say_which_words_were_meant(bytes_model):
    trace = bytes_model.trace("별 하나 별 둘")
    assert trace.rows("별") == [1, 3] and trace.rows("하나 별") == [2, 3] and trace.rows("#2") == [2]
    assert trace.rows() == [4] and trace.rows(-1) == [4]
    assert [trace.sheet(one).row for one in ("별", "하나 별", "#2", None, -1)] == [3, 3, 2, 4, 4]


def test_one_edit_need_not_be_in_a_list(bytes_model):
    one = gf.zero("blocks.0.mixer.z", h=1)
    alone, listed = (bytes_model.trace("cat", edits=edits) for edits in (one, [one]))
    assert alone.edits == (one,) and (alone["head.logits"] == listed["head.logits"]).all()
    assert (alone["blocks.0.mixer.z"].select(alone.axes("blocks.0.mixer.z").split().index("h"), 1) == 0).all()


def test_a_batch_has_values_but_no_single_text():
    run = loaded(method="byte").trace([[1, 2, 3], [4, 5, 6]])
    assert run["embed.out"].shape[0] == 2
    for what in (run.sheet, run.cells, run.rows, run.sheets):
        with pytest.raises(InputError, match="this is a trace of 2 texts; trace one of them"):
            what()


def test_no_tokens_are_no_cells_and_truth_values_are_no_tokens():
    made = loaded(method="byte")
    assert made.cells([]) == []
    with pytest.raises(InputError, match="give a text, a list of token ids"):
        made.trace([True, False])


def test_the_sheets_of_all_heads_are_those_of_each():
    run = loaded(SPECS["experts"]).trace("the cat sat on 고양이")
    for layer in (0, 1):
        found = run.sheets("sat", layer=layer, top=3)
        assert found == [run.sheet("sat", layer=layer, head=head, top=3) for head in range(4)]


def test_float64_is_refused_where_the_device_has_none(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(InputError, match="float64 is not known to mps"):
        gf.load(device="mps", dtype="float64")


def test_views_and_beams_ask_no_accelerator_for_fp64(monkeypatch):
    """Apple's has none. A tensor counts as on it until it was brought to the processor."""
    made, double, cpu = loaded(method="byte"), torch.Tensor.double, torch.Tensor.cpu
    here = set()

    def brought(tensor):
        found = cpu(tensor).clone()
        here.add(id(found))
        kept.append(found)
        return found

    def doubled(tensor):
        assert id(tensor) in here, "fp64 on the accelerator"
        return double(tensor)

    kept = []
    monkeypatch.setattr(torch.Tensor, "cpu", brought)
    monkeypatch.setattr(torch.Tensor, "double", doubled)
    for spec in ("sink", "alibi", "experts"):
        run = loaded(SPECS[spec], "byte").trace("the cat")
        assert run.sheets("cat")[0].rows
    monkeypatch.setattr(beams, "_of_sums", lambda logits: torch.float32)
    assert "".join(event.text for event in made.generate("a", max_new_tokens=3, beams=2)) is not None


def test_a_model_knows_where_it_was_read_from(tmp_path):
    model = gf.load()
    assert model.place == SHIPPED / "small" and gf.build("rnn", vocab=5, dim=8).place is None
    model.save(tmp_path / "copy")
    assert gf.load(tmp_path / "copy").place == tmp_path / "copy"
    assert gf.load("lenet").place == SHIPPED / "lenet"
