"""A model's card in the terminal: its size, how well it predicts, what it cannot do, what it was made of; of these what
its about.json says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ..data.display import fit, visible, width
from .sheet import HEADING, LEAST, MOST, flow, printed
from .words import say

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier
    from ..model import ModelSpec

SCORES = ("model", "kneser_ney_5", "xz_9", "xz_9_after_the_training_text")


def show_card(model: Loaded | Classifier, console: Console, lang: str) -> None:
    """Print the card of a model."""
    printed(lines(model, lang, console.width), console)


def lines(model: Loaded | Classifier, lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of the card, none wider than `columns`."""
    columns, card = max(LEAST, min(columns, MOST)), model.about
    yield from flow([(visible(model.name), "bold"), (text_of(card, "summary", lang), "")], columns)
    yield from flow([(_size(model, lang), "dim")], columns)
    if isinstance(card.get("bits_per_byte"), dict):
        yield Text()
        yield from _scores(card["bits_per_byte"], lang, columns)
    if "test_error" in card:
        yield Text()
        yield from flow([(say("card_error", lang, error=card["test_error"]), HEADING)], columns)
    if "cannot" in card:
        yield Text()
        yield from flow([(say("card_cannot", lang), HEADING)], columns)
        yield from flow([(text_of(card, "cannot", lang), "")], columns, "  ")
    if "licence" in card:
        yield Text()
        yield from flow([(say("card_data", lang, licence=_either(card, "licence", lang)), HEADING)], columns)
    for source in card.get("data", ()):
        credit = _either(source, "credit", lang)
        yield from flow([(source["name"], ""), (source["licence"], ""), (credit, "dim")], columns, "  ", 4)
    yield from _made(card, lang, columns)


def text_of(card: dict[str, Any], what: str, lang: str) -> str:
    """What a card says in a language; empty where it says nothing."""
    return card.get(f"{what}_ko" if lang == "ko" else what, "")


def _either(card: dict[str, Any], what: str, lang: str) -> str:
    """What a card says in a language, in English where it says nothing in that."""
    return text_of(card, what, lang) or card[what]


def _made(card: dict[str, Any], lang: str, columns: int) -> Iterator[Text]:
    """How the model was made: a shipped one's card, or what a training writes."""
    training, words = card.get("training", card), ("step", "tokens", "training_tokens")
    loss = card.get("validation_loss")
    beside = [card.get("command"), text_of(card, "made", lang), loss and say("card_loss", lang, loss=loss)]
    if all(training.get(one) for one in words):
        title = say("card_training", lang, **{one: training[one] for one in words})
    elif any(beside):
        title = say("card_made", lang)
    else:
        return
    yield Text()
    yield from flow([(title, HEADING)], columns)
    for said in filter(None, beside):
        yield from flow([(said, "")], columns, "  ")


def _size(model: Loaded | Classifier, lang: str) -> str:
    """Parameters, and what each stack is made of."""
    count = say("card_parameters", lang, count=sum(p.numel() for p in model.model.parameters()))
    spec = model.spec
    pair = [(one, getattr(spec, one)) for one in ("encoder", "decoder") if hasattr(spec, one)]
    if pair:
        return " · ".join([count, *(f"{say(f'card_{one}', lang)}: {_blocks(part)}" for one, part in pair)])
    return f"{count} · {_blocks(spec)}" if hasattr(spec, "blocks") else f"{count} · {spec.__struct_config__.tag}"


def _blocks(spec: ModelSpec) -> str:
    """The mixers of the blocks, or the layers, in their order, with how often each follows itself."""
    kinds = itertools.groupby(getattr(block, "mixer", block).__struct_config__.tag for block in spec.blocks)
    counts = [(kind, len(list(same))) for kind, same in kinds]
    return ", ".join(kind if count == 1 else f"{kind} × {count}" for kind, count in counts)


def _scores(scores: dict[str, dict[str, float]], lang: str, columns: int) -> Iterator[Text]:
    """Bits per byte of the held-out text: a row a language, a column a contestant."""
    yield from flow([(say("card_scores", lang), HEADING)], columns)
    shown = [one for one in SCORES if all(one in found for found in scores.values())]
    heads = [say(f"card_{one}", lang) for one in shown]
    names = {one: say(f"card_{one}", lang) for one in scores}
    labels = max(map(width, names.values()))
    each = max(max(map(width, heads)) + 2, min(16, (columns - 2 - labels) // len(shown)))
    for start in range(0, len(shown), (columns - 2 - labels) // each):
        some = range(start, min(start + (columns - 2 - labels) // each, len(shown)))
        yield Text("  " + " " * labels + "".join(fit(heads[i], each, "right") for i in some), "dim")
        for one, found in scores.items():
            cells = "".join(fit(f"{found[shown[i]]:.3f}", each, "right") for i in some)
            yield Text(f"  {fit(visible(names[one]), labels)}{cells}")
