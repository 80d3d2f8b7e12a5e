"""The laws of cost: what a model is said to cost is what its run, its state and its gradients show."""

import json
import math
import random
import re
import sys

import pytest
import torch
from quick import quick_share
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from contract.cases import CASES, CAUSAL, ONE_STACK, VOCAB, built, drawn, kept, run, stack, start, tokens_of
from glassformer.bench.families import FAMILIES, family
from glassformer.bench.families import VOCAB as VOCAB_OF_FAMILIES
from glassformer.call import Call
from glassformer.errors import InputError
from glassformer.explain.cost import cost
from glassformer.mask import Mask
from glassformer.mixers import chunk, deltarule, s4, scan
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.cells import Cell, GruSpec
from glassformer.mixers.conv import ConvSpec
from glassformer.mixers.dense import WindowSpec
from glassformer.model import BlockSpec, EncoderDecoder, build_model, call_of_all
from glassformer.spec import to_data
from glassformer.tap import Probe

VIEWS = (".head_out", ".mixer.weights", ".mixer.shares", ".mixer.written", ".mixer.values")
SOURCES = 7  # what `source_of` gives an encoder


# What a scan costs is that of its recurrence, whatever the form in which it is worked out.
RECURRENCES = {
    chunk.gated_sum: chunk.recurrent_sum,
    deltarule.delta_sum: deltarule.recurrent_delta,
    scan.scan: scan.recurrent,
    s4.convolved: lambda u, system, state, keeping: s4.recurrent(u, system, state),
}
# A recurrence of matrix products is counted by these alone; one without any by what it does to each number.
BY_NUMBER = {scan.scan, s4.convolved}
EACH = {torch.ops.aten.mul.Tensor: 2, torch.ops.aten.exp.default: 1}


# What these do besides matrix products is no scan, and no counter has it: a transform, a running mean, a score's tanh.
BESIDE = {"fourier", "bag", "alignment"}


def kinds(spec):
    """The kinds of all mixers of a model."""
    return set(re.findall(r'"mixer": ?{"kind": ?"([\w-]+)"', json.dumps(to_data(spec))))


class ByNumber(TorchDispatchMode):
    """Counts what is done number by number."""

    flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.flops += EACH[func] * found.numel() if func in EACH else 0
        return found


@pytest.fixture
def scans(monkeypatch):
    """Every scan as the recurrence that it equals; for each run of one, (its matrix products, what it costs)."""
    costs = []

    def counted(form, by_number):
        def run_counted(*given, **how):
            with FlopCounterMode(display=False) as counter, ByNumber() as numbers:
                found = form(*given, **how)
            products = counter.get_total_flops()
            costs.append((products, numbers.flops if by_number else products))
            return found

        return run_counted

    for module in [module for name, module in sys.modules.items() if name.startswith("glassformer.mixers.")]:
        for name, value in list(vars(module).items()):
            if callable(value) and value in RECURRENCES:
                monkeypatch.setattr(module, name, counted(RECURRENCES[value], value in BY_NUMBER))
    return costs


@pytest.mark.parametrize("name", quick_share(CASES, 3, 0))
def test_flops_are_those_that_pytorch_counts(name, scans):
    """In the run that writes attention out; an expert's, in the run that computes only the chosen ones. What is only
    worked out to be looked at is no part of the cost. A scan's are counted apart, token after token."""
    model = kept(name)
    for n in (1, 9, 31):
        scans.clear()
        probe = Probe(lambda full: not (".experts." in full or full.endswith(VIEWS)))
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            run(model, tokens_of(1, n), probe=probe)
        told = cost(CASES[name], n, SOURCES)
        assert counter.get_total_flops() - sum(products for products, _ in scans) == told.flops, n
        if scans or (n > 1 and not BESIDE & kinds(CASES[name])):  # S4D takes one token by itself as a plain step
            assert sum(all_of_it for _, all_of_it in scans) == told.scan_flops, n


