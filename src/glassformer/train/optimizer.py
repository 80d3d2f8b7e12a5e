"""The optimizers of a run, its schedule, and their state as named tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from .run import AdamWSpec, MuonSpec, ScheduleSpec


def rate_share(schedule: ScheduleSpec, step: int, steps: int) -> float:
    """The factor on every rate in update number `step` (from 0) of `steps`."""
    warmup = min(schedule.warmup, steps // 2)  # a short run would end before its rate had risen
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(steps - warmup, 1)  # 0 … below 1
    if schedule.shape == "constant":
        return 1.0
    if schedule.shape == "cosine":
        high = 0.5 * (1 + math.cos(math.pi * done))
    elif schedule.shape == "linear":
        high = 1 - done
    else:
        high = min(1.0, (steps - step) / min(schedule.cooldown * steps, steps - warmup))
    return schedule.final + (1 - schedule.final) * high


class Optimizer:
    """The update rules of all parameters of a model; each parameter belongs to exactly one."""

    def __init__(self, model: nn.Module, spec: AdamWSpec | MuonSpec, dtype: torch.dtype = torch.float32) -> None:
        """dtype: of Muon's matrix products; the weights and all memory are float32."""
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        inner = set(_inner_matrices(model)) if isinstance(spec, MuonSpec) else set()
        outer = [parameter for parameter in self.names if parameter not in inner]
        others = spec.others if isinstance(spec, MuonSpec) else spec
        self.rules: list[torch.optim.Optimizer] = [_adamw(outer, others)]
        if inner:
            self.rules.append(Muon([parameter for parameter in self.names if parameter in inner], spec, dtype))
        self.rates = [[group["lr"] for group in rule.param_groups] for rule in self.rules]

    def step(self, share: float) -> None:
        """One update from the gradients, which are then gone. share: the schedule's factor on every rate."""
        for rule, rates in zip(self.rules, self.rates, strict=True):
            for group, rate in zip(rule.param_groups, rates, strict=True):
                group["lr"] = rate * share
            rule.step()
            rule.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """What the rules remember, as `parameter name/quantity`."""
        return {
            f"{self.names[parameter]}/{key}": value
            for rule in self.rules
            for parameter, memory in rule.state.items()
            for key, value in memory.items()
        }

    def expected(self) -> dict[str, Tensor]:
        """Tensors of the names and shapes of what `tensors` gives after an update."""
        found: dict[str, Tensor] = {}
        for rule, parameter in self._owners():
            keys = ("momentum",) if isinstance(rule, Muon) else ("step", "exp_avg", "exp_avg_sq")
            name = self.names[parameter]
            found |= {f"{name}/{key}": torch.empty(()) if key == "step" else parameter for key in keys}
        return found

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `tensors` gave."""
        owner = {self.names[parameter]: (rule, parameter) for rule, parameter in self._owners()}
        for name, value in tensors.items():
            parameter_name, key = name.rsplit("/", 1)
            rule, parameter = owner[parameter_name]
            rule.state[parameter][key] = value

    def _owners(self) -> Iterator[tuple[torch.optim.Optimizer, nn.Parameter]]:
        """Every parameter with the rule that updates it."""
        return ((rule, p) for rule in self.rules for group in rule.param_groups for p in group["params"])


def _adamw(parameters: Iterable[nn.Parameter], spec: AdamWSpec) -> torch.optim.AdamW:
    """AdamW that lets matrices and tables decay: a decayed gain or bias would only be pulled from its neutral value."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": spec.decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # The fused rule is one pass over the memory instead of ten: 0.6 ms instead of 3.5 ms for 0.8 M parameters.
    return torch.optim.AdamW(groups, lr=spec.rate, betas=spec.betas, eps=spec.eps, fused=True)


# ---------------------------------------------------------------- Muon


def _inner_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weights of the linear maps inside the blocks."""
    return [
        module.weight for name, module in model.named_modules() if isinstance(module, nn.Linear) and "blocks." in name
    ]


class Muon(torch.optim.Optimizer):
    """MuonSpec's rule. Matrices of one shape are orthogonalised together: few large products instead of many."""

    def __init__(self, parameters: list[nn.Parameter], spec: MuonSpec, dtype: torch.dtype) -> None:
        self.spec, self.dtype = spec, dtype
        super().__init__(parameters, {"lr": spec.rate})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One update of every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            stacks: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    wide = self._direction(parameter)
                    wide = wide if wide.shape[0] <= wide.shape[1] else wide.mT
                    stacks.setdefault(tuple(wide.shape), []).append((parameter, wide))
            for members in stacks.values():
                turned = orthogonalised(torch.stack([wide for _, wide in members]).to(self.dtype))
                for (parameter, _), update in zip(members, turned, strict=True):
                    rows, columns = parameter.shape
                    update = update if rows <= columns else update.mT
                    parameter.mul_(1 - group["lr"] * self.spec.decay)
                    parameter.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)

    def _direction(self, parameter: nn.Parameter) -> Tensor:
        """Nesterov's momentum of a parameter's gradient."""
        memory, grad = self.state[parameter], parameter.grad
        if "momentum" not in memory:
            memory["momentum"] = torch.zeros_like(grad)
        momentum = memory["momentum"].lerp_(grad, 1 - self.spec.momentum)
        return grad.lerp(momentum, self.spec.momentum)


def orthogonalised(x: Tensor, steps: int = 5) -> Tensor:
    """About U Vᵀ for each x = U S Vᵀ in `… rows columns` (rows ≤ columns), by Newton-Schulz (Jordan et al. 2024).

    The polynomial drives every singular value into about 0.7 … 1.2, not exactly to 1, which is enough here and needs
    nothing but matrix products.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
