"""Encoder-decoder Transformers in CTranslate2's format, revisions 2 to 7 of its TransformerSpec: what models of
OpenNMT, Marian and fairseq are converted to.

Where a decoder begins with a vector of zeros (Marian), that is the vector of an added token here, which the head never
chooses. CTranslate2 scales before the head's bias is added, this package after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..block import BlockSpec
from ..errors import UnsupportedError
from ..mask import Mask
from ..mixers.attention import AttentionSpec, CrossSpec
from ..model import EncoderDecoderSpec, ModelSpec
from ..nn.channel import GatedSpec, MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec, NormSpec, RMSNormSpec
from ..nn.position import LearnedSpec, RelativeBiasSpec, SinusoidalSpec
from .ctranslate2 import Variables, activation_of, layer, layers, norm
from .imported import Imported
from .vocabularies import Vocabularies

HEADS = {"TransformerBase": 8, "TransformerBig": 16}  # where the file does not say it
CONTEXT = 1024  # of positions that are worked out; CTranslate2 itself reads as many
NEVER = -1e9  # the logit of a token that is not chosen
# Settings of a stack that change nothing here, and those that must be off.
IDLE = ("embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
OFF = ("alibi", "sliding_window", "final_logit_softcapping")

Tensors = dict[str, Tensor]


def read_opennmt(folder: Path, variables: Variables) -> Imported:
    """The model of these variables and the vocabularies beside it.

    Raises CheckpointError for what is broken, UnsupportedError for what no spec of this package can say.
    """
    if not 2 <= variables.revision <= 7:
        raise UnsupportedError(f"{variables.path}: its revision is {variables.revision}, and 2 to 7 are read")
    words = Vocabularies(folder)
    encoder, decoder = (_Stack(variables, side, words.config) for side in ("encoder", "decoder"))
    whole = [variables.aliases.get(stack.table, stack.table) for stack in (encoder, decoder)]
    share = whole[0] == whole[1]
    encoder.more = decoder.more if share else 0
    spec = EncoderDecoderSpec(encoder=encoder.spec(), decoder=decoder.spec(), share=share)
    tensors, alignment = encoder.tensors() | decoder.tensors(), decoder.alignment()
    if share:
        del tensors["decoder.embed.token.weight"]
    variables.check_all_read()
    source, target = words.tokenizers(spec.encoder.vocab - encoder.more, spec.decoder.vocab - decoder.more)
    about = {
        "format": "CTranslate2",
        "summary": "An encoder-decoder in the format of CTranslate2",
        "summary_ko": "CTranslate2 형식의 인코더-디코더",
        "generation": words.generation(spec.decoder.vocab - 1 if decoder.more else None),
    } | alignment
    return Imported(spec, tensors, target, source, about)


class _Stack:
    """One side of the model. more: rows that its table has here beyond those of the file, 0 or 1."""

    def __init__(self, variables: Variables, side: str, config: dict[str, Any]) -> None:
        self.variables, self.side, self.eps = variables, side, config.get("layer_norm_epsilon")
        self.layers = layers(variables, side)
        tables = [name for name in variables if name.startswith(f"{side}/embeddings") and name.endswith("/weight")]
        if not self.layers or len(tables) != 1:
            raise UnsupportedError(
                f"{variables.path}: the {side} has {self.layers} layers and {len(tables)} tables of words; read are "
                "models of one table"
            )
        self.table = tables[0]
        self.rows, self.dim = variables.shape(self.table)
        self.more = int(side == "decoder" and self._set("start_from_zero_embedding", 0))
        for name in IDLE:
            self._set(name, 0)
        for name in OFF:
            if self._set(name, 0):
                raise UnsupportedError(f"{variables.path}: {side}/{name} is not known to the models of this package")

    def _set(self, name: str, default: float) -> float:
        """A setting of the stack; of the whole model before revision 5."""
        inner = f"{self.side}/{name}"
        return self.variables.number(inner if inner in self.variables else name, default)

    def alignment(self) -> dict[str, Any]:
        """The layer that was trained to look at what is translated, where the file names one other than the last."""
        layer, _ = int(self._set("alignment_layer", -1)), self._set("alignment_heads", 1)
        return {"alignment": {"layer": layer % self.layers}} if layer != -1 else {}

    # ------------------------------------------------------------ settings

    def spec(self) -> ModelSpec:
        """The settings of this stack."""
        decoder, norm = self.side == "decoder", f"{self.side}/layer_norm"
        heads = int(self._set("num_heads", HEADS.get(self.variables.spec, 8)))
        stored, learned = f"{self.side}/position_encodings/encodings", SinusoidalSpec(layout="timescales", offset=1)
        position, context = learned, CONTEXT
        if stored in self.variables:
            position, context = LearnedSpec(), self.variables.shape(stored)[-2]
        elif isinstance(self._bias(0), RelativeBiasSpec):
            position = None
        return ModelSpec(
            vocab=self.rows + self.more,
            dim=self.dim,
            blocks=tuple(self._block(i, heads) for i in range(self.layers)),
            context=context,
            embed=EmbedSpec(
                scale=self._scale(), position=position, norm=self._norm(f"{self.side}/layernorm_embedding")
            ),
            norm=self._norm(norm),
            head=self._head() if decoder else None,
            init=InitSpec(outputs="same"),
        )

    def _scale(self) -> float:
        """What the words' vectors are multiplied with: √d, unless the file says 0 or a number."""
        names = (f"{self.side}/scale_embeddings", f"{self.table.rpartition('/')[0]}/multiply_by_sqrt_depth")
        found = next(
            (self.variables[name] for name in names if name in self.variables), torch.ones((), dtype=torch.int8)
        )
        if found.is_floating_point():
            return found.item()
        return float(torch.tensor(self.dim**0.5)) if found else 1.0

    def _block(self, i: int, heads: int) -> BlockSpec:
        at = f"{self.side}/layer_{i}"
        pre, decoder = bool(self._set("pre_norm", 1)), self.side == "decoder"
        attention = self._attention(f"{at}/self_attention", heads, 0)
        cross = CrossSpec(**self._attention(f"{at}/attention", heads, 1)) if decoder else None
        mask, position = Mask(causal=decoder), self._bias(i)
        return BlockSpec(
            mixer=AttentionSpec(mask=mask, position=position, **attention),
            cross=cross,
            channel=self._channel(f"{at}/ffn"),
            norm=self._norm(f"{at}/ffn/layer_norm"),
            wiring="pre" if pre else "post",
        )

    def _attention(self, at: str, heads: int, keys: int) -> dict[str, Any]:
        """Settings of an attention whose keys lie in its linear layer of that number."""
        variables = self.variables
        groups = variables.number(f"{at}/num_heads_kv", self._set("multi_query_attention", 0))
        width = variables.number(f"{at}/head_dim", 0)
        scale = variables.number(f"{at}/queries_scale", 0)
        return {
            "heads": heads,
            "kv_heads": int(groups) or None,
            "head_dim": int(width) or None,
            "scale": scale or None,
            "bias": f"{at}/linear_{keys}/bias" in variables,
            "out_bias": f"{at}/linear_{keys + 1}/bias" in variables,
        }

    def _bias(self, i: int) -> RelativeBiasSpec | None:
        """T5's bias; all layers have the first one's table where the file has it once."""
        variables, ends = self.variables, "self_attention/relative_attention_bias"
        names = [f"{self.side}/layer_{j}/{ends}" for j in range(self.layers)]
        if names[i] not in variables:
            return None
        tables = {variables.aliases.get(name, name) for name in names if name in variables}
        most = int(variables.number(f"{self.side}/layer_{i}/self_attention/relative_attention_max_distance", 128))
        shared = len(tables) < len(names)
        return RelativeBiasSpec(buckets=variables.shape(names[i])[0], max_distance=most, shared=shared)

    def _channel(self, at: str) -> MlpSpec | GatedSpec:
        activation = activation_of(self._set("activation", 0))
        if activation is None:
            raise UnsupportedError(f"{self.variables.path}: the activation of {at} is not known here")
        kind = GatedSpec if f"{at}/linear_0_noact/weight" in self.variables else MlpSpec
        hidden = self.variables.shape(f"{at}/linear_0/weight")[0]
        return kind(hidden=hidden, activation=activation, bias=f"{at}/linear_0/bias" in self.variables)

    def _norm(self, at: str) -> NormSpec | None:
        if f"{at}/gamma" not in self.variables:
            return None
        if f"{at}/beta" in self.variables:
            return LayerNormSpec(eps=self.eps or 1e-5)
        return RMSNormSpec(eps=self.eps or 1e-6)

    def _head(self) -> HeadSpec:
        aliases, names = self.variables.aliases, ("decoder/projection/weight", self.table)
        tied = len({aliases.get(name, name) for name in names}) == 1
        bias = "decoder/projection/bias" in self.variables or bool(self.more)
        return HeadSpec(tied=tied, bias=bias, scale=self.variables.number("decoder/scale_outputs", 1.0))

    # ------------------------------------------------------------ tensors

    def tensors(self) -> Tensors:
        """The tensors of this stack by their names here."""
        side = self.side
        found = {"embed.token.weight": self._longer(self.variables[self.table])}
        found |= norm(self.variables, f"{side}/layernorm_embedding", "embed.norm")
        found |= norm(self.variables, f"{side}/layer_norm", "norm")
        stored = f"{side}/position_encodings/encodings"
        if stored in self.variables:
            found["embed.position.weight"] = self.variables[stored].view(-1, self.dim)
        for i in range(self.layers):
            found |= layer(self.variables, f"{side}/layer_{i}", f"blocks.{i}") | self._relative(i)
        return {f"{side}.{name}": value for name, value in (found | self._head_tensors()).items()}

    def _relative(self, i: int) -> Tensors:
        """The table of a block's relative positions, where it has one of its own."""
        position = self._bias(i)
        if position is None or (position.shared and i):
            return {}
        table = self.variables[f"{self.side}/layer_{i}/self_attention/relative_attention_bias"]
        return {f"blocks.{i}.mixer.relative.table": table}

    def _longer(self, value: Tensor) -> Tensor:
        """A table or a bias with the row of zeros of the token that a target begins with, where there is one."""
        return torch.cat((value, value.new_zeros(self.more, *value.shape[1:]))) if self.more else value

    def _head_tensors(self) -> Tensors:
        if self.side == "encoder":
            return {}
        head, found = self._head(), {}
        weight = self.variables["decoder/projection/weight"]
        if not head.tied:
            found["head.weight"] = self._longer(weight)
        if head.bias:
            bias = self.variables.get("decoder/projection/bias", weight.new_zeros(self.rows))
            found["head.bias"] = self._longer(bias.float()) / head.scale
            found["head.bias"][self.rows :] = NEVER
        return found
