"""A network held still: the linear map that a run was, whose gradients take a number apart exactly.

Once the scales of the norms, the gates, the attention patterns and the slope f(x)/x of every nonlinearity are fixed at
what they were in a run, each layer is a linear map with biases. A number y = ⟨u, out⟩ of it is then a sum with one
summand ⟨∂y/∂p, p⟩ for every p that was added on the way, exactly: nothing is an approximation and nothing is what is
left over (DecompX, Modarressi et al. 2023, does the same to encoders; corrections.md, item 8).

The layers' own code is run: `FrozenProbe` holds tapped gates and weights still, `Frozen` norms, softmax and
nonlinearities where they are called. A nonlinearity with f(0) ≠ 0 is f(0) + x (f(x) − f(0))/x, where f(0) is a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..edit import Edit
from ..mixers.alignment import Alignment
from ..mixers.recurrent import Recurrent
from ..tap import Documents, Probe, address, whole

# Tapped values that others are multiplied with: what stays as it was.
HELD = {"q", "k", "u", "gate", "delta", "b", "c", "beta", "log_decay", "router", "weights", "shares", "scale"}
HELD |= {"dots", "scores", "pattern"}


GATING = (Recurrent, Alignment)


class Frozen(TorchFunctionMode):
    """Within it every layer that is run in this thread is a linear map of whatever requires a gradient.

    owners     modules whose biases get gradients; all other parameters are constants
    gating     whether a sigmoid is a gate, as in the cells of recurrences (GATING), and not an activation with a slope
    constants  the biases by name, each a leaf whose gradient can be asked for, and offsets the f(0) that were added
    """

    def __init__(self, owners: Iterable[nn.Module | None]) -> None:
        super().__init__()
        self.gating = False
        self.constants: dict[str, Tensor] = {}
        self.offsets: list[Tensor] = []
        self._biases: dict[int, Tensor] = {}
        for part in (one for one in owners if one is not None):
            for name, parameter in part.named_parameters():
                if _adds(name):
                    leaf = parameter.detach().clone().requires_grad_()
                    self.constants[address(part.path, name)] = self._biases[id(parameter)] = leaf

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [self._settled(one) for one in args]
        kwargs = {name: self._settled(one) for name, one in (kwargs or {}).items()}
        rule = RULES.get(function)
        return function(*args, **kwargs) if rule is None else rule(self, function, *args, **kwargs)

    def _settled(self, given: Any) -> Any:
        """A parameter as a constant, or as the leaf of a bias; lists of them likewise."""
        if isinstance(given, nn.Parameter):
            return self._biases.get(id(given), given.detach())
        if isinstance(given, list | tuple) and any(isinstance(one, nn.Parameter) for one in given):
            return type(given)(map(self._settled, given))
        return given


def _adds(name: str) -> bool:
    """Whether a parameter is added as it is: biases, the memory that a recurrent memory begins with, class tokens."""
    last = name.rpartition(".")[2]
    return "bias" in last or last in ("memory", "first", "second")


def written_out(part: nn.Module) -> set[str]:
    """The taps that make a layer leave what cannot be held still for mathematics that can: a recurrence its kernel, and
    attention the online softmax where the fused kernel does not know all that it does."""
    online = any(getattr(one, "online", False) for one in part.modules())
    return {"hidden", "pattern"} if online else {"hidden"}


# ---------------------------------------------------------------- what is held still, function by function


def _softmax(mode: Frozen, function: Any, *args: Any, **kwargs: Any) -> Tensor:
    return function(*args, **kwargs).detach()


def _attention(mode: Frozen, function: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Fused attention is linear in its values once queries and keys, and so the pattern, are constants."""
    return function(q.detach(), k.detach(), v, *args, **kwargs)


