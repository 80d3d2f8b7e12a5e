"""What is checked: a model, the inputs that it is run on, and the ways to run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
from ..model import EncoderDecoder, Model, ModelState
from ..nn.channel import Experts
from ..tap import Probe

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier

SHORT, LONG = 32, 96  # tokens of the rows that are run, and of the longest of them
SOUNDS = 2  # of full length each, since published models read no other
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

    def everything(self, probe: Probe) -> Tensor:
        """One run in which every value is worked out."""
        return self.alone(self.rows[-1], probe)

    def together(self, side: str) -> list[Tensor]:
        """All rows as one batch, padded on a side."""
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
            self.waits = "this model reads a text as a whole, so it keeps no cache and writes no tokens"

    def inputs(self, row: Sequence[int]) -> dict[str, Tensor]:
        """What a published model of the kind is called with."""
        return {"input_ids": self._ids(row)}

    def _run(self, row: Sequence[int], probe: Probe | None) -> Tensor:
        return self.model(self._ids(row), probe=probe)

    def together(self, side: str) -> list[Tensor]:
        """All rows as one batch, padded on a side."""
        tokens, pos = (x.to(self.device) for x in padded(self.rows, side))
        with at_rest(self.model):
            return unpadded(self.model(tokens, pos=pos), pos)

    def begun(self, row: Any, room: int) -> tuple[Tensor, ModelState]:
        """(the tokens `1 t` of a row, the state before them), with room for so many."""
        return self._ids(row), self.model.empty(1, room)

    def ids(self, row: Any) -> list[int]:
        """The tokens of a row that `step` reads."""
        return list(row)

    def changed(self, row: Any, ids: Sequence[int]) -> Any:
        """The row with other tokens."""
        return list(ids)

    def in_chunks(self, row: Any, cuts: Sequence[int]) -> Tensor:
        """A row through `step`, cut at these places."""
        with at_rest(self.model):
            tokens, state = self.begun(row, len(self.ids(row)))
            out = []
            for part in tokens.tensor_split(list(cuts), 1):
                logits, state = self.model.step(part, state)
                out.append(logits[0])
        return torch.cat(out)

    def written(self, row: Any, count: int) -> list[int]:
        """So many tokens behind a row, the most probable each time, one after the other with the cache."""
        made: list[int] = []
        with at_rest(self.model):
            tokens, state = self.begun(row, len(self.ids(row)) + count)
            while True:
                logits, state = self.model.step(tokens, state)
                made.append(int(logits[0, -1].argmax()))
                if len(made) == count:
                    return made
                tokens = self._ids(made[-1:])


class Pair(Text):
    """An encoder-decoder: rows of (source, target)."""

    def __init__(self, model: EncoderDecoder, rows: Sequence[tuple[Any, Sequence[int]]]) -> None:
        Subject.__init__(self, model, rows)

    def inputs(self, row: tuple[Any, Sequence[int]]) -> dict[str, Tensor]:
        """What a published model of the kind is called with."""
        return {"input_ids": self._source(row), "decoder_input_ids": self._ids(row[1])}

    def _source(self, row: tuple[Any, Sequence[int]]) -> Tensor:
        return self._ids(row[0])

    def _run(self, row: tuple[Any, Sequence[int]], probe: Probe | None) -> Tensor:
        return self.model(self._source(row), self._ids(row[1]), probe=probe)

    def together(self, side: str) -> list[Tensor]:
        """All rows as one batch, sources and targets padded on a side."""
        source, source_pos = self._sources(side)
        target, pos = (x.to(self.device) for x in padded([row[1] for row in self.rows], side))
        with at_rest(self.model):
            return unpadded(self.model(source, target, source_pos=source_pos, target_pos=pos), pos)

    def _sources(self, side: str) -> tuple[Tensor, Tensor | None]:
        source, pos = padded([row[0] for row in self.rows], side)
        return source.to(self.device), pos.to(self.device)

    def begun(self, row: tuple[Any, Sequence[int]], room: int) -> tuple[Tensor, ModelState]:
        """(the tokens `1 t` of a target, the decoder's state before them), with room for so many."""
        return self._ids(row[1]), self.model.empty(self._source(row), room)

    def ids(self, row: Any) -> list[int]:
        """The tokens of a target."""
        return list(row[1])

    def changed(self, row: Any, ids: Sequence[int]) -> Any:
        """The row with another target."""
        return row[0], list(ids)


class Sound(Pair):
    """An encoder-decoder that hears: rows of (log-mel spectrogram `c w`, target)."""

    def inputs(self, row: tuple[Tensor, Sequence[int]]) -> dict[str, Tensor]:
        """What a published model of the kind is called with."""
        return {"input_features": self._source(row), "decoder_input_ids": self._ids(row[1])}

    def everything(self, probe: Probe) -> Tensor:
        """One run from samples, in which every value is worked out."""
        with at_rest(self.model):
            samples = 0.1 * torch.ones(1, 400, device=self.device)
            return self.model(samples, self._ids(self.rows[-1][1]), probe=probe)

    def _source(self, row: tuple[Tensor, Sequence[int]]) -> Tensor:
        return row[0][None].to(self.dtype)

    def _sources(self, side: str) -> tuple[Tensor, None]:
        return torch.cat([self._source(row) for row in self.rows]), None


class Images(Subject):
    """A model of images: rows are single images `c y x`."""

    sides = ("",)
    waits = "an image is read as a whole"

    def inputs(self, row: Tensor) -> dict[str, Tensor]:
        """What a published model of the kind is called with: pixels as its own preparation would leave them."""
        embed = self.model.spec.embed
        mean, deviation = (
            torch.tensor(one, device=self.device).view(-1, 1, 1) for one in (embed.mean, embed.deviation)
        )
        return {"pixel_values": ((row - mean) / deviation)[None]}

    def _run(self, row: Tensor, probe: Probe | None) -> Tensor:
        return self.model(row[None].to(self.dtype), probe=probe)

    def together(self, side: str) -> list[Tensor]:
        """All images as one batch."""
        with at_rest(self.model):
            return list(self.model(torch.stack(self.rows).to(self.dtype)))


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
    """What is run of a model: texts of the test set, an encoder-decoder's targets too, or images, or sounds."""
    model, drawn = loaded.model, torch.Generator().manual_seed(0)
    if isinstance(model, ImageModel):
        spec = model.spec
        images = torch.rand(4, spec.channels, spec.size, spec.size, generator=drawn)
        return Images(model, list(images.to(next(model.parameters()).device)))
    if not isinstance(model, EncoderDecoder):
        return Text(model, rows_of(model.spec, loaded.encode) or drawn_rows(model.spec))
    encoder, targets = model.encoder.spec, rows_of(model.decoder.spec, loaded.encode)
    if encoder.reads_sound:
        sounds = torch.randn(SOUNDS, encoder.embed.bins, 2 * encoder.context, generator=drawn)
        sounds = sounds.to(next(model.parameters()).device)
        return Sound(model, list(zip(sounds, targets or drawn_rows(model.decoder.spec), strict=False)))
    sources = rows_of(encoder, lambda text: loaded.read(text) if loaded.source else loaded.encode(text))
    sources = sources or drawn_rows(encoder)
    begin = [*getattr(loaded.tokenizer, "begin", ()), 0][:1]
    writer, room = Pair(model, []), min(SHORT, model.decoder.spec.context - 1)
    targets = targets or [begin + writer.written((source, begin), room) for source in sources]
    return Pair(model, list(zip(sources, targets[::-1], strict=False)))


def rows_of(spec: Any, encode: Callable[[str], list[int]]) -> list[list[int]]:
    """Token ids of some texts of the test set, of all lengths up to what the context holds, the longest first; none
    where there is no tokenizer, or it knows too little of them."""
    chosen, found = texts(), []
    whole = " ".join(text for kind in RUN for text in chosen[kind])
    for text in [whole, *(text for kind in RUN for text in chosen[kind][:2])]:
        try:
            found.append(encode(text))
        except GlassformerError:  # a list of words knows some of it
            found.append([token for word in text.split() for token in _known(encode, word)])
    if min(map(len, found)) < 2 or max(map(max, found)) >= spec.vocab:
        return []
    return [row[: min(spec.context, SHORT if i else LONG)] for i, row in enumerate(found)]


def drawn_rows(spec: Any) -> list[list[int]]:
    """Rows of token ids drawn at random."""
    source = torch.Generator().manual_seed(0)
    low = min(10, spec.vocab // 2)  # special tokens, such as padding, come first: texts have none of them
    lengths = (min(n, spec.context) for n in (LONG, 9, 17, 4, 30, 12, 25, 7))
    return [torch.randint(low, spec.vocab, (n,), generator=source).tolist() for n in lengths]


def _known(encode: Callable[[str], list[int]], word: str) -> list[int]:
    try:
        return encode(word)
    except GlassformerError:
        return []
