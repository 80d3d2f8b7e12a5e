"""What a classifier says in the terminal: the distribution over the classes as bars, and its errors."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ..classifier import Classifier, Guess
from ..data.display import visible
from ..train.classify import Errors
from .words import say

BAR = 40  # cells of a probability of 1
_EIGHTHS = " ▏▎▍▌▋▊▉"


def show_classes(guesses: list[Guess], model: str, file: str, console: Console, lang: str) -> None:
    """Print classes, each with its probability as a bar and in per cent."""
    console.print(Text(say("classified", lang, model=model, file=visible(file)), "bold"), soft_wrap=True)
    names = [visible(guess.label) for guess in guesses]
    wide = max(map(cell_len, names))
    for guess, name in zip(guesses, names, strict=True):
        line = f"{set_cell_size(name, wide)}  {guess.probability:8.2%}  {bar(guess.probability)}"
        console.print(Text(line.rstrip()), soft_wrap=True)


def bar(share: float) -> str:
    """A share of 1 as a bar, to an eighth of a cell."""
    eighths = round(share * BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def show_errors(found: Errors, loaded: Classifier, console: Console, lang: str) -> None:
    """Print the share of errors, and of each class that has any what it is taken for."""
    console.print(Text(say("wrong", lang, error=found.error, loss=found.loss, images=found.images)), soft_wrap=True)
    labels = loaded.spec.labels or tuple(map(str, range(loaded.spec.classes)))
    for number, row in enumerate(found.confusion):
        count, wrong = sum(row), sum(row) - row[number]
        if wrong:
            other = max((n for n in range(len(row)) if n != number), key=row.__getitem__)
            values = {"label": visible(labels[number]), "other": visible(labels[other]), "wrong": wrong, "count": count}
            console.print(Text("  " + say("wrong_class", lang, **values)), soft_wrap=True)
