"""A generation on a terminal: never half a character, and in pieces what the whole text would be."""

import io
import sys
import unicodedata

import pytest
import wcwidth
from difficult_text import DIFFICULT, SYLLABLES, random_strings

from glassformer.data.display import visible
from glassformer.generate import Event
from glassformer.terminal.generation import show_batch, show_stream

FAMILY = "👩\u200d👧"
TEXTS = [*DIFFICULT, *(unicodedata.normalize("NFD", text) for text in DIFFICULT), f"한글 é{FAMILY}", "각\u0301\r\na"]


class Terminal(io.StringIO):
    """A terminal that keeps what was written, and every piece of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = []

    def isatty(self) -> bool:
        return True

    def write(self, text):
        self.pieces.append(text)
        return super().write(text)


def events_of(text, row=0):
    """One event a character; one without any where there is none."""
    return [Event(row, 0, character, 1.0) for character in text] or [Event(row, 0, "", 1.0)]


def streamed(monkeypatch, text, prompt=""):
    out = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", io.StringIO())
        show_stream(prompt, events_of(text), "en")
    assert out.getvalue().endswith("\n")
    return out.getvalue()[:-1], out.pieces


def whole(text):
    """What a terminal shows of a text: all of it visible, but for the ends of lines and tabs."""
    lines = [[visible(part) for part in line.split("\t")] for line in text.split("\n")]
    return "\n".join("\t".join(parts) for parts in lines)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_stream_shows_what_the_whole_text_would_show(text, monkeypatch):
    for cut in (0, 1, len(text) // 2):
        assert streamed(monkeypatch, text[cut:], text[:cut])[0] == whole(text)


def test_any_string_and_every_syllable_are_streamed_as_a_whole(monkeypatch):
    for text in (*random_strings(), SYLLABLES, unicodedata.normalize("NFD", SYLLABLES)):
        assert streamed(monkeypatch, text)[0] == whole(text)


def test_a_character_that_may_still_change_waits(monkeypatch):
    """Single jamo, a mark and a joined emoji appear as one piece each, and no later than one token after they end."""
    decomposed = unicodedata.normalize("NFD", "각é") + FAMILY + "!a"
    shown, pieces = streamed(monkeypatch, decomposed)
    assert [piece for piece in pieces if piece] == [*wcwidth.iter_graphemes(decomposed[:-1]), "a\n"]
    assert shown == decomposed


def test_what_was_written_stays_where_a_model_breaks(monkeypatch):
    def broken():
        yield from events_of("가나")
        raise ValueError

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(ValueError):
        show_stream("다", broken(), "ko")
    assert out.getvalue() == "다가나\n"


def test_a_pipe_gets_the_exact_text(capsys):
    for text in TEXTS:
        show_stream("", events_of(text), "en")
        assert capsys.readouterr().out == text + "\n"


def test_a_batch_shows_every_text_as_a_whole(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    show_batch([""] * len(TEXTS), [event for row, text in enumerate(TEXTS) for event in events_of(text, row)])
    assert out.getvalue() == "".join(f"[{row}] {whole(text)}\n" for row, text in enumerate(TEXTS))
