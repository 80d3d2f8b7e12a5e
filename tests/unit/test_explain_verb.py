"""glassformer explain: what it prints is what gf.explain gives, within the terminal's width and in both languages."""

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
import wcwidth
from cli_runs import KOREAN, refused, run, write

import glassformer as gf
from glassformer.explain.explained import available
from glassformer.explain.explanation import (
    Check,
    Edge,
    Explanation,
    Graph,
    HeatMap,
    Line,
    Node,
    Point,
    Points,
    Said,
    Series,
    Table,
    TokenScores,
)
from glassformer.terminal import explained
from glassformer.terminal.explained import ROWS, lines

SEVERAL = ["생선을 보았다", "생선을 샀다"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("heads", {"layer": 1}),
        ("surprise", {}),
        ("journey", {"token": 2}),
        ("contexts", {"word": "생선을"}),
        ("weights", {}),
    ],
)
def test_it_prints_the_numbers_of_python(capsys, folder, tmp_path, monkeypatch, lang, name, settings):
    monkeypatch.setenv("COLUMNS", "90")
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(SEVERAL), encoding="utf-8")
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    given += ["--texts", str(file)] if name == "contexts" else []
    status, out, err = run(capsys, "explain", name, KOREAN, "-m", folder, "--lang", lang, *given)
    assert (status, err) == (0, "") and max(map(wcwidth.wcswidth, out.splitlines())) <= 90
    wanted = gf.explain(name, gf.load(folder), KOREAN, **settings, **({"texts": SEVERAL} if name == "contexts" else {}))
    together = "".join(out.split())
    for text in (
        wanted.title,
        wanted.claim,
        *(one.title for one in wanted.figures),
        *(one.said for one in wanted.checks),
    ):
        assert "".join(getattr(text, lang).split()) in together
    for figure in wanted.figures:
        if isinstance(figure, Series):
            numbers = [value for line in figure.lines for value in line.values]
        elif isinstance(figure, Table):
            numbers = [one for row in figure.rows for one in row if isinstance(one, float)]
        else:
            continue
        assert numbers and all(f"{one:.4g}" in out for one in numbers if one is not None), figure.name
    assert all(f"{one.value:.4g}" in out for one in wanted.checks if one.value is not None)
    status, out, _ = run(capsys, "explain", name, KOREAN, "-m", folder, "--json", *given)
    told = msgspec.convert(json.loads(out), Explanation)
    assert (told.figures, told.checks) == (wanted.figures, wanted.checks)


def test_edits_and_long_figures(capsys, folder, tmp_path):
    status, out, _ = run(capsys, "explain", "next", KOREAN, "-m", folder, "--edit", "zero blocks.1.mixer.z h=0")
    cut = gf.load(folder).trace(KOREAN, edits=gf.zero("blocks.1.mixer.z", h=0))
    best = gf.explain("next", cut).figure("candidates").rows[0]
    assert status == 0 and f"{best[3]:.4g}" in out and f"{best[4]:.4g}" in out
    file = tmp_path / "edits.json"
    file.write_text(gf.edits_to_json(gf.zero("blocks.1.mixer.z", h=0)), encoding="utf-8")
    assert run(capsys, "explain", "next", KOREAN, "-m", folder, "--edits", str(file))[1] == out
    status, out, _ = run(capsys, "explain", "surprise", "생선을 먹었다 " * 10, "-m", folder)
    assert status == 0 and " … (--json)" in out


def test_what_it_refuses(capsys, folder, tmp_path):
    assert "there is no explanation 'haeds'; did you mean heads" in refused(
        capsys, "explain", "haeds", KOREAN, "-m", folder
    )
    for setting, said in (
        ("layer", "write it as path=value"),
        ("leyer=1", "leyer: unknown setting 'leyer'; did you mean layer"),
        ("layer=9", "there is no layer 9"),
    ):
        assert said in refused(capsys, "explain", "heads", KOREAN, "-m", folder, "--set", setting)
    nowhere = str(tmp_path / "nowhere.txt")
    assert "nowhere.txt" in refused(capsys, "explain", "pruning", KOREAN, "-m", folder, "--texts", nowhere)
    assert "unknown setting 'texts'" in refused(capsys, "explain", "heads", KOREAN, "-m", folder, "--texts", folder)