@pytest.mark.parametrize("name", quick_share(CAUSAL, 3, 1))
def test_state_bytes_are_those_of_the_state(name):
    for dtype in (torch.float32, torch.bfloat16):
        model = built(name).to(dtype)
        stack = model.decoder if isinstance(model, EncoderDecoder) else model
        for n in (1, 4, 30):
            with torch.no_grad():
                _, state = stack.step(tokens_of(1, n), start(model, 1, n))
            told = cost(CASES[name], n, SOURCES, number_bytes=dtype.itemsize)
            assert state.nbytes == told.state_bytes, (n, dtype)


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_counted_once(name):
    assert cost(CASES[name], 3).parameters == sum(p.numel() for p in kept(name).parameters())


@pytest.mark.parametrize("name", ONE_STACK)
def test_the_reach_is_the_support_of_the_jacobian(name):
    """By the gradients of the embedding tables, in a text whose tokens are all different."""
    model, n = built(name).double(), VOCAB - 1
    tokens = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))[:n]
    call = call_of_all(tokens[None], None, None)
    x, _ = model.embed(tokens[None], call)
    for block in model.blocks:
        x, _ = block(x, call)
    weight = torch.randn(x.shape[-1], generator=torch.Generator().manual_seed(4)).double()
    tables = [table.weight for table in (model.embed.token, model.embed.previous) if table is not None]
    parts = torch.autograd.grad((x[0, -1] * weight).sum(), tables)
    acts = sum(part[tokens].abs().amax(1) for part in parts) > 0
    reach = cost(CASES[name], n).reach
    assert n - 1 - int(acts.nonzero().min()) == (n - 1 if reach is None else min(reach, n - 1))


@pytest.mark.parametrize("name", ONE_STACK)
def test_the_path_is_the_shortest_one_through_the_mixers(name):
    """Counted in the graph of who depends on whom, mixer by mixer; a residual takes a token past one for nothing."""
    check_path(CASES[name], built(name).double())


@pytest.mark.parametrize("seed", range(12))
def test_the_path_of_blocks_with_and_without_a_residual(seed):
    draw = random.Random(seed)
    kinds = (
        GruSpec(),
        ConvSpec(dilation=2),
        WindowSpec(window=2),
        AttentionSpec(),
        AttentionSpec(mask=Mask(window=3)),
        AttentionSpec(mask=Mask(stride=3)),
    )
    blocks = [BlockSpec(mixer=draw.choice(kinds), residual=draw.random() < 0.5) for _ in range(3)]
    spec = stack(*blocks)
    check_path(spec, drawn(build_model(spec)).double())


def check_path(spec, model):
    n = 12
    call, steps = call_of_all(tokens_of(1, n), None, None), torch.full((n,), math.inf)
    steps[0] = 0
    for block in model.blocks:
        x = torch.randn(1, n, block.dim, generator=torch.Generator().manual_seed(3)).double()
        sees = torch.autograd.functional.jacobian(lambda v, b=block: b.mixer.parallel(v, call).sum((0, 2)), x)
        sees = sees[:, 0].abs().amax(-1) > 0  # t s
        relay = block.mixer.cost(n).relay
        if relay:  # into the state at its own place, then from one to the next
            state = torch.arange(n) // relay
            along = torch.stack([(steps[: t + 1] + 1 + state[t] - state[: t + 1]).min() for t in range(n)])
        else:
            along = (torch.where(sees, steps, math.inf) + 1).amin(1)
        steps = torch.minimum(steps, along) if block.spec.residual else along
    wanted = None if steps[-1].isinf() else int(steps[-1])
    assert cost(spec, n).path == wanted


def floats_of(state):
    """The numbers of a state that are not whole, in one row."""
    found = []
    state.mapped(lambda value: (found.append(value.flatten()) if value.is_floating_point() else None, value)[1])
    return torch.cat(found) if found else torch.zeros(0)


