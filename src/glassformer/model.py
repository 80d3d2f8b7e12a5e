"""The skeleton: embedding, blocks, norm, head; one stack (an encoder or a decoder), or an encoder with a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .block import Block, BlockSpec, BlockState, name_parts, share_relative
from .call import Call
from .errors import GlassformerError, InputError, SettingError, UnsupportedError, under
from .given import call_of_all, check_form, check_memory
from .image import ImageModel, ImageModelSpec
from .mask import rows
from .mixers.cells import check_start, end_width
from .nn.embed import Embed, EmbedSpec
from .nn.head import Head, HeadSpec
from .nn.init import InitSpec, initialise
from .nn.norm import LayerNormSpec, Norm, NormSpec
from .nn.pool import Pooled, PooledSpec
from .nn.sound import Sound, SoundSpec
from .spec import Spec, check_least, check_share, checked
from .state import State
from .tap import Probe


class ModelSpec(Spec, frozen=True, tag="model"):
    """One stack: embed, blocks of width dim, norm, head: scores of the vocabulary at each token, one vector or the
    classes of the whole text (PooledSpec), or None: the stack ends in a vector for each token, as an encoder does.

    context is the longest text it is meant for, dropout that of the embedded tokens, init how the weights start.
    vocab 0 stands for a tokenizer's size that is not known yet, as in a recipe; such a spec builds no model. A stack
    whose embed is a sound's has vocab 0 and no head: it reads no tokens and ends in vectors.
    """

    vocab: int
    dim: int
    blocks: tuple[BlockSpec, ...]
    context: int = 1024
    embed: EmbedSpec | SoundSpec = EmbedSpec()
    norm: NormSpec | None = LayerNormSpec()
    head: HeadSpec | PooledSpec | None = HeadSpec()
    dropout: float = 0.0
    init: InitSpec = InitSpec()

    def __post_init__(self) -> None:
        check_least(self, 0, "vocab")
        check_least(self, 1, "dim", "context")
        check_share(self, "dropout")
        if self.reads_sound and self.vocab:
            raise SettingError(f"vocab: {self.vocab} is not allowed where the embedding is that of a sound; use 0")
        if self.reads_sound and self.head is not None:
            raise SettingError("head: a stack that reads sound ends in vectors; set it to null")

    @property
    def reads_sound(self) -> bool:
        """Whether it reads sound instead of token ids."""
        return isinstance(self.embed, SoundSpec)

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of the vectors that enter each block, and of those that leave the last."""
        found = [self.dim]
        for block in self.blocks:
            found.append(block.width or found[-1])
        return tuple(found)


class EncoderDecoderSpec(Spec, frozen=True, tag="encoder-decoder"):
    """An encoder whose output the decoder's blocks read: by cross-attention, by a mixer that aligns with it, or as the
    state in which a recurrence begins. share: one embedding table for both."""

    encoder: ModelSpec
    decoder: ModelSpec
    share: bool = False

    def __post_init__(self) -> None:
        if self.encoder.head is not None:
            raise SettingError("encoder.head: an encoder inside an encoder-decoder has none; set it to null")
        if not isinstance(self.decoder.head, HeadSpec) or not any(block.reads_memory for block in self.decoder.blocks):
            raise SettingError(
                "decoder: it needs a head and at least one block that reads the encoder, by cross-attention, as an "
                "alignment, or as its start"
            )
        if self.share and (self.encoder.vocab, self.encoder.dim) != (self.decoder.vocab, self.decoder.dim):
            raise SettingError("share: one table for both needs the same vocab and dim in encoder and decoder")
        for i, block in enumerate(self.encoder.blocks):
            if block.reads_memory:
                part = "mixer" if block.cross is None else "cross"
                raise SettingError(f"encoder.blocks.{i}.{part}: the encoder has no memory to look at; set it to null")
        for i, block in enumerate(self.decoder.blocks):
            with under(f"decoder.blocks.{i}"):
                self._check_widths(block, self.decoder.widths[i])

    def _check_widths(self, block: BlockSpec, dim: int) -> None:
        """Raise SettingError where a decoder's block of width dim expects something else than the encoder gives."""
        given = self.encoder.widths[-1]
        for name, own in (("cross", block.width or dim), ("mixer", dim)):
            part = getattr(block, name)
            if hasattr(part, "memory_dim") and (part.memory_dim or own) != given:
                raise SettingError(
                    f"{name}.memory_dim: {part.memory_dim or own} is not the encoder's width; use {given}"
                )
        start = getattr(block.mixer, "start", None)
        if start is not None:
            encoder = zip(self.encoder.blocks, self.encoder.widths, strict=False)
            widths = [end_width(one.mixer, width) for one, width in encoder]
            check_start(start, [width for width in widths if width], dim)


