"""The sheet in the terminal: columns that line up whatever the text, at every width, in both languages."""

import io
import re
import string
import unicodedata

import msgspec
import pytest
import wcwidth
from difficult_text import JOINED
from quick import quick_share
from rich.console import Console
from sheet_models import SPECS, loaded, pair

from glassformer.terminal.sheet import EIGHTHS, bar, flow, head_lines, lines, number, show_heads, show_sheet
from glassformer.terminal.words import WORDS, say

KOREAN, ENGLISH = "고양이가 생선을 먹었다", "The quick fox jumps over it"
TEXTS = [
    KOREAN,
    ENGLISH,
    "고양이 cat 먹었다 ate",
    unicodedata.normalize("NFD", KOREAN),
    *JOINED,
    "\x1b[31mred\x07 \x00 a\nb\tc\rd\u202eabc\u200b",
    "e\u0301\u0323 \u0301 שָׁלוֹם مرحبا",
    "긴" * 80,
]
PLAIN = loaded(method="byte")


def drawn(text, columns=80, lang="ko", model=PLAIN, closed=False, **given):
    return [line.plain for line in lines(model.trace(text).sheet(**given), lang, "tiny", closed, columns)]


def table(shown):
    """The lines of the table, from its header to its sum."""
    start = next(i for i, line in enumerate(shown) if "|α·v|" in line)
    return shown[start : next(i for i, line in enumerate(shown) if i > start and re.match("  (합|sum) ", line)) + 1]


def before(line, character_place):
    return wcwidth.wcswidth(line[:character_place])


def check_clean(text):
    assert not set(text) & {"\ufffd", *map(chr, range(32)), "\x7f", *"\u202e\u200b\u2066"} - {"\n"}, ascii(text)


def check_table(shown):
    """Weights and lengths end in the same column in every line that has them."""
    header, *rows, total = shown
    right = before(header, header.index("|α·v|") + 5)
    weight = before(total, re.search(r"1\.0000", total).end())
    open_rows = [row for row in rows if not re.search("가려짐|masked", row)]
    for row in open_rows:
        found = re.search(r"\d\.\d{4}(?= +\d+\.\d+$| +\d\.\d+e.\d+$)", row)
        assert found and wcwidth.wcswidth(row) == right and before(row, found.end()) == weight, row
    assert open_rows


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_columns_line_up(text, columns):
    shown = drawn(text, columns)
    for line in shown:
        check_clean(line)
        assert 0 <= wcwidth.wcswidth(line) <= columns, line
    check_table(table(shown))


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("name", quick_share(SPECS, 3))
def test_every_kind_of_layer_is_drawn(name, lang):
    model = loaded(SPECS[name])
    for columns in (60, 80, 140):
        shown = drawn(KOREAN, columns, lang, model, token=2)
        assert all(0 <= wcwidth.wcswidth(line) <= columns for line in shown)
        check_table(table(shown))
        shifted = any(kind in name for kind in ("alibi", "relative", "softcap"))
        shifted |= name == "mixed" and ".1.mixer" in shown[2] + shown[3]
        assert (say("score", lang) in table(shown)[0]) == shifted
        assert (say("shift", lang) in table(shown)[0]) == (shifted and columns >= 80)
        assert any(line.startswith(f"  {say('sink', lang)} ") for line in shown) == (
            "sink" in name and "window" not in name
        )
    titles = [line for line in shown if line.startswith("4  ")]
    assert len(titles) == ("no-head" not in name)
    assert all(("자리에 예측" in line or "in the place of" in line) == (name == "full") for line in titles)


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("name", quick_share(["rope", "softcap-sink-relative", "experts", "mixed"], 2, 1))
def test_no_line_is_wider_than_the_terminal(name, lang):
    """From 40 columns on; a terminal that says it has fewer, or none, is taken for one of 40."""
    text = "고양이가 👩🏽‍💻 unbelievably longwords\n먹었다"
    run = loaded(SPECS[name], "byte").trace(text)
    one, other = run.sheet(), run.sheet(0)
    sheets = [run.sheet(layer=one.layer, head=head) for head in range(one.heads)]
    for columns in (*range(40, 81), *range(81, 201, 7)):
        for made in (one, other):
            plain = [line.plain for line in lines(made, lang, "tiny", columns=columns)]
            assert max(map(wcwidth.wcswidth, plain)) <= columns
            assert all(f"= {value.norm:.3f}" in "\n".join(plain) for value in made.quantities), "no number is cut"
        assert max(wcwidth.wcswidth(line.plain) for line in head_lines(sheets, lang, columns)) <= columns
    for columns in (-1, 0, 1, 39):
        assert [line.plain for line in lines(one, lang, columns=columns)] == (
            [line.plain for line in lines(one, lang, columns=40)]
        )


