"""A generation as the page follows it: token by token, each with what it was chosen among and what the model keeps."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from ..api import Loaded
from ..classifier import Classifier
from ..data.display import alone
from ..errors import InputError, SettingError, UnsupportedError, nearest
from ..explain.cost import state_bytes
from ..explain.quantity import exact
from ..explain.rest import Next, ranked
from ..generate import Event, GenerateSpec
from ..model import EncoderDecoder
from ..page.again import command, dtype_of, edited
from ..page.documents import AskedWriting, PageToken, PageWritten
from ..page.outline import candidate
from ..terminal.edits import words_of
from ..terminal.options import OPTIONS
from .edits import check_edits, check_length, edits_of
from .models import Models
from .runs import RUN_BYTES
from .work import Work

MOST_TOKENS = 1024
MOST_BEAMS = 8
MOST_CANDIDATES = 100


def write(models: Models, asked: AskedWriting, work: Work) -> PageWritten:
    """Write behind a text, an event for each token. Raises InputError and SettingError as Loaded.generate does."""
    _check(asked)
    model = models.open(asked.model, work)
    if isinstance(model, Classifier):
        raise UnsupportedError(f"{asked.model} writes nothing behind a text; choose a model that does")
    among: tuple[Next, ...] = ()

    def watch(logits: Tensor) -> None:
        nonlocal among
        among = ranked(exact(logits[0]), model.cell, asked.top)

    edits = edits_of(asked.edits, lambda other: model.trace(other, limit_bytes=RUN_BYTES), RUN_BYTES)
    follow = _Follow(model, asked.text)
    for event in model.generate(asked.text, watch=watch, edits=edits, **asked.settings):
        work.tell({"event": follow.token(event, among)})
    return PageWritten("".join(follow.texts), _lines(asked, model), _command(asked, model))


class _Follow:
    """What of a generation is known so far."""

    def __init__(self, model: Loaded, prompt: str) -> None:
        self.model, self.texts, self.ids = model, list[str](), list[int]()
        self.pair = isinstance(model.model, EncoderDecoder)
        read = model.read(prompt) if self.pair else model.encode(prompt)
        self.sources = len(read) if self.pair else 1
        self.before = 1 if self.pair else max(1, len(read))
        self.last = time.monotonic()

    def token(self, event: Event, among: tuple[Next, ...]) -> PageToken:
        """The event as the page has it."""
        length, cell, now = self.before + len(self.ids), self.model.cell(event.token), time.monotonic()
        writer = self.model.model.decoder if self.pair else self.model.model
        number = next(writer.parameters()).element_size()
        made = PageToken(
            event.token,
            alone(cell),
            event.text,
            not cell.source,
            event.probability,
            tuple(map(candidate, among)),
            length,
            state_bytes(writer, length, number, self.sources),
            now - self.last,
            event.finished,
        )
        self.texts.append(event.text)
        self.ids.append(event.token)
        self.last = now
        return made


def _check(asked: AskedWriting) -> None:
    """Raise InputError for more than a page may ask for."""
    check_length(asked.text)
    check_edits(asked.edits)
    if not 0 <= asked.top <= MOST_CANDIDATES:
        raise InputError(f"top: {asked.top} is not allowed; use 0 to {MOST_CANDIDATES}")
    for name in asked.settings:  # before they are given beside what generate takes by name
        if name not in GenerateSpec.__struct_fields__:
            raise SettingError(f"{name}: unknown setting; {nearest(name, GenerateSpec.__struct_fields__)}")
    for name, most in (("max_new_tokens", MOST_TOKENS), ("beams", MOST_BEAMS)):
        given: Any = asked.settings.get(name)
        if isinstance(given, int) and given > most:
            raise InputError(f"{name}: {given} is not allowed here; use at most {most}")


def _command(asked: AskedWriting, model: Loaded) -> str:
    """The command line that writes the same, with whatever glassformer generate would choose otherwise; "" where one
    of the settings has no option of it."""
    given = {name: one for name, one in asked.settings.items() if one is not None}
    if any(name not in OPTIONS or isinstance(one, bool | list) for name, one in given.items()) or "\0" in asked.text:
        return ""
    spec = model._choice(asked.settings)
    how: dict[str, Any] = {"max_new_tokens": spec.max_new_tokens}
    if spec.beams == 1:
        how["temperature"] = spec.temperature
    if spec.beams == 1 and not isinstance(model.model, EncoderDecoder):
        how |= {"top_p": spec.top_p or 1, "repetition_penalty": spec.repetition_penalty}
    dtype = dtype_of(model.model)
    changes = [word for one in asked.edits for word in ("--edit", words_of(edited(one)))]
    options = [word for name, one in (how | given).items() for word in (OPTIONS[name], str(one))]
    return command(
        "generate", asked.text, "-m", asked.model, *(["--dtype", dtype] if dtype else []), *changes, *options
    )


def _lines(asked: AskedWriting, model: Loaded) -> tuple[str, ...]:
    """The Python lines that write the same."""
    how = "".join(f", {name}={value!r}" for name, value in asked.settings.items())
    edits = ", ".join(edited(one).line for one in asked.edits)
    how = (f", edits=[{edits}]" if edits else "") + how
    dtype = dtype_of(model.model)
    load = f"model = gf.load({asked.model!r}{f', dtype={dtype!r}' if dtype else ''})"
    say = f"for event in model.generate({asked.text!r}{how}):"
    return ("import glassformer as gf", load, say, "    print(event.text, end='')")
