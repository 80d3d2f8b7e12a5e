"""What Q, K and V decide, and what each head gives: swaps between two runs, each beside a swap that changes nothing.

    python -m glassformer.bench.routing [--only small …]

In every attention of a model, in fp64 and by edits of one run with what another run has there:

- the other run's values: the weights stay as they were to the bit, and the output becomes Σ_s α_ts v'_s W_O, as worked
  out here from the weights and the foreign values alone;
- the other run's queries or keys: the values stay to the bit, the weights change, and the output is that of the new
  weights over the old values;
- control: the run's own queries, keys and values put in their own place, and nothing changes, to the bit;
- the heads: Σ_h z_h W_O,h + b is the output, and without head h it is less by z_h W_O,h and nothing else.

The models are the shipped one on two sentences, and the shapes of GPT-2 and T5 with drawn weights on drawn tokens.
Leaves with status 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..edit import Edit, replace, zero
from ..mixers.multihead import SoftmaxAttention
from ..model import build_model
from ..named import preset
from ..tap import Probe

SENTENCES = ("고양이가 생선을 먹었다", "우리는 밤하늘의 별을 오래 바라보았다")  # the longer one is cut
SMALL: dict[str, Any] = {"vocab": 96, "dim": 64, "blocks": 2, "heads": 4, "context": 32}
EXACT = 1e-10  # relative, in fp64
MOVED = 0.01  # the least by which a swap must move what it is said to move

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Routed:
    """What swaps do in one attention.

    same       whether weights (values) stay to the bit under foreign values (queries, keys), and all under its own
    predicted  largest relative error of the outputs worked out here, of each swap
    moved      relative change of the output by foreign values
    turned     how much of the weights foreign queries and foreign keys move elsewhere: mean over the rows of
               1/2 Σ_s |α'_ts - α_ts|
    summed     relative error of Σ_h z_h W_O,h + b, and of the output without each head
    """

    same: bool
    predicted: float
    moved: float
    turned: tuple[float, float]
    summed: float


def shipped() -> tuple[nn.Module, Inputs, Inputs]:
    """The model in the package and the ids of two sentences, as many of each."""
    from .. import load  # by its public name, which stands above this file

    loaded = load()
    ids = [loaded.encode(text) for text in SENTENCES]
    n = min(map(len, ids))
    one, other = (torch.tensor([row[:n]]) for row in ids)
    return loaded.model.double(), (one,), (other,)


def small(name: str) -> nn.Module:
    """A small preset, in fp64, with weights drawn so large that every part of it matters."""
    generator = torch.Generator().manual_seed(0)
    model = build_model(preset(name, **SMALL)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator).double()
            parameter.copy_(noise * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else parameter + 0.3 * noise)
    return model


def drawn(name: str, lengths: tuple[int, ...]) -> tuple[nn.Module, Inputs, Inputs]:
    """A small preset and two inputs of these lengths: a text, or a source and a target."""
    generator = torch.Generator().manual_seed(0)
    one, other = (tuple(torch.randint(SMALL["vocab"], (2, n), generator=generator) for n in lengths) for _ in range(2))
    return small(name), one, other


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs, Inputs]]] = {
    "small": shipped,
    "gpt2": lambda: drawn("gpt2", (9,)),
    "t5": lambda: drawn("t5", (9, 7)),
}


@torch.no_grad()
def values(model: nn.Module, inputs: Inputs, *edits: Edit) -> dict[str, Tensor]:
    """All that a run taps, by name."""
    probe = Probe(edits=edits)
    model(*inputs, probe=probe)
    return probe.values


def given(part: SoftmaxAttention, pattern: Tensor, v: Tensor) -> Tensor:
    """What each head hands on, Σ_s α_ts v_s W_O,h, `b h t d`, of weights `b h t s` and values `b s g e`."""
    v = v.repeat_interleave(part.heads // part.groups, 2).transpose(1, 2)
    w = part.out.weight.detach().T.unflatten(0, (part.heads, part.width))  # h e d
    return pattern @ (v @ w)


def routed(model: nn.Module, one: Inputs, other: Inputs) -> dict[str, Routed]:
    """What swaps between two runs do in each attention of a model, by its path."""
    plain, foreign = values(model, one), values(model, other)
    parts = [part for part in model.modules() if isinstance(part, SoftmaxAttention)]
    return {part.path: _routed(model, one, part, plain, foreign) for part in parts}


def _routed(
    model: nn.Module, one: Inputs, part: SoftmaxAttention, plain: dict[str, Tensor], foreign: dict[str, Tensor]
) -> Routed:
    path = part.path
    bias = 0.0 if part.out.bias is None else part.out.bias.detach()
    swaps = {short: values(model, one, replace(f"{path}.{short}", foreign[f"{path}.{short}"])) for short in "qkv"}
    own = values(model, one, *(replace(f"{path}.{short}", plain[f"{path}.{short}"]) for short in "qkv"))
    pattern, v, out = (plain[f"{path}.{short}"] for short in ("pattern", "v", "out"))
    same = torch.equal(swaps["v"][f"{path}.pattern"], pattern)
    same &= all(torch.equal(swaps[short][f"{path}.v"], v) for short in "qk")
    same &= all(torch.equal(own[name], value) for name, value in plain.items())
    predicted = apart(swaps["v"][f"{path}.out"], given(part, pattern, foreign[f"{path}.v"]).sum(1) + bias)
    turned = []
    for short in "qk":
        new = swaps[short][f"{path}.pattern"]
        predicted = max(predicted, apart(swaps[short][f"{path}.out"], given(part, new, v).sum(1) + bias))
        turned.append((new - pattern).abs().sum(-1).mean().item() / 2)
    heads = given(part, pattern, v)
    summed = apart(heads.sum(1) + bias, out)
    for h in range(part.heads):
        without = values(model, one, zero(f"{path}.z", h=h))[f"{path}.out"]
        summed = max(summed, apart(out - without, heads[:, h]))
    return Routed(same, predicted, apart(swaps["v"][f"{path}.out"], out), (turned[0], turned[1]), summed)


def apart(found: Tensor, wanted: Tensor) -> float:
    """How far two values are apart, relative to the second."""
    return ((found - wanted).norm() / wanted.norm()).item()


def broken(found: dict[str, Routed]) -> list[str]:
    """What does not hold, in words."""
    said = []
    for path, one in found.items():
        wrong = {
            "something that a swap must leave was changed": not one.same,
            f"an output is {one.predicted:.1e} from the predicted one": not one.predicted < EXACT,
            f"the heads' sum is {one.summed:.1e} from the output": not one.summed < EXACT,
            "foreign values changed nothing": not one.moved > MOVED,
            "foreign queries or keys moved no weights": not min(one.turned) > MOVED,
        }
        said += [f"{path}: {words}" for words, holds in wrong.items() if holds]
    return said


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.routing", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(MODELS), default=list(MODELS))
    options = parser.parse_args(arguments)
    wrong = []
    for name in options.only:
        found = routed(*MODELS[name]())
        for path, one in found.items():
            print(
                f"{name:6} {path:24} v swapped: output {one.moved:.3f} away; q, k swapped: {one.turned[0]:.3f} and "
                f"{one.turned[1]:.3f} of the weights elsewhere; errors {one.predicted:.1e}, of the heads' sum "
                f"{one.summed:.1e}; what must stay {'stayed' if one.same else 'CHANGED'}",
                flush=True,
            )
        wrong += [f"{name}, {line}" for line in broken(found)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
