"""Small models of sound, and sounds, for tests."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from glassformer.api import Loaded
from glassformer.block import BlockSpec
from glassformer.data.published import Published, Settings
from glassformer.data.speech import speech_of
from glassformer.data.vocabulary import byte_of_symbol
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import EncoderDecoder, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.init import InitSpec, initialise
from glassformer.nn.position import LearnedSpec
from glassformer.nn.sound import SoundSpec
from glassformer.spec import to_data

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


def built(given: EncoderDecoderSpec | None = None, std: float = 0.3, seed: int = 0) -> EncoderDecoder:
    """The model with weights so large that a mistake moves the output."""
    torch.manual_seed(seed)
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


# ---------------------------------------------------------------- with a tokenizer

NAMES = ("endoftext", "startoftranscript", "en", "ko", "translate", "transcribe", "nospeech", "notimestamps")
TIMES = 13  # of a window of 0.24 seconds


def tokenizer() -> Published:
    """Bytes, Whisper's special tokens and the times."""
    symbols = sorted(byte_of_symbol(), key=byte_of_symbol().get)
    library = Library(models.BPE({symbol: i for i, symbol in enumerate(symbols)}, []))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    library.add_special_tokens([f"<|{name}|>" for name in NAMES])
    library.add_tokens([f"<|{i / 50:.2f}|>" for i in range(TIMES)])
    return Published(library, Settings(names={"eos": "<|endoftext|>"}))


def listener(seed: int = 0, suppressed: tuple[int, ...] = (), first: tuple[int, ...] = ()) -> Loaded:
    """A speech model that writes bytes."""
    known = tokenizer()
    model = built(spec(vocab=known.vocab_size), seed=seed)
    about = {"speech": to_data(speech_of(known, suppressed, first))}
    return Loaded(model, known, "tiny", about)
