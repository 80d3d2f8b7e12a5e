"""What moved a token, as a person sees it: the table in the terminal, the figure, and the command."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
import wcwidth
from difficult_text import DIFFICULT
from sheet_models import SPECS, loaded, pair
from test_terminal_sheet import check_clean

from glassformer.api import load
from glassformer.checkpoint import save_model
from glassformer.cli import main
from glassformer.errors import InputError
from glassformer.explain.moved import aligned
from glassformer.figures.influence import Panel, svg
from glassformer.tap import zero
from glassformer.terminal.influence import lines

KOREAN = "고양이가 생선을 먹었다"
BYTES, BPE = loaded(method="byte"), loaded(SPECS["rope"], "bpe")
BYTES.name, BPE.name = "bytes", "조각"


def drawn(tables, columns=80, lang="ko", closed=False):
    return [line.plain for line in lines(tables, lang, closed, columns)]


def test_a_words_norm_is_that_of_all_its_tokens_and_shares_sum_to_one():
    run = BPE.trace(KOREAN)
    table, found = run.moved("생선을"), run.influence()
    position = run.cells()[run.rows("생선을")[-1]].tokens[-1]
    assert (table.position, table.exact, table.token) == (position, True, "생선을") and table.passes == 16
    norms = found.norms[position].double()
    for row in table.rows:
        assert math.isclose(row.norm, float(norms[list(row.tokens)].square().sum().sqrt()), rel_tol=1e-4)
        if row.parts:
            assert math.isclose(sum(part.share for part in row.parts), row.share, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(sum(row.share for row in table.rows), 1.0, rel_tol=1e-9)
    assert [row.share for row in table.rows[table.row + 1 :]] == [0.0] * (len(table.rows) - table.row - 1)
    assert "".join(row.text for row in table.rows) == KOREAN


def test_an_estimate_says_its_error():
    run = BYTES.trace(KOREAN)
    table, exact = run.moved(method="estimate", directions=8), run.moved(method="exact")
    assert not table.exact and table.passes == 8 and exact.passes == 16
    for row, true in zip(table.rows, exact.rows, strict=True):
        assert row.error > 0 or row.norm == 0
        assert abs(row.norm - true.norm) < 6 * row.error + 1e-9
    assert re.search(r"표준오차는 가장 큰 값의 \d+\.\d% 이하", " ".join(drawn([table])))


def test_a_run_with_edits_is_refused():
    with pytest.raises(InputError, match="without edits"):
        BPE.trace(KOREAN, edits=zero("blocks.0.mixer.z")).moved()


def test_an_encoder_decoder_shows_its_target():
    made = loaded(pair(), "byte")
    table = made.trace(("고양이", "cat sat")).moved("sat")
    assert [row.text.strip() for row in table.rows if not row.special] == ["cat", "sat"]


@pytest.mark.parametrize("text", [text for text in DIFFICULT if text.strip()], ids=lambda text: ascii(text)[:24])
def test_difficult_texts_line_up_at_every_width(text):
    tables = [one.trace(text).moved() for one in (BYTES, BPE, BYTES)]
    for columns in (40, 63, 80, 140):
        for some in (tables, tables[:1]):
            shown = drawn(some, columns)
            for line in shown:
                check_clean(line)
                assert 0 <= wcwidth.wcswidth(line) <= columns, ascii(line)
            ends = {wcwidth.wcswidth(line) for line in shown if line.endswith("%")}
            assert len(ends) <= len(some)  # blocks of several models end where they end, each in one column


def test_words_that_a_models_token_joins_are_one_row_for_all():
    texts = [
        text for text in DIFFICULT if text.strip() and len(BPE.trace(text).cells()) != len(BYTES.trace(text).cells())
    ]
    assert texts, "some token of the BPE reaches over the end of a word"
    for text in texts:
        before = [one.trace(text).moved() for one in (BYTES, BPE)]
        after = aligned(before)
        assert [row.text for row in after[0].rows] == [row.text for row in after[1].rows]
        for old, new in zip(before, after, strict=True):
            assert "".join(row.text for row in new.rows) == text
            assert math.isclose(sum(r.norm**2 for r in new.rows), sum(r.norm**2 for r in old.rows), rel_tol=1e-9)
            assert set(old.rows[old.row].tokens) <= set(new.rows[new.row].tokens)
            assert math.isclose(sum(row.share for row in new.rows), 1.0, rel_tol=1e-9)


def test_models_stand_side_by_side_and_fold_where_there_is_no_room():
    tables = [one.trace(KOREAN).moved("먹었다") for one in (BYTES, BPE)]
    wide, narrow = drawn(tables, 100), drawn(tables * 2, 40)
    [row] = [line for line in wide if line.startswith("▶")]
    assert "먹었다" in row and len(re.findall(r"\d+\.\d%", row)) == 2
    assert len([line for line in narrow if line.startswith("▶")]) > 1
    shares = [f"{table.rows[table.row].share:.1%}" for table in tables]
    assert re.findall(r"\d+\.\d%", row) == shares
    assert not any("먹" in line and not line.startswith("▶") for line in wide[3:-4]), (
        "several models: words stay closed"
    )


# ---------------------------------------------------------------- the figure


def test_the_figure_draws_every_share_and_names_every_token():
    run = BPE.trace('<고양이> & "cat"')
    found = run.influence()
    picture = svg([Panel("a < b", "exact", run.labels("t"), found.shares.tolist())] * 2)
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    said = [title.text for title in root.iter(f"{space}title")]
    count = int((found.shares > 0).sum())
    assert len(said) == 2 * count == len([r for r in root.iter(f"{space}rect") if r.get("fill-opacity")])
    last = f"{run.labels('t')[0]} → {run.labels('t')[-1]}: {float(found.shares[-1, 0]):.2%}"
    assert last in said
    strongest = max(root.iter(f"{space}rect"), key=lambda one: float(one.get("fill-opacity", 0)))
    assert float(strongest.get("fill-opacity")) == 1 and "a < b" in "".join(root.itertext())
    wide = svg([Panel("long", "", [f"토큰{i}" for i in range(100)], [[1.0] * 100] * 100)], "ko")
    assert wide.count("토큰99 →") == 100 and wide.count(">토큰4<") == 2 and ">토큰1<" not in wide


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    save_model(BPE.model, path)
    BPE.tokenizer.save(path / "tokenizer.json")
    return str(path)


def test_the_command_prints_json_and_a_figure(capsys, folder, tmp_path):
    figure = tmp_path / "f.svg"
    assert main(["influence", KOREAN, "-m", folder, "-m", folder, "--save", str(figure)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{KOREAN}\n각 단어가 ‘먹었다’의 벡터를 움직이는 정도") and err == ""
    assert ElementTree.fromstring(figure.read_text(encoding="utf-8")) is not None
    assert main(["influence", "the cat", "-m", folder, "--token", "the", "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    wanted = load(folder).trace("the cat").moved("the")
    assert given["token"] == "the" and [row["norm"] for row in given["rows"]] == [row.norm for row in wanted.rows]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--save", "f.png"], "does not end in .svg, the format of the figure"),
        (["a", "--by", "token", "-m", "small", "-m", "small"], "--by: token cuts a text as one model's tokenizer does"),
        (["a", "--memory", "0"], "--memory: 0 is not allowed; use 1 or more"),
        (["  "], "the text is empty"),
        (["a", "--token", "b"], "'b'"),
        (["a", "--directions", "7"], "directions: 7 is not allowed; use a whole number from 8"),
        (["a", "-m", "nowhere"], "no model 'nowhere'"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    assert main(["influence", *arguments, "--lang", "en"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err
