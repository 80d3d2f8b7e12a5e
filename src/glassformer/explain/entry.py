"""What a stack reads as vectors that can be changed: its tokens' rows of the embedding tables, or a sound's frames."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ..call import Call
from ..model import Model


def tables(model: Model) -> dict[str, Tensor]:
    """The tables that a token is looked up in, `v d`: its own, and that of the token before."""
    found = {"token": model.embed.token, "previous": model.embed.previous}
    return {name: table.weight.detach() for name, table in found.items() if table is not None}


def fixed(model: Model, tokens: Tensor) -> Tensor:
    """The rows of a text's tokens `1 s d` in the tables, side by side; of a sound its frames `1 s c`."""
    if model.spec.reads_sound:
        return (tokens if tokens.ndim == 3 else model.embed.mel(tokens)).mT.to(model.embed.conv1.weight)
    return torch.cat([table[tokens] for table in tables(model).values()], -1)


def entered(model: Model, x: Tensor, call: Call) -> Tensor:
    """From rows of the tables `b s d` to what enters the first block, `b t d`."""
    if model.spec.reads_sound:
        return model.embed(x.mT, call)[0]
    own = x.flatten(0, 1).split(model.spec.dim, -1)  # every place of every copy has a row of its own
    places = torch.arange(len(own[0]), device=x.device).view(x.shape[:2])
    return _with_rows(model.embed, dict(zip(tables(model), own, strict=True)))(places, call)[0]


def _with_rows(embed: nn.Module, rows: dict[str, Tensor]) -> nn.Module:
    """The embedding with other tables. torch.func.functional_call would put them into the model for a moment, where
    everybody who runs it at the same time reads them."""
    made = _apart(embed)
    for name, own in rows.items():
        made._modules[name] = table = _apart(getattr(embed, name))
        table._parameters["weight"] = own
    return made


def _apart(module: nn.Module) -> nn.Module:
    """The same module, whose parts and parameters can be exchanged."""
    made = copy.copy(module)
    made._modules, made._parameters = dict(module._modules), dict(module._parameters)
    return made