def _secant(mode: Frozen, function: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """f(0) + x (f(x) − f(0))/x."""
    fixed = x.detach()
    y = function(fixed, *args, **kwargs)
    if not x.requires_grad:
        return y
    start = function(fixed.new_zeros(()), *args, **kwargs)
    out = x * torch.where(fixed == 0, 0.0, (y - start) / fixed)
    if start != 0:
        offset = start.expand_as(y).clone().requires_grad_()
        mode.offsets.append(offset)
        out = out + offset
    out.activated = True
    return out


def _gate(mode: Frozen, function: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return function(x, *args, **kwargs).detach() if mode.gating else _secant(mode, function, x, *args, **kwargs)


def _square(mode: Frozen, function: Any, x: Tensor) -> Tensor:
    return x * x.detach()


def _product(mode: Frozen, function: Any, a: Any, b: Any) -> Any:
    """Of two factors the one that comes out of an activation is a gate, where no tap says so."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.requires_grad and b.requires_grad:
        gates = [getattr(one, "activated", False) for one in (a, b)]
        if any(gates):
            a, b = (a.detach(), b) if gates[0] else (a, b.detach())
    return function(a, b)


def _layer_norm(
    mode: Frozen,
    function: Any,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _scaled(x, wide - wide.mean(-1, keepdim=True), weight, bias, eps)


def _rms_norm(
    mode: Frozen, function: Any, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return _scaled(x, wide, weight, None, torch.finfo(x.dtype).eps if eps is None else eps)


def _scaled(x: Tensor, centred: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    out = centred * (centred.detach().square().mean(-1, keepdim=True) + eps).rsqrt()
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype)


def _unit(
    mode: Frozen, function: Any, x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None
) -> Tensor:
    return x / x.detach().norm(p, dim, keepdim=True).clamp(min=eps)


RULES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), _softmax),
    F.scaled_dot_product_attention: _attention,
    **dict.fromkeys((F.relu, torch.relu, F.gelu, F.silu, F.elu, torch.tanh, Tensor.tanh, F.tanh), _secant),
    **dict.fromkeys((torch.sigmoid, Tensor.sigmoid, F.sigmoid), _gate),
    **dict.fromkeys((torch.square, Tensor.square), _square),
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__), _product),
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    F.normalize: _unit,
}


# ---------------------------------------------------------------- taps


class FrozenProbe(Probe):
    """Holds still what is tapped under a name of HELD, and takes the edits along.

    cut     full names of values at which the way back ends: each becomes a leaf, kept in `leaves` before its edits
    record  short names that are kept in `values`

    What an edit puts there by itself is kept in `constants` by the name of the value, as what it makes of zeros: each
    kind of edit is a linear map with such a constant.
    """

    def __init__(self, edits: Any = (), cut: Collection[str] = (), record: Collection[str] = ()) -> None:
        super().__init__(lambda name: name.rpartition(".")[2] in record, edits)
        self.cut, self.record = cut, record
        self.leaves: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}

    def changed(self, full: str, value: Tensor, axes: str, documents: Documents = whole) -> Tensor:
        """A value after its edits. What an edit puts there is one constant, however many pieces the value is born in; a
        gate is none of what is added."""
        if full in self.cut:
            value = self.leaves[full] = value.detach().requires_grad_()
        for number, edit in enumerate(self.edits.get(full, ())):
            linear = value.requires_grad and not _held(full) and not _depends(edit.value)
            added = edit.apply(torch.zeros_like(value), axes, documents, self.start) if linear else None
            value = edit.apply(value, axes, documents, self.start)
            self.edited.add(full)
            if added is not None and bool(added.any()):
                name = f"{full}#{number}" if number else full
                leaf = self.constants.setdefault(name, added.detach().requires_grad_())
                value = value + (leaf - leaf.detach())
        return value

    def settled(self, full: str, value: Tensor) -> Tensor:
        """The value held still, if its name says so."""
        return value.detach() if _held(full) else value

    def beside(self, edits: tuple[Edit, ...]) -> FrozenProbe:
        """The probe of a second reading within this call, held still as this one."""
        return FrozenProbe(edits, record=self.record)


def _held(full: str) -> bool:
    return full.rpartition(".")[2] in HELD


def _depends(given: Any) -> bool:
    """Whether what an edit puts there was itself worked out from what is held still, as the output without an edge."""
    return isinstance(given, Tensor) and given.requires_grad


def gradients(y: Tensor, leaves: Mapping[Any, Tensor], towards: Tensor | None = None) -> dict[Any, Tensor]:
    """∂y/∂p of each leaf p, 0 where y does not depend on it. towards: the gradient at y, where that is no number, or
    those of several numbers, with an axis before all others that the result then has too."""
    found: Any = [None] * len(leaves)
    several = towards is not None and towards.ndim > y.ndim
    if y.requires_grad and leaves:
        how = {"allow_unused": True, "is_grads_batched": several}
        found = torch.autograd.grad(y, list(leaves.values()), towards, **how)
    before = towards.shape[:1] if several else ()
    return {
        name: leaf.new_zeros(*before, *leaf.shape) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }
