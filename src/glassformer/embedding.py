"""What is made of a text as a whole: sentence embeddings, one vector for each text from the vectors of its tokens
(Reimers and Gurevych 2019), and the classes of a text, or of a pair of texts, where a model tells some apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .call import at_rest
from .classifier import Guess, ranked
from .data.panics import encoding
from .data.published import longest as longest_of
from .edit import Edit
from .errors import InputError, UnsupportedError, check_above
from .mask import pad_left
from .model import Model
from .nn.pool import POOLS, Pool, Pooled, pooled, shares

if TYPE_CHECKING:
    from .api import Loaded
    from .data.tokenizer import Tokenizer

BATCH = 32  # texts that are run at once, those of like length together


class TruncationWarning(UserWarning):
    """Texts were longer than the model reads, and their ends were cut off."""


@dataclass(frozen=True)
class Embedded:
    """The vectors `b d` of texts in their order. lengths: how many tokens each was read as; cut: which of them were
    longer than the `longest` that the model reads, and lost their ends."""

    vectors: Tensor
    lengths: tuple[int, ...]
    cut: tuple[int, ...]
    longest: int

    @property
    def notice(self) -> str:
        """What was cut, in a sentence."""
        which = ", ".join(map(str, self.cut[:8])) + (" …" if len(self.cut) > 8 else "")
        return (
            f"{len(self.cut)} of {len(self.lengths)} texts (from 0: {which}) are longer than the {self.longest} tokens "
            "that this model reads; their ends were cut off"
        )

    @property
    def similarities(self) -> Tensor:
        """The cosine of each text with each other, `b b`."""
        unit = F.normalize(self.vectors.double(), dim=-1)
        return unit @ unit.T


class Embedding:
    """What is made of a text as a whole: a part of api.Loaded."""

    model: nn.Module
    tokenizer: Tokenizer | None
    name: str

    @property
    def closing(self) -> list[int]:
        """The ids behind every text of a model that reads in both directions, or ends in one vector of the whole text;
        none where a text may go on."""
        whole = isinstance(self.model, Model) and (not self.model.causal or isinstance(self.model.head, Pooled))
        return list(self.tokenizer.closing) if whole and self.tokenizer is not None else []

    def embed(self, texts: str | Sequence[str], **how: Any) -> Tensor:
        """One vector for each text, `b d`: how the model was published to make them, unless `pool` and `unit` say
        otherwise (embedding.embed; prefix: what is put before every text, as "query: ").

        Warns with TruncationWarning where a text is longer than the model reads and was cut.
        """
        found = embed(self, texts, **how)
        if found.cut:
            warnings.warn(found.notice, TruncationWarning, stacklevel=2)
        return found.vectors

    def classify(
        self, text: str | tuple[str, str], *, edits: Edit | Iterable[Edit] = (), temperature: float = 1.0
    ) -> list[Guess]:
        """The classes of a text, or of a pair of texts, the most probable first. The probabilities of all add to 1
        unless the model tells each class by itself or has only one: then each is the sigmoid of its logit. Where the
        model estimates numbers (PooledSpec.scores), a guess has its `value`, and no probability. A pair is a tuple.
        edits: what is changed in the run of one text; temperature: what the logits are divided by.

        Raises UnsupportedError for a model that tells no classes apart, InputError for what is no text and for one that
        is longer than the model reads.
        """
        head = getattr(self.model, "head", None)
        if not isinstance(head, Pooled) or head.linear is None:
            raise UnsupportedError("this model tells no classes of texts apart; name another")
        check_above("temperature", temperature)
        if head.scores == "number" and temperature != 1:
            raise InputError("temperature: this model estimates numbers, which have none; leave it out")
        tokens, types = self._as_one(text)
        edits = (edits,) if isinstance(edits, Edit) else tuple(edits)
        if edits and types is not None:
            raise UnsupportedError("edits: a pair of texts is classified as it is; leave them out, or give one text")
        if edits:
            logits = self.trace(tokens[0].tolist(), edits=edits, start=False).logits[0]
        else:
            with at_rest(self.model):
                logits = self.model(tokens, types=types)[0]
        logits = logits.double() / temperature
        return ranked(shares(logits, head.scores).tolist(), head.spec.labels, head.scores)

    def _check_writes(self) -> None:
        """Raise UnsupportedError for a model that reads a text in both directions, or ends in one vector of it."""
        stack = getattr(self.model, "decoder", self.model)
        try:
            stack.check_streams()
        except UnsupportedError:
            way = "classify or trace" if getattr(stack.head, "linear", None) is not None else "embed or trace"
            raise UnsupportedError(
                f"{self.name or 'this model'} reads a whole text at once and writes none; use {way} with it"
            ) from None

    def _as_one(self, text: str | tuple[str, str]) -> tuple[Tensor, Tensor | None]:
        """The ids `1 t` of a text or of a pair, and of a pair the part in which each of them stands, where the model
        tells the parts apart."""
        parts = [text] if isinstance(text, str) else list(text) if isinstance(text, tuple) else []
        if len(parts) not in (1, 2) or not all(isinstance(one, str) for one in parts):
            if isinstance(text, list):
                raise InputError("a list is no pair; classify one text at a time, or give a pair as (first, second)")
            raise InputError("give a text, or a pair of texts as (first, second)")
        if len(parts) == 1:
            ids, types = self.encode(parts[0]), None
        else:
            ids, types = pair_of(self._tokenizer(), *parts)
        if len(ids) > self.context:
            raise InputError(f"there are {len(ids)} tokens and the model reads {self.context}; shorten the text")
        known = types is not None and self.model.spec.embed.types > max(types)
        return (
            torch.tensor([ids], device=self.device),
            torch.tensor([types], device=self.device) if known else None,
        )


def pair_of(tokenizer: Tokenizer, first: str, second: str) -> tuple[list[int], list[int]]:
    """The ids of two texts as one, with the special tokens that the tokenizer puts around and between them, and the
    part that each belongs to. Raises UnsupportedError for a tokenizer that joins no pairs."""
    with encoding():
        found = tokenizer.library.encode("a", "b", add_special_tokens=True)
    ids, types, texts, last = [], [], iter((first, second)), None
    for id, part, sequence in zip(found.ids, found.type_ids, found.sequence_ids, strict=True):
        if sequence is not None and sequence == last:
            continue
        made = [id] if sequence is None else tokenizer.encode(next(texts)).ids
        ids, types, last = [*ids, *made], [*types, *[part] * len(made)], sequence
    if not tokenizer.closing or last is not None:
        raise UnsupportedError("the tokenizer of this model joins no two texts; give one")
    return ids, types


def embed(
    loaded: Loaded,
    texts: str | Sequence[str],
    *,
    prefix: str | None = None,
    pool: Pool | None = None,
    unit: bool | None = None,
    batch: int = BATCH,
) -> Embedded:
    """The vectors of texts.

    prefix   put before every text, as E5 wants "query: " or "passage: "; None: what the model was published with
    pool     which vector stands for a text: "first", "last" or the "mean"; None: as the model was published, else the
             mean
    unit     whether vectors are brought to length 1; None: as the model was published, else not
    batch    how many texts are run at once

    Raises InputError for what is no text and for a setting that is not allowed, UnsupportedError for encoder-decoders.
    """
    if not isinstance(loaded.model, Model):
        raise UnsupportedError("only a model of one stack makes a vector of a text; an encoder-decoder does not")
    if pool not in (None, *POOLS):
        raise InputError(f"pool: {pool!r} is not allowed; use {', '.join(POOLS)}")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise InputError(f"batch: {batch!r} is not allowed; use a whole number from 1")
    given = [texts] if isinstance(texts, str) else list(texts)
    if not given or not all(isinstance(one, str) for one in given):
        raise InputError("texts: give a text, or a list of at least one")
    about = loaded.about.get("sentences") or {}
    start = about.get("prefix", "") if prefix is None else prefix
    longest = longest_of(loaded.context, loaded.tokenizer, about)
    ids = [loaded.encode(start + one) for one in given]
    for number, one in enumerate(ids):
        if not one:
            raise InputError(f"text {number} is empty; give at least one character")
    cut = tuple(number for number, one in enumerate(ids) if len(one) > longest)
    ids = [_cut(loaded, one, longest) for one in ids]
    vectors = _run(loaded.model, ids, pool, unit, batch)
    return Embedded(vectors, tuple(map(len, ids)), cut, longest)


def _cut(loaded: Loaded, ids: list[int], longest: int) -> list[int]:
    """The first tokens of a text that is too long, and the special ones that end every text."""
    closing = loaded.closing
    return ids if len(ids) <= longest else [*ids[: longest - len(closing)], *closing]


def _run(model: Model, ids: list[list[int]], pool: Pool | None, unit: bool | None, batch: int) -> Tensor:
    own = model.head if isinstance(model.head, Pooled) and model.head.linear is None else None
    order = sorted(range(len(ids)), key=lambda number: -len(ids[number]))
    found: dict[int, Tensor] = {}
    with at_rest(model):
        for first in range(0, len(order), batch):
            some = order[first : first + batch]
            tokens, pos = (x.to(model.embed.token.weight.device) for x in pad_left([ids[number] for number in some]))
            whole = len({len(ids[number]) for number in some}) == 1  # nothing is padded, so attention needs no mask
            call = model.call(tokens, None if whole else pos)
            x = model.run(tokens, call, head=False)
            x = own(x, call) if own is not None and pool is None else pooled(x, call, pool or "mean")
            x = F.normalize(x, dim=-1) if unit else x
            found.update(zip(some, x, strict=True))
    return torch.stack([found[number] for number in range(len(ids))])
