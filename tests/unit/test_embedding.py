"""Sentence embeddings: batches, truncation, pooling; folders of sentence-transformers; the verb; layers of a word."""

import json
import warnings

import numpy as np
import pytest
import torch
from cli_runs import refused, run
from published_shapes import folder as shape_folder
from safetensors.torch import save_file

import glassformer as gf
from glassformer.embedding import TruncationWarning, embed
from glassformer.errors import CheckpointError, InputError, UnsupportedError
from glassformer.hf import FAMILIES, export
from glassformer.hf.sentences import read_sentences
from glassformer.model import ModelSpec, build_model
from glassformer.named import preset

MODULES = ("Transformer", "Pooling", "Normalize")
TEXTS = ["모든 인간은 자유롭다.", "a", "All human beings are born free and equal in dignity and rights.", "", "b c d e"]


def write(folder, kinds=MODULES, pooling=None, own=None, more=None):
    """A folder as sentence-transformers writes it, of a random BERT with 48 positions."""
    folder.mkdir(exist_ok=True)
    for file in shape_folder("bert").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    spec = preset("bert", vocab=len(vocab) + 5, dim=24, blocks=2, heads=4, context=48, dropout=0.0)
    torch.manual_seed(0)
    model = build_model(ModelSpec(**{name: getattr(spec, name) for name in spec.__struct_fields__})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    config, tensors = export(model, FAMILIES["bert"])
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": paths.get(kind, f"{i}_{kind}"),
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True} if pooling is None else pooling
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps(own or {"max_seq_length": 12, "do_lower_case": False}))
    if more is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(more))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sentences"))


@pytest.fixture(scope="module")
def loaded(folder):
    return gf.load(str(folder))


