"""What `glassformer embed` prints: the texts with the first numbers of their vectors, and how alike they are."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ..data.display import visible
from ..embedding import Embedded
from .words import say

WIDE = 48  # cells of a text
FIRST = 6  # numbers of a vector


def show_vectors(found: Embedded, texts: list[str], model: str, console: Console, lang: str) -> None:
    """Print a line for each text and, of several, the cosine of each with each other."""
    count, width = found.vectors.shape
    console.print(Text(say("embedded", lang, model=model, count=count, width=width), "bold"), soft_wrap=True)
    names = [f"{number}  {visible(text)}" for number, text in enumerate(texts)]
    wide = min(WIDE, max(map(cell_len, names)))
    for name, vector, length in zip(names, found.vectors.tolist(), found.lengths, strict=True):
        shown = " ".join(f"{number:7.3f}" for number in vector[:FIRST]) + (" …" if width > FIRST else "")
        line = f"{set_cell_size(name, wide)}  {say('tokens_of', lang, count=length):>9}  {shown}"
        console.print(Text(line), soft_wrap=True)
    if count == 1:
        return
    console.print(Text("\n" + say("similar", lang), "bold"), soft_wrap=True)
    per_line = max(1, (console.width - 6) // 8)
    for first in range(0, count, per_line):
        some = range(first, min(first + per_line, count))
        console.print(Text(" " * 6 + "".join(f"{number:>8}" for number in some), "dim"), soft_wrap=True)
        for number, row in enumerate(found.similarities.tolist()):
            console.print(Text(f"{number:>6}" + "".join(f"{row[other]:8.3f}" for other in some)), soft_wrap=True)
