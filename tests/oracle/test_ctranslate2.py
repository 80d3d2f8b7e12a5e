"""Encoder-decoders in CTranslate2's format give what CTranslate2 gives."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from published_shapes import MORE, SENTENCES

import glassformer as gf
from glassformer.cli import main
from glassformer.errors import CheckpointError, UnsupportedError
from glassformer.generate import GenerateSpec, beam

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2, the runtime that is compared with")
specs = pytest.importorskip("ctranslate2.specs")
DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[3] / "shared" / "data"))
NAMES = DATA / "aren_transliteration"
needs_names = pytest.mark.skipif(not NAMES.is_dir(), reason=f"needs {NAMES} (set GLASSFORMER_DATA)")
PUBLISHED = {"آتزمون": "atzmon", "آتشيسون": "achison"}
WORDS = 24


def translator(folder: Path) -> ctranslate2.Translator:
    return ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)


# ---------------------------------------------------------------- the published model


@needs_names
def test_the_names_of_its_own_tests():
    loaded = gf.load(NAMES)
    for name, written in PUBLISHED.items():
        assert "".join(event.text for event in loaded.generate(name)) == written
    events = list(loaded.generate(list(PUBLISHED), beams=5))
    for row, written in enumerate(PUBLISHED.values()):
        assert "".join(event.text for event in events if event.row == row) == written


@needs_names
def test_greedy_and_the_five_best_of_beam_search_equal_the_runtime():
    loaded, runtime, drawn = gf.load(NAMES), translator(NAMES), random.Random(0)
    letters = [loaded.source.piece_bytes(id).decode() for id in range(3, 30)]
    words = [*PUBLISHED, *("".join(drawn.choices(letters, k=drawn.randint(2, 9))) for _ in range(WORDS))]
    events = list(loaded.generate(words))
    # CTranslate2 forbids the end as the first token unless told otherwise, which changes all probabilities there.
    how = {"return_scores": True, "min_decoding_length": 0}
    for row, word in enumerate(words):
        (greedy,) = runtime.translate_batch([list(word)], beam_size=1, **how)
        mine = [event for event in events if event.row == row]
        assert "".join(event.text for event in mine) == "".join(greedy.hypotheses[0])
        score = np.mean([np.log(event.probability) for event in mine])
        assert score == pytest.approx(greedy.scores[0], abs=1e-4)
        for penalty in (0.0, 1.0):
            given = {"beam_size": 5, "num_hypotheses": 5, "length_penalty": penalty}
            (best,) = runtime.translate_batch([list(word)], **given, **how)
            spec = GenerateSpec(beams=5, length_penalty=penalty, **loaded.about["generation"])
            found = beam(loaded.model, loaded.read(word), spec)
            assert [loaded.tokenizer.decode(one.ids) for one in found] == ["".join(one) for one in best.hypotheses]
            assert [one.score for one in found] == pytest.approx(best.scores, abs=1e-4)


@needs_names
def test_it_is_written_and_drawn_at_the_command_line(capsys):
    name, written = next(iter(PUBLISHED.items()))
    for place in (NAMES, NAMES / "model.bin"):
        assert main(["generate", name, "-m", str(place), "--lang", "en"]) == 0
        assert capsys.readouterr().out == f"{name} → {written}\n"
    assert main(["trace", name, "-m", str(NAMES), "--lang", "en", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (drawn,) = shown["alignments"]
    assert drawn["written"] == written and drawn["source"] == list(name) and drawn["layer"] == 5
    looked = [row.index(max(row)) for row in drawn["weights"]]
    assert looked == sorted(looked) and np.allclose(np.sum(drawn["weights"], 1), 1)
    assert main(["generate", "cat", "-m", str(NAMES), "--lang", "en"]) == 2
    assert "no piece for 'c'" in capsys.readouterr().err


@needs_names
def test_it_is_kept_in_a_folder_of_this_package(tmp_path):
    loaded = gf.load(NAMES)
    loaded.save(tmp_path / "own")
    again = gf.load(tmp_path / "own")
    for name, written in PUBLISHED.items():
        assert "".join(event.text for event in again.generate(name)) == written
    assert torch.equal(again(("آت", "at")), loaded(("آت", "at")))


# ---------------------------------------------------------------- random models, written by CTranslate2 itself

DIM, HIDDEN, WORDS_OF = 16, 24, ["<blank>", "<s>", "</s>", *"abcdefgh"]


def filled(spec, groups: int | None = None, heads: int = 4, words: int = len(WORDS_OF)) -> None:
    """Random numbers for everything that a spec of CTranslate2 leaves open."""
    rng = np.random.default_rng(0)
    width = DIM // heads
    keys = DIM if groups is None else groups * width

    def drawn(*shape: int, std: float = 0.4, mean: float = 0.0):
        return (mean + std * rng.standard_normal(shape)).astype(np.float32)

    def visit(part, name: str, value) -> None:
        leaf, above = name.split("/")[-1], name.split("/")[-2]
        inner = {"linear_0": 3, "linear_1": 1} if "self_attention" in name else {"linear_1": 2}
        if value is not None and not (isinstance(value, str) and leaf == "bias"):
            return
        if leaf in ("gamma", "beta"):
            setattr(part, leaf, drawn(DIM, mean=float(leaf == "gamma")))
        elif "ffn" in name:
            rows, columns = (DIM, HIDDEN) if above == "linear_1" else (HIDDEN, DIM)
            setattr(part, leaf, drawn(rows) if leaf == "bias" else drawn(rows, columns))
        elif leaf == "relative_attention_bias":
            setattr(part, leaf, drawn(8, heads))
        elif leaf == "relative_attention_max_distance":
            setattr(part, leaf, np.dtype("int32").type(20))
        elif "embeddings" in above or "projection" in above:
            setattr(part, leaf, drawn(words) if leaf == "bias" else drawn(words, DIM))
        else:
            several = inner.get(above, 1)
            rows = {3: DIM + 2 * keys, 2: 2 * keys, 1: DIM}[several]
            setattr(part, leaf, drawn(rows) if leaf == "bias" else drawn(rows, DIM))

    specs.model_spec.visit_spec(spec, visit)


def made(folder: Path, change=lambda spec: None, quantization: str | None = None, pieces=WORDS_OF, **how):
    """A model of CTranslate2 in a folder."""
    spec = specs.TransformerSpec.from_config((2, 2), 4, **how)
    groups = 1 if how.get("multi_query_attention") else None
    filled(spec, groups=groups, words=len(pieces))
    change(spec)
    for side in (spec.encoder, spec.decoder):
        for layer in side.layer[1:]:
            if how.get("relative_attention_bias"):
                first = side.layer[0].self_attention
                layer.self_attention.relative_attention_bias = first.relative_attention_bias
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))
    return folder


def shared(spec) -> None:
    spec.decoder.embeddings.weight = spec.encoder.embeddings[0].weight
    spec.decoder.projection.weight = spec.decoder.embeddings.weight


def from_zero(spec) -> None:
    shared(spec)
    spec.decoder.start_from_zero_embedding = True


def stored(spec) -> None:
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = np.random.default_rng(3).standard_normal((20, DIM)).astype(np.float32)
        side.scale_embeddings = np.float32(3.5)


def aligned(spec) -> None:
    spec.decoder.alignment_layer = np.dtype("int16").type(0)


def as_t5(spec) -> None:
    spec.decoder.scale_outputs = np.dtype("float32").type(DIM**-0.5)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = False
        for layer in side.layer:
            layer.self_attention.queries_scale = np.dtype("float32").type(1.0)


ACT = specs.common_spec.Activation
T5 = {"relative_attention_bias": True, "rms_norm": True}
MODELS = {
    "pre": {},
    "post": {"pre_norm": False, "activation": ACT.SWISH, "layernorm_embedding": True},
    "shared": {"change": shared, "activation": ACT.GELU},
    "from zero": {"change": from_zero, "pre_norm": False},
    "stored positions": {"change": stored, "activation": ACT.GELUTanh, "no_final_norm": True},
    "t5": {"change": as_t5, "ffn_glu": True, "activation": ACT.GELUTanh, **T5},
    "one key head": {"multi_query_attention": True},
}
LONG = [list("abcdefghabcdefghab"), list("fg"), list("hhhea")]
TARGETS = [list("ba"), list("abcdefghhgfedcbaa"), list("d")]


def same_scores(folder: Path, tolerance: float) -> None:
    """The log-probability of every target's token, in a padded batch."""
    loaded, runtime = gf.load(folder), translator(folder)
    scored = runtime.score_batch(LONG, TARGETS)
    start, end = loaded.about["generation"]["begin"], loaded.about["generation"]["ends"]
    for source, target, wanted in zip(LONG, TARGETS, scored, strict=True):
        ids = [WORDS_OF.index(one) for one in target]
        logits = loaded(([WORDS_OF.index(one) for one in source], [*start, *ids]))
        found = logits.log_softmax(-1)[0].gather(1, torch.tensor([*ids, *end])[:, None])[:, 0]
        assert found.tolist() == pytest.approx(wanted.log_probs, rel=2e-6, abs=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_every_variant_equal_the_runtime(tmp_path, name):
    folder = made(tmp_path / "model", **MODELS[name])
    same_scores(folder, 2e-5)
    loaded, runtime = gf.load(folder), translator(folder)
    how = {"return_scores": True, "min_decoding_length": 0, "max_decoding_length": 12}
    for source in LONG:
        ids = [WORDS_OF.index(one) for one in source]
        (best,) = runtime.translate_batch([source], beam_size=4, num_hypotheses=4, **how)
        spec = GenerateSpec(beams=4, max_new_tokens=12, **loaded.about["generation"])
        found = beam(loaded.model, ids, spec, vocab=len(WORDS_OF))
        assert ["".join(WORDS_OF[id] for id in one.ids) for one in found] == ["".join(one) for one in best.hypotheses]


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "int8_float16", "bfloat16"])
def test_weights_of_every_kind(tmp_path, quantization):
    """The runtime is told to compute in fp32, as this package does."""
    same_scores(made(tmp_path / "model", shared, quantization), 1e-4)