@pytest.mark.parametrize("name", [name for name in ONE_STACK if name.startswith("mixer-") and name in CAUSAL])
def test_a_path_is_through_every_state_where_one_is_no_sum_of_the_one_before(name):
    """Whether what follows the mean of two pasts is the mean of what follows each, of a mixer that sees everything. The
    pasts differ in what is far away: what is near may enter by a convolution before."""
    model, n = built(name).double(), 12
    block, generator = model.blocks[0], torch.Generator().manual_seed(6)
    texts = torch.randn(1, 1, n, block.dim, generator=generator).double().repeat(2, 1, 1, 1)
    texts[1, :, :5] = torch.randn(1, 5, block.dim, generator=generator).double()
    pasts = []
    for x in texts:
        call = Call(torch.arange(n)[None], plain=True, end=n)
        pasts.append(block.mixer.step(x, block.mixer.empty(1, n + 1, call), call)[1])
    others = []
    pasts[1].mapped(lambda value: (others.append(value), value)[1])
    other = iter(others)
    between = pasts[0].mapped(lambda v: (v + next(other)) / 2 if v.is_floating_point() else (next(other), v)[1].clone())
    x, call = torch.randn(1, 1, block.dim, generator=generator).double(), Call(torch.tensor([[n]]), True, end=n + 1)
    after = [floats_of(block.mixer.step(x, past, call)[1]) for past in (*pasts, between)]
    scale = torch.stack(after).abs().max().clamp(min=1e-30) if len(after[0]) else 1.0
    is_sum = bool(((after[0] + after[1]) / 2 - after[2]).abs().le(1e-9 * scale).all())
    said = block.mixer.cost(n)
    assert said.reach is not None or is_sum == (said.relay == 0)


class Waiting(TorchDispatchMode):
    """Counts how many operations wait for one another before a tensor is known."""

    def __init__(self):
        super().__init__()
        self.depth, self.kept = {}, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        schema = func._schema
        views = not schema.is_mutable and any(one.alias_info is not None for one in schema.arguments)
        most = max((self.depth.get(value.untyped_storage()._cdata, 0) for value in given), default=0)
        for value in tree_leaves(found):
            if isinstance(value, torch.Tensor):
                self.kept.append(value)  # so that no other one comes to lie in its place
                self.depth[value.untyped_storage()._cdata] = most + (not views)
        return found


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_are_computations_that_wait_for_one_another(name):
    """What waits for what in the run of a whole text grows as the steps do, and not at all where they do not."""
    spec = family(name, 16, 4096)
    often = cost(spec, 1024).steps
    lengths = (64, 128, 192) if often >= 1024 else (576, 1024, 1600)  # squares, since chunks may be of √n tokens
    lengths = lengths if often in (1, 2) or often >= 1024 else (1024, 2304, 4096)  # the chunks are the longest way
    model, waits = build_model(spec).eval(), []
    for part in model.modules():
        if isinstance(part, Cell):
            part.has_kernel = False  # one operation to PyTorch, whatever is inside
    for n in lengths:
        tokens = torch.arange(n)[None] % VOCAB_OF_FAMILIES
        with Waiting() as waiting:  # with gradients: without, attention fills a buffer piece by piece to save memory
            model(*[tokens] * (2 if isinstance(model, EncoderDecoder) else 1))
        waits.append(max(waiting.depth.values()))
    steps = [cost(spec, n).steps for n in lengths]
    each = (waits[2] - waits[0]) / max(steps[2] - steps[0], 1)
    assert abs(waits[1] - waits[0] - each * (steps[1] - steps[0])) <= 2
    assert (waits[0] < waits[1] < waits[2]) if steps[0] < steps[2] else (waits[0] == waits[2])


@pytest.mark.parametrize("given", [0, -1, 2.0, "8", True])
def test_a_length_that_is_none_is_refused(given):
    with pytest.raises(InputError, match=r"^n: .* is not allowed; use a whole number from 1 to 16,777,216"):
        cost(CASES["mixer-plain"], given)
