"""How parameters start."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from ..spec import Spec, check_least


class InitSpec(Spec, frozen=True, tag="init"):
    """Weights start normal with standard deviation `std` (None: 1/√(number of inputs)), embedding tables with
    `embedding_std`, biases at zero.

    outputs  what projections that write into the residual do: "scaled" divides their deviation by √(2·blocks) as
             GPT-2 does; "zero" starts them at zero, so that every block begins as the identity; "same" neither
    """

    std: float | None = 0.02
    embedding_std: float = 0.02
    outputs: Literal["scaled", "zero", "same"] = "scaled"

    def __post_init__(self) -> None:
        check_least(self, 0, "std", "embedding_std")


@torch.no_grad()
def _not_drawn(layer: nn.Module) -> None:
    """NaN in every parameter, so that a layer used without `initialise` cannot pass unnoticed."""
    for parameter in layer.parameters(recurse=False):
        if not parameter.is_meta:
            parameter.fill_(float("nan"))


class Linear(nn.Linear):
    """PyTorch's linear layer, whose weights `initialise` draws; drawing them twice would only cost time."""

    def reset_parameters(self) -> None:
        """Not a number until `initialise`."""
        _not_drawn(self)

    def flops(self, n: int) -> int:
        """Of n vectors; two for each multiplication with its addition."""
        return 2 * n * self.in_features * self.out_features


class Embedding(nn.Embedding):
    """PyTorch's table, whose rows `initialise` draws."""

    def reset_parameters(self) -> None:
        """Not a number until `initialise`."""
        _not_drawn(self)


class Conv(nn.Conv1d):
    """The weights of a convolution over `b d t`, which `initialise` draws."""

    def reset_parameters(self) -> None:
        """Not a number until `initialise`."""
        _not_drawn(self)

    def flops(self, n: int) -> int:
        """Of n places; two for each multiplication with its addition."""
        return 2 * n * self.weight.numel()


@torch.no_grad()
def initialise(model: nn.Module, spec: InitSpec, blocks: int) -> None:
    """Draw all weights of linear layers, convolutions and tables of `model` anew, from torch's current random state."""
    if any(parameter.is_meta for parameter in model.parameters()):
        return  # a shape without content, as while loading; the attempt alone would import half of the compiler
    writers = {getattr(m, name) for m in model.modules() for name in getattr(m, "writes_residual", ())}
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            std = module.weight[0].numel() ** -0.5 if spec.std is None else spec.std
            if module in writers:
                std *= {"scaled": (2 * max(blocks, 1)) ** -0.5, "zero": 0.0, "same": 1.0}[spec.outputs]
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=spec.embedding_std)
        if hasattr(module, "draw"):
            module.draw(spec)
