"""How the benches train their small models: AdamW on batches drawn anew, until enough is learnt."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

LOOK = 100  # updates after which it is seen whether that is enough


def learn(
    model: nn.Module,
    loss: Callable[[], Tensor],
    updates: int,
    *,
    rate: float,
    warm: int,
    enough: Callable[[], bool] = lambda: False,
) -> int:
    """Lower what `loss` gives, a scalar of another batch each time, and say in how many updates.

    The rate rises to `rate` over `warm` updates and is to fall to 0 at the last one; `enough` ends it before that."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.99), weight_decay=0.0)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min((k + 1) / warm, 1 - k / (updates + 1)))
    update = 0
    for update in range(1, updates + 1):
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        if update % LOOK == 0 and enough():
            break
    return update
