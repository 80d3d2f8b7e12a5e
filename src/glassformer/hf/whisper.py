"""Whisper (Radford et al. 2022): speech recognition, an encoder of sound and a decoder of text."""

from __future__ import annotations

from ..block import BlockSpec
from ..errors import UnsupportedError
from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.position import LearnedSpec
from ..nn.sound import SoundSpec
from .rules import ACTIVATIONS, Config, Family, Rule, named, same
from .tensors import Weight, weight

BINS = ("num_mel_bins", "feature_size")
FEATURES = "preprocessor_config.json"
# Of how a sound is prepared: what follows from the other fields, and what says nothing of the numbers.
_PREPARED = frozenset(
    {"chunk_length", "n_samples", "nb_max_frames", "feature_extractor_type", "processor_class", "mel_filters"}
    | {"padding_side", "padding_value", "return_attention_mask"}
)
PAD = 50_256  # what a configuration means that names none
_OWN = AttentionSpec(heads=1, bias="qv", out_bias=True)
_CROSS = CrossSpec(heads=1, bias="qv", out_bias=True)
_MLP = MlpSpec(hidden=1)

# The encoder's positions are sinusoids that no training of the original changes; a checkpoint holds their rows.
BASE = EncoderDecoderSpec(
    encoder=ModelSpec(
        vocab=0,
        dim=64,
        embed=SoundSpec(position=LearnedSpec()),
        blocks=(BlockSpec(mixer=_OWN.changed(mask=Mask(causal=False)), channel=_MLP),),
        head=None,
        init=InitSpec(outputs="same"),
    ),
    decoder=ModelSpec(
        vocab=1,
        dim=64,
        embed=EmbedSpec(position=LearnedSpec()),
        blocks=(BlockSpec(mixer=_OWN, cross=_CROSS, channel=_MLP),),
        head=HeadSpec(),
        init=InitSpec(outputs="same"),
    ),
)


def _layer(side: str, theirs: str, ours: str) -> Weight:
    return weight(f"model.{side}.layers.{{}}.{theirs}", f"{side}.blocks.{{}}.{ours}")


def _attention(side: str, theirs: str, ours: str) -> tuple[Weight, ...]:
    pairs = (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "out"))
    return (
        *(_layer(side, f"{theirs}.{one}", f"{ours}.{own}") for one, own in pairs),
        _layer(side, f"{theirs}_layer_norm", f"{ours}_norm"),
    )


def _side(side: str) -> tuple[Weight, ...]:
    return (
        weight(f"model.{side}.embed_positions", f"{side}.embed.position"),
        *_attention(side, "self_attn", "mixer"),
        _layer(side, "fc1", "channel.up"),
        _layer(side, "fc2", "channel.down"),
        _layer(side, "final_layer_norm", "channel_norm"),
        weight(f"model.{side}.layer_norm", f"{side}.norm"),
    )


def _bins(config: Config) -> int:
    """The bands of the spectrogram, which two files name."""
    if config["feature_size"] not in (None, config["num_mel_bins"]):
        raise UnsupportedError(f"feature_size: {config['feature_size']!r} is not num_mel_bins; restore the {FEATURES}")
    return config["num_mel_bins"]


def _complete(config: Config) -> Config:
    """With what the preparation of a sound says of its length; and of fewer tokens than usual none stands for padding,
    whose usual number would be outside."""
    pad = {} if config["vocab_size"] > PAD else {"pad_token_id": None}
    rate, hop, frames = config["sampling_rate"], config["hop_length"], 2 * config["max_source_positions"]
    size = {"n_samples": frames * hop, "nb_max_frames": frames, "chunk_length": frames * hop / rate}
    size["chunk_length"] = int(size["chunk_length"]) if size["chunk_length"].is_integer() else size["chunk_length"]
    named = {"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor"}
    return config | size | named | pad | {"padding_value": 0.0, "padding_side": "right", "return_attention_mask": False}


def _ready(config: Config) -> Config:
    """Without the second name of the encoder's layers."""
    for name, same_as in (("num_hidden_layers", "encoder_layers"), ("hidden_size", "d_model")):
        given = config.pop(name, None)
        if given not in (None, config.get(same_as)):
            raise UnsupportedError(f"{name}: {given!r} is not {same_as}; restore the config.json")
    return config


WHISPER = Family(
    name="whisper",
    base=BASE,
    stacks={"encoder.blocks": "encoder_layers", "decoder.blocks": "decoder_layers"},
    architectures={"WhisperForConditionalGeneration": {}},
    defaults={
        "vocab_size": 51_865,
        "num_mel_bins": 80,
        "feature_size": None,
        "sampling_rate": 16_000,
        "n_fft": 400,
        "hop_length": 160,
        "d_model": 384,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_attention_heads": 6,
        "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "decoder_ffn_dim": 1536,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "activation_function": "gelu",
        "tie_word_embeddings": True,
    },
    rules=(
        same("vocab_size", "decoder.vocab"),
        Rule(("num_mel_bins", "feature_size"), ("encoder.embed.bins",), _bins, lambda n: dict.fromkeys(BINS, n)),
        same("sampling_rate", "encoder.embed.rate"),
        same("n_fft", "encoder.embed.window"),
        same("hop_length", "encoder.embed.hop"),
        same("d_model", "encoder.dim", "decoder.dim"),
        same("encoder_attention_heads", "encoder.blocks.*.mixer.heads"),
        same("decoder_attention_heads", "decoder.blocks.*.mixer.heads", "decoder.blocks.*.cross.heads"),
        same("encoder_ffn_dim", "encoder.blocks.*.channel.hidden"),
        same("decoder_ffn_dim", "decoder.blocks.*.channel.hidden"),
        same("max_source_positions", "encoder.context"),
        same("max_target_positions", "decoder.context"),
        named(
            "activation_function",
            ACTIVATIONS,
            "encoder.blocks.*.channel.activation",
            "decoder.blocks.*.channel.activation",
        ),
        same("tie_word_embeddings", "decoder.head.tied"),
    ),
    fixed={"use_weighted_layer_sum": (False,), "do_normalize": (False, None), "dither": (0.0, None)},
    free=_PREPARED
    | frozenset(
        """
        dropout attention_dropout activation_dropout encoder_layerdrop decoder_layerdrop init_std scale_embedding
        classifier_proj_size apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks mask_feature_prob
        mask_feature_length mask_feature_min_masks median_filter_width forced_decoder_ids
        """.split()  # noqa: SIM905 (so many words read best as one text)
    ),
    weights=(
        weight("model.encoder.conv1", "encoder.embed.conv1"),
        weight("model.encoder.conv2", "encoder.embed.conv2"),
        *_side("encoder"),
        weight("model.decoder.embed_tokens", "decoder.embed.token"),
        *_side("decoder"),
        *_attention("decoder", "encoder_attn", "cross"),
        weight("proj_out", "decoder.head"),
    ),
    prefix="model.",
    aliases={"proj_out.weight": "model.decoder.embed_tokens.weight"},
    ready=_ready,
    complete=_complete,
    beside={FEATURES: _PREPARED | {"feature_size", "sampling_rate", "n_fft", "hop_length", "do_normalize", "dither"}},
)