@pytest.mark.parametrize("columns", [40, 48, 56, 80])
def test_the_column_of_a_score_holds_scores(columns):
    """What a distance bias adds may be left out for want of room, what softmax reads may not."""
    made = loaded(SPECS["alibi"]).trace(KOREAN).sheet(layer=0)
    header, *rows, _ = table([line.plain for line in lines(made, "en", columns=columns)])
    digits = 4 if columns > 48 else 3
    assert header.split()[-1] == "|α·v|" and "= score" in header
    for row in made.rows:
        for part in (*row.parts, row):
            wanted = f"{part.score:z.{digits}f}".replace("-", "−")
            end = before(header, header.index("= score") + 7)
            assert any(before(line, match.end()) == end for line in rows for match in re.finditer(wanted, line))


def test_a_value_that_did_not_move_is_said_to_be_so():
    made = PLAIN.trace(ENGLISH).sheet(0)
    shown = " ".join(line.plain.strip() for line in lines(made, "en"))
    assert made.away == 0 and "0.000 away" in shown and "nothing has moved it" in shown
    assert "the others have moved it" in " ".join(drawn(ENGLISH, 120, "en"))
    sink = loaded(SPECS["sink"]).trace(ENGLISH).sheet(0)
    assert sink.away > 0.001
    assert "the others and the sink" in " ".join(line.plain for line in lines(sink, "en", columns=120))


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_a_text_beyond_the_context_is_said_to_be_so(lang):
    context = PLAIN.spec.context
    made = PLAIN.trace("a" * (context + 9)).sheet()
    assert made.length == context + 10 and made.context == context
    said = say("beyond", lang, length=made.length, context=context)
    for view in (lines(made, lang, columns=140), head_lines([made], lang, 140)):
        assert said in re.sub(r"\s+", " ", " ".join(line.plain for line in view))
    short = PLAIN.trace("a" * (context - 1)).sheet()
    assert short.length == context
    assert said[:12] not in " ".join(line.plain for line in lines(short, lang))


def test_candidates_show_the_space_that_begins_a_word():
    from glassformer.explain.sheet import Next

    made = PLAIN.trace(ENGLISH).sheet()
    pair = (Next(1, "␠고", " 고", False, 1.0, 0.5), Next(2, "고", "고", False, 1.0, 0.5))
    shown = [line.plain for line in lines(msgspec.structs.replace(made, next=pair), "ko")]
    assert any(line.startswith("  ␠고 ") for line in shown) and any(line.startswith("  고 ") for line in shown)


def test_numbers_are_those_of_the_sheet():
    made = PLAIN.trace(ENGLISH).sheet()
    shown = "\n".join(drawn(ENGLISH, 80, "en"))
    for row in made.rows:
        for part in row.parts or (row,):
            line = next(x for x in shown.split("\n") if number(part.dot).strip() in x and f"{part.weight:.4f}" in x)
            assert number(part.scaled).strip() in line and number(part.share_norm).strip() in line
    assert f"{made.z.norm:.4f} = |z|" in shown and f"{made.next[0].probability:.2%}" in shown
    assert all(f"{value:.2f}" in shown for value in made.journey)


