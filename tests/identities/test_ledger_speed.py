"""The ledger of one logit beside a forward pass, in the shape of SmolLM2-135M."""

import time
from functools import partial

import pytest
import torch

import glassformer as gf
from glassformer.explain.ledger import ledger
from glassformer.explain.target import Target
from glassformer.trace import Trace


def seconds(work, times=3):
    """Of the processor, the least of some: what else runs on the machine takes none of them."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.slow
def test_the_ledger_of_a_logit_takes_at_most_three_forward_passes():
    shape = {"dim": 576, "blocks": 30, "heads": 9, "kv_heads": 3, "hidden": 1536, "context": 2048}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = gf.build("llama", vocab=49152, **shape).model.eval()
    ids = torch.randint(49152, (1, 512), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        forward = seconds(partial(model, ids))
    run, target = Trace(model, ids), Target(what="logit", candidate="#5")
    for depth in ("parts", "tokens"):
        found = ledger(run, target, depth)
        taken = seconds(partial(ledger, run, target, depth), 2)
        print(f"\nledger, {depth}: {taken / forward:.2f} forward passes of {forward:.2f} s, closure {found.error:.1e}")
        assert found.error < 1e-4
        assert taken <= 3 * forward
