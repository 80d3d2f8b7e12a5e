"""What a classifier says in the terminal: the distribution over the classes as bars, and its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ..classifier import Classifier, Guess, Seen
from ..data.display import fit as fitted
from ..data.display import visible
from ..data.fit import Fit
from ..data.images import image_files
from ..data.text import pieces
from ..errors import InputError
from ..nn.pool import Scores
from ..train.classify import Errors
from .output import complain, console, print_json
from .output import say as note
from .sheet import bar
from .words import say

if TYPE_CHECKING:
    from ..api import Loaded

BAR = 40  # cells of a probability of 1, where there is room
TITLE, NAME = 60, 24  # cells of a text in the title, and before a complaint


def classify(
    loaded: Classifier,
    sources: Sequence[Path],
    fit: Fit,
    top: int | None,
    json: bool,
    lang: str,
    how: dict[str, Any],
) -> int:
    """Print the classes of the image in a file, or one line for each of several images: in one file, in a folder, or in
    several of both; the exit status. top: how many classes; None: all of one image, the best of each of several. how:
    as Classifier.classify has it."""
    _check(top)
    tried = _seen(loaded, sources, fit, how)
    found = [(name, one) for name, one in tried if not isinstance(one, str)]
    single = _alone(sources) and len(found) == 1
    if json:
        outcomes = ((name, one if isinstance(one, str) else one.guesses) for name, one in tried)
        several = [{"image": name} | _outcome(one, top) for name, one in outcomes]
        print_json(found[0][1].guesses[:top] if single else several)
    elif single:
        title = say("classified", lang, model=loaded.name, file=visible(sources[0].name))
        show_classes(title, found[0][1].guesses[:top], console())
    elif found:
        where = sources[0].resolve().name if len(sources) == 1 else say("files", lang, count=len(sources))
        title = say("classified", lang, model=loaded.name, file=visible(where))
        names = [visible(name) for name, _ in found]
        wide = max(map(cell_len, names))
        best = _best([seen.guesses for _, seen in found], top or 1)
        show_lines(title, [f"{set_cell_size(name, wide)}  {one}" for name, one in zip(names, best, strict=True)])
    for word, which in _fits(loaded, found, lang).items():
        note(word, lang, aside=True, which=which, size=loaded.spec.size)
    return 0 if len(found) == len(tried) else 2


def classify_texts(
    loaded: Loaded,
    texts: Sequence[str],
    files: Sequence[Path],
    top: int | None,
    json: bool,
    lang: str,
    how: dict[str, Any],
) -> int:
    """Print the classes of a text, or one line for each of several, and of each line of files that is not blank; the
    exit status. top: as of images. Of several one that cannot be read is complained of, and the others are classified.
    """
    _check(top)
    alone = len(texts) == 1 and not files
    given = list(_given(texts, files))
    if not given:
        raise InputError(f"{files[0]}: empty; there is no text in it")
    tried: list[list[Guess] | str] = []
    for text, file, line in given:
        try:
            tried.append(loaded.classify(text, **how))
        except InputError as error:
            if alone:
                raise
            complain(InputError(f"{f'{file.name}:{line}' if file else fitted(text, NAME).rstrip()}: {error}"))
            tried.append(str(error))
    found = [(text, one) for (text, _, _), one in zip(given, tried, strict=True) if not isinstance(one, str)]
    if json:
        named = [{"text": text, "file": file and str(file), "line": line} for text, file, line in given]
        several = [names | _outcome(one, top) for names, one in zip(named, tried, strict=True)]
        print_json(found[0][1][:top] if alone else several)
    elif found:
        _show_texts(loaded, found, alone, top, lang)
    if alone and os.path.isfile(texts[0]):  # noqa: PTH113 - a Path of so many letters as a text may have is an error
        note("is_file", lang, aside=True, text=visible(texts[0]))
    return 0 if len(found) == len(tried) else 2


def _given(texts: Sequence[str], files: Sequence[Path]) -> Iterator[tuple[str, Path | None, int | None]]:
    """Each text, and the file and the line of it that it stands in."""
    for text in texts:
        yield text, None, None
    for file in files:
        for number, line in enumerate("".join(pieces(file)).split("\n"), 1):
            if line.strip():
                yield line.removesuffix("\r"), file, number


def _outcome(tried: Sequence[Guess] | str, top: int | None) -> dict[str, Any]:
    """What became of one of several, as JSON: its best classes, or why it has none."""
    return {"error": tried} if isinstance(tried, str) else {"guesses": tried[: top or 1]}


def _show_texts(loaded: Loaded, found: list[tuple[str, list[Guess]]], alone: bool, top: int | None, lang: str) -> None:
    scores = loaded.model.head.spec.scores
    if alone:
        text, guesses = found[0]
        title = say("classified_text", lang, model=loaded.name, text=fitted(text, TITLE).rstrip())
        show_classes(title, guesses[:top], console(), scores)
        return
    best = _best([guesses for _, guesses in found], top or 1, scores)
    lines = [f"{one}   {visible(text)}" for one, (text, _) in zip(best, found, strict=True)]
    word = "classified_one" if len(found) == 1 else "classified_texts"
    show_lines(say(word, lang, model=loaded.name, count=len(found)), lines)


def _check(top: int | None) -> None:
    if top is not None and top < 1:
        raise InputError(f"--top: {top} is not allowed; use 1 or more")


def _alone(sources: Sequence[Path]) -> bool:
    return len(sources) == 1 and not sources[0].is_dir()


def _seen(loaded: Classifier, sources: Sequence[Path], fit: Fit, how: dict[str, Any]) -> list[tuple[str, Seen | str]]:
    """What the model sees in each image, by its name: of several files one that cannot be read is complained of, and
    has the complaint, and the others are seen."""
    found: list[tuple[str, Seen | str]] = []
    for file in [file for source in sources for file in (image_files(source) if source.is_dir() else [source])]:
        try:
            seen = loaded.see(file, fit, **how)
        except (InputError, OSError) as error:
            if _alone(sources):
                raise
            complain(error)
            found.append((file.name, str(error)))
            continue
        names = [file.name] if len(seen) == 1 else [f"{file.name} #{number}" for number in range(len(seen))]
        found += zip(names, seen, strict=True)
    return found


def _best(found: Sequence[list[Guess]], top: int, scores: Scores = "softmax") -> list[str]:
    """The best classes of each of several, one below the other."""
    wide = max(cell_len(visible(guess.label)) for guess in found[0])
    return [
        "   ".join(f"{set_cell_size(visible(one.label), wide)}{_amount(one, scores)}" for one in guesses[:top])
        for guesses in found
    ]


def _amount(guess: Guess, scores: Scores) -> str:
    return f"{guess.value:10.4f}" if scores == "number" else f"{guess.value:8.2%}"


def show_lines(title: str, lines: list[str]) -> None:
    """Print a line for each of several below a title."""
    out = console()
    out.print(Text(title, "bold"), soft_wrap=True)
    for line in lines:
        out.print(Text(line), soft_wrap=True)


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


def show_classes(title: str, guesses: list[Guess], console: Console, scores: Scores = "softmax") -> None:
    """Print classes, each with its probability as a bar and in per cent, or with the number that is estimated."""
    console.print(Text(title, "bold"), soft_wrap=True)
    names = [visible(guess.label) for guess in guesses]
    wide = max(map(cell_len, names))
    cells = max(1, min(BAR, console.width - wide - 12))
    for guess, name in zip(guesses, names, strict=True):
        drawn = "" if scores == "number" else bar(guess.value, cells)
        line = f"{set_cell_size(name, wide)}  {_amount(guess, scores)}  {drawn}"
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