def quiet(loaded, *given, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        return loaded.embed(*given, **how)


def test_each_text_has_the_vector_that_it_has_alone(loaded):
    found = quiet(loaded, TEXTS, batch=3)
    assert found.shape == (len(TEXTS), 24) and not found.is_inference()
    for text, vector in zip(TEXTS, found, strict=True):
        assert torch.allclose(quiet(loaded, text)[0], vector, atol=2e-6)
    assert torch.allclose(found.norm(dim=1), torch.ones(len(TEXTS)))
    assert (found[0] - found[2]).abs().max() > 1e-2


def test_the_vector_is_the_mean_of_the_tokens_brought_to_length_1(loaded):
    trace = loaded.trace(TEXTS[4])
    vectors = trace["blocks.1.resid_out"][0]
    mean = vectors.mean(0)
    assert torch.allclose(loaded.embed(TEXTS[4])[0], mean / mean.norm(), atol=1e-6)
    assert torch.allclose(trace["head.unit"][0], mean / mean.norm(), atol=1e-6)
    assert torch.allclose(loaded(TEXTS[4])[0], mean / mean.norm(), atol=1e-6)
    assert torch.allclose(loaded.embed(TEXTS[4], pool="first")[0], vectors[0], atol=1e-6)
    assert torch.allclose(
        loaded.embed(TEXTS[4], pool="last", unit=True)[0], vectors[-1] / vectors[-1].norm(), atol=1e-6
    )


def test_what_is_too_long_is_cut_with_a_notice_and_keeps_its_end(loaded):
    with pytest.warns(TruncationWarning, match=r"^1 of 5 texts \(from 0: 2\) are longer than the 12 tokens that this"):
        cut = loaded.embed(TEXTS)
    found = embed(loaded, TEXTS)
    assert found.cut == (2,) and found.lengths[2] == 12
    ids = loaded.encode(TEXTS[2])
    assert torch.allclose(cut[2], loaded([*ids[:11], ids[-1]])[0], atol=1e-6) and ids[-1] == loaded.closing[0]


def test_a_prefix_is_an_argument_or_what_was_published(loaded, tmp_path):
    wanted = loaded.embed("query: a b")
    assert torch.equal(loaded.embed("a b", prefix="query: "), wanted)
    other = gf.load(str(write(tmp_path, more={"prompts": {"query": "query: "}, "default_prompt_name": "query"})))
    assert torch.equal(other.embed("a b"), wanted)
    assert torch.equal(other.embed("a b", prefix=""), loaded.embed("a b"))
    assert (loaded.embed("a b") - wanted).abs().max() > 1e-3


def test_it_is_saved_with_its_pooling_and_its_longest_text(loaded, tmp_path):
    loaded.save(tmp_path / "copy")
    back = gf.load(str(tmp_path / "copy"))
    assert back.spec == loaded.spec and back.spec.head.pool == "mean" and back.spec.head.unit
    assert torch.equal(quiet(back, TEXTS), quiet(loaded, TEXTS)) and embed(back, TEXTS).longest == 12


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": ["mean"], "embedding_dimension": 24, "include_prompt": True}, "mean"),
    ],
)
def test_the_pooling_of_old_and_new_folders(pooling, pool, tmp_path):
    found = read_sentences(write(tmp_path, kinds=MODULES[:2], pooling=pooling))
    assert found.head.pool == pool and not found.head.unit and found.about == {"longest": 12}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"kinds": ("Transformer", "Pooling", "Dense")}, "the parts Transformer, Pooling, Dense are not known here"),
        ({"kinds": ("Router",)}, "the parts Router are not known"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, "the pooling max_tokens is not known"),
        ({"pooling": {"pooling_mode": ["cls", "mean"]}}, "the pooling cls, mean is not known"),
        ({"pooling": {}}, "the pooling none is not known"),
        (
            {"pooling": {"pooling_mode": "mean", "include_prompt": False}},
            "include_prompt: False is not supported in a sent",
        ),
        ({"own": {"do_lower_case": True}}, "do_lower_case"),
        ({"own": {"transformer_task": "fill-mask"}}, "transformer_task: 'fill-mask' is not supported in a sent"),
        (
            {"own": {"modality_config": {"text": {"method": "encode"}}}},
            "modality_config: .* is not supported in a sent",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(how, message, tmp_path):
    with pytest.raises(UnsupportedError, match=message):
        gf.load(str(write(tmp_path, **how)))


def test_the_file_of_the_pooling_is_needed(tmp_path):
    (write(tmp_path) / "1_Pooling" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"1_Pooling/config\.json is missing$"):
        gf.load(str(tmp_path))


@pytest.mark.parametrize("content", ["[", "5", '[{"type": "x"}]', '[{"path": "", "type": "a.Transformer"}, 7]'])
def test_a_broken_list_of_parts_is_said_to_be_broken(content, tmp_path):
    write(tmp_path)
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises((CheckpointError, UnsupportedError), match=r"modules\.json"):
        read_sentences(tmp_path)


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("path", ["../elsewhere", "/elsewhere", 7])
def test_a_path_that_leaves_the_folder_is_refused(part, path, tmp_path):
    write(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[part]["path"] = path
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="names no folder inside this one"):
        read_sentences(tmp_path)
    (tmp_path / "config.json").unlink()  # then the network is looked for in the first part
    with pytest.raises(CheckpointError, match="names no folder inside this one"):
        gf.load(str(tmp_path))


def test_mistakes(loaded):
    with pytest.raises(InputError, match=r"^pool: 'max' is not allowed; use first, last, mean"):
        loaded.embed("a", pool="max")
    with pytest.raises(InputError, match=r"^texts: give a text, or a list of at least one"):
        loaded.embed([])
    with pytest.raises(InputError, match=r"^texts: "):
        loaded.embed(["a", 3])
    with pytest.raises(InputError, match=r"^batch: 0 is not allowed"):
        loaded.embed("a", batch=0)
    pair = gf.build("t5", vocab=30, dim=8, blocks=1, heads=2)
    with pytest.raises(UnsupportedError, match="only a model of one stack"):
        pair.embed("a")


def test_the_shipped_decoder_makes_vectors_too():
    small = gf.load()
    found = small.embed(["고양이가 생선을 먹었다", "강아지가 뼈를 물었다", "a"])
    mean = small.trace("고양이가 생선을 먹었다")["norm.out"][0].mean(0)
    assert torch.allclose(found[0], mean, atol=1e-5)


def test_the_layers_of_a_word(loaded):
    first, second = loaded.trace("모든 인간은 자유"), loaded.trace("인간은 모든 all")
    found = first.vectors("인간은")
    assert found.shape == (3, 24)
    places = next(cell.tokens for cell in first.cells() if cell.source.strip() == "인간은")
    for row, name in enumerate(("embed.token", "blocks.0.resid_out", "blocks.1.resid_out")):
        assert torch.allclose(found[row], first[name][0, list(places)].mean(0), atol=1e-6)
    other = second.vectors("인간은")
    assert torch.equal(other[0], found[0]) and (other[1:] - found[1:]).abs().amax(1).min() > 1e-3


# ---------------------------------------------------------------- the command line


def test_the_verb_prints_vectors_and_how_alike_they_are(folder, capsys):
    status, out, err = run(capsys, "embed", "a b", "모든 인간", "a b", "--model", str(folder), "--lang", "en")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert "texts: 3" in lines[0] and "24 numbers" in lines[0]
    rows = [line.split() for line in lines[-3:]]
    assert rows[0][1:] == rows[2][1:] == ["1.000", rows[0][2], "1.000"] and float(rows[0][2]) < 0.999


def test_the_verb_speaks_korean_and_says_what_was_cut(folder, capsys):
    status, out, err = run(capsys, "embed", TEXTS[2], "--model", str(folder), "--lang", "ko")
    assert status == 0 and "텍스트 1개" in out and "유사도" not in out
    assert "토큰 12개보다 긴 텍스트가 1개 가운데 1개" in " ".join(err.split())


def test_the_verb_gives_all_digits_and_writes_a_file(folder, loaded, capsys, tmp_path):
    path = tmp_path / "vectors.npy"
    given = ("embed", "a b", "b c", "--model", str(folder), "--json", "--save", str(path), "--prefix", "a ")
    status, out, err = run(capsys, *given, "--pool", "first")
    wanted = loaded.embed(["a b", "b c"], prefix="a ", pool="first")
    assert status == 0 and "numpy.load" in err
    data = json.loads(out)
    assert np.allclose(np.array(data["vectors"]), wanted) and data["cut"] == []
    assert np.array_equal(np.load(path), wanted.numpy())


def test_a_mistake_of_the_verb_is_one_line(folder, capsys):
    assert "the text is empty" in refused(capsys, "embed", " ", "--model", str(folder))
    assert "reads images" in refused(capsys, "embed", "a", "--model", "lenet")