def test_the_structure_that_is_read_is_the_one_that_was_made(tmp_path):
    loaded = gf.load(made(tmp_path / "model", from_zero, pre_norm=False))
    assert loaded.spec.share and loaded.spec.decoder.head.tied and loaded.spec.decoder.vocab == 12
    assert loaded.about["generation"] == {"begin": [11], "ends": [2], "early_stopping": True}
    assert loaded.trace(([3, 4], [11, 5])).alignment().layer == 1
    assert gf.load(made(tmp_path / "aligned", aligned)).trace(([3, 4], [1, 5])).alignment().layer == 0
    events = list(loaded.generate("abc", max_new_tokens=30))
    assert all(event.token < 11 for event in events)
    t5 = gf.load(made(tmp_path / "t5", **MODELS["t5"])).spec
    assert t5.encoder.blocks[1].mixer.position.shared and t5.encoder.embed.position is None
    assert t5.encoder.blocks[0].mixer.position.max_distance == 20


@pytest.mark.parametrize("sided", [False, True])
def test_a_text_is_cut_by_the_sentencepiece_model_beside_it(tmp_path, sided):
    sentencepiece = pytest.importorskip("sentencepiece", reason="the original is sentencepiece (extra dev)")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES, *MORE] * 10),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    original = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    # As OpenNMT has it: other ids, and the special pieces of its own in front.
    pieces = [
        "<blank>",
        "<s>",
        "</s>",
        "<unk>",
        *(original.id_to_piece(i) for i in range(3, original.get_piece_size())),
    ]
    WORDS_OF[:], before = pieces, list(WORDS_OF)
    try:
        folder = made(tmp_path / "model", pieces=pieces)
    finally:
        WORDS_OF[:] = before
    config = json.loads((folder / "config.json").read_text()) | {"add_source_bos": sided, "add_source_eos": True}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("source.spm", "target.spm") if sided else ("sentencepiece.model",):
        (folder / name).write_bytes((tmp_path / "spm.model").read_bytes())
    loaded, runtime = gf.load(folder), translator(folder)
    for text in [*SENTENCES[:3], *MORE]:
        cut = original.encode(text, out_type=str)
        ids = [pieces.index(one) if one in pieces else 3 for one in cut]
        assert loaded.read(text) == [*([1] if sided else []), *ids, 2]
        (best,) = runtime.translate_batch([cut], beam_size=1, max_decoding_length=12, min_decoding_length=0)
        events = list(loaded.generate(text, max_new_tokens=12))
        written = [pieces[event.token] for event in events if event.finished != "end"]
        assert written == best.hypotheses[0]
        assert "".join(event.text for event in events).strip() == original.decode(written).strip()


