"""What a classifier says in the terminal: the distribution over the classes as bars, and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ..classifier import Classifier, Guess, Seen
from ..data.display import visible
from ..data.fit import Fit
from ..data.images import image_files
from ..errors import InputError
from ..train.classify import Errors
from .output import complain, console, print_json
from .output import say as note
from .sheet import bar
from .words import say

BAR = 40  # cells of a probability of 1, where there is room


def classify(loaded: Classifier, sources: Sequence[Path], fit: Fit, top: int | None, json: bool, lang: str) -> int:
    """Print the classes of the image in a file, or one line for each of several images: in one file, in a folder, or in
    several of both; the exit status. top: how many classes; None: all of one image, the best of each of several."""
    if top is not None and top < 1:
        raise InputError(f"--top: {top} is not allowed; use 1 or more")
    found, status = _seen(loaded, sources, fit)
    if _alone(sources) and len(found) == 1:
        guesses = found[0][1].guesses[:top]
        print_json(guesses) if json else show_classes(guesses, loaded.name, sources[0].name, console(), lang)
    elif json:
        print_json([{"image": name, "guesses": seen.guesses[: top or 1]} for name, seen in found])
    elif found:
        where = sources[0].resolve().name if len(sources) == 1 else say("files", lang, count=len(sources))
        show_several(found, top or 1, loaded.name, where, lang)
    for word, which in _fits(loaded, found, lang).items():
        note(word, lang, aside=True, which=which, size=loaded.spec.size)
    return status


def _alone(sources: Sequence[Path]) -> bool:
    return len(sources) == 1 and not sources[0].is_dir()


def _seen(loaded: Classifier, sources: Sequence[Path], fit: Fit) -> tuple[list[tuple[str, Seen]], int]:
    """What the model sees in each image, by its name, and the exit status: of several files one that cannot be read is
    complained of, and the others are seen."""
    found: list[tuple[str, Seen]] = []
    status = 0
    for file in [file for source in sources for file in (image_files(source) if source.is_dir() else [source])]:
        try:
            seen = loaded.see(file, fit)
        except (InputError, OSError) as error:
            if _alone(sources):
                raise
            status = complain(error)
            continue
        names = [file.name] if len(seen) == 1 else [f"{file.name} #{number}" for number in range(len(seen))]
        found += zip(names, seen, strict=True)
    return found, status


def show_several(found: list[tuple[str, Seen]], top: int, model: str, source: str, lang: str) -> None:
    """Print a line for each image: its name and its best classes."""
    out = console()
    out.print(Text(say("classified", lang, model=model, file=visible(source)), "bold"), soft_wrap=True)
    names = [visible(name) for name, _ in found]
    wide = max(map(cell_len, names))
    labels = max(cell_len(visible(guess.label)) for guess in found[0][1].guesses)
    for name, (_, seen) in zip(names, found, strict=True):
        best = [f"{set_cell_size(visible(one.label), labels)}{one.probability:8.2%}" for one in seen.guesses[:top]]
        out.print(Text(f"{set_cell_size(name, wide)}  {'   '.join(best)}"), soft_wrap=True)


def _fits(loaded: Classifier, found: list[tuple[str, Seen]], lang: str) -> dict[str, str]:
    """What was done to the images, as words of the table, and to which of them."""
    mean = loaded.spec.embed.mean
    learnt_bright = loaded.spec.channels == 1 and (mean[0] if isinstance(mean, tuple) else mean) < 0.5
    kinds: dict[str, list[str]] = {}
    for name, seen in found:
        if seen.fitted.how != "none":
            kinds.setdefault(f"fit_{seen.fitted.how}", []).append(name)
        elif seen.fitted.dark and learnt_bright:
            kinds.setdefault("fit_dark", []).append(name)

    def which(names: list[str]) -> str:
        single = visible(names[0]) if len(found) == 1 else ""
        return single or say("of_images", lang, count=len(names), images=len(found))

    return {word: which(names) for word, names in kinds.items()}


def show_classes(guesses: list[Guess], model: str, file: str, console: Console, lang: str) -> None:
    """Print classes, each with its probability as a bar and in per cent."""
    console.print(Text(say("classified", lang, model=model, file=visible(file)), "bold"), soft_wrap=True)
    names = [visible(guess.label) for guess in guesses]
    wide = max(map(cell_len, names))
    cells = max(1, min(BAR, console.width - wide - 12))
    for guess, name in zip(guesses, names, strict=True):
        line = f"{set_cell_size(name, wide)}  {guess.probability:8.2%}  {bar(guess.probability, cells)}"
        console.print(Text(line.rstrip()), soft_wrap=True)


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