AnySpec = ModelSpec | EncoderDecoderSpec | ImageModelSpec


@dataclass(eq=False)
class ModelState(State):
    """The past of a whole stack. next_pos `b`: the position of the next token; plain: no padding was seen so far;
    length: how many places were given."""

    embed: State
    blocks: tuple[BlockState, ...]
    next_pos: Tensor
    plain: bool = True
    length: int = 0


class Model(nn.Module):
    """One stack of ModelSpec: token ids `b t` to logits `b t v`, to vectors `b t d` where it has no head, or to one
    vector `b d` or the classes `b k` of the whole text where its head is pooled."""

    path = ""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        spec = checked(spec)
        if spec.vocab == 0 and not spec.reads_sound:
            raise SettingError("vocab: 0 builds no model; give the number of tokens of its tokenizer")
        self.spec = spec
        with under("embed"):
            if spec.reads_sound:
                self.embed = Sound(spec.embed, spec.dim, spec.context)
            else:
                self.embed = Embed(spec.embed, spec.vocab, spec.dim, spec.context)
        self.blocks = nn.ModuleList()
        for i, block in enumerate(spec.blocks):
            with under(f"blocks.{i}"):
                self.blocks.append(Block(block, spec.widths[i]))
        self.norm = Norm(spec.norm, spec.widths[-1]) if spec.norm else None
        with under("head"):
            self.head = self._head(spec) if spec.head else None
        share_relative(self.blocks)
        initialise(self, spec.init, sum(block.mixer.depth for block in self.blocks))
        name_parts(self)

    def _head(self, spec: ModelSpec) -> Head | Pooled:
        width = spec.widths[-1]
        if isinstance(spec.head, PooledSpec):
            return Pooled(spec.head, width)
        causal = all(getattr(block.mixer, "mask", block.mixer).causal for block in self.blocks)
        return Head(spec.head, spec.vocab, width, self.embed.token.weight, spec.norm is not None, causal)

    @property
    def causal(self) -> bool:
        """Whether no output depends on a later token, so that `step` is possible."""
        whole = self.spec.reads_sound or isinstance(self.head, Pooled)
        return not whole and all(block.mixer.causal for block in self.blocks)

    def forward(
        self,
        tokens: Tensor,
        *,
        pos: Tensor | None = None,
        segments: Tensor | None = None,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
        types: Tensor | None = None,
        probe: Probe | None = None,
        losses: list[Tensor] | None = None,
        ends: list[Tensor] | None = None,
        handed: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """Logits `b t v` of the whole sequence, every token seeing what it may (without a head: vectors `b t d`; with a
        pooled one: `b d` or `b k`).

        pos `b t` (-1: no token here; None: 0, 1, 2 …), segments `b t` for packed documents, memory `b s d`, types `b t`
        the part of its text that a token stands in; ends takes an encoder's last states, which are handed to the
        decoder. A stack of a sound takes it in the place of tokens.
        """
        check_memory(tokens, memory, memory_pos)
        more = {"memory": memory, "memory_pos": memory_pos, "ends": ends, "handed": handed, "types": types}
        return self.run(tokens, self.call(tokens, pos, segments, probe=probe, losses=losses, **more))

    def call(self, given: Tensor, pos: Tensor | None = None, segments: Tensor | None = None, **more: Any) -> Call:
        """The call of a whole text `b t`, or of a sound. Raises InputError for what this stack cannot read."""
        if not self.spec.reads_sound:
            self._check_parts(segments, more.get("types"))
            check_form(given, self.spec.vocab, pos=pos, segments=segments, types=more.get("types"))
            return call_of_all(given, pos, segments, **more)
        if pos is not None or segments is not None:
            raise InputError("pos and segments: a sound has a sample at every place; leave them out")
        self.embed.check(given)
        places = self.embed.places(given)
        return Call(torch.arange(places, device=given.device)[None], True, end=places, **more)

    def run(self, tokens: Tensor, call: Call, head: bool = True) -> Tensor:
        """The same for a call that is already made; without its head: the vectors `b t d` that the head reads."""
        x, _ = self.embed(tokens, call)
        x = F.dropout(x, self.spec.dropout, self.training) if self.spec.dropout else x
        for block in self.blocks:
            x, _ = block(x, call)
        return self.finish(x, call) if head else self.normed(x, call)

    def normed(self, x: Tensor, call: Call) -> Tensor:
        """The last norm."""
        return x if self.norm is None else self.norm(x, call)

    def finish(self, x: Tensor, call: Call) -> Tensor:
        """The last norm and the head."""
        x = self.normed(x, call)
        return x if self.head is None else self.head(x, call)

    def empty(
        self,
        batch: int,
        room: int,
        *,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
        handed: tuple[Tensor, ...] = (),
        packed: bool = False,
        probe: Probe | None = None,
    ) -> ModelState:
        """The state before the first token, with room for `room` tokens a row."""
        self.check_streams()
        start = torch.zeros(batch, dtype=torch.long, device=self.embed.token.weight.device)
        segments = start[:, None] if packed else None
        call = Call(start[:, None], not packed, segments, memory, memory_pos, probe, handed=handed)
        blocks = tuple(block.empty(batch, room, call) for block in self.blocks)
        return ModelState(self.embed.empty(batch), blocks, start, not packed)

    def step(
        self,
        tokens: Tensor,
        state: ModelState,
        *,
        pos: Tensor | None = None,
        segments: Tensor | None = None,
        probe: Probe | None = None,
    ) -> tuple[Tensor, ModelState]:
        """Logits `b t v` of any chunk of t ≥ 1 new tokens after the past, and the state after them.

        pos None: each row goes on where it stopped. A token at position -1 changes nothing that follows. Where an
        InputError says that a chunk does not fit, the state is as good as before.
        """
        check_form(tokens, self.spec.vocab, pos=pos, segments=segments)
        if len(tokens) != len(state.next_pos):
            raise InputError(f"tokens of {len(tokens)} rows do not fit a state of {len(state.next_pos)}")
        try:
            return self._step(tokens, state, pos, segments, probe)
        except InputError:
            state.give_back()
            raise

    def _step(
        self, tokens: Tensor, state: ModelState, pos: Tensor | None, segments: Tensor | None, probe: Probe | None
    ) -> tuple[Tensor, ModelState]:
        past, t = state.take(), tokens.shape[1]
        plain, length = past.plain and pos is None, past.length + t
        if pos is None:
            pos = past.next_pos[:, None] + torch.arange(t, device=tokens.device)
        call = Call(pos, plain, segments, probe=probe, end=length if plain else None)
        x, embed = self.embed(tokens, call, past.embed)
        blocks = []
        for block, one in zip(self.blocks, past.blocks, strict=True):
            x, after = block(x, call, one)
            blocks.append(after)
        next_pos = _after(past.next_pos, pos)
        return self.finish(x, call), ModelState(embed, tuple(blocks), next_pos, plain, length)

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.parameters())
        return f"<Model of {len(self.blocks)} blocks of width {self.spec.dim}: {count:,} parameters>"

    def _check_parts(self, segments: Tensor | None, types: Tensor | None) -> None:
        """Raise InputError for parts of a text that this model does not tell apart."""
        if types is not None and not self.spec.embed.types:
            raise InputError("types: this model does not tell the parts of a text apart; leave them out")
        if segments is not None and isinstance(self.head, Pooled):
            raise InputError("segments: this model gives one vector for each row; give each document a row of its own")

    def check_streams(self) -> None:
        """Raise UnsupportedError, naming the part, where a mixer sees later tokens or the head all of them."""
        if self.spec.reads_sound:
            raise UnsupportedError("embed: this model reads a whole sound at once; call it on the whole sound")
        if isinstance(self.head, Pooled):
            raise UnsupportedError(
                "head: it reads the whole text at once, so the model cannot take tokens one after the other; call it "
                "on the whole sequence"
            )
        for i, block in enumerate(self.blocks):
            if not block.mixer.causal:
                raise UnsupportedError(
                    f"blocks.{i}.mixer: this {block.spec.mixer.__struct_config__.tag} sees later tokens, so the model "
                    "cannot take tokens one after the other; call it on the whole sequence"
                )


