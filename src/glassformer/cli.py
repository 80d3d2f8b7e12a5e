"""The command line: a verb, what it works on, and `--set path=value` for everything else.

Exit status 0: success; 1: a check failed; 2: a mistake in what was asked, printed as one line with the way out; 128 +
the number of the signal that ended it.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from . import __version__
from .errors import GlassformerError, InputError, UnsupportedError, nearest
from .terminal.options import (
    CHOICE,
    COMMON,
    OF_TRAINING,
    OPTIONS,
    Choice,
    Common,
    ModelName,
    ModelNames,
    OfTraining,
    Whole,
    asked_language,
    check_text,
    settings_of,
)
from .terminal.output import (
    complain,
    console,
    discard_output,
    help_formatter,
    language,
    note_several,
    print_json,
    save_run,
    say,
    spoken,
)

if TYPE_CHECKING:
    pass

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
    check_text(text, {"top": top, "memory": memory})
    if save is not None and save.suffix != ".safetensors":
        raise InputError(f"--save: {save} does not end in .safetensors, the format of a trace")
    loaded = _loaded(model, common, "text")
    run = loaded.trace(text, limit_bytes=memory << 20, start=start)
    sheet = run.sheet(token, layer=layer, head=head, by=by, top=top)
    sheets = run.sheets(token, layer=sheet.layer, by=by, top=top) if all_heads else []
    if save is not None:
        save_run(run, save, common.lang)
    if common.json:
        print_json(sheets or sheet)
        return
    from .terminal.sheet import show_heads, show_sheet

    if sheets:
        show_heads(sheets, console(), language(common.lang))
    else:
        show_sheet(sheet, console(), language(common.lang), loaded.name, closed)
        if 0 < len(sheet.next) < top:
            say("all_shown", common.lang, aside=True, count=len(sheet.next))
    if token is not None:
        note_several(run, token, by, sheet, common.lang)


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

    loaded, lang = _loaded(model, common, "text"), language(common.lang)
    settings = {"max_new_tokens": min(64, max(1, loaded.room(prompt)))} | choice.settings()
    try:
        events = loaded.generate(prompt, seed=common.seed, **settings)
    except GlassformerError as error:
        raise type(error)(with_options(str(error), OPTIONS)) from None
    if common.json:
        shown = []
        for event in events:
            shown.append(event)
            print_json(event, None)
    elif len(prompt) == 1:
        shown = show_stream(prompt[0], events, lang)
    else:
        shown = show_batch(prompt, events)
    new = settings["max_new_tokens"]
    if new < 64 and choice.max_new_tokens is None and any(event.finished == "length" for event in shown):
        say("full", common.lang, aside=True, context=loaded.context, new=new)


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
    settings = settings_of(set)
    settings |= {} if common.dtype is None else {"dtype": common.dtype}
    settings |= {} if common.seed is None else {"seed": str(common.seed)}
    named = Path(source) if Path(source).name.strip(".") else Path(source).resolve()  # `.` and `..` are no names
    folder = out or Path("out") / (named.stem or "text")
    run = read_run(source, settings, None if fresh else folder)
    start = functools.partial(fit, run, folder, common.device, fresh)
    try:
        with Stopping() as stop:
            if common.json:
                stop.follow(start(), lambda report: print_json(report, None))
            else:
                show(start, run, folder, console(), stop, language(common.lang))
    except BrokenPipeError:
        discard_output()
        say("left", common.lang, aside=True)
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
        print_json(score)
    elif isinstance(score, Errors):
        from .terminal.classes import show_errors

        show_errors(score, loaded, console(), language(common.lang))
    else:
        say("predicted", common.lang, **asdict(score))


@app.command(help_epilogue="")
def influence(
    text: str,
    /,
    *,
    token: Annotated[
        str | None,
        Parameter(help="The word to explain, or the number of its row, from 0, as #2; left out: the last word."),
    ] = None,
    by: Annotated[Literal["word", "character", "token"], Parameter(help="What one row of the table is.")] = "word",
    closed: Annotated[
        bool, Parameter(negative="", show_default=False, help="Do not open words into their tokens.")
    ] = False,
    method: Annotated[
        Literal["auto", "exact", "estimate"],
        Parameter(help="exact, or an estimate with its error; auto: exact while that takes seconds."),
    ] = "auto",
    directions: Annotated[Whole, Parameter(help="Random directions of an estimate.")] = 32,
    memory: Annotated[Whole, Parameter(help="Memory limit, in MiB.")] = 1024,
    save: Annotated[
        Path | None, Parameter(help="Also draw every token's influence on every other, one panel a model, as FILE.svg.")
    ] = None,
    start: Annotated[bool, Parameter(help="Run the text behind the start-of-document token.")] = True,
    model: ModelNames = (),
    common: Common = COMMON,
) -> None:
    """Print how strongly each word of TEXT moves the vector of one token, in a model of any family or in several.

    Example:  glassformer influence "The cat ate the fish" --token ate -m small -m out/my-lstm
    """
    from .terminal.influence import show_moved

    check_text(text, {"memory": memory})
    if save is not None and save.suffix != ".svg":
        raise InputError(f"--save: {save} does not end in .svg, the format of the figure")
    if by != "word" and len(model) > 1:
        raise InputError(f"--by: {by} cuts a text as one model's tokenizer does; leave it out, or give one model")
    lang, how = language(common.lang), {"method": method, "directions": directions, "seed": common.seed}
    how["limit_bytes"] = memory << 20
    loaded = [_loaded(name, common, "text") for name in model or (None,)]
    runs = [one.trace(text, start=start) for one in loaded]
    tables = [run.moved(token, by=by, **how) for run in runs]
    if save is not None:
        from .figures.influence import draw

        draw(save, runs, lang, **how)
    if common.json:
        print_json(tables if len(tables) > 1 else tables[0])
        return
    show_moved(tables, console(), lang, closed)


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
        print_json(guesses)
        return
    show_classes(guesses, loaded.name, file.name, console(), language(common.lang))


@app.command(help_epilogue="")
def models(
    name: Annotated[str | None, Parameter(help="A shipped model, whose card is shown; left out: all of them.")] = None,
    /,
    *,
    cost: Annotated[
        bool, Parameter(negative="", show_default=False, help="What every preset costs for a text of --length tokens.")
    ] = False,
    length: Annotated[Whole, Parameter(help="Tokens of that text.")] = 1024,
    common: Common = COMMON,
) -> None:
    """List the shipped models and the presets, show the card of one model, or what the presets cost.

    Example:  glassformer models small
    """
    from .api import SHIPPED, check_device, check_dtype, shipped
    from .checkpoint import read_about
    from .named import presets
    from .terminal.card import show_card

    check_device(common.device)
    check_dtype(common.dtype)
    about = {name: read_about(SHIPPED / name) for name in shipped()}
    if cost:
        from .explain.cost import costs
        from .terminal.cost import show_costs

        found = costs(length)
        print_json(found) if common.json else show_costs(found, console(), language(common.lang))
        return
    if name is not None and name not in about:
        raise InputError(f"no model {name!r} in the package; {nearest(name, about)}")
    if common.json:
        print_json({"shipped": about, "presets": list(presets())} if name is None else about[name])
        return
    if name is not None:
        show_card(name, about[name], console(), language(common.lang))
        return
    summary = "summary_ko" if language(common.lang) == "ko" else "summary"
    for name, card in about.items():
        print(f"{name}  {card.get(summary, '')}")
    say("presets", common.lang, names=", ".join(presets()))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 shows \\u2588, not a traceback
    spoken.lang = asked_language(sys.argv[1:] if arguments is None else arguments)
    app.help_formatter = help_formatter(spoken.lang)
    app.help_epilogue = f"{'예' if spoken.lang == 'ko' else 'Example'}:  {EXAMPLE}"
    try:
        ask = {"exit_on_error": False, "print_error": False, "result_action": "return_value"}
        status = app(arguments, console=console(), **ask)
        sys.stdout.flush()
        return status or 0
    except GlassformerError as error:
        return complain(error)
    except UnusedCliTokensError as error:
        rest, verb = " ".join(error.unused_tokens or ()), (error.command_chain or ("",))[-1]
        way_out = "put a text of several words in quotes" if verb in ("trace", "generate") else "give one at a time"
        return complain(InputError(f"not expected here: {rest}; {way_out}"))
    except CycloptsError as error:
        command = ("glassformer", *(error.command_chain or ()))
        return complain(error, f"(see {' '.join(command)} --help)")
    except KeyboardInterrupt as stopped:
        return getattr(stopped, "status", 130)
    except BrokenPipeError:  # the reader of a pipe has left, as in `| head`
        discard_output()
        return 0
    except OSError as error:
        reason = error.strerror or str(error)
        if error.filename is None:  # not a file that somebody named: the output itself, as on a full disk
            discard_output()
            return complain(OSError(f"the output cannot be written ({reason}); send it to another place"))
        return complain(OSError(f"{error.filename}: {reason}; check the path and its permissions"))


def _loaded(model: str | None, common: Common, reads: str | None = None) -> Any:
    """The model that is named; raises UnsupportedError where it reads something else than the verb needs."""
    from .api import load

    loaded = load(model, device=common.device, dtype=common.dtype)
    if reads not in (None, loaded.reads):
        raise UnsupportedError(f"{loaded.name}: this model reads {loaded.reads}, not {reads}; name another with -m")
    return loaded
