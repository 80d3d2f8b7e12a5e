"""The short causal convolution of each channel by itself, with which the layers of Mamba and DeltaNet begin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..call import Call
from ..nn.init import InitSpec
from .conv import ConvSpec, Kernel, before_each, tail_bytes
from .window import Tail


class ShortConv(Kernel):
    """y_t = b + Σ_u W_u ⊙ x_{t-k+1+u} over the last k tokens of the document, for each of the channels f."""

    def __init__(self, channels: int, width: int, bias: bool = True) -> None:
        super().__init__(channels, channels, ConvSpec(width=width, depthwise=True), bias)

    @torch.no_grad()
    def draw(self, init: InitSpec) -> None:
        """As published: as PyTorch draws convolutions, uniformly within ±1/√k. With k inputs only, the deviation that
        suits a linear layer would leave hardly anything of them."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.weight.shape[-1] ** -0.5), self.weight.shape[-1] ** -0.5)

    def empty(self, batch: int) -> Tail:
        """No token yet."""
        return Tail.none(batch, self.reach, self.weight, self.in_channels)

    def after(self, x: Tensor, tail: Tail, call: Call) -> tuple[Tensor, Tail]:
        """x `b t f` after the tokens in `tail`, to (`b t f`, the new tail)."""
        apply, tail = before_each(x, tail, call, self)
        return apply(self), tail

    def state_bytes(self, number_bytes: int) -> int:
        """Of the tokens that are kept, and the number of the document of each."""
        return tail_bytes(self, number_bytes)
