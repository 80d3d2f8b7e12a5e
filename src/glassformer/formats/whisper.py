"""Whisper as CTranslate2 stores it: `model.bin` with the spec WhisperSpec, `config.json` and `tokenizer.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..block import BlockSpec
from ..data.published import Published, Settings, read_library
from ..data.speech import SpeechSpec, speech_of
from ..data.tokenizer import Tokenizer
from ..errors import CheckpointError, UnsupportedError
from ..files import read_json
from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.position import LearnedSpec
from ..nn.sound import SoundSpec
from ..spec import to_data
from .ctranslate2 import Variables, activation_of
from .imported import Imported

MULTILINGUAL = 51_865  # so many tokens, or more, of a model that knows other languages than English


def read_whisper(folder: Path, variables: Variables) -> Imported:
    """The model of these variables, and the tokenizer beside them. Raises CheckpointError for what is missing or
    broken, UnsupportedError for what no Whisper model has."""
    tensors = _Tensors(variables)
    spec = _spec(variables, tensors)
    tensors.read()
    variables.check_all_read()
    tokenizer = Published(read_library(folder / "tokenizer.json"), Settings(names={"eos": "<|endoftext|>"}))
    config = read_json(folder / "config.json")
    speech = _speech(tokenizer, config, spec.decoder.vocab, ("suppress_ids", "suppress_ids_begin"))
    speech = speech if spec.decoder.vocab >= MULTILINGUAL else speech.changed(languages={})
    about = {
        "format": "CTranslate2 Whisper",
        "speech": to_data(speech),
        "summary": "Whisper: writes down speech, or translates it to English",
        "summary_ko": "Whisper: 음성을 받아쓰거나 영어로 옮깁니다",
    }
    return Imported(spec, tensors.found, tokenizer, about=about)


def published_speech(config: dict[str, Any], said: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """The speech tokens of a model of transformers, as plain data. said: generation_config.json, without which its
    config.json is asked."""
    said = config | said
    vocab = config.get("vocab_size", MULTILINGUAL)
    found = _speech(tokenizer, said, vocab, ("suppress_tokens", "begin_suppress_tokens"))
    return to_data(found if said.get("is_multilingual", vocab >= MULTILINGUAL) else found.changed(languages={}))


def _speech(tokenizer: Tokenizer, config: dict[str, Any], vocab: int, names: tuple[str, str]) -> SpeechSpec:
    """The tokens: by name from the tokenizer, and those that a configuration keeps from being written."""
    lists = [config.get(name) or [] for name in names]
    for name, one in zip(names, lists, strict=True):
        if not isinstance(one, list) or not all(type(id) is int and 0 <= id < vocab for id in one):
            raise CheckpointError(f"{name}: the configuration holds no list of token ids there; restore it")
    return speech_of(tokenizer, *lists)


def _spec(variables: Variables, tensors: _Tensors) -> EncoderDecoderSpec:
    """What the sizes and the settings among the variables say."""
    expected = {"pre_norm": 1, "alibi": 0, "start_from_zero_embedding": 0}
    wrong = [name for name, value in expected.items() if variables.number(f"decoder/{name}", value) != value]
    activation = activation_of(variables.number("decoder/activation", 3))
    if wrong or activation is None:
        raise UnsupportedError(
            f"{variables.path}: decoder/{(wrong or ['activation'])[0]} has a value that is not supported in a Whisper "
            "model; name another model"
        )
    for name in ("alibi_use_positive_positions", "scale_alibi", "alignment_layer", "alignment_heads"):
        variables.number(f"decoder/{name}", 0)  # of what is not there, or is not computed
    vocab, dim = tensors.shape("decoder/embeddings/weight", 2)
    bins = tensors.shape("encoder/conv1/weight", 3)[1]
    scaled = variables.number("decoder/scale_embeddings", 0)
    stacks = {}
    for stack in ("encoder", "decoder"):
        own = AttentionSpec(heads=int(variables.number(f"{stack}/num_heads", 8)), bias=tensors.bias, out_bias=True)
        hidden = tensors.shape(f"{stack}/layer_0/ffn/linear_0/weight", 2)[0]
        block = BlockSpec(mixer=own, channel=MlpSpec(hidden=hidden, activation=activation))
        if stack == "encoder":
            block = block.changed(mixer=own.changed(mask=Mask(causal=False)))
        else:
            block = block.changed(cross=CrossSpec(heads=own.heads, bias=own.bias, out_bias=True))
        context = tensors.shape(f"{stack}/position_encodings/encodings", 2)[0]
        stacks[stack] = {"dim": dim, "context": context, "blocks": (block,) * tensors.layers(stack)}
    encoder = ModelSpec(vocab=0, embed=SoundSpec(bins=bins, position=LearnedSpec()), head=None, **stacks["encoder"])
    embed = EmbedSpec(position=LearnedSpec(), scale=dim**0.5 if scaled else 1.0)
    return EncoderDecoderSpec(encoder=encoder, decoder=ModelSpec(vocab=vocab, embed=embed, **stacks["decoder"]))


class _Tensors:
    """The weights under the names of this package; `bias`: which of query, key and value have one."""

    def __init__(self, variables: Variables) -> None:
        self.variables, self.found = variables, {}
        fused = self._take("decoder/layer_0/self_attention/linear_0/bias")
        self.bias = "qv" if not fused.chunk(3)[1].any() else True

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """The sizes of a variable of so many axes."""
        if name not in self.variables or len(self.variables.shape(name)) != rank:
            raise self._missing(name)
        return self.variables.shape(name)

    def layers(self, stack: str) -> int:
        """How many blocks there are."""
        count = 0
        while f"{stack}/layer_{count}/ffn/linear_0/weight" in self.variables:
            count += 1
        return count

    def read(self) -> None:
        """Find every weight."""
        for stack in ("encoder", "decoder"):
            self._norm(f"{stack}/layer_norm", f"{stack}.norm")
            self.found[f"{stack}.embed.position.weight"] = self._take(f"{stack}/position_encodings/encodings")
            for i in range(self.layers(stack)):
                self._block(f"{stack}/layer_{i}", f"{stack}.blocks.{i}", stack == "decoder")
        for one in ("conv1", "conv2"):
            self._linear(f"encoder/{one}", f"encoder.embed.{one}")
        self.found["decoder.embed.token.weight"] = self._take("decoder/embeddings/weight")
        if not torch.equal(self._take("decoder/projection/weight"), self.found["decoder.embed.token.weight"]):
            raise UnsupportedError(
                f"{self.variables.path}: the decoder's table and its projection differ, which no Whisper model has; "
                "name another model"
            )

    def _block(self, theirs: str, ours: str, writes: bool) -> None:
        self._norm(f"{theirs}/self_attention/layer_norm", f"{ours}.mixer_norm")
        self._fused(f"{theirs}/self_attention/linear_0", f"{ours}.mixer", "qkv")
        self._linear(f"{theirs}/self_attention/linear_1", f"{ours}.mixer.out")
        if writes:
            self._norm(f"{theirs}/attention/layer_norm", f"{ours}.cross_norm")
            self._linear(f"{theirs}/attention/linear_0", f"{ours}.cross.q")
            self._fused(f"{theirs}/attention/linear_1", f"{ours}.cross", "kv")
            self._linear(f"{theirs}/attention/linear_2", f"{ours}.cross.out")
        self._norm(f"{theirs}/ffn/layer_norm", f"{ours}.channel_norm")
        for i, part in enumerate(("up", "down")):
            self._linear(f"{theirs}/ffn/linear_{i}", f"{ours}.channel.{part}")

    def _fused(self, theirs: str, ours: str, parts: str) -> None:
        """Several projections one below the other; a bias of the keys that is 0 is none."""
        for kind in ("weight", "bias"):
            for part, value in zip(parts, self._take(f"{theirs}/{kind}").chunk(len(parts)), strict=True):
                if kind == "weight" or part != "k" or self.bias is True:
                    self.found[f"{ours}.{part}.{kind}"] = value
                elif value.any():
                    raise UnsupportedError(
                        f"{self.variables.path}: some keys have a bias and others none; name another model"
                    )

    def _linear(self, theirs: str, ours: str) -> None:
        for kind in ("weight", "bias"):
            self.found[f"{ours}.{kind}"] = self._take(f"{theirs}/{kind}")

    def _norm(self, theirs: str, ours: str) -> None:
        self.found[f"{ours}.weight"] = self._take(f"{theirs}/gamma")
        self.found[f"{ours}.bias"] = self._take(f"{theirs}/beta")

    def _take(self, name: str) -> Tensor:
        try:
            return self.variables[name]
        except KeyError:
            raise self._missing(name) from None

    def _missing(self, name: str) -> CheckpointError:
        return CheckpointError(f"{self.variables.path}: the variable {name!r} is missing or misshaped; fetch it again")