def test_what_no_model_here_can_be_is_refused_by_name(tmp_path):
    def relative(spec):
        for side in (spec.encoder, spec.decoder):
            for layer in side.layer:
                for name in ("relative_position_keys", "relative_position_values"):
                    setattr(layer.self_attention, name, np.zeros((5, 4), np.float32))

    folder = tmp_path / "relative"
    spec = specs.TransformerSpec.from_config((1, 1), 4, with_relative_position=True)
    relative(spec)
    filled(spec)
    spec.register_source_vocabulary(WORDS_OF)
    spec.register_target_vocabulary(WORDS_OF)
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    with pytest.raises(CheckpointError, match=r"relative_position_keys' has no place"):
        gf.load(folder)
    with pytest.raises(UnsupportedError, match="the activation of"):
        gf.load(made(tmp_path / "sigmoid", activation=ACT.GELUSigmoid))
    short = made(tmp_path / "short")
    (short / "target_vocabulary.json").write_text(json.dumps(WORDS_OF[:-2]))
    with pytest.raises(CheckpointError, match="a vocabulary has 9 pieces and the model knows 11"):
        gf.load(short)
    for name in ("target", "shared"):
        (short / f"{name}_vocabulary.json").unlink()
    with pytest.raises(CheckpointError, match="needs its vocabularies beside it"):
        gf.load(short)
