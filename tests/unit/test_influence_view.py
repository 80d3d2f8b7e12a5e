"""What moved a token, as a person sees it: the table in the terminal, the figure, and the command."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
import wcwidth
from difficult_text import DIFFICULT
from sheet_models import SPECS, loaded, pair
from test_terminal_sheet import check_clean

from glassformer.api import build, load
from glassformer.checkpoint import save_model
from glassformer.cli import main
from glassformer.edit import zero
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.moved import aligned
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
    assert out.startswith(f"{KOREAN}\n각 단어가 ‘먹었다’의 벡터를 움직이는 정도")
    assert err == f"그림을 저장했습니다: {figure}\n"
    assert (
        len(list(ElementTree.fromstring(figure.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}g"))) == 2
    )
    assert main(["influence", "the cat", "-m", folder, "--token", "the", "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    wanted = load(folder).trace("the cat").moved("the")
    assert given["token"] == "the" and [row["norm"] for row in given["rows"]] == [row.norm for row in wanted.rows]


def test_the_weights_of_one_layer_are_those_of_the_trace():
    run = BPE.trace(KOREAN)
    table, pattern = run.moved("생선을", what="weights", layer=1, head=2), run.part("blocks.1.mixer.pattern", b=0, h=2)
    assert (table.what, table.name, table.head) == ("weights", "blocks.1.mixer.pattern", 2)
    for row in table.rows:
        assert math.isclose(row.norm, float(pattern[table.position, list(row.tokens)].sum()), rel_tol=1e-5)
        assert math.isclose(sum(part.norm for part in row.parts) if row.parts else row.norm, row.norm, rel_tol=1e-9)
    mean = run.moved("생선을", what="weights", layer=1)
    whole = run["blocks.1.mixer.pattern"][0].mean(0)[table.position]
    assert math.isclose(mean.rows[0].share, float(whole[list(mean.rows[0].tokens)].sum()), rel_tol=1e-5)
    shown = " ".join(drawn([table], lang="en"))
    assert "With what weight each word is summed up" in shown and "blocks.1.mixer.pattern, head 2." in shown


@pytest.mark.parametrize("name", ["linear-attention", "mamba", "mamba2", "gla", "deltanet"])
def test_effective_weights_are_reached_in_every_family_whose_past_is_a_sum(name):
    made = build(name, vocab=300, dim=16, blocks=2, **({} if name == "mamba" else {"heads": 2}))
    run = made.trace([1, 2, 3, 4, 5])
    found = run.weights([4, 2], layer=1)
    value = run["blocks.1.mixer.weights"][0]  # h t s, or a channel in place of a head
    assert found.name == "blocks.1.mixer.weights" and found.norms.shape == (2, 5)
    assert torch.allclose(found.norms, value.abs().mean(0)[[4, 2]]) and (found.norms[1, 3:] == 0).all()
    assert found.norms[0].count_nonzero() > 1


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_six_models_keep_within_any_terminal(columns, lang):
    tables = [one.trace(KOREAN + " and the cat ate").moved() for one in (BYTES, BPE)] * 3
    for line in drawn(tables, columns, lang):
        assert wcwidth.wcswidth(line) <= columns
    shares = re.findall(r"\d+\.\d%", "\n".join(drawn(tables, columns, lang)))
    assert len(shares) == 6 * len(aligned(tables)[0].rows), "every number is there, beside or below"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--layer", "0"], "--layer: influence goes through all layers and heads; leave it out, or give --what"),
        (["a", "--what", "weights", "--layer", "9"], "layer: axis 'l' has no index 9"),
        (["a", "--what", "weights", "--head", "9"], "axis 'h' has no index 9"),
        (["a", "--save", "f.png"], "does not end in .svg, the format of the figure"),
        (["a", "--by", "token", "-m", "small", "-m", "small"], "--by: token cuts a text as one model's tokenizer does"),
        (["a", "--memory", "0"], "--memory: 0 is not allowed; use 1 or more"),
        (["  "], "the text is empty"),
        (["a", "--token", "b"], "'b'"),
        (["a", "--directions", "7"], "directions: 7 is not allowed; use a whole number from 8"),
        (["a", "-m", "nowhere"], "no model 'nowhere'"),
        (["a", "--of", "source"], "only an encoder-decoder has a source"),
        (
            ["가", "-m", "korean-g2p", "--save", "f.svg"],
            "--save: the figure draws how a text's tokens move one another",
        ),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    assert main(["influence", *arguments, "--lang", "en"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err


def test_weights_over_a_source_are_those_of_the_alignment(capsys):
    told = ["influence", "먹었다", "-m", "korean-g2p", "--what", "weights", "--json"]
    assert main(told) == 0
    given, aligned = json.loads(capsys.readouterr().out), load("korean-g2p").trace("먹었다").alignment()
    assert [row["label"] for row in given["rows"]] == list(aligned.source)
    assert torch.allclose(torch.tensor([row["norm"] for row in given["rows"]]), torch.tensor(aligned.weights[-1]))
    assert main([*told, "--of", "text"]) == 2
    assert 'of(--of)를 빼거나 "source"를 지정하십시오' in capsys.readouterr().err


def test_of_an_encoder_decoder_the_command_shows_the_source_that_was_typed(capsys):
    run = load("korean-g2p").trace("먹었다")
    d = next(i for i, cell in enumerate(run.cells("token")) if cell.text == "d")
    exact = run.influence(rows=[d - 1], of="source")  # one step before it
    assert main(["influence", "먹었다", "-m", "korean-g2p", "--token", "d", "--lang", "en"]) == 0
    first, title, _, _, *rows = capsys.readouterr().out.splitlines()
    assert first == f"먹었다 → {run.text}" and "moves the vector that ‘d’ was written from" in f"{title} {rows}"
    shown = [line for line in rows if line.endswith("%")]
    assert [line.split()[0] for line in shown] == [cell.text for cell in run.source_cells("token")]
    shares = [f"{share:.1%}" for share in exact.shares[0].tolist()]
    assert [line.split()[-1] for line in shown] == shares and not any("▶" in line for line in shown)
    assert main(["influence", "먹었다", "-m", "korean-g2p", "--of", "text", "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"먹었다 → {run.text}\nHow strongly each word moves") and "▶ a" in out


def test_a_pair_in_python_moves_from_its_source_as_well():
    run = loaded(pair(), "byte").trace(("고양이", "cat sat"))
    place = run.cells()[run.rows("sat")[-1]].tokens[0] - 1
    table, found = run.moved("sat", of="source"), run.influence(rows=[place], of="source")
    assert (table.of, table.source, table.token, table.position) == ("source", "고양이", "sat", place)
    norms = found.norms[0].double()
    for row in table.rows:
        assert math.isclose(row.norm, float(norms[list(row.tokens)].square().sum().sqrt()), rel_tol=1e-4)
    assert "".join(row.text for row in table.rows) == "고양이" and table.rows[0].norm > 0
    twice = aligned([table, table])
    assert twice[0].token == "sat" and [row.norm for row in twice[0].rows] == [row.norm for row in table.rows]
    with pytest.raises(InputError, match="of: 'up' is not allowed; use text, source"):
        run.moved("sat", of="up", what="weights")
    with pytest.raises(UnsupportedError, match="only an encoder-decoder has a source"):
        BPE.trace("a").moved(of="source")
    with pytest.raises(UnsupportedError, match="the figure draws how a text's tokens move"):
        run.grid(of="source")


def test_of_several_models_a_mistake_names_the_one_that_it_is_about(capsys, folder, tmp_path):
    made = build("lstm", vocab=BPE.tokenizer.vocab_size, dim=8, blocks=1)
    save_model(made.model, tmp_path / "my-lstm")
    BPE.tokenizer.save(tmp_path / "my-lstm" / "tokenizer.json")
    told = ["influence", "the cat", "--what", "weights", "-m", str(tmp_path / "my-lstm"), "--lang", "en"]
    assert main(told) == 2 and capsys.readouterr().err.startswith("glassformer: this model has no layer")
    assert main([*told, "-m", folder]) == 2
    assert "my-lstm: this model has no layer that sums up its past" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["trace", "influence"])
def test_a_word_that_no_part_has_is_looked_for_in_all_of_them(capsys, verb):
    told = [verb, "고양이가 먹었다", "-m", "korean-g2p", "--lang", "en", "--token"]
    assert main([*told, "고양이가"]) == 2
    message = capsys.readouterr().err
    assert "고양이가 → ⟨start⟩, g, o" in message and "먹었다 → ⟨start⟩, m" in message
    assert main([*told, "ja"]) == 0  # of the first word only


def test_a_model_that_writes_its_own_text_does_not_stand_beside_others(capsys, tmp_path):
    told = ["influence", "고양이", "-m", "small", "-m", "korean-g2p", "--save", str(tmp_path / "f.svg"), "--lang", "en"]
    assert main(told) == 2 and not (tmp_path / "f.svg").exists()
    assert "these models did not read the same text" in capsys.readouterr().err