class EncoderDecoder(nn.Module):
    """The encoder reads the source, the decoder writes the target and looks at the encoder's output."""

    path = ""

    def __init__(self, spec: EncoderDecoderSpec) -> None:
        super().__init__()
        self.spec = spec = checked(spec)
        with under("encoder"):
            self.encoder = Model(spec.encoder)
        with under("decoder"):
            self.decoder = Model(spec.decoder)
        if spec.share:
            self.decoder.embed.token = self.encoder.embed.token
            if spec.decoder.head.tied:
                self.decoder.head.weight = self.encoder.embed.token.weight
        name_parts(self)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        *,
        source_pos: Tensor | None = None,
        target_pos: Tensor | None = None,
        probe: Probe | None = None,
        losses: list[Tensor] | None = None,
    ) -> Tensor:
        """Logits `b t v` of the target `b t` given the source `b s`, or a sound; positions as in Model.forward."""
        ends: list[Tensor] = []
        memory = self.encoder(source, pos=source_pos, probe=probe, losses=losses, ends=ends)
        read = {"memory": memory, "memory_pos": source_pos, "handed": tuple(ends)}
        return self.decoder(target, pos=target_pos, probe=probe, losses=losses, **read)

    def empty(self, source: Tensor, room: int, *, source_pos: Tensor | None = None) -> ModelState:
        """The decoder's state after the encoder has read the source and its output was projected once."""
        ends: list[Tensor] = []
        memory = self.encoder(source, pos=source_pos, ends=ends)
        read = {"memory": memory, "memory_pos": source_pos, "handed": tuple(ends)}
        return self.decoder.empty(source.shape[0], room, **read)

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.parameters())
        return f"<EncoderDecoder of {self.encoder!r} and {self.decoder!r}: {count:,} parameters>"

    def step(self, tokens: Tensor, state: ModelState, *, pos: Tensor | None = None) -> tuple[Tensor, ModelState]:
        """The decoder's step."""
        return self.decoder.step(tokens, state, pos=pos)