def test_words_open_and_close():
    made = PLAIN.trace(KOREAN).sheet("생선을")
    opened, closed = (table(drawn(KOREAN, closed=closed, token="생선을")) for closed in (False, True))
    tokens = [len(row.tokens) for row in made.rows]
    assert len(closed) == 2 + len(tokens)
    dark = [row for row in made.rows if row.reason]
    assert [row.label for row in dark] == ["먹었다"] and len(dark[0].parts) == 10
    assert len(opened) == 2 + len(tokens) + sum(count for count in tokens[:-1] if count > 1)
    (line,) = [row for row in opened if "가려짐" in row]
    assert line.split() == ["먹었다", "가려짐:", "뒤에", "오는", "토큰"]
    assert [row for row in opened if row.startswith("▶")] == [row for row in closed if row.startswith("▶")]
    assert [row.split()[1] for row in opened if row.startswith("▶")] == ["생선을"]


def test_the_token_before_the_text_has_a_name_and_typed_text_stays():
    assert any(line.startswith("  ⟨시작⟩ ") for line in drawn("a <|end|> b"))
    assert any(line.startswith("  ⟨start⟩ ") for line in drawn("a <|end|> b", lang="en"))
    assert sum("<|end|>" in line for line in table(drawn("a <|end|> b"))) == 1
    ids = [PLAIN.tokenizer.end_id, 65, PLAIN.tokenizer.end_id, 66]
    shown = "\n".join(line.plain for line in lines(PLAIN.trace(ids).sheet(), "ko"))
    assert "⟨시작⟩" in shown and "⟨끝⟩" in shown


def test_the_first_token_sees_only_itself():
    assert any("only itself" in line for line in drawn(ENGLISH, lang="en", token=0))
    assert any("자기 자신만" in line for line in drawn(KOREAN, token=0))


@pytest.mark.parametrize(("given", "key"), [({}, "none"), ({"layer": 1}, "layer"), ({"head": 2}, "head"), ({"layer": 0, "head": 1}, "layer_head")])  # fmt: skip # noqa: E501
def test_it_says_how_the_head_was_found(given, key):
    for lang in ("en", "ko"):
        made = PLAIN.trace(KOREAN).sheet(**given)
        said = say(f"by_{key}", lang, move=made.moves[made.layer][made.head], head=made.head)
        assert said in drawn(KOREAN, 120, lang, **given)


def test_addresses_on_a_wide_terminal_only():
    assert "blocks.0.mixer.out" in "\n".join(drawn(KOREAN, 120, layer=0))
    assert "blocks.0.mixer.out" not in "\n".join(drawn(KOREAN, 80, layer=0))


def test_experts_and_widths():
    shown = "\n".join(drawn(KOREAN, 120, "en", loaded(SPECS["experts"])))
    assert re.search(r"The router chose expert \d \(\d+%\), \d \(\d+%\) \(each an FFN 16 → 48 → 16\)", shown)
    assert re.search(
        r"FFN 16 → 24 → 16\. Hidden units above zero: \d+%", "\n".join(drawn(KOREAN, 120, "en", loaded(SPECS["relu2"])))
    )


def test_a_pair_is_drawn():
    model = loaded(pair())
    shown = "\n".join(line.plain for line in lines(model.trace((ENGLISH, KOREAN)).sheet(), "ko"))
    assert KOREAN in shown and "x + Cross" in shown and "교차 어텐션" in shown


