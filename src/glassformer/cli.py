"""The command line: a verb, what it works on, and `--set path=value` for everything else.

Exit status 0: success; 1: a check failed; 2: a mistake in what was asked, printed as one line with the way out; 128 +
the number of the signal that ended it.
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from . import __version__
from .errors import GlassformerError, InputError, SettingError, UnsupportedError, nearest
from .terminal.options import (
    CHOICE,
    COMMON,
    OF_TRAINING,
    OPTIONS,
    Choice,
    Common,
    ModelName,
    OfTraining,
    Whole,
    asked_language,
)

if TYPE_CHECKING:
    from rich.console import Console

    from .api import TextTrace
    from .data.display import By
    from .explain.sheet import Sheet

app = App(
    name="glassformer",
    version=__version__,
    help="See how a neural network computes context, with the real numbers of a real run.",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
EXAMPLE = "glassformer trace '고양이가 생선을 먹었다' --token 먹었다"


@app.command(help_epilogue="")
def trace(
    text: Annotated[str, Parameter(help="The sentence to run, in quotes.")],
    /,
    *,
    token: Annotated[
        str | None,
        Parameter(help="The word to explain, or the number of its row, from 0, as #2; left out: the last word."),
    ] = None,
    layer: Annotated[Whole | None, Parameter(help="The layer, from 0; left out: where the context moves most.")] = None,
    head: Annotated[Whole | None, Parameter(help="The head, from 0; left out: the one that moves most.")] = None,
    all_heads: Annotated[
        bool, Parameter(negative="", show_default=False, help="How far every head moves the token.")
    ] = False,
    by: Annotated[Literal["word", "character", "token"], Parameter(help="What one row of the table is.")] = "word",
    closed: Annotated[
        bool, Parameter(negative="", show_default=False, help="Do not open words into their tokens.")
    ] = False,
    top: Annotated[
        Whole, Parameter(help="How many candidates for the next token to show, at most the whole vocabulary.")
    ] = 8,
    save: Annotated[
        Path | None,
        Parameter(help="Also write every value of the run to FILE.safetensors; a folder that is not there is made."),
    ] = None,
    memory: Annotated[Whole, Parameter(help="Memory limit of the trace, in MiB.")] = 1024,
    start: Annotated[bool, Parameter(help="Run the text behind the start-of-document token.")] = True,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print how the context vector of one token of TEXT is computed.

    Example:  glassformer trace "The cat ate the fish" --token ate --layer 2
    """
    _check_trace(text, top, memory, save)
    loaded = _loaded(model, common, "text")
    run = loaded.trace(text, limit_bytes=memory << 20, start=start)
    sheet = run.sheet(token, layer=layer, head=head, by=by, top=top)
    sheets = run.sheets(token, layer=sheet.layer, by=by, top=top) if all_heads else []
    if save is not None:
        _save(run, save, common.lang)
    if common.json:
        _print_json(sheets or sheet)
        return
    from .terminal.sheet import show_heads, show_sheet

    if sheets:
        show_heads(sheets, _console(), _language(common.lang))
    else:
        show_sheet(sheet, _console(), _language(common.lang), loaded.name, closed)
        if 0 < len(sheet.next) < top:
            _say("all_shown", common.lang, aside=True, count=len(sheet.next))
    if token is not None:
        _note_several(run, token, by, sheet, common.lang)