MODELS: dict[type, type[nn.Module]] = {
    ModelSpec: Model,
    EncoderDecoderSpec: EncoderDecoder,
    ImageModelSpec: ImageModel,
}


def build_model(spec: AnySpec) -> Model | EncoderDecoder | ImageModel:
    """A freshly initialised model of a spec, from torch's current random state and on its current default device."""
    return MODELS[type(spec)](spec)


def without_memory(spec: AnySpec) -> Model | EncoderDecoder | ImageModel:
    """The model of a spec on the meta device: names, shapes and no numbers.

    Raises SettingError as `build_model` does, and where the sizes are beyond what torch can write down.
    """
    try:
        with torch.device("meta"):
            return build_model(spec)
    except GlassformerError:
        raise
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:
        raise SettingError("dim: the model is too large to be built; use a smaller width or vocabulary") from error


def _after(next_pos: Tensor, pos: Tensor) -> Tensor:
    """The position `b` behind the last token of each row of pos `b t`; where there is none, the one it had before."""
    place = torch.arange(1, pos.shape[1] + 1, device=pos.device)
    last = torch.where(pos >= 0, place, 0).amax(1, keepdim=True)
    line = torch.cat((next_pos[:, None], rows(pos, len(next_pos)) + 1), 1)
    return line.gather(1, rows(last, len(next_pos)))[:, 0]
