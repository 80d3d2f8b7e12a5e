"""What is checked: a model, the inputs that it is run on, and the ways to run them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..call import at_rest
from ..checkpoint import filled, unique_tensors
from ..errors import GlassformerError, UnsupportedError
from ..image import ImageModel
from ..mask import pad_left
from ..model import EncoderDecoder, Model
from ..nn.channel import Experts
from ..tap import Probe

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier

SHORT, LONG = 32, 96  # tokens of the rows that are run, and of the longest of them
RUN = ("english", "korean", "mixed", "code")  # what the rows are made of, two texts of each
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}


def texts() -> dict[str, list[str]]:
    """The Korean and English test set, by kind."""
    return json.loads((Path(__file__).parent / "texts.json").read_text(encoding="utf-8"))


class Subject:
    """A model and its rows. Outputs are those of one row without padding: logits `t v`, vectors `t d`, or of an image,
    or a pooled text, `k`.

    alone       the fast path: the whole row in one call
    waits       why no token can be taken before the next is known, "" where it can
    """

    sides: tuple[str, ...] = ("left", "right")
    waits = ""

    def __init__(self, model: nn.Module, rows: Sequence[Any]) -> None:
        self.model, self.rows = model, list(rows)
        self.device, self.dtype = (getattr(next(model.parameters()), one) for one in ("device", "dtype"))

    def alone(self, row: Any, probe: Probe | None = None) -> Tensor:
        """One row in one call."""
        with at_rest(self.model):
            return self._run(row, probe)[0]

    def _run(self, row: Any, probe: Probe | None) -> Tensor:
        raise NotImplementedError

    def together(self, side: str) -> list[Tensor]:
        """All rows as one batch, padded on a side."""
        raise NotImplementedError

    def in_chunks(self, row: Any, cuts: Sequence[int]) -> Tensor:
        """A row through `step`, cut at these places."""
        raise NotImplementedError

    @cached_property
    def fast(self) -> list[Tensor]:
        """Every row by itself, on the fast path."""
        return [self.alone(row) for row in self.rows]

    @property
    def may_choose_otherwise(self) -> bool:
        """Whether rounding may send a token to another expert, or another key among the largest: no matter of
        exactness."""
        parts = list(self.model.modules())
        chooses = any(
            isinstance(part, Experts) or getattr(getattr(part, "spec", None), "top_k", None) for part in parts
        )
        return chooses and self.dtype in (torch.bfloat16, torch.float16)

    @cached_property
    def wide(self) -> list[Tensor] | None:
        """The same with the same weights in the next wider number format, worked out once and when it is needed; None
        where there is none."""
        if self.dtype not in WIDER or (self.device.type == "mps" and self.dtype == torch.float32):
            return None
        tensors = {name: value.to(WIDER[self.dtype]) for name, value in unique_tensors(self.model).items()}
        model = filled(self.model.spec, tensors, Path(), self.device)
        return type(self)(model, self.rows).fast

    def _ids(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=self.device)


class Text(Subject):
    """One stack that reads token ids."""

    def __init__(self, model: Model, rows: Sequence[Sequence[int]]) -> None:
        super().__init__(model, rows)
        try:
            model.check_streams()
        except UnsupportedError:
            self.waits = "this model sees later tokens, so it takes a text as a whole and keeps no cache"

    def _run(self, row: Sequence[int], probe: Probe | None) -> Tensor:
        return self.model(self._ids(row), probe=probe)

    def together(self, side: str) -> list[Tensor]:
        """All rows as one batch, padded on a side."""
        tokens, pos = (x.to(self.device) for x in padded(self.rows, side))
        with at_rest(self.model):
            return unpadded(self.model(tokens, pos=pos), pos)

    def in_chunks(self, row: Sequence[int], cuts: Sequence[int]) -> Tensor:
        """A row through `step`, cut at these places."""
        with at_rest(self.model):
            state, out = self.model.empty(1, len(row)), []
            for part in self._ids(row).tensor_split(list(cuts), 1):
                logits, state = self.model.step(part, state)
                out.append(logits[0])
        return torch.cat(out)


class Pair(Subject):
    """An encoder-decoder: rows of (source, target)."""

    def _run(self, row: Sequence[Sequence[int]], probe: Probe | None) -> Tensor:
        return self.model(*map(self._ids, row), probe=probe)

    def together(self, side: str) -> list[Tensor]:
        """All rows as one batch, sources and targets padded on a side."""
        sources, targets = ([x.to(self.device) for x in padded(rows, side)] for rows in zip(*self.rows, strict=True))
        with at_rest(self.model):
            out = self.model(sources[0], targets[0], source_pos=sources[1], target_pos=targets[1])
        return unpadded(out, targets[1])

    def in_chunks(self, row: Sequence[Sequence[int]], cuts: Sequence[int]) -> Tensor:
        """The target through `step`, cut at these places."""
        source, target = map(self._ids, row)
        with at_rest(self.model):
            state, out = self.model.empty(source, target.shape[1]), []
            for part in target.tensor_split(list(cuts), 1):
                logits, state = self.model.step(part, state)
                out.append(logits[0])
        return torch.cat(out)


class Images(Subject):
    """A model of images: rows are single images `c y x`."""

    sides = ("",)
    waits = "an image is read as a whole"

    def _run(self, row: Tensor, probe: Probe | None) -> Tensor:
        return self.model(row[None].to(self.dtype), probe=probe)

    def together(self, side: str) -> list[Tensor]:
        """All images as one batch."""
        with at_rest(self.model):
            return list(self.model(torch.stack(self.rows)))


def padded(rows: Sequence[Sequence[int]], side: str) -> tuple[Tensor, Tensor]:
    """Rows of ids as one batch: (tokens `b t`, positions `b t`, -1 on padding)."""
    tokens, pos = pad_left([list(row) for row in rows])
    if side == "left":
        return tokens, pos
    t = tokens.shape[1]
    turn = ((pos < 0).sum(1, keepdim=True) + torch.arange(t)) % t
    return tokens.gather(1, turn), pos.gather(1, turn)


def unpadded(out: Tensor, pos: Tensor) -> list[Tensor]:
    """The rows of a batch without their padding."""
    return list(out) if out.ndim == 2 else [row[there] for row, there in zip(out, pos >= 0, strict=True)]


def subject_of(loaded: Loaded | Classifier) -> Subject:
    """What is run of a model: texts of the test set, an encoder-decoder's with what it writes for them, or images."""
    model = loaded.model
    if isinstance(model, ImageModel):
        spec, source = model.spec, torch.Generator().manual_seed(0)
        images = torch.rand(4, spec.channels, spec.size, spec.size, generator=source)
        return Images(model, list(images.to(next(model.parameters()))))
    if isinstance(model, EncoderDecoder):
        sources = rows_of(model.encoder.spec, lambda text: loaded.read(text) if loaded.source else loaded.encode(text))
        targets = rows_of(model.decoder.spec, loaded.encode)
        return Pair(model, list(zip(sources, targets[::-1], strict=False)))
    return Text(model, rows_of(model.spec, loaded.encode))


def rows_of(spec: Any, encode: Any) -> list[list[int]]:
    """Token ids of some texts of the test set, of all lengths up to what the context holds; drawn at random where there
    is no tokenizer, or none that knows these texts."""
    chosen, found = texts(), []
    for text in [
        " ".join(text for kind in RUN for text in chosen[kind]),
        *(t for kind in RUN for t in chosen[kind][:2]),
    ]:
        try:
            found.append(encode(text))
        except GlassformerError:
            break
    if len(found) < 2 or min(map(len, found)) < 2:
        source = torch.Generator().manual_seed(0)
        found = [torch.randint(spec.vocab, (n,), generator=source).tolist() for n in (LONG, 9, 17, 4, 30, 12, 25, 7)]
    return [row[: min(spec.context, SHORT if i else LONG)] for i, row in enumerate(found)]
