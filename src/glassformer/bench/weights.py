"""The weight of an edge beside what the edge does: which of two edges changes the next token more when it is cut?

    python -m glassformer.bench.weights [SENTENCES.txt] [--model small]

In each layer every edge into the last token, of all heads, is cut by itself: its score becomes -∞, the other weights
grow, and the rest of the model is run. What that does is KL(p ‖ p'), nats, of the next token's distribution. Against it
stand three guesses that need no cut: the weight α; the length ‖(o' - o) W_O‖ of what attention then gives less; and the
effect to first order on the log probability of the likeliest next token (explain.edges).

Printed for each layer, means over the sentences with 95 % intervals of the bootstrap: the rank correlation of each
guess with the truth, over all edges and over the heavy ones (α at least 0.05), and the KL of cutting the edge that each
guess puts first. Controls: an edge drawn at random (the mean over all), weights dealt out anew among the edges, and the
most that one edge does. "all" is of the edges of all layers together. Leaves with status 1 where the edge of the
largest weight does as much as the one of the largest effect, or no more than one drawn at random.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..edit import add
from ..explain.answer import Answer
from ..explain.edges import edges
from ..explain.faithfulness import spearman
from ..explain.target import Target
from ..mixers.multihead import SoftmaxAttention
from ..tap import Probe
from ..trace import Trace
from .faithfulness import interval

SENTENCES = (
    "고양이가 생선을 먹었다",
    "밤하늘의 별이 빛난다",
    "이 영화는 처음부터 끝까지 지루했다",
    "배우들의 연기가 정말 훌륭했다",
    "친구와 함께 바다를 보러 갔다",
    "그는 아침마다 커피를 마신다",
    "비가 와서 우산을 샀다",
    "아이가 마당에서 공을 찬다",
    "어제 본 드라마가 자꾸 생각난다",
    "문을 열면 파일을 저장할 수 있습니다",
    "누나는 도서관에서 책을 빌렸다",
    "시간이 아깝지 않은 작품이다",
    "The cat ate the fish",
    "The movie was too long and",
    "She opened the door and looked at the",
    "You can save the file in another",
    "The king spoke to the queen and the",
    "He has been waiting for the train since",
    "I did not like the end of this",
    "Click the button to open the",
    "The children played in the garden until the",
    "My brother wants to learn how to",
    "It rained all day, so we stayed at",
    "The old man told a story about the",
)
GUESSES = ("weight", "length", "effect")  # by which an edge is called the largest
HEAVY = 0.05
KEPT = 1 << 24  # numbers of all scores of the copies of a text in one run


@dataclass(frozen=True)
class Cut:
    """The edges into one token: what each guess says of them, and what cutting does, KL in nats, all `k`."""

    guesses: dict[str, Tensor]
    truth: Tensor


def cut_each(trace: Trace, path: str, t: int) -> Cut:
    """Every edge into token t of a decoder's attention at `path`, cut by itself in a run of its own."""
    found = edges(trace, path, [t], Answer(trace, Target("log-probability", t)))
    heads, _, sources = (~found.effects.isnan() & (found.weights > 0)).nonzero().T
    tokens, name = trace.stacks[0].tokens[:1, : t + 1], f"{path}.scores"
    plain, after = trace.logits[0, t].double().log_softmax(-1), []
    at_once = max(1, KEPT // (len(found.weights) * (t + 1) ** 2))
    for some in torch.arange(len(heads)).split(at_once):
        gone = torch.zeros(len(some), len(found.weights), t + 1, t + 1)
        gone[torch.arange(len(some)), heads[some], t, sources[some]] = -torch.inf
        probe = Probe(lambda asked: False, (add(name, gone),))
        with torch.no_grad():
            logits = trace.model(tokens.expand(len(some), -1), probe=probe)[:, t]
        after.append(F.kl_div(logits.double().log_softmax(-1), plain, reduction="none", log_target=True).sum(-1))
    at = heads, torch.zeros_like(heads), sources
    effects = {"weight": found.weights, "length": found.effects, "effect": found.directed.abs()}
    return Cut({guess: value[at] for guess, value in effects.items()}, torch.cat(after))


def told(cut: Cut, seed: int = 0) -> dict[str, float]:
    """The numbers of one layer of one sentence: "rank", "heavy" and "KL" with what each is of; no rank of one edge."""
    dealt = cut.guesses["weight"][torch.randperm(len(cut.truth), generator=torch.Generator().manual_seed(seed))]
    found = {f"KL {guess}": cut.truth[value.argmax()].item() for guess, value in cut.guesses.items()}
    found |= {"KL random": cut.truth.mean().item(), "KL most": cut.truth.max().item()}
    heavy = cut.guesses["weight"] >= HEAVY
    for guess, value in (*cut.guesses.items(), ("dealt", dealt)):
        for name, some in (("rank", torch.ones_like(heavy)), ("heavy", heavy)):
            rank = spearman(value[some].numpy(), cut.truth[some].numpy())
            found |= {} if rank is None else {f"{name} {guess}": rank}
    return found


def of_sentence(model: Any, sentence: str) -> dict[str, dict[str, float]]:
    """The numbers of each layer with attention, by its number, and of "all" together; model: what `gf.load` returns."""
    trace = model.trace(sentence)
    t = trace.stacks[0].length - 1
    parts = [block.mixer for block in trace.stacks[0].model.blocks if isinstance(block.mixer, SoftmaxAttention)]
    cuts = {str(trace.stacks[0].block_of(part.path)): cut_each(trace, part.path, t) for part in parts}
    guesses = {guess: torch.cat([cut.guesses[guess] for cut in cuts.values()]) for guess in GUESSES}
    cuts["all"] = Cut(guesses, torch.cat([cut.truth for cut in cuts.values()]))
    return {layer: told(cut) for layer, cut in cuts.items()}


Found = Mapping[str, Mapping[str, Sequence[float]]]  # layer -> what -> the number of each sentence


def measured(model: Any, sentences: Sequence[str]) -> Found:
    """The numbers of all sentences."""
    rows = [of_sentence(model, sentence) for sentence in sentences]
    found: dict[str, dict[str, list[float]]] = {}
    for layer, what, value in ((a, b, value) for row in rows for a, one in row.items() for b, value in one.items()):
        found.setdefault(layer, {}).setdefault(what, []).append(value)
    return found


def lines(found: Found) -> list[str]:
    """The table as text."""
    made = []
    for layer, numbers in found.items():
        for what, values in numbers.items():
            mean, low, high = interval(values)
            made.append(f"layer {layer:4} {what:12} {mean:8.4f}  [{low:.4f}, {high:.4f}]  n={len(values)}")
    return made


def apart(found: Found, one: str, other: str, layer: str = "all") -> tuple[float, float, float]:
    """By how much cutting the first edge of one guess does more than that of another: mean and interval, nats."""
    pairs = zip(found[layer][f"KL {one}"], found[layer][f"KL {other}"], strict=True)
    return interval([a - b for a, b in pairs])


def broken(found: Found) -> list[str]:
    """What does not hold, in words."""
    said = []
    for one, other in (("effect", "weight"), ("weight", "random")):
        mean, low, high = apart(found, one, other)
        if not low > 0:
            said.append(f"{one} over {other}: {mean:.4f} [{low:.4f}, {high:.4f}], and more than 0 is asked")
    return said


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.weights", description=__doc__)
    parser.add_argument("sentences", nargs="?", type=Path, help="a text file with a sentence in each line")
    parser.add_argument("--model", default="", help="a shipped name, a folder, or a pulled model")
    given: Any = parser.parse_args(arguments)
    from .. import load  # by its public name, which stands above this file

    model = load(given.model) if given.model else load()
    model.model.double()  # the KL of a small change is lost in float32
    own = SENTENCES if given.sentences is None else given.sentences.read_text(encoding="utf-8").splitlines()
    found = measured(model, [one.strip() for one in own if one.strip()])
    print("\n".join(lines(found)))
    for one, other in (("effect", "weight"), ("length", "weight"), ("weight", "random")):
        mean, low, high = apart(found, one, other)
        print(f"KL of the first by {one} less that by {other}: {mean:+.4f} [{low:+.4f}, {high:+.4f}]")
    wrong = broken(found)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
