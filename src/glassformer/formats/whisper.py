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
from ..files import read_object
from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.position import LearnedSpec
from ..nn.sound import SoundSpec
from ..spec import to_data
from .ctranslate2 import Variables, activation_of, layer, layers, linear, norm
from .imported import Imported

MULTILINGUAL = 51_865  # so many tokens, or more, of a model that knows other languages than English


def read_whisper(folder: Path, variables: Variables) -> Imported:
    """The model of these variables, and the tokenizer beside them. Raises CheckpointError for what is missing or
    broken, UnsupportedError for what no Whisper model has."""
    tensors = _tensors(variables)
    keys = {name: value for name, value in tensors.items() if name.endswith(".k.bias")}
    biased = any(value.any() for value in keys.values())  # Whisper's keys have none, and here they have one of 0
    tensors = tensors if biased else {name: value for name, value in tensors.items() if name not in keys}
    spec = _spec(variables, True if biased else "qv")
    variables.check_all_read()
    tokenizer = Published(read_library(folder / "tokenizer.json"), Settings(names={"eos": "<|endoftext|>"}))
    config = read_object(folder / "config.json", needed=True)
    speech = _speech(tokenizer, config, ("suppress_ids", "suppress_ids_begin"))
    speech = speech if spec.decoder.vocab >= MULTILINGUAL else speech.changed(languages={})
    about = {
        "format": "CTranslate2 Whisper",
        "speech": to_data(speech),
        "summary": "Whisper: writes down speech, or translates it to English",
        "summary_ko": "Whisper: 음성을 받아쓰거나 영어로 옮깁니다",
    }
    return Imported(spec, tensors, tokenizer, about=about)


def published_speech(config: dict[str, Any], said: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """The speech tokens of a model of transformers, as plain data. said: generation_config.json, without which its
    config.json is asked."""
    said = config | said
    vocab = config.get("vocab_size", MULTILINGUAL)
    found = _speech(tokenizer, said, ("suppress_tokens", "begin_suppress_tokens"))
    return to_data(found if said.get("is_multilingual", vocab >= MULTILINGUAL) else found.changed(languages={}))


def _speech(tokenizer: Tokenizer, config: dict[str, Any], names: tuple[str, str]) -> SpeechSpec:
    """The tokens: by name from the tokenizer, and those that a configuration keeps from being written."""
    lists = [config.get(name) or [] for name in names]
    for name, one in zip(names, lists, strict=True):
        if not isinstance(one, list) or not all(type(id) is int and id >= 0 for id in one):
            raise CheckpointError(f"{name}: the configuration holds no list of token ids there; restore it")
    return speech_of(tokenizer, *lists)


def _spec(variables: Variables, bias: bool | str) -> EncoderDecoderSpec:
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
    vocab, dim = _shape(variables, "decoder/embeddings/weight", 2)
    bins = _shape(variables, "encoder/conv1/weight", 3)[1]
    scaled = variables.number("decoder/scale_embeddings", 0)
    stacks = {}
    for stack in ("encoder", "decoder"):
        own = AttentionSpec(heads=int(variables.number(f"{stack}/num_heads", 8)), bias=bias, out_bias=True)
        hidden = _shape(variables, f"{stack}/layer_0/ffn/linear_0/weight", 2)[0]
        block = BlockSpec(mixer=own, channel=MlpSpec(hidden=hidden, activation=activation))
        if stack == "encoder":
            block = block.changed(mixer=own.changed(mask=Mask(causal=False)))
        else:
            block = block.changed(cross=CrossSpec(heads=own.heads, bias=own.bias, out_bias=True))
        context = _shape(variables, f"{stack}/position_encodings/encodings", 2)[0]
        stacks[stack] = {"dim": dim, "context": context, "blocks": (block,) * layers(variables, stack)}
    encoder = ModelSpec(vocab=0, embed=SoundSpec(bins=bins, position=LearnedSpec()), head=None, **stacks["encoder"])
    embed = EmbedSpec(position=LearnedSpec(), scale=dim**0.5 if scaled else 1.0)
    return EncoderDecoderSpec(encoder=encoder, decoder=ModelSpec(vocab=vocab, embed=embed, **stacks["decoder"]))


def _tensors(variables: Variables) -> dict[str, Tensor]:
    """The weights under the names of this package."""
    found = {}
    for stack in ("encoder", "decoder"):
        found |= norm(variables, f"{stack}/layer_norm", f"{stack}.norm")
        found[f"{stack}.embed.position.weight"] = variables[f"{stack}/position_encodings/encodings"]
        for i in range(layers(variables, stack)):
            found |= layer(variables, f"{stack}/layer_{i}", f"{stack}.blocks.{i}")
    for one in ("conv1", "conv2"):
        found |= linear(variables, f"encoder/{one}", f"encoder.embed.{one}")
    table = found["decoder.embed.token.weight"] = variables["decoder/embeddings/weight"]
    if not torch.equal(variables["decoder/projection/weight"], table):
        raise UnsupportedError(
            f"{variables.path}: the decoder's table and its projection differ, which no Whisper model has; name "
            "another model"
        )
    return found


def _shape(variables: Variables, name: str, rank: int) -> tuple[int, ...]:
    """The sizes of a variable of so many axes."""
    shape = variables.shape(name)
    if len(shape) != rank:
        raise CheckpointError(f"{variables.path}: the variable {name!r} has {len(shape)} axes, not {rank}")
    return shape