@app.command(help_epilogue="")
def generate(
    prompt: Annotated[
        list[str], Parameter(name="PROMPT...", help="The text to continue, in quotes; more of them for a batch.")
    ],
    /,
    *,
    choice: Choice = CHOICE,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Continue a text, shown as it is written; several texts run as one batch.

    Example:  glassformer generate "영화가" --temperature 0.7 --seed 3
    """
    from .terminal.complaint import with_options
    from .terminal.generation import show_batch, show_stream

    loaded, lang = _loaded(model, common, "text"), _language(common.lang)
    settings = {"max_new_tokens": min(64, max(1, loaded.room(prompt)))} | choice.settings()
    try:
        events = loaded.generate(prompt, seed=common.seed, **settings)
    except GlassformerError as error:
        raise type(error)(with_options(str(error), OPTIONS)) from None
    if common.json:
        shown = []
        for event in events:
            shown.append(event)
            _print_json(event, None)
    elif len(prompt) == 1:
        shown = show_stream(prompt[0], events, lang)
    else:
        shown = show_batch(prompt, events)
    new = settings["max_new_tokens"]
    if new < 64 and choice.max_new_tokens is None and any(event.finished == "length" for event in shown):
        _say("full", common.lang, aside=True, context=loaded.context, new=new)


@app.command(help_epilogue="")
def train(
    source: Annotated[
        str,
        Parameter(name="TEXT|RECIPE", help="A text file in UTF-8 or a folder of them, or a recipe (.toml, .json)."),
    ],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The run folder; left out: out/NAME of the recipe or text.")] = None,
    set: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="path=value, as --set steps=500 or --set model=llama; may be given again.",
        ),
    ] = (),
    fresh: Annotated[bool, Parameter(negative="", show_default=False, help="Start anew instead of resuming.")] = False,
    common: OfTraining = OF_TRAINING,
) -> int:
    """Train a model from a recipe, or a language model straight from a text file or folder. Resumes by itself.

    Example:  glassformer train my.txt --set steps=500
    """
    from .api import check_device
    from .terminal.stopping import Stopping
    from .terminal.training import show
    from .train import fit, read_run

    check_device(common.device)
    settings = _settings(set)
    settings |= {} if common.dtype is None else {"dtype": common.dtype}
    settings |= {} if common.seed is None else {"seed": str(common.seed)}
    named = Path(source) if Path(source).name.strip(".") else Path(source).resolve()  # `.` and `..` are no names
    folder = out or Path("out") / (named.stem or "text")
    run = read_run(source, settings, None if fresh else folder)
    start = functools.partial(fit, run, folder, common.device, fresh)
    try:
        with Stopping() as stop:
            if common.json:
                stop.follow(start(), lambda report: _print_json(report, None))
            else:
                show(start, run, folder, _console(), stop, _language(common.lang))
    except BrokenPipeError:
        _discard_output()
        _say("left", common.lang, aside=True)
        return 141  # as a program that SIGPIPE ends: the training is not complete
    return 0


@app.command(help_epilogue="")
def evaluate(
    file: Annotated[Path, Parameter(help="A text file in UTF-8 or a folder of them.")],
    /,
    *,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print how well a model predicts a text file or folder: bits per byte, loss and perplexity per token. Of a model
    that reads images: how many of the test images in FILE it puts into a wrong class.

    The text runs through windows as long as the model's context, each half a context behind the one before. Every token
    counts once, predicted from at least the half context before it (from all of its file, where that is less).

    Example:  glassformer evaluate notes.txt --model out/notes
    """
    from .train.classify import Errors

    loaded = _loaded(model, common)
    score = loaded.evaluate(file)
    if common.json:
        _print_json(score)
    elif isinstance(score, Errors):
        from .terminal.classes import show_errors

        show_errors(score, loaded, _console(), _language(common.lang))
    else:
        _say("predicted", common.lang, **asdict(score))


@app.command(help_epilogue="")
def classify(
    file: Path,
    /,
    *,
    model: Annotated[str, Parameter(name=["--model", "-m"], help="The folder of a model that reads images.")],
    top: Annotated[int, Parameter(help="How many classes to show.")] = 10,
    common: Common = COMMON,
) -> None:
    """Print the class distribution that a model gives an image: a PNG, PGM, PPM, .npy or .npz file.

    Example:  glassformer classify digit.png --model out/lenet
    """
    from .terminal.classes import show_classes

    if top < 1:
        raise InputError(f"--top: {top} is not allowed; use 1 or more")
    loaded = _loaded(model, common, "images")
    guesses = loaded.classify(file)[:top]
    if common.json:
        _print_json(guesses)
        return
    show_classes(guesses, loaded.name, file.name, _console(), _language(common.lang))


@app.command(help_epilogue="")
def models(
    name: Annotated[str | None, Parameter(help="A shipped model, whose card is shown; left out: all of them.")] = None,
    /,
    *,
    common: Common = COMMON,
) -> None:
    """List the shipped models and the presets, or show the card of one model.

    Example:  glassformer models small
    """
    from .api import SHIPPED, check_device, check_dtype, shipped
    from .checkpoint import read_about
    from .named import presets
    from .terminal.card import show_card

    check_device(common.device)
    check_dtype(common.dtype)
    about = {name: read_about(SHIPPED / name) for name in shipped()}
    if name is not None and name not in about:
        raise InputError(f"no model {name!r} in the package; {nearest(name, about)}")
    if common.json:
        _print_json({"shipped": about, "presets": list(presets())} if name is None else about[name])
        return
    if name is not None:
        show_card(name, about[name], _console(), _language(common.lang))
        return
    summary = "summary_ko" if _language(common.lang) == "ko" else "summary"
    for name, card in about.items():
        print(f"{name}  {card.get(summary, '')}")
    _say("presets", common.lang, names=", ".join(presets()))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 shows \\u2588, not a traceback
    _spoken.lang = asked_language(sys.argv[1:] if arguments is None else arguments)
    app.help_formatter = _help_formatter(_spoken.lang)
    app.help_epilogue = f"{'예' if _spoken.lang == 'ko' else 'Example'}:  {EXAMPLE}"
    try:
        ask = {"exit_on_error": False, "print_error": False, "result_action": "return_value"}
        status = app(arguments, console=_console(), **ask)
        sys.stdout.flush()
        return status or 0
    except GlassformerError as error:
        return _complain(error)
    except UnusedCliTokensError as error:
        rest, verb = " ".join(error.unused_tokens or ()), (error.command_chain or ("",))[-1]
        way_out = "put a text of several words in quotes" if verb in ("trace", "generate") else "give one at a time"
        return _complain(InputError(f"not expected here: {rest}; {way_out}"))
    except CycloptsError as error:
        command = ("glassformer", *(error.command_chain or ()))
        return _complain(error, f"(see {' '.join(command)} --help)")
    except KeyboardInterrupt as stopped:
        return getattr(stopped, "status", 130)
    except BrokenPipeError:  # the reader of a pipe has left, as in `| head`
        _discard_output()
        return 0
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is None:  # not a file that somebody named: the output itself, as on a full disk
            _discard_output()
            return _complain(OSError(f"the output cannot be written ({reason}); send it to another place"))
        return _complain(OSError(f"{error.filename}: {reason}; check the path and its permissions"))


def _discard_output() -> None:
    """Write no more, not even what Python still holds back when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: Exception, more: str = "") -> int:
    """Print a mistake as one line; the exit status."""
    from .terminal.complaint import complaint

    print(complaint(error, _spoken.lang, more), file=sys.stderr)
    return 2


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise SettingError(f"--set {pair}: write it as path=value, for example --set steps=500")
    return dict(pair.split("=", 1) for pair in pairs)


def _loaded(model: str | None, common: Common, reads: str | None = None) -> Any:
    """The model that is named; raises UnsupportedError where it reads something else than the verb needs."""
    from .api import load

    loaded = load(model, device=common.device, dtype=common.dtype)
    if reads not in (None, loaded.reads):
        raise UnsupportedError(f"{loaded.name}: this model reads {loaded.reads}, not {reads}; name another with -m")
    return loaded


def _check_trace(text: str, top: int, memory: int, save: Path | None) -> None:
    """Raise InputError before a model is loaded for nothing."""
    if not text.strip():
        raise InputError('the text is empty; give a sentence, for example "고양이가 생선을 먹었다"')
    for name, value in (("top", top), ("memory", memory)):
        if value < 1:
            raise InputError(f"--{name}: {value} is not allowed; use 1 or more")
    if save is not None and save.suffix != ".safetensors":
        raise InputError(f"--save: {save} does not end in .safetensors, the format of a trace")


def _save(run: TextTrace, path: Path, lang: str) -> None:
    run.save(path)
    size = f"{path.stat().st_size / (1 << 20):.1f}"
    _say("saved", lang, aside=True, count=len(run.names()), size=size, path=path, read=repr(str(path)))


@dataclass
class _Spoken:
    """The language of this call of main, for what is printed before a verb has read its --lang."""

    lang: str = "en"


_spoken = _Spoken()


def _language(lang: str) -> str:
    """The language to print in."""
    return _spoken.lang if lang == "auto" else lang


def _help_formatter(lang: str) -> Any:
    from .terminal.korean import Help, KoreanHelp

    return KoreanHelp() if lang == "ko" else Help()


def _say(word: str, lang: str, aside: bool = False, **values: Any) -> None:
    """Print a text of the table, folded where a terminal ends; aside: beside the output, not in it."""
    from .terminal.words import say

    console = _console(aside)
    console.print(say(word, _language(lang), **values), markup=False, soft_wrap=not console.is_terminal)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    class Plain(Console):
        """rich's console, which would end the process with status 1 when a pipe's reader leaves."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Plain(highlight=False, stderr=stderr)
    if console.width < 40:  # also a terminal that does not know its width and says 0
        console.width = 40
    return console


def _print_json(value: Any, indent: int | None = 2) -> None:
    import msgspec

    data = msgspec.json.encode(value)
    print((msgspec.json.format(data, indent=indent) if indent else data).decode(), flush=not indent)


def _note_several(run: TextTrace, token: str, by: By, sheet: Sheet, lang: str) -> None:
    """Say which row is shown where a word occurs more than once, or where several words were named."""
    places, cells = run.rows(token, by), run.cells(by)
    if len(places) > 1:
        word = "repeated" if len({cells[place].text for place in places}) == 1 else "several"
        values = {"places": ", ".join(map(str, places)), "shown": sheet.row, "taken": sheet.token, "example": places[0]}
        _say(word, lang, True, token=token, n=len(places), **values)
