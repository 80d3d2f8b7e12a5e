"""How to make the same run elsewhere: in Python, in the terminal, and live in the page."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from ..edit import Edit
from ..edit_json import EditData, made
from ..explain.explained import chosen
from ..explain.explainer import has_tokens, length_of
from ..explain.explanation import Explanation
from ..explain.kinds.next import in_classes, scored
from ..image import ImageModel
from ..place import plain
from ..terminal.edits import words_of
from ..trace import Trace
from .documents import PageEdit

PICTURE = "picture.png"  # what the file of an image is called in these lines


class Again:
    """How to make the same trace. model: its name; picture: what the file of an image is called.

    text, start: what gives these tokens, of a pair (source, target), and whether behind the start token; None: no text
    does.
    """

    def __init__(self, trace: Any, model: str, picture: str = PICTURE) -> None:
        self.trace, self.model, self.picture = trace, model, picture
        self.edits = [*map(plainly, trace.edits)]
        self.image, self.pair = isinstance(trace.model, ImageModel), len(trace.stacks) == 2
        self.hears = not self.image and trace.loaded.hears
        self.text, self.start = (None, True) if self.image or self.hears else read(trace)
        self.dtype = dtype_of(trace.model)

    def lines(self) -> tuple[str, ...]:
        """The Python lines that make the same trace: from the text where that gives these tokens, else from their
        ids."""
        edits = ", ".join(edit.line for edit in self.edits)
        how = f", edits=[{edits}]" if edits else ""
        if self.image:
            return self._written(repr(self.picture), how)
        if self.hears:
            return self._written(f'("speech.wav", {self.trace.text!r})', how)
        if self.text is not None:
            return self._written(repr(self.text), how + ("" if self.start else ", start=False"))
        ids = [stack.tokens[0].tolist() for stack in self.trace.stacks]
        return self._written(repr(ids[0] if len(ids) == 1 else tuple(ids)), f"{how}, start=False")

    def _written(self, given: str, how: str) -> tuple[str, ...]:
        dtype = f", dtype={self.dtype!r}" if self.dtype else ""
        load = f"model = gf.load({self.model!r}{dtype})"
        return ("import glassformer as gf", load, f"trace = model.trace({given}{how})")

    def command(self, token: int | None = None, temperature: float = 1.0) -> str:
        """The command line that prints the same numbers, those at a token (None: where it looks by itself) and at a
        temperature; "" where there is none, as of a text that nobody can type."""
        heat = [] if temperature == 1 else ["--temperature", repr(temperature).removesuffix(".0")]
        if in_classes(self.trace):
            given = self.picture if self.image else self.text if self.start else None
            return self._run("classify", given, *heat)
        if self.image or self.hears or self.text is None:
            return ""
        source, target = self.text if self.pair else (self.text, None)
        given = target is not None and not _wrote(self.trace)
        return self._run(
            "trace",
            source,
            *([] if self.start else ["--no-start"]),
            *(["--target", target] if given else []),
            *([] if token is None else [*(["--of", "text"] if self.pair else []), "--by", "token"]),
            *([] if token is None else ["--token", self._row(token)]),
            *heat,
        )

    def _row(self, token: int) -> str:
        """A token as the terminal takes it: the number of its row, which must be no word of the text."""
        row = f"#{token}"
        while row in self.trace.text:
            row = row.replace("#", "#0")
        return row

    def live(self) -> str:
        """The command line that opens the page with the same, of an image the page in which it can be chosen; "" where
        the page takes no such text, start, target or edit."""
        if self.hears:
            return command("transcribe", "speech.wav", "-m", self.model)
        if self.image:
            return command("explore", None, "-m", self.model)
        if not self.start or (self.pair and not _wrote(self.trace)) or None in map(asked, self.trace.edits):
            return ""
        return self._run("explore", self.text[0] if self.pair and self.text is not None else self.text)

    def _run(self, verb: str, text: str | None, *more: str) -> str:
        """A verb with a text, and all that belongs to this run; "" where that text, or an edit, cannot be given."""
        if text is None or not text.strip() or "\0" in text or not all(map(_typed, self.edits)):
            return ""
        dtype = ["--dtype", self.dtype] if self.dtype else []
        changes = [word for one in self.edits for word in ("--edit", words_of(one))]
        return command(verb, text, "-m", self.model, *dtype, *changes, *more)


def command(verb: str, text: str | None, *options: str) -> str:
    """A command line as it is typed. text: what the verb works on, which may look like an option; None: nothing."""
    if text is None:
        return shlex.join(["glassformer", verb, *options])
    if text.startswith("-"):
        return shlex.join(["glassformer", verb, *options, "--", text])
    return shlex.join(["glassformer", verb, text, *options])


def dtype_of(model: Any) -> str:
    """The number format of a model's weights as load and --dtype have it; "" for the usual one."""
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return "" if dtype == "float32" else dtype


def edited(one: PageEdit) -> Edit:
    """The edit that a page asks for."""
    return made(EditData(**msgspec.structs.asdict(one)))


def asked(edit: Edit) -> PageEdit | None:
    """An edit as a page asks for it; None for one that it cannot ask for, as of a tensor."""
    plain = plainly(edit)
    where: Any = plain.where
    there: Any = plain.there
    if not _typed(edit) or any(isinstance(place, slice) for place in (*where.values(), *there.values())):
        return None
    value, run = (None, edit.run) if edit.kind == "patch" else (edit.value, None)
    return PageEdit(edit.kind, edit.name, where, value, edit.seed, edit.renormalise, run, there)


def plainly(edit: Edit) -> Edit:
    """The same edit with its places as whole numbers and lists of them, whatever library they came from."""
    where, there = ({axis: plain(place) for axis, place in one.items()} for one in (edit.where, edit.there))
    return dataclasses.replace(edit, where=where, there=there)


def commanded(found: Explanation, trace: Trace, model: str, how: Mapping[str, Any]) -> Explanation:
    """An explanation with the command line that prints its numbers, where it is of a kind that the terminal has: what
    a change does. how: the settings that it was asked for with."""
    if found.name != "effect":
        return found
    settings: Any = chosen(found.name, how)
    token = settings.token % length_of(trace.stacks[-1]) if has_tokens(trace) else None
    heat = settings.temperature if scored(trace) in ("softmax", "sigmoid") else 1.0
    return msgspec.structs.replace(found, command=Again(trace, model).command(token, heat))


def _typed(edit: Edit) -> bool:
    """Whether an edit can be typed: with a number, or from a run that has a text."""
    if edit.kind == "patch":
        return isinstance(edit.run, str | list)
    return edit.value is None or isinstance(edit.value, int | float)


def read(trace: Any) -> tuple[Any, bool]:
    """The text (of a pair both) from which the model reads the tokens of a trace, and whether behind the start token;
    (None, True) where no text gives them."""
    given = (trace.source_text, trace.text) if len(trace.stacks) == 2 else trace.text
    ids = [stack.tokens[0].tolist() for stack in trace.stacks]
    for start in (True, False):
        if trace.loaded.tokenizer is not None and _ids(trace, given, start) == ids:
            return given, start
    return None, True


def _ids(trace: Any, given: Any, start: bool) -> list[list[int]] | None:
    try:
        return [one[0].tolist() for one in trace.loaded.inputs(given, start)]
    except ValueError:  # of a text that the tokenizer does not read, as what stands for a special token
        return None


def _wrote(trace: Any) -> bool:
    """Whether the target of a pair is what the model itself writes for its source."""
    source, target = trace._texts
    return target is None and isinstance(source, str)
