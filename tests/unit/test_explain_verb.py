"""The verb that prints any explanation: the numbers of gf.explain, in either language, and refusals with a way out."""

import json

import msgspec
import pytest
from cli_runs import KOREAN, refused, run, write

import glassformer as gf
from glassformer.explain.explained import available
from glassformer.explain.explanation import Edge, Explanation, Graph, HeatMap, Line, Node, Said, Series, Table
from glassformer.terminal.explained import SHOWN, lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("explained") / "model")


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
        if name == "two":  # which needs another text
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


def test_each_kind_of_figure_is_a_table():
    unit = Said("u", "유")
    figures = (
        HeatMap("a", unit, ("r",), ("x", "x"), [[1.5, None]], unit, unit, unit),
        Series("b", unit, ("0", "1"), unit, unit, (Line(unit, [0.25, -1.0]),)),
        Graph("c", unit, (Node("n", "from", 0, 0), Node("m", "to", 1, 0)), (Edge("n", "m", 3.5),), ("0", "1"), unit),
        Table("d", unit, (unit, unit), [[f"row {i}", i] for i in range(SHOWN + 3)]),
    )
    shown = [line.plain for line in lines(Explanation("e", unit, unit, figures), "en", 60)]
    for wanted in ("x 1  x 2", "r  1.5", "0  0.25", "1    -1", "from → to  3.5", f"row {SHOWN - 1}  {SHOWN - 1}"):
        assert any(wanted in " ".join(line.split()).replace(" ", " ") or wanted in line for line in shown), wanted
    assert not any(f"row {SHOWN}" in line for line in shown) and any("3 more rows" in line for line in shown)


def test_a_check_that_fails_is_the_exit_status(capsys, folder, monkeypatch):
    monkeypatch.setattr("glassformer.explain.kinds.ledger.EXACT", 0.0)
    status, out, _ = run(capsys, "explain", "ledger", KOREAN, "--lang", "en", "-m", folder)
    assert status == 1 and "✗ Distance between the sum" in out
    status, out, _ = run(capsys, "explain", "ledger", KOREAN, "--json", "-m", folder)
    assert status == 1 and json.loads(out)["checks"][0]["passed"] is False


def test_mistakes_are_refused_with_the_way_out(capsys, folder):
    for arguments, said in (
        (["ledgr", KOREAN], "did you mean ledger"),
        (["ledger", KOREAN, "--set", "depth"], "--set: 'depth' is no name=value; write it as --set layer=2"),
        (["ledger", KOREAN, "--set", "dept=tokens"], "did you mean depth?"),
        (["ledger", KOREAN, "--set", "candidate=#99999"], "there is no #99999"),
        (["ledger", KOREAN, "--target", "x"], "only an encoder-decoder writes a target"),
    ):
        assert said in refused(capsys, "explain", *arguments, "-m", folder)
        assert any("가" <= letter <= "힣" for letter in refused(capsys, "explain", *arguments, "-m", folder, lang="ko"))
