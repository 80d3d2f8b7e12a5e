"""The command line: a verb, what it works on, and `--set path=value` for everything else.

Exit status 0: success; 1: a check failed; 2: a mistake in what was asked, printed as one line with the way out.
"""

from __future__ import annotations

import os
import re
import sys
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from . import __version__
from .errors import GlassformerError, InputError, SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from .data.display import Cell
    from .generate import Event

app = App(
    name="glassformer",
    version=__version__,
    help="See how a neural network computes context, with the real numbers of a real run.",
    help_epilogue="Example:  glassformer trace '고양이가 생선을 먹었다' --token 먹었다",
)
GROUP = Group("Common options", sort_key=90)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every verb understands."""

    json: Annotated[bool, Parameter(group=GROUP, negative="", help="Print JSON with all digits, not a view.")] = False
    lang: Annotated[
        Literal["auto", "en", "ko"],
        Parameter(group=GROUP, help="Language of the output; auto: Korean for a Korean text or locale."),
    ] = "auto"
    device: Annotated[str, Parameter(group=GROUP, help="Where to compute: cpu, cuda, cuda:1, mps.")] = "cpu"
    dtype: Annotated[
        str | None,
        Parameter(group=GROUP, help="Number format: float32, bfloat16, float64; left out: float32, or the recipe's."),
    ] = None
    seed: Annotated[
        int | None, Parameter(group=GROUP, help="Seed of what is drawn at random; left out: 0, or the recipe's.")
    ] = None


ModelName = Annotated[
    str | None, Parameter(name=["--model", "-m"], help="A shipped name or a model folder; left out: the shipped model.")
]


@app.command(help_epilogue="")
def trace(
    text: str,
    /,
    *,
    token: Annotated[
        str | None, Parameter(help="The word to explain, or its number in the table, as #2; left out: the last word.")
    ] = None,
    layer: Annotated[int | None, Parameter(help="The layer, from 0; left out: where the context moves most.")] = None,
    head: Annotated[int | None, Parameter(help="The head, from 0; left out: the one that moves most.")] = None,
    all_heads: Annotated[bool, Parameter(negative="", help="How far every head moves the token.")] = False,
    by: Annotated[Literal["word", "character", "token"], Parameter(help="What one row of the table is.")] = "word",
    closed: Annotated[bool, Parameter(negative="", help="Do not open words into their tokens.")] = False,
    top: Annotated[int, Parameter(help="How many candidates for the next token to show.")] = 8,
    save: Annotated[Path | None, Parameter(help="Also write every value of the run to FILE.safetensors.")] = None,
    memory: Annotated[int, Parameter(help="Memory limit of the trace, in MiB.")] = 1024,
    start: Annotated[bool, Parameter(help="Run the text behind the start-of-document token.")] = True,
    model: ModelName = None,
    common: Common = Common(),
) -> None:
    """Print how the context vector of one token of TEXT is computed.

    Example:  glassformer trace "The cat ate the fish" --token ate --layer 2
    """
    from .api import load

    _check_text(text)
    for name, value in (("top", top), ("memory", memory)):
        if value < 1:
            raise InputError(f"--{name}: {value} is not allowed; use 1 or more")
    if save is not None and save.suffix != ".safetensors":
        raise InputError(f"--save: {save} does not end in .safetensors, the format of a trace")
    loaded = load(model, device=common.device, dtype=common.dtype or "float32")
    run = loaded.trace(text, limit_bytes=memory << 20, start=start)
    sheet = run.sheet(token, layer=layer, head=head, by=by, top=top)
    sheets = [sheet]
    if all_heads:
        sheets = [run.sheet(token, layer=sheet.layer, head=h, by=by, top=top) for h in range(sheet.heads)]
    if save is not None:
        run.save(save)
    if common.json:
        _print_json(sheets if all_heads else sheet)
        return
    from .terminal.sheet import show_heads, show_sheet

    console, lang = _console(), _language(common.lang, text)
    if all_heads:
        show_heads(sheets, console, lang)
    else:
        show_sheet(sheet, console, lang, loaded.name, closed)
    _note_repeats(run.cells(by), token, sheet.tokens, lang)


@Parameter(name="*")
@dataclass(frozen=True)
class Choice:
    """How a generation chooses its tokens; the names are those of GenerateSpec."""

    max_new_tokens: Annotated[int, Parameter(name=["--max-new-tokens", "-n"], help="At most so many new tokens.")] = 64
    temperature: Annotated[
        float | None, Parameter(help="0: always the most probable token. [default: 0.8, with --beams 0]")
    ] = None
    top_k: Annotated[int | None, Parameter(help="Draw from the k most probable tokens only.")] = None
    top_p: Annotated[
        float | None, Parameter(help="Draw from the most probable tokens of this total only. [default: 0.95]")
    ] = None
    min_p: Annotated[float | None, Parameter(help="Drop tokens below this share of the most probable one.")] = None
    repetition_penalty: Annotated[
        float | None, Parameter(help="Above 1: make tokens that occurred less probable. [default: 1.1]")
    ] = None
    stop: Annotated[
        tuple[str, ...], Parameter(negative="", show_default=False, help="Stop before this text; may be given again.")
    ] = ()
    beams: Annotated[int, Parameter(help="Above 1: beam search of this width instead of drawing.")] = 1
    length_penalty: Annotated[float, Parameter(help="Beam search: score = log p / length to this power.")] = 1.0
    start: Annotated[bool, Parameter(help="Begin behind the start-of-document token.")] = True

    def settings(self) -> dict[str, Any]:
        """The fields of GenerateSpec; what was not given is chosen for drawing, or left alone for beam search."""
        drawing = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1} if self.beams == 1 else {}
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return drawing | given


@app.command(help_epilogue="")
def generate(prompt: list[str], /, *, choice: Choice = Choice(), model: ModelName = None, common: Common = Common()):
    """Continue PROMPT, shown as it is written; several prompts run as one batch.

    Example:  glassformer generate "영화가" --temperature 0.7 --seed 3
    """
    from .api import load

    loaded = load(model, device=common.device, dtype=common.dtype or "float32")
    events = loaded.generate(prompt, seed=common.seed or 0, **choice.settings())
    if common.json:
        for event in events:
            _print_json(event, None)
    elif len(prompt) == 1:
        _stream(prompt[0], events, _language(common.lang, prompt[0]))
    else:
        texts = list(prompt)
        for event in events:
            texts[event.row] += event.text
        for i, text in enumerate(texts):
            print(f"[{i}] {_printable(text)}")


@app.command(help_epilogue="")
def train(
    recipe: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The run folder; left out: out/NAME of the recipe or text.")] = None,
    set: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="path=value, as --set steps=500; may be given again."),
    ] = (),
    fresh: Annotated[bool, Parameter(negative="", help="Start anew instead of resuming.")] = False,
    common: Common = Common(),
) -> None:
    """Train a language model from a recipe, or straight from a text file or folder. Resumes by itself.

    Example:  glassformer train my.txt --set steps=500
    """
    from .api import check_device
    from .terminal.training import show
    from .train import fit, read_run

    check_device(common.device)
    settings = _settings(set)
    settings |= {} if common.dtype is None else {"dtype": common.dtype}
    settings |= {} if common.seed is None else {"seed": str(common.seed)}
    run = read_run(recipe, settings)
    folder = out or Path("out") / Path(recipe).stem
    reports = fit(run, folder, device=common.device, fresh=fresh)
    if common.json:
        for report in reports:
            _print_json(report, None)
    else:
        show(reports, _console(), _language(common.lang, ""), folder)


@app.command(help_epilogue="")
def evaluate(
    file: Path,
    /,
    *,
    model: ModelName = None,
    common: Common = Common(),
) -> None:
    """Print how well a model predicts a text file or folder: bits per byte, loss and perplexity per token.

    Example:  glassformer evaluate notes.txt --model out/notes
    """
    from .api import load

    score = load(model, device=common.device, dtype=common.dtype or "float32").evaluate(file)
    if common.json:
        _print_json(score)
        return
    words = {
        "en": "{0:.4f} bits per byte · loss {1:.4f} nats per token · perplexity {2:.2f} · {3:,} tokens · {4:,} bytes",
        "ko": "바이트당 {0:.4f}비트 · 토큰당 손실 {1:.4f}nat · 퍼플렉시티 {2:.2f} · 토큰 {3:,}개 · {4:,}바이트",
    }
    values = (score.bits_per_byte, score.loss, score.perplexity, score.tokens, score.bytes)
    print(words[_language(common.lang, "")].format(*values))


@app.command(help_epilogue="")
def models(*, common: Common = Common()) -> None:
    """List the shipped models and the presets.

    Example:  glassformer models --json
    """
    from .api import SHIPPED, shipped
    from .checkpoint import read_about
    from .named import presets

    about = {name: read_about(SHIPPED / name) for name in shipped()}
    if common.json:
        _print_json({"shipped": about, "presets": list(presets())})
        return
    korean = _language(common.lang, "") == "ko"
    for name, card in about.items():
        print(f"{name}  {card.get('summary_ko' if korean else 'summary', '')}")
    print(("프리셋: " if korean else "presets: ") + ", ".join(presets()))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 shows \\u2588, not a traceback
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except GlassformerError as error:
        return _complain(str(error))
    except CycloptsError as error:
        return _complain(f"{error} (see glassformer --help)")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has left, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _complain(f"{error.filename or ''}: {error.strerror or error}; check the path and its permissions")
    return 0


def _complain(message: str) -> int:
    """Print a mistake as one line; the exit status."""
    print(f"glassformer: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _stream(prompt: str, events: Iterator[Event], lang: str) -> None:
    """Print a text as it is written; on a terminal its speed below it."""
    from .terminal.words import say

    sys.stdout.write(_printable(prompt))
    count, started = 0, time.perf_counter()
    for count, event in enumerate(events, 1):  # noqa: B007 (the count is read below)
        sys.stdout.write(_printable(event.text))
        sys.stdout.flush()
    sys.stdout.write("\n")
    if sys.stdout.isatty() and count:
        speed = count / (time.perf_counter() - started)
        print(say("speed", lang, tokens=count, speed=speed), file=sys.stderr)


def _printable(text: str) -> str:
    """A generated text for the terminal, control characters made visible; exact where it goes into a file or pipe."""
    from .data.display import visible

    if not sys.stdout.isatty():
        return text
    return "".join(part if part in "\n\t" else visible(part) for part in re.split("([\n\t])", text))


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise SettingError(f"--set {pair}: write it as path=value, for example --set steps=500")
    return dict(pair.split("=", 1) for pair in pairs)


def _check_text(text: str) -> None:
    if not text.strip():
        raise InputError('the text is empty; give a sentence, for example "고양이가 생선을 먹었다"')


def _language(lang: str, text: str) -> str:
    """The language to print in: the asked one, else the text's script, else the locale's."""
    if lang != "auto":
        return lang
    if text:
        return "ko" if re.search("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]", text) else "en"
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    return "ko" if locale.startswith("ko") else "en"


def _console() -> Console:
    from rich.console import Console

    class Plain(Console):
        """rich's console, which would end the process with status 1 when a pipe's reader leaves."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Plain(highlight=False)


def _print_json(value: Any, indent: int | None = 2) -> None:
    import msgspec

    data = msgspec.json.encode(value)
    print((msgspec.json.format(data, indent=indent) if indent else data).decode())


def _note_repeats(cells: Sequence[Cell], token: str | None, shown: tuple[int, ...], lang: str) -> None:
    """Say so where the named word occurs more than once."""
    from .terminal.words import say

    here = next(i for i, cell in enumerate(cells) if cell.tokens == shown)
    places = [i for i, cell in enumerate(cells) if cell.text == cells[here].text]
    named = token is not None and unicodedata.normalize("NFC", token) == unicodedata.normalize("NFC", cells[here].text)
    if named and len(places) > 1:
        other = next(i for i in places if i != here)
        listed = ", ".join(map(str, places))
        note = say("repeated", lang, token=token, n=len(places), places=listed, shown=here, example=other)
        print(note, file=sys.stderr)
