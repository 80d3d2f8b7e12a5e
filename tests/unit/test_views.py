"""Every syllable, difficult texts and any string in the terminal's views: columns line up, nothing is garbled."""

import unicodedata

import msgspec
import pytest
import wcwidth
from difficult_text import DIFFICULT, JAMO, SYLLABLES, random_strings
from quick import quick_share
from sheet_models import loaded
from test_terminal_sheet import check_clean, check_table, table

from glassformer.data.display import readable
from glassformer.explain.sheet import Next
from glassformer.terminal.sheet import head_lines, lines

MODEL = loaded(method="byte")
SHEET = MODEL.trace("a b c").sheet(layer=0, head=0)
STRINGS = [
    *(SYLLABLES[i : i + 8] for i in range(0, len(SYLLABLES), 8)),
    *(unicodedata.normalize("NFD", SYLLABLES[i : i + 8]) for i in range(0, len(SYLLABLES), 8)),
    *JAMO,
    *random_strings(),
]


def labelled(strings):
    """A sheet whose words, text and candidates are the strings."""
    shown = [(readable(one) or "·", one) for one in strings]
    row, part, many = SHEET.rows[1], SHEET.rows[0], " ".join(one for one, _ in shown)
    part = msgspec.structs.replace(part, special=False)
    rows = [
        msgspec.structs.replace(
            row, label=label, text=one, special=False, parts=(msgspec.structs.replace(part, label=label, text=one),)
        )
        for label, one in shown
    ]
    ahead = tuple(Next(1, label, one, False, 1.0, 0.5) for label, one in shown)
    return msgspec.structs.replace(SHEET, text=many, token=shown[-1][0], rows=tuple(rows), next=ahead)


@pytest.mark.parametrize("columns", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_any_string_and_every_syllable_line_up(columns):
    drawn = 0
    for first in range(0, len(STRINGS), 500):
        made = labelled(STRINGS[first : first + 500])
        for view in (lines(made, "ko", "tiny", columns=columns), head_lines([made], "ko", columns)):
            plain = [line.plain for line in view]
            drawn += len(plain)
            for line in plain:
                check_clean(line)
                assert 0 <= wcwidth.wcswidth(line) <= columns, ascii(line)
    assert drawn > 3 * len(STRINGS)


@pytest.mark.parametrize("text", quick_share(filter(None, DIFFICULT), 3, 1), ids=lambda text: ascii(text)[:24])
def test_difficult_texts_are_drawn(text):
    run = MODEL.trace(text)
    made = run.sheet()
    for columns in (40, 63, 80, 140):
        shown = [line.plain for line in lines(made, "en", "tiny", columns=columns)]
        for line in [*shown, *(line.plain for line in head_lines([made], "en", columns))]:
            check_clean(line)
            assert 0 <= wcwidth.wcswidth(line) <= columns
        if columns > 60:
            check_table(table(shown))
