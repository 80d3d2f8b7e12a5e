"""A shipped model's card in the terminal: what it was made of, how well it predicts, what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from ..data.display import fit, visible, width
from .sheet import HEADING, LEAST, MOST, flow, printed
from .words import say

SCORES = ("model", "kneser_ney_5", "xz_9", "xz_9_after_the_training_text")


def show_card(name: str, card: dict[str, Any], console: Console, lang: str) -> None:
    """Print the card of a shipped model."""
    printed(lines(name, card, lang, console.width), console)


def lines(name: str, card: dict[str, Any], lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of the card, none wider than `columns`."""
    columns = max(LEAST, min(columns, MOST))
    ending = "_ko" if lang == "ko" else ""
    yield from flow([(name, "bold"), (card[f"summary{ending}"], "")], columns)
    yield Text()
    yield from _scores(card["bits_per_byte"], lang, columns)
    yield Text()
    yield from flow([(say("card_cannot", lang), HEADING)], columns)
    yield from flow([(card[f"cannot{ending}"], "")], columns, "  ")
    yield Text()
    yield from flow([(say("card_data", lang, licence=card["licence"]), HEADING)], columns)
    for source in card["data"]:
        yield from flow([(source["name"], ""), (source["licence"], ""), (source["credit"], "dim")], columns, "  ", 4)
    yield Text()
    training = card["training"]
    made = say(
        "card_training", lang, steps=training["step"], tokens=training["tokens"], text=training["training_tokens"]
    )
    yield from flow([(made, HEADING)], columns)
    yield from flow([(card["command"], "")], columns, "  ")
    yield from flow([(card[f"made{ending}"], "")], columns, "  ")


def _scores(scores: dict[str, dict[str, float]], lang: str, columns: int) -> Iterator[Text]:
    """Bits per byte of the held-out text: a row a language, a column a contestant."""
    yield from flow([(say("card_scores", lang), HEADING)], columns)
    heads = [say(f"card_{one}", lang) for one in SCORES]
    names = {one: say(f"card_{one}", lang) for one in scores}
    labels = max(map(width, names.values()))
    each = max(max(map(width, heads)) + 2, min(16, (columns - 2 - labels) // len(SCORES)))
    for start in range(0, len(SCORES), (columns - 2 - labels) // each):
        some = range(start, min(start + (columns - 2 - labels) // each, len(SCORES)))
        yield Text("  " + " " * labels + "".join(fit(heads[i], each, "right") for i in some), "dim")
        for one, found in scores.items():
            cells = "".join(fit(f"{found[SCORES[i]]:.3f}", each, "right") for i in some)
            yield Text(f"  {fit(visible(names[one]), labels)}{cells}")
