"""What people call: a model with its tokenizer, and traces that know their text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .checkpoint import load_model, read_about
from .data.display import By, Cell, cells, cells_of_ids, find
from .data.text import documents, text_files
from .data.tokenizer import Tokenizer
from .errors import InputError, nearest
from .explain.sheet import Sheet, sheet
from .generate import Event, GenerateSpec, generate
from .model import AnySpec, EncoderDecoder, build_model
from .tap import Edit
from .trace import DEFAULT_LIMIT_BYTES, Trace
from .train.evaluate import sliding_loss

SHIPPED = Path(__file__).parent / "shipped"
DEFAULT_MODEL = "small"


@dataclass(frozen=True)
class Score:
    """How well a text is predicted: loss in nats per token, perplexity per token, bits per byte of UTF-8 text."""

    loss: float
    perplexity: float
    bits_per_byte: float
    tokens: int
    bytes: int


class Loaded:
    """A model and its tokenizer. Calling it gives logits `b t v`; everything else starts from a text or token ids.

    A text is run as training saw it: behind the end-of-document token, which also gives the first word a distribution
    (switch it off with `start=False`).
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer | None = None,
        name: str = "",
        about: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.tokenizer, self.name, self.about = model, tokenizer, name, about or {}

    @property
    def spec(self) -> AnySpec:
        """The settings of the model."""
        return self.model.spec

    def __call__(self, text: str | list[int] | Tensor) -> Tensor:
        """Logits `b t v` of a text, token ids, or a batch of ids."""
        with torch.no_grad():
            return self.model(self._ids(text)[0])

    def trace(
        self,
        text: Any,
        *,
        edits: Iterable[Edit] = (),
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        start: bool = True,
    ) -> TextTrace:
        """A trace of a text, of token ids, of a batch `b t`, or of a (source, target) pair."""
        return TextTrace(self, text, edits=edits, limit_bytes=limit_bytes, start=start)

    def generate(self, prompt: str | list[str], **settings: Any) -> Iterator[Event]:
        """Events of a generation: one per new token, each with the newly complete characters. Settings as in
        GenerateSpec (max_new_tokens, temperature, top_p, seed …)."""
        prompts = [prompt] if isinstance(prompt, str) else prompt
        return generate(self.model, self._tokenizer(), prompts, from_data(settings, GenerateSpec))

    def encode(self, text: str, start: bool = True) -> list[int]:
        """The token ids of a text, behind the start token unless start is False."""
        return self._tokenizer().encode(text, start=start).ids

    def evaluate(self, source: Path | str, *, overlap: float = 0.5) -> Score:
        """How well the model predicts a text file or folder, each file behind the start token.

        The text runs through windows of the model's context; all but the first start with an `overlap` share that was
        predicted before, so that no token is predicted from nothing.
        """
        tokenizer, loss, tokens, size = self._tokenizer(), 0.0, 0, 0
        for path in text_files(source):
            pieces = list(documents(path))
            ids = np.concatenate([[tokenizer.end_id], *(tokenizer.ids_array(piece) for piece in pieces)])
            loss += sliding_loss(self.model, ids, self.spec.context, overlap)
            tokens += len(ids) - 1
            size += sum(len(piece.encode()) for piece in pieces)
        return Score(loss / tokens, math.exp(loss / tokens), loss / size / math.log(2), tokens, size)

    def label(self, token: int) -> str:
        """A token id as a person reads it: its text, or its bytes where it is a part of a character."""
        return str(token) if self.tokenizer is None else cells_of_ids(self.tokenizer, [token], "token")[0].text

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("this model has no tokenizer; give token ids instead of a text")
        return self.tokenizer

    def _ids(self, text: Any, start: bool = True) -> tuple[Tensor, str]:
        """(ids `b t`, the text where there is one)."""
        if isinstance(text, str):
            if not text:
                raise InputError("the text is empty; give at least one character")
            return torch.tensor([self.encode(text, start)], device=self.device), text
        ids = torch.as_tensor(text, dtype=torch.long, device=self.device)
        return (ids[None] if ids.ndim == 1 else ids), ""

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device


