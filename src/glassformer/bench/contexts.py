"""One word in two sentences: what stays fixed in inference, and what changes with the context.

    python -m glassformer.bench.contexts [--only small …]

The word's row of the table is the same to the bit in both, and so is the vector that enters the first block, but for
what is added for its place where a model adds that; behind each layer the two are apart, and so are the attention
weights with which the word looks at what stands 0, 1, 2 … tokens before it. All parameters and buffers are hashed
before and after two readings and the writing of 16 tokens.

Controls: the same sentence read again gives every value to the bit, and one step of gradient descent changes the hash.
The models are the shipped one with 별 (star; it also reads the token before, which is 의 in both sentences), and the
shapes of Llama, where nothing is added for a place, and GPT-2, where a learned row is, with drawn weights. Leaves with
status 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..api import Loaded
from .routing import MOVED, apart, small, values

WORD = "별"
SENTENCES = ("하늘의 별이 빛난다", "그의 별이 지다")  # the stars of the sky shine; his star is setting
NAMES = ("small", "llama", "gpt2")
WRITTEN = 16


@dataclass(frozen=True)
class Contexts:
    """What one word is in two sentences.

    table     whether its row of the table is the same to the bit
    entering  the same of the vectors that enter the first block, with what is added for their place taken out
    placed    relative distance of these vectors as they enter
    layers    of the vectors behind each layer
    weights   of the attention weights of each layer, mean over the heads of 1/2 Σ_k |α_k - α'_k|, k tokens back
    again     whether the first sentence, read again, gives every value to the bit
    kept      whether all parameters and buffers are what they were; learnt: whether a step of training changes the hash
    """

    table: bool
    entering: bool
    placed: float
    layers: tuple[float, ...]
    weights: tuple[float, ...]
    again: bool
    kept: bool
    learnt: bool


def hashed(model: nn.Module) -> str:
    """SHA-256 over the names and bytes of all parameters and buffers."""
    found = hashlib.sha256()
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def subject(name: str) -> tuple[Loaded, list[tuple[Tensor, int]]]:
    """A model, and two texts `1 t` with the place of the same token in each."""
    if name != "small":
        generator = torch.Generator().manual_seed(1)
        texts = [torch.randint(1, 90, (1, 9), generator=generator) for _ in range(2)]
        for text, place in zip(texts, (5, 7), strict=True):
            text[0, place] = 95
        return Loaded(small(name).float()), [(texts[0], 5), (texts[1], 7)]
    from .. import load  # by its public name, which stands above this file

    loaded, found = load(), []
    for sentence in SENTENCES:
        trace = loaded.trace(sentence)
        [place] = [t for cell in trace.cells("token") if cell.text == WORD for t in cell.tokens]
        found.append((trace.stacks[0].tokens, place))
    return loaded, found


def contexts(loaded: Loaded, texts: list[tuple[Tensor, int]]) -> Contexts:
    """What a token at a place of each of two texts is to a decoder, which is trained by a step at the end."""
    model, (one, other), places = loaded.model, [text for text, _ in texts], [place for _, place in texts]
    before = hashed(model)
    first, second = values(model, (one,)), values(model, (other,))
    again = values(model, (one,))
    for text in (one, other):
        for _ in loaded.generate([text[0].tolist()], max_new_tokens=WRITTEN):
            pass
    kept = hashed(model) == before
    runs = [{key: value[0] for key, value in run.items()} for run in (first, second)]

    def of(key: str) -> list[Tensor]:
        return [run[key][place] for run, place in zip(runs, places, strict=True)]

    entering = torch.equal(*of("embed.out"))
    if "embed.position" in first:  # the sum of two numbers is one of them and the other, to the bit
        sums = [token + added for token, added in zip(of("embed.token"), of("embed.position"), strict=True)]
        entering = all(map(torch.equal, sums, of("embed.out")))
    depth = range(len(model.blocks))
    return Contexts(
        torch.equal(*of("embed.token")),
        entering,
        apart(*of("embed.out")),
        tuple(apart(*of(f"blocks.{i}.resid_out")) for i in depth),
        tuple(_looks_apart([run[f"blocks.{i}.mixer.pattern"] for run in runs], places) for i in depth),
        all(torch.equal(again[key], value) for key, value in first.items()),
        kept,
        _learnt(model, one, before),
    )


def _looks_apart(patterns: list[Tensor], places: list[int]) -> float:
    """How far two rows of weights, of patterns `h t s`, are apart when both are read backward from their place."""
    rows = [pattern[:, t, : t + 1].flip(-1) for pattern, t in zip(patterns, places, strict=True)]
    longest = max(row.shape[-1] for row in rows)
    one, other = (nn.functional.pad(row, (0, longest - row.shape[-1])) for row in rows)
    return (one - other).abs().sum(-1).mean().item() / 2


def _learnt(model: nn.Module, text: Tensor, before: str) -> bool:
    """Whether one step of gradient descent on a text changes the hash."""
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    with torch.no_grad():
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter -= 1e-3 * gradient
    return hashed(model) != before


def broken(one: Contexts) -> list[str]:
    """What does not hold, in words."""
    wrong = {
        "the word's row of the table is not the same": not one.table,
        "what enters the first block differs by more than its place": not one.entering,
        "behind a layer both are the same": not min(one.layers) > MOVED,
        "the attention weights are the same": not max(one.weights) > MOVED,
        "the same sentence, read again, gives something else": not one.again,
        "reading or writing changed the parameters": not one.kept,
        "a step of training did not change the hash": not one.learnt,
    }
    return [words for words, holds in wrong.items() if holds]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.contexts", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, default=NAMES)
    wrong = []
    for name in parser.parse_args(arguments).only:
        one = contexts(*subject(name))
        layers, weights = (" ".join(f"{value:.3f}" for value in some) for some in (one.layers, one.weights))
        print(f"{name:6} apart: entering {one.placed:.3f}, behind the layers {layers}; their weights {weights}", end="")
        print(f"; parameters {'kept' if one.kept else 'CHANGED'}; read again {'the same' if one.again else 'OTHER'}")
        wrong += [f"{name}: {line}" for line in broken(one)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
