"""Every model in the package: its card is complete, it loads by its name and runs."""

import os
from pathlib import Path

import pytest
import torch
import wcwidth

import glassformer as gf
from glassformer.catalogue import CATALOGUE
from glassformer.classifier import Classifier
from glassformer.cli import main
from glassformer.errors import InputError
from glassformer.sources import SHIPPED, shipped
from glassformer.terminal.card import lines

HAMA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[3] / "shared" / "data")) / "hama_g2p_ko"


@pytest.mark.parametrize("name", shipped())
def test_each_loads_by_its_name_and_its_card_is_complete(name):
    model = gf.load(name)
    assert {"summary", "summary_ko", "licence"} <= model.about.keys()
    for lang in ("en", "ko"):
        for columns in (40, 80, 140):
            shown = [line.plain for line in lines(model, lang, columns)]
            assert all(wcwidth.wcswidth(line) <= columns for line in shown) and len(shown) > 4
    given = (
        torch.rand(1, model.spec.channels, model.spec.size, model.spec.size)
        if isinstance(model, Classifier)
        else [[1, 2, 3]]
    )
    given = (given, [[1, 2]]) if hasattr(model.spec, "encoder") else given
    assert model(given).isfinite().all()


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_the_list_has_a_line_for_each_the_default_first(capsys, lang):
    assert main(["models", "--lang", lang]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows, rest = lines[: len(shipped())], lines[len(shipped()) :]
    assert rest[0].startswith(("Presets", "프리셋")) and [row.split()[0] for row in rest[2:]] == list(CATALOGUE)
    said = "summary_ko" if lang == "ko" else "summary"
    assert [row.split()[0] for row in rows] == shipped() and shipped()[0] == "small"
    assert len({row.index(gf.load(row.split()[0]).about[said]) for row in rows}) == 1, "one column"


def test_the_korean_g2p_model_is_small_and_writes_the_sentence():
    model = gf.load("korean-g2p")
    assert (SHIPPED / "korean-g2p" / "model.safetensors").stat().st_size < 5_000_000
    words = ["고양이가", "생선을", "먹었다"]
    events = list(model.generate(words, max_new_tokens=32))
    written = ["".join(event.text for event in events if event.row == row) for row in range(3)]
    assert written == ["gojaŋiga", "seŋsʌnɯl", "mʌgʌdt͈a"]


@pytest.mark.skipif(not HAMA.is_dir(), reason=f"needs {HAMA} (set GLASSFORMER_DATA)")
def test_its_half_precision_changes_no_choice():
    half, full = gf.load("korean-g2p"), gf.load(HAMA)
    words = ["값", "읽다", "독립문", "꽃잎", "학교", "안녕하세요", "의사", "봤습니다", "hello", "넓다"]
    for one, other in zip(
        half.generate(words, max_new_tokens=32), full.generate(words, max_new_tokens=32), strict=True
    ):
        assert (one.row, one.token) == (other.row, other.token) and abs(one.probability - other.probability) < 5e-3


def test_an_empty_source_is_refused():
    model = gf.load("korean-g2p")
    with pytest.raises(InputError, match="^the source is empty"):
        list(model.generate([""]))
    with pytest.raises(InputError, match="^the source is empty"):
        model.trace(("", "a"))
