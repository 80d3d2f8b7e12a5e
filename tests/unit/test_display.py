"""What a person sees of tokens: nothing lost, nothing unreadable, columns that line up."""

import unicodedata

import numpy as np
import pytest
import wcwidth
from difficult_text import DIFFICULT, JAMO, JOINED, METHODS, SENTENCES, SYLLABLES, random_strings, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

import glassformer as gf
from glassformer.data.display import cells, cells_of_ids, find, fit, form, readable, visible, width
from glassformer.errors import InputError

NFD = unicodedata.normalize("NFD", "먹었다")
UNREADABLE = {"\ufffd", *map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u200b\u202a\u202e\u2066\ufeff\u00ad"}


def check_readable(shown):
    assert not UNREADABLE & set(shown), ascii(shown)
    assert wcwidth.wcswidth(shown) >= 0
    assert width(shown) == wcwidth.wcswidth(shown), "a shown text is visible as it is"


def check_cells(text, encoding, by):
    """Every token in one cell, every character in the cells' sources, every shown text readable."""
    made = cells(text, encoding, by)
    assert [token for cell in made for token in cell.tokens] == list(range(len(encoding)))
    if by != "token":
        assert "".join(cell.source for cell in made) == text
        starts = np.cumsum([0, *map(len, wcwidth.iter_graphemes(text))])
        assert {cell.start for cell in made} <= set(starts.tolist()), "a cell begins inside a character"
    for cell in made:
        assert cell.source == text[cell.start : cell.end] != ""
        assert cell.text.strip(" ") == cell.text != ""
        check_readable(cell.text)
        assert [part.tokens for part in cell.parts] == ([(t,) for t in cell.tokens] if len(cell.tokens) > 1 else [])
    return made


@pytest.mark.parametrize("method", METHODS)
def test_every_text_passes_through_every_view(method):
    made = tokenizer(method)
    for by in ("character", "word", "token"):
        for text in [*DIFFICULT, SYLLABLES[::9], unicodedata.normalize("NFD", SYLLABLES[::90]), JAMO]:
            check_cells(text, made.encode(text), by)


def test_every_random_string_passes_through_a_view():
    for place, text in enumerate(random_strings()):
        made = tokenizer(METHODS[place % 4])
        check_cells(text, made.encode(text), ("character", "word", "token")[place % 3])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_random_string_passes_through_every_view(method):
    made = tokenizer(method)
    for by in ("character", "word", "token"):
        for text in [*random_strings(), SYLLABLES, unicodedata.normalize("NFD", SYLLABLES)]:
            check_cells(text, made.encode(text), by)


@pytest.mark.parametrize(("method", "shape"), [("byte", "NFC"), ("char", "NFD")])
def test_each_syllable_is_one_cell_in_both_forms(method, shape):
    text = unicodedata.normalize(shape, SYLLABLES)
    shown = cells(text, tokenizer(method).encode(text))
    assert "".join(cell.text for cell in shown) == text
    assert [unicodedata.normalize("NFC", cell.text) for cell in shown] == list(SYLLABLES)
    assert {cell.form for cell in shown} == {"NFD" if shape == "NFD" else ""}
    assert {width(cell.text) for cell in shown} == {2}


def test_parts_of_a_character_show_their_bytes():
    made = tokenizer("byte")
    (cell,) = cells("먹", made.encode("먹"))
    assert (cell.text, cell.tokens) == ("먹", (0, 1, 2))
    assert [part.text for part in cell.parts] == ["⟨EB⟩", "⟨A8⟩", "⟨B9⟩"]
    assert {part.source for part in cell.parts} == {"먹"} and {(p.start, p.end) for p in cell.parts} == {(0, 1)}


def test_joined_characters_are_one_cell():
    made = tokenizer("byte")
    for text in ("👨‍👩‍👧‍👦", "👩🏽‍💻", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇰🇷", "❤️‍🔥", "1️⃣", "e\u0301\u0323", NFD[:3]):
        assert [cell.text for cell in cells(text, made.encode(text))] == [text]
    assert [cell.text for cell in cells("🇰🇷🇫🇷", made.encode("🇰🇷🇫🇷"))] == ["🇰🇷", "🇫🇷"]


@pytest.mark.parametrize("method", METHODS)
def test_words(method):
    text = " 고양이가 생선을  먹었다.\n\n\t끝 "
    shown = cells(text, tokenizer(method).encode(text), "word")
    if method in ("byte", "char"):
        assert [cell.text for cell in shown] == ["고양이가", "생선을", "␠", "먹었다.", "⏎⏎⇥", "끝", "␠"]
    assert [cell.text for cell in shown][:2] == ["고양이가", "생선을"]
    assert shown[1].source == " 생선을" and (shown[1].start, shown[1].end) == (5, 9)
    with pytest.raises(InputError, match=r"by: 'wrod' .*did you mean word\?"):
        cells(text, tokenizer(method).encode(text), "wrod")


def test_tokens_that_differ_by_their_blank_do_not_look_alike():
    made, text = gf.load("small").tokenizer, "The cat ate the fish. The cat"
    shown = [cell.text for cell in cells(text, made.encode(text), "token")]
    assert shown == ["The", "c", "at", "␠at", "e", "the", "f", "ish", ".", "␠The", "c", "at"], "the others stay plain"
    again = cells_of_ids(made, made.encode(text).ids, "token", text)
    assert [cell.text for cell in again] == shown
    words = [cell.text for cell in cells(text, made.encode(text), "word")]
    assert words == ["The", "cat", "ate", "the", "fish.", "The", "cat"], "words stay words"


def test_the_start_token_is_a_cell_of_its_own():
    made = tokenizer("bpe")
    for by in ("character", "word", "token"):
        first, *rest = cells("고양이", made.encode("고양이", start=True), by)
        assert (first.text, first.tokens, first.source, first.start, first.end) == ("⟨start⟩", (0,), "", 0, 0)
        assert not {"<|end|>", "⟨start⟩", "⟨end⟩"} & {cell.text for cell in rest}


def test_cells_of_ids_without_a_text():
    made = tokenizer("byte")
    ids = [*"각".encode(), 0xE3, ord(" "), *"말".encode(), made.end_id, ord("a"), 0xEA, 0xB0]
    shown = cells_of_ids(made, ids)
    assert [cell.text for cell in shown] == ["각", "⟨E3⟩", "␠", "말", "⟨end⟩", "a", "⟨EA⟩", "⟨B0⟩"]
    text = made.decode(ids)
    assert [text[cell.start : cell.end] for cell in shown] == [cell.source for cell in shown]
    assert "".join(cell.source for cell in shown) == text == "각⟨E3⟩ 말a⟨EA⟩⟨B0⟩"
    assert [cell.text for cell in cells_of_ids(made, ids, "word")] == ["각⟨E3⟩", "말", "⟨end⟩", "a⟨EA⟩⟨B0⟩"]
    assert cells_of_ids(made, []) == []


@given(st.lists(st.integers(0, 256), max_size=20))
@settings(max_examples=100, deadline=None)
def test_cells_of_any_ids_are_readable(ids):
    made = tokenizer("byte")
    for by in ("character", "word", "token"):
        shown = cells_of_ids(made, ids, by)
        assert [token for cell in shown for token in cell.tokens] == list(range(len(ids)))
        for cell in shown:
            check_readable(cell.text)
            assert cell.text
        if by != "token":
            assert "".join(cell.source for cell in shown) == made.decode(ids)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        ("\n\t\r\0\x7f\x85", "⏎⇥⟨CR⟩⟨NUL⟩⟨DEL⟩⟨U+0085⟩"),
        ("\u202eabc\u200b\u00a0\u3000\ufffd", "⟨RLO⟩abc⟨ZWSP⟩⟨NBSP⟩⟨U+3000⟩⟨U+FFFD⟩"),
        ("\u0301", "◌\u0301"),
        ("\u1161", "◌\u1161"),
        ("\u1100\u1161", "\u1100\u1161"),
        ("a\u200d", "a⟨ZWJ⟩"),
        ("👨‍👩‍👧", "👨‍👩‍👧"),
        ("\ue000\U0010ffff\u0378", "⟨U+E000⟩⟨U+10FFFF⟩⟨U+0378⟩"),
        ("\ufeffx", "⟨BOM⟩x"),
        ("\u3164", "⟨U+3164⟩"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


def test_readable_blanks():
    pairs = {" cat": "cat", "cat ": "cat␠", "  cat": "␠cat", " ": "␠", "   ": "␠␠␠", " \n": "␠⏎", "a b": "a b", "": ""}
    assert {text: readable(text) for text in pairs} == pairs


def test_form():
    assert [form(text) for text in ("먹다", NFD, "a" + NFD, "abc", "e\u0301", "é", "\u212b", "\u1161")] == (
        ["", "NFD", "NFD", "", "NFD", "", "", ""]
    )


def test_columns_line_up():
    for place, text in enumerate([*DIFFICULT, *random_strings(), *SYLLABLES[::7], NFD * 3]):
        columns = place % 17
        align = ("left", "right", "center")[place % 3]
        shown = fit(text, columns, align)
        assert wcwidth.wcswidth(shown) == columns, ascii(text)
        assert wcwidth.wcswidth(f"| {shown} |") == columns + 4
        assert "\ufffd" not in shown
        if width(text) <= columns:
            assert visible(text) in shown


def test_fit_cuts_between_characters():
    assert (
        fit("고양이", 8) == "고양이  "
        and fit("고양이", 8, "right") == "  고양이"
        and fit("고양이", 9, "center") == " 고양이  "
    )
    assert (
        fit("고양이", 5) == "고양…"
        and fit("고양이", 4) == "고… "
        and fit("고양이", 1) == "…"
        and fit("고양이", 0) == ""
    )
    assert fit("👨‍👩‍👧👨‍👩‍👧", 3) == "👨‍👩‍👧…"
    assert fit(NFD, 3) == NFD[:3] + "…"
    assert fit("\n" * 100_000, 4) == "⏎⏎⏎…"


def test_find():
    text = "고양이가 생선을 먹었다 3 고양이"
    words = cells(text, tokenizer("byte").encode(text), "word")
    assert find(text, words, "먹었다") == [2] == find(text, words, NFD)
    assert find(text, words, "고양이") == [4], "an exact cell comes before a word that contains it"
    assert find(text, words, "생선") == [1] and find(text, words, "이가 생") == [0, 1]
    assert find(text, words, "3") == [3], "a text comes before a number"
    assert find(text, words, "1") == [1]
    single = cells(text, tokenizer("byte").encode(text))
    assert [single[place].text for place in find(text, single, "먹었다")] == ["먹", "었", "다"]
    assert len(find(text, single, "고양이")) == 6
    composed = unicodedata.normalize("NFD", text)
    assert find(composed, cells(composed, tokenizer("byte").encode(composed), "word"), "먹었다") == [2]
    for word in ("개", "5", ""):
        with pytest.raises(InputError, match=r"its rows are: 0 고양이가, 1 생선을, 2 먹었다, 3 3, 4 고양이\."):
            find(text, words, word)


def test_sentences_read_well():
    made = tokenizer("bpe")
    for text in [*SENTENCES, *JOINED]:
        shown = "".join(cell.text for cell in cells(text, made.encode(text)))
        assert not set("Ġ▁Ċ") & set(shown)
