"""Small models of sound, and sounds, for tests."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch

from glassformer.block import BlockSpec
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import EncoderDecoder, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.init import InitSpec, initialise
from glassformer.nn.position import LearnedSpec
from glassformer.nn.sound import SoundSpec

LOOK = {"heads": 2, "bias": True, "out_bias": True}


def spec(context: int = 12, vocab: int = 23, bins: int = 8, **more) -> EncoderDecoderSpec:
    """A listener of two blocks each; its encoder hears context/50 seconds."""
    own = AttentionSpec(**LOOK)
    hear = BlockSpec(mixer=own.changed(mask=Mask(causal=False)))
    encoder = ModelSpec(
        vocab=0, dim=16, context=context, embed=SoundSpec(bins=bins, **more), blocks=(hear,) * 2, head=None
    )
    write = BlockSpec(mixer=own, cross=CrossSpec(**LOOK))
    decoder = ModelSpec(vocab=vocab, dim=16, context=16, embed=EmbedSpec(position=LearnedSpec()), blocks=(write,) * 2)
    return EncoderDecoderSpec(encoder=encoder, decoder=decoder)


def built(given: EncoderDecoderSpec | None = None, std: float = 0.3) -> EncoderDecoder:
    """The model with weights so large that a mistake moves the output."""
    torch.manual_seed(0)
    model = build_model(given or spec()).eval()
    initialise(model, InitSpec(std=std, embedding_std=1.0, outputs="same"), 2)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def tone(seconds: float, hertz: float = 440.0, rate: int = 16_000) -> np.ndarray:
    """A sine of half the full range."""
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def wav(path: Path, form: tuple[int, int, int, int], data: bytes, size: int | None = None, more: bytes = b"") -> Path:
    """A WAV file of (format, channels, rate, bits) with a part in between that no reader knows."""
    code, channels, rate, bits = form
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", code, channels, rate, rate * block, block, bits) + more
    parts = b"fmt " + struct.pack("<I", len(head)) + head + b"LIST\x03\x00\x00\x00abc\x00"
    parts += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts)
    return path
