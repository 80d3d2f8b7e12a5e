"""The circuit of induction (Olsson et al. 2022; S14): pruning finds that a head which looks at the symbol before writes
into the keys of the induction head, whose values are the symbols themselves, and little else is needed."""

import statistics

import pytest
import torch

from glassformer.api import Loaded
from glassformer.bench.induction import SYMBOLS, trained
from glassformer.explain.answer import Answer
from glassformer.explain.circuit import Circuits
from glassformer.explain.roles import roles, runs
from glassformer.explain.target import Target

RUN, AGAIN, TEXTS = 20, 12, 12  # symbols that come, so many of them once more; rows


def circuits_of(model, generator):
    """A run of different symbols that begins again and asks for the next one; in the other text the run before was of
    other symbols, so that nothing is to be found there."""
    order = torch.randperm(SYMBOLS, generator=generator).tolist()
    first, other = order[:RUN], order[RUN : 2 * RUN]
    run = Loaded(model, name="two").trace(first + first[:AGAIN])
    answer = Answer(run, Target(what="log-probability", candidate=f"#{first[AGAIN]}"))
    return Circuits(answer, answer.rows_of(torch.tensor([other + first[:AGAIN]])))


@pytest.mark.slow
def test_heads_that_look_one_back_write_into_the_keys_of_the_induction_head():
    model, _ = trained("two", 0)
    loaded, generator = Loaded(model, name="two"), torch.Generator().manual_seed(5)
    heads = roles([loaded.trace(ids) for ids in runs(loaded, 25, 2, 4, 0).ids])
    scores = {f"{one.layer}.h{one.head}": one.scores for one in heads}
    assert scores["1.h0"]["induction"] > 0.5
    own, others, random, sizes, through = [], [], [], [], 0
    for _ in range(TEXTS):
        circuits = circuits_of(model, generator)
        assert circuits.whole > -1 and circuits.empty < -3  # it knows the symbol, and without the run it does not
        kept = circuits.connected(circuits.pruned(circuits.scores(8), 0.05), True)
        readers = [f"{one.layer}.{one.entry}" for one in circuits.readers]
        edges = {(circuits.nodes[n].name, readers[c]) for c, n in kept.nonzero().tolist()}
        assert ("1.h0", "2.logits") in edges and ("embedding", "1.v") in edges
        back = [name for name, into in edges if into == "1.k" and name != "embedding"]
        through += any(scores[name]["previous"] > 0.3 for name in back)
        drawn = [circuits.random(int(kept.sum()), generator, True) for _ in range(8)]
        f = circuits.faithfulness(circuits.runs(torch.stack([kept, circuits.exists & ~kept, *drawn])))
        own.append(f[0].item())
        others.append(f[1].item())
        random.append(f[2:].mean().item())
        sizes.append(int(kept.sum()))
    print(f"through keys {through} of {TEXTS}; faithfulness {own}; complement {others}; random {random}; edges {sizes}")
    assert through >= 0.75 * TEXTS
    assert statistics.median(own) > 0.9 and min(own) > 0.8 and max(random + others) < 0.3
    assert statistics.median(sizes) <= len(circuits.edges) / 3