def test_json_is_the_object_that_python_gives(capsys, folder):
    asked = ["--set", "depth=tokens", "--set", "candidate=#3", "--edit", "scale blocks.0.mixer.out 0.5"]
    status, out, err = run(capsys, "explain", "ledger", KOREAN, *asked, "--json", "-m", folder)
    assert (status, err) == (0, "")
    trace = gf.load(folder).trace(KOREAN, edits=gf.scale("blocks.0.mixer.out", 0.5))
    wanted = gf.explain("ledger", trace, depth="tokens", candidate="#3")
    assert msgspec.json.decode(out, type=Explanation) == wanted and wanted.checks[0].passed


def test_every_explanation_has_a_view_in_both_languages(capsys, folder):
    trace = gf.load(folder).trace(KOREAN)
    for name, title in available(trace):
        if name in ("two", "neurons", "contexts"):  # which need other texts
            continue
        one = gf.explain(name, trace)
        for lang, wanted in (("en", title.en), ("ko", title.ko)):
            status, out, _ = run(capsys, "explain", name, KOREAN, "--lang", lang, "-m", folder)
            assert status == 0 and out.startswith(wanted.split()[0]), (name, out[:80])
            joined = "".join(out.split())
            assert "".join(one.python.split()) in joined
            for figure in one.figures:
                assert "".join(getattr(figure.title, lang).split()) in joined, (name, figure.name)
    assert "고양이가" in run(capsys, "explain", "ledger", KOREAN, "--set", "by=word", "-m", folder)[1]


def test_a_check_that_fails_is_the_exit_status(capsys, folder, monkeypatch):
    monkeypatch.setattr("glassformer.explain.kinds.ledger.EXACT", 0.0)
    status, out, _ = run(capsys, "explain", "ledger", KOREAN, "--lang", "en", "-m", folder)
    assert status == 1 and "✗ Distance between the sum" in out
    status, out, _ = run(capsys, "explain", "ledger", KOREAN, "--json", "-m", folder)
    assert status == 1 and json.loads(out)["checks"][0]["passed"] is False


def test_mistakes_are_refused_with_the_way_out(capsys, folder):
    for arguments, said in (
        (["ledgr", KOREAN], "did you mean ledger"),
        (["ledger", KOREAN, "--set", "depth"], "--set depth: write it as path=value"),
        (["ledger", KOREAN, "--set", "dept=tokens"], "did you mean depth?"),
        (["ledger", KOREAN, "--set", "candidate=#99999"], "there is no #99999"),
        (["ledger", KOREAN, "--target", "x"], "only an encoder-decoder writes a target"),
    ):
        assert said in refused(capsys, "explain", *arguments, "-m", folder)
        assert any("가" <= letter <= "힣" for letter in refused(capsys, "explain", *arguments, "-m", folder, lang="ko"))


def test_each_kind_of_figure_is_a_table_and_what_was_not_measured_says_so():
    unit = Said("u", "유")
    figures = (
        HeatMap("a", unit, ("r",), ("x", "x"), [[1.5, None]], unit, unit, unit),
        Series("b", unit, ("0", "1"), unit, unit, (Line(unit, [0.25, -1.0]),)),
        Graph("c", unit, (Node("n", "from", 0, 0), Node("m", "to", 1, 0)), (Edge("n", "m", 3.5),), ("0", "1"), unit),
        Table("d", unit, (unit, unit), [[f"row {i}", i] for i in range(ROWS + 3)]),
        TokenScores("e", unit, ("token",), [0.125], unit),
        Points("f", unit, (Point("context", "sense", 1.5, -2.5),), unit, unit),
    )
    checks = (Check("one", unit, None), Check("two", unit, 7.5))
    for lang, wanted in (("en", "· u: not measured"), ("ko", "· 유: 측정하지 않음")):
        made = [" ".join(line.plain.split()) for line in lines(Explanation("g", unit, unit, figures, checks), lang, 60)]
        assert wanted in made and made[made.index(wanted) + 1].endswith(": 7.5")
        for shown in ("r 1.5 –", "0 0.25", "1 -1", "from to 3.5", f"row {ROWS - 1} {ROWS - 1}", "token 0.125"):
            assert shown in made, shown
        assert "context sense 1.5 -2.5" in made and "+ 3 … (--json)" in made
        assert not any(f"row {ROWS} " in one for one in made)