@pytest.mark.parametrize("name", ["rope", "mixed"])
@pytest.mark.parametrize("columns", [56, 80, 200])
def test_all_heads_at_a_glance(name, columns):
    run = loaded(SPECS[name], "byte").trace("고양이가 👩🏽‍💻 cat\n먹었다")
    first = run.sheet()
    sheets = [run.sheet(layer=first.layer, head=head) for head in range(first.heads)]
    for lang in ("en", "ko"):
        shown = [line.plain for line in head_lines(sheets, lang, columns)]
        for line in shown:
            check_clean(line)
            assert wcwidth.wcswidth(line) <= columns
        whole = "\n".join(shown)
        assert all(f"{value:8.3f}" in whole for row in first.moves for value in row)
        for sheet in sheets:
            best = max(sheet.rows, key=lambda row: row.weight)
            assert f"{best.weight:.3f}" in whole


# ---------------------------------------------------------------- the printing itself


def printed(show, *given, **settings):
    out = io.StringIO()
    show(*given, Console(file=out, highlight=False, **settings), "ko", *(["tiny"] if show is show_sheet else []))
    return out.getvalue()


def test_a_pipe_gets_plain_text_and_no_color_is_respected():
    made = PLAIN.trace(KOREAN).sheet()
    assert "\x1b" not in printed(show_sheet, made, width=80) + printed(show_heads, [made], width=80)
    assert printed(show_sheet, made, width=80).split("\n")[:-1] == [x.rstrip() for x in drawn(KOREAN)]
    colour = printed(show_sheet, made, force_terminal=True, width=80, color_system="standard")
    assert "\x1b[32m" in colour and "\x1b[1;36m" in colour
    grey = printed(show_sheet, made, force_terminal=True, width=80, color_system="standard", no_color=True)
    assert not re.search(r"\x1b\[[\d;]*(3[0-7]|9[0-7])m", grey)
    assert re.sub(r"\x1b\[[\d;]*m", "", colour) == printed(show_sheet, made, width=80)


def test_the_printer_breaks_no_line():
    made = PLAIN.trace("긴" * 40).sheet()
    assert printed(show_sheet, made, width=30).count("\n") == len(list(lines(made, "ko", columns=30)))


# ---------------------------------------------------------------- parts


def test_bar():
    assert [bar(share, 4) for share in (0, 1, 0.5, 1 / 32, 2, -1)] == ["    ", "████", "██  ", "▏   ", "████", "    "]
    for eighth in range(81):
        drawn_bar = bar(eighth / 80, 10)
        assert len(drawn_bar) == wcwidth.wcswidth(drawn_bar) == 10
        assert drawn_bar.count("█") * 8 + sum(EIGHTHS.index(c) for c in drawn_bar if c in EIGHTHS[1:8]) == eighth


def test_number():
    assert [number(x).strip() for x in (1.5, -2, None, -1e-9, 123456.7, -1e-300)] == (
        ["1.5000", "−2.0000", "·", "0.0000", "1.23e+05", "0.0000"]
    )
    for value in (0.0, -1.0, 99999.0, -99999.0, 1e30, -1e30, -12345.678, None):
        for columns in (9, 10, 11):
            assert len(number(value, columns)) == columns and number(value, columns).startswith(" ")


def test_flow_folds_between_words():
    found = [line.plain for line in flow([("one two three", ""), ("a = b", ""), ("longerthanaline", "")], 10, "> ")]
    assert found == ["> one two", "  three", "  a = b", "  longert…"]
    assert [line.plain for line in flow([("고양이가 생선을", "")], 12, "  ", 4)] == ["  고양이가", "    생선을"]


# ---------------------------------------------------------------- the words


def fields(text):
    return {(name, spec) for _, name, spec, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("word", WORDS)
def test_both_languages_say_the_same(word):
    assert set(WORDS[word]) == {"en", "ko"} and all(WORDS[word].values())
    assert fields(WORDS[word]["en"]) == fields(WORDS[word]["ko"])
    assert word in ("token", "head", "layer") or not re.search("[가-힣]", WORDS[word]["en"])
    # A particle that changes with the sound before it may not follow a value or a closing quote.
    assert not re.search(r"(\}|\})’?(은|는|이|가|을|를|과|와|으로|로|이며)(?![가-힣])", WORDS[word]["ko"]) or word in (
        "ffn",
    )
