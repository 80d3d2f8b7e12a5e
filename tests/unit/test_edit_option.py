"""--edit: an edit as words, in the terminal and back."""

import json

import pytest
from cli_runs import refused, run

import glassformer as gf
from glassformer.errors import InputError
from glassformer.terminal.edits import edit_of, words_of

TEXT = "고양이가 생선을 먹었다"
EDITS = {
    "zero blocks.3.mixer.z h=0": gf.zero("blocks.3.mixer.z", h=0),
    "mean blocks.0.mixer.z h=0,2": gf.mean("blocks.0.mixer.z", h=[0, 2]),
    "scale blocks.0.mixer.out 0.5": gf.scale("blocks.0.mixer.out", 0.5),
    "add positions -3 t=-1": gf.add("positions", -3, t=-1),
    "noise embed.out 0.1 t=2": gf.noise("embed.out", 0.1, t=2),
}


@pytest.mark.parametrize("text", EDITS)
def test_words_are_the_edit(text):
    found, wanted = edit_of(text), EDITS[text]
    assert (found.name, found.kind, found.where, found.value) == (wanted.name, wanted.kind, wanted.where, wanted.value)
    assert words_of(found) == text
    assert eval(found.line, {"gf": gf}).where == wanted.where and type(found.value) is type(wanted.value)


def test_the_seed_of_noise():
    assert edit_of("noise embed.out 0.1 seed=7").seed == 7
    assert edit_of("noise embed.out 0.1 seed=7").line == "gf.noise('embed.out', 0.1, seed=7)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no edit"),
        ("zero", "this is no edit"),
        ("erase blocks.0.mixer.z", "this is no edit"),
        ("zero blocks.0.mixer.z 3", "zero takes no number; leave 3 out"),
        ("scale blocks.0.mixer.z h=1", "scale takes one number behind the name; it has 0"),
        ("scale blocks.0.mixer.z 1 2", "it has 2"),
        ("scale blocks.0.mixer.z nan", "'nan' is no number"),
        ("zero blocks.0.mixer.z h=a", "'h=a' is no place"),
        ("zero blocks.0.mixer.z =1", "'=1' is no place"),
    ],
)
def test_mistakes(text, said):
    with pytest.raises(InputError) as error:
        edit_of(text)
    assert said in str(error.value)


def test_trace_prints_the_sheet_of_the_changed_run(capsys):
    status, out, _ = run(
        capsys, "trace", TEXT, "--json", "--edit", "zero positions", "--edit", "zero blocks.3.mixer.z h=0"
    )
    other = gf.load().trace(TEXT, edits=[gf.zero("positions"), gf.zero("blocks.3.mixer.z", h=0)]).sheet()
    assert status == 0
    found = [one["probability"] for one in json.loads(out)["next"]]
    assert found == pytest.approx([one.probability for one in other.next], rel=1e-6)
    plain = [one.probability for one in gf.load().trace(TEXT).sheet().next]
    assert found != pytest.approx(plain, rel=1e-2)


def test_a_place_that_is_not_there_is_refused_in_korean(capsys):
    said = refused(capsys, "trace", TEXT, "--edit", "zero blocks.0.mixer.z h=9", lang="ko")
    assert "'h' 축에 없는 번호입니다: 9" in said
    assert "바꾸는 지시가 아닙니다" in refused(capsys, "trace", TEXT, "--edit", "zero", lang="ko")