def test_an_image_is_explained_by_a_model_of_images(capsys, tmp_path):
    """Fitted to what the model reads, with changes; what is no image of its is refused."""
    one, several = tmp_path / "one.npy", tmp_path / "several.npy"
    pixels = np.zeros((40, 30), np.uint8)
    pixels[8:30, 13:17] = 255
    np.save(one, pixels)
    np.save(several, np.stack([pixels, pixels]))
    model, change = gf.load("lenet"), gf.zero("blocks.0.out", c=0)
    trace = model.trace(model.see(pixels)[0].fitted.image, edits=change)
    wanted = gf.explain("attribution", trace, method="integrated", measure="pad", orders=2)
    asked = ["--set", "method=integrated", "--set", "measure=pad", "--set", "orders=2"]
    asked += ["--edit", "zero blocks.0.out c=0", "-m", "lenet"]
    status, out, err = run(capsys, "explain", "attribution", str(one), *asked, "--json")
    assert (status, err) == (0, "") and msgspec.json.decode(out, type=Explanation) == wanted
    status, out, err = run(capsys, "explain", "attribution", str(one), *asked, "--lang", "ko")
    assert (status, err) == (0, "") and "픽셀마다 답에 기여한 정도" in out
    for arguments, said in (
        ([str(several)], "several.npy: there are 2 images; give a file of one"),
        ([str(one), "--no-start"], "--no-start: an image has no start token; leave it out"),
        ([KOREAN], "there is no such image, and lenet reads no texts"),
        ([str(one), "--target", "x"], "only an encoder-decoder writes a target"),
        ([str(one), "--set", "measure=delete"], "an image has a pixel at every place"),
        ([str(one), "--set", "candidate=cat"], "there is no class 'cat'"),
    ):
        assert said in refused(capsys, "explain", "attribution", *arguments, "-m", "lenet")
        korean = refused(capsys, "explain", "attribution", *arguments, "-m", "lenet", lang="ko")
        assert any("가" <= letter <= "힣" for letter in korean.replace(KOREAN, ""))


def test_the_page_and_the_terminal_say_the_same_words():
    page = (Path(__file__).parents[2] / "ui" / "src" / "lib" / "words.ts").read_text(encoding="utf-8")
    for english, korean in explained.KOREAN.items():
        assert re.search(rf'"?{english}"?: \{{.*ko: "{re.escape(korean)}"', page), (english, korean)
    assert f"CODED = {json.dumps(list(explained.CODED))};" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["circuit", "--set", "samples=2", "--set", "edges=8"], ["모든 연결", "무작위 회로", "연결 없음"]),
        (["tracing", "--set", "second=The dog ate the fish"], ["망가뜨림"]),
        (["attribution", "--set", "measure=delete"], ["포괄성", "스피어만 순위 상관"]),
        (["ledger"], ["채널 믹서", "임베딩"]),
    ],
)
def test_words_in_tables_are_in_the_readers_language(capsys, arguments, words):
    kind, *more = arguments
    shown = {
        lang: run(capsys, "explain", kind, "The cat ate the fish", *more, "--lang", lang)[1] for lang in ("en", "ko")
    }
    for word in words:
        assert word in shown["ko"] and word not in shown["en"]
    for english in ("all edges", "spoilt", "comprehensiveness ", " channel "):
        assert english not in shown["ko"]
