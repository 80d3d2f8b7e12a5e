"""glassformer explain: what it prints is what gf.explain gives, within the terminal's width and in both languages."""

import json

import msgspec
import pytest
import wcwidth
from cli_runs import KOREAN, refused, run, write

import glassformer as gf
from glassformer.explain.explanation import Explanation, Series, Table

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


def test_edits_and_long_figures(capsys, folder):
    status, out, _ = run(capsys, "explain", "next", KOREAN, "-m", folder, "--edit", "zero blocks.1.mixer.z h=0")
    cut = gf.load(folder).trace(KOREAN, edits=gf.zero("blocks.1.mixer.z", h=0))
    best = gf.explain("next", cut).figure("candidates").rows[0]
    assert status == 0 and f"{best[3]:.4g}" in out and f"{best[4]:.4g}" in out
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