class TextTrace(Trace):
    """A trace that knows its text: `cells` are its tokens as a person reads them."""

    def __init__(
        self, loaded: Loaded, given: Any, *, edits: Iterable[Edit], limit_bytes: int, start: bool = True
    ) -> None:
        self.loaded, self.text, self.start = loaded, "", start
        pair = isinstance(loaded.model, EncoderDecoder)
        if pair and not (isinstance(given, tuple | list) and len(given) == 2):
            raise InputError("this is an encoder-decoder: give a pair (source, target)")
        if pair:
            source, target = (loaded._ids(part, start)[0] for part in given)
            tokens: Any = (source, target)
        else:
            tokens, self.text = loaded._ids(given, start)
        super().__init__(loaded.model, tokens, edits=edits, limit_bytes=limit_bytes)
        if self.text:
            self._labels["t"] = self._labels["s"] = [cell.text for cell in self.cells("token")]

    def cells(self, by: By = "word") -> list[Cell]:
        """The tokens grouped by word, character or token, the start token as a cell of its own."""
        if not self.text:
            stack = self.stacks[-1]
            return [Cell(str(token), (i,), 0, 0, "") for i, token in enumerate(stack.tokens[0].tolist())]
        return cells(self.text, self.loaded._tokenizer().encode(self.text, start=self.start), by)

    def sheet(
        self,
        token: str | int | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
        by: By = "word",
        top: int = 8,
    ) -> Sheet:
        """How one token's context vector is computed. token: a word of the text or its place; None: the last."""
        groups = self.cells(by)
        if token is None:
            chosen = len(groups) - 1
        elif isinstance(token, int):
            if not -len(groups) <= token < len(groups):
                raise InputError(f"there is no token {token}; the sentence has {len(groups)} (0 to {len(groups) - 1})")
            chosen = token % len(groups)
        else:
            chosen = find(self.text, groups, token)[-1]
        return sheet(self, groups, chosen, text=self.text, layer=layer, head=head, label=self.loaded.label, top=top)


def load(name: str | Path | None = None, *, device: str = "cpu", dtype: str = "float32") -> Loaded:
    """A model: the shipped one (None or its name), or a folder that training wrote."""
    folder = _folder(name)
    wanted = getattr(torch, dtype, None)
    if not isinstance(wanted, torch.dtype) or not wanted.is_floating_point:
        raise InputError(f"dtype: {dtype!r} is not allowed; use float32, bfloat16 or float64")
    model = load_model(folder, device, wanted)
    path = folder / "tokenizer.json"
    return Loaded(model, Tokenizer.load(path) if path.is_file() else None, folder.name, read_about(folder))


def shipped() -> list[str]:
    """The names of the models in the package."""
    return sorted(p.parent.name for p in SHIPPED.glob("*/model.json"))


def _folder(name: str | Path | None) -> Path:
    if name is None:
        return SHIPPED / DEFAULT_MODEL
    if str(name) in shipped():
        return SHIPPED / str(name)
    if Path(name).exists():
        return Path(name)
    raise InputError(f"no model {str(name)!r}: neither a folder nor a shipped name; {nearest(str(name), shipped())}")


def build(spec: str | AnySpec, *, seed: int = 0, **overrides: Any) -> Loaded:
    """A freshly initialised model of a preset (with overrides such as vocab=65) or of a spec."""
    if isinstance(spec, str):
        from .presets import preset  # only here: a trace should not wait for it

        spec = preset(spec, **overrides)
    elif overrides:
        spec = spec.changed(**overrides)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Loaded(build_model(spec).eval())


def parameters(model: Loaded | nn.Module) -> list[tuple[str, tuple[int, ...], int]]:
    """(name, shape, count) of every parameter, a shared one once: what gradient descent changes."""
    module = model.model if isinstance(model, Loaded) else model
    return [(name, tuple(p.shape), p.numel()) for name, p in module.named_parameters()]
