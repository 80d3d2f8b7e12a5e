"""One tapped value as it is shown: its card, made true to the layer at hand, and its numbers for one token."""

from __future__ import annotations

import msgspec
from torch import nn

from ..mixers.multihead import SoftmaxAttention
from ..model import Block
from ..nn.channel import Gated, Mlp
from ..nn.norm import Norm, RMSNormSpec
from ..nn.position import RopeSpec
from ..tap import Card
from ..trace import Trace


class Quantity(msgspec.Struct, frozen=True):
    """One tapped value with its card, and its numbers for the chosen token; norm is their Euclidean length."""

    name: str
    symbol: str
    formula: str
    axes: str
    shape: tuple[int, ...]
    en: str
    ko: str
    statements: tuple[str, ...]
    values: list[float]
    norm: float


def quantity(trace: Trace, name: str, t: int, head: int) -> Quantity:
    """A value of the trace's first row with its card, at position t and, where it has heads, at this head."""
    axes, card = trace.axes(name), trace.card(name)
    layer = trace.model.get_submodule(name.rpartition(".")[0])
    where = {"b": 0, "t": t, "s": t, "h": head}
    if "g" in axes.split():
        where["g"] = head * layer.groups // layer.heads
    values = trace.part(name, **{letter: i for letter, i in where.items() if letter in axes.split()}).double()
    symbol, formula = _as_built(layer, name.rpartition(".")[2], card)
    shape = tuple(size for _, size in trace.sizes(name))
    return Quantity(
        name, symbol, formula, axes, shape, card.en, card.ko, card.statements, values.tolist(), values.norm().item()
    )


def _as_built(layer: nn.Module, short: str, card: Card) -> tuple[str, str]:
    """(symbol, formula) of a card, with what this very layer does beyond the textbook, or leaves out of it."""
    if isinstance(layer, Norm) and short == "out" and isinstance(layer.spec, RMSNormSpec):
        return card.symbol, "x/rms(x) · w"
    if isinstance(layer, SoftmaxAttention) and short in ("q", "k"):
        return card.symbol, _projected(layer, short, card.formula)
    if isinstance(layer, Gated) and short == "hidden":
        return (card.symbol.replace("σ(xW₁+b₁)", "σ(xW_g)⊙xW₁"),) * 2
    if isinstance(layer, Mlp) and not layer.spec.bias:
        return tuple(part.replace("+b₁", "").replace("+b₂", "") for part in (card.symbol, card.formula))
    if isinstance(layer, Block) and short != "resid_in":
        return _wired(layer, short, card.symbol), card.formula
    return card.symbol, card.formula


def _projected(layer: SoftmaxAttention, short: str, formula: str) -> str:
    """x W, then in this order what the layer has of it: a bias, QK-norm, smearing, the rotation of RoPE."""
    formula += " + b" if layer.spec.bias else ""
    formula = f"norm({formula})" if layer.spec.qk_norm else formula
    formula = f"smear({formula})" if short == "k" and getattr(layer.spec, "smear", False) else formula
    rope = isinstance(getattr(layer.spec, "position", None), RopeSpec)
    return f"R_{'i' if short == 'q' else 'j'} {formula}" if rope else formula


def _wired(block: Block, short: str, symbol: str) -> str:
    """The residual's symbol in this block's wiring."""
    if block.spec.wiring == "parallel":
        symbol = "x + MultiHead + FFN"
    elif short == "resid_out" and block.channel is None:
        symbol = "x + MultiHead" if block.cross is None else "x + Cross"
    symbol = symbol if block.spec.residual else symbol.rpartition("+ ")[2]
    return f"norm({symbol})" if block.spec.wiring == "post" and block.spec.norm is not None else symbol
