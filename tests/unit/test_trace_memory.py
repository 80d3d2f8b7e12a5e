"""The memory of a trace: within the limit, and within what was announced, by the allocator."""

import math
import re

import pytest
import torch
from quick import quick_first, quick_share
from sheet_models import BIAS, DIM, ROPE, SPECS, model_of, of, pair, stack, tokens_of
from trace_runs import ALL, close, glass, inputs

from glassformer.bench.memory import peak_bytes
from glassformer.call import Call
from glassformer.edit import add, mean, noise, scale, zero
from glassformer.errors import MemoryLimitError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec
from glassformer.nn.channel import ExpertsSpec, GatedSpec, MlpSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.position import AlibiSpec
from glassformer.rerun import QUADRATIC
from glassformer.stored import StoredTrace
from glassformer.tap import Probe
from glassformer.trace import Trace


@pytest.mark.parametrize("name", ["rope", "pair"])
@pytest.mark.parametrize("limit", [13_000, 60_000])
def test_the_memory_limit_is_kept_and_changes_no_number(name, limit):
    spec = stack(*[BlockSpec(mixer=AttentionSpec())] * 6) if name == "rope" else ALL[name]
    model, tokens = model_of(spec), inputs(spec, 12)
    values, _ = glass(model, tokens)
    trace = Trace(model, tokens, limit_bytes=limit)
    refused = []
    for value in values:
        try:
            assert close(trace[value], values[value])
        except MemoryLimitError as error:
            refused.append(value.rpartition(".")[2])
            assert re.search(r"needs [\d,]+ bytes and the limit is", str(error))
        assert trace.stored_bytes <= limit
    assert set(refused) == ({*QUADRATIC, "head_out"} if limit == 13_000 else set())
    output = trace.stacks[-1].output
    assert close(trace.part(output, t=2), values[output][:, 2])
    assert max(trace.difference().values()) < 2e-6 and trace.stored_bytes <= limit
    if name == "rope":
        assert list(trace.stacks[0].kept) == ([0, 2, 4, 6] if limit == 13_000 else [0, 1, 2, 3, 4, 5, 6])


def test_too_little_memory_is_refused_with_the_sizes():
    one = 7 * 2 * DIM * 4
    with pytest.raises(
        MemoryLimitError, match=f"cannot hold two block inputs of {one:,} bytes; allow at least {4 * one:,}"
    ):
        Trace(model_of(SPECS["rope"]), tokens_of(2, 7), limit_bytes=4 * one - 1)
    trace = Trace(model_of(SPECS["rope"]), tokens_of(2, 7), limit_bytes=4 * one)
    with pytest.raises(MemoryLimitError, match=r"trace\.part\('blocks.0.mixer.pattern', h=0, t=slice\(0, \d\)\)"):
        trace["blocks.0.mixer.pattern"]
    with pytest.raises(MemoryLimitError, match=r"blocks.0.mixer.dots needs [\d,]+ bytes"):
        trace.save("never-written.safetensors")


def test_one_row_of_a_long_text_allocates_nothing_quadratic():
    """Measured by PyTorch's own allocator: the largest sum of live bytes while the part is computed."""
    t = 4096
    model = model_of(stack(BlockSpec(mixer=AttentionSpec(heads=4)), context=t))
    trace = Trace(model, tokens_of(1, t), limit_bytes=16 << 20)
    trace.names()
    for short, where in (("pattern", {"h": 1, "t": 4000}), ("scores", {"t": [5, 4000]})):
        peak = peak_bytes(trace.part, f"blocks.0.mixer.{short}", **where)
        assert peak < 16 * t * DIM * 4, peak  # a few block inputs; the n² numbers of one head would be 67 MB
    with pytest.raises(MemoryLimitError):
        trace["blocks.0.mixer.pattern"]


LONG = {
    "plain": AttentionSpec(),
    "window": AttentionSpec(mask=Mask(window=4)),
    "window-both-ways": AttentionSpec(mask=Mask(causal=False, window=4)),
    "window-sinks": AttentionSpec(mask=Mask(window=4, sinks=2)),
    "prefix": AttentionSpec(mask=Mask(prefix=9)),
    "alibi": AttentionSpec(position=AlibiSpec()),
    "alibi-window": AttentionSpec(mask=Mask(window=4), position=AlibiSpec()),
    "relative": AttentionSpec(position=BIAS),
    "relative-one-head": AttentionSpec(heads=1, position=BIAS),
    "softcap": AttentionSpec(softcap=3.0),
    "softcap-sink-relative": AttentionSpec(softcap=3.0, sink=True, position=BIAS, kv_heads=2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", quick_share(LONG, 3, 2))
def test_written_out_attention_needs_what_was_announced(name, dtype):
    """Distances and masks are those of all heads: with one head they are most of it."""
    mixer = LONG[name].changed(heads=8, head_dim=4, kv_heads=None)
    block = BlockSpec(mixer=mixer, channel=None)
    for batch in (1, 2):
        trace = Trace(model_of(stack(block, context=300)).to(dtype), tokens_of(batch, 256))
        beside = 60 * batch * 256 * DIM * 4  # what is linear in the length
        for short in ("scores", "pattern"):
            full = f"blocks.0.mixer.{short}"
            for where in ({"t": slice(0, 128)}, *({"t": slice(0, 128), "h": slice(0, h)} for h in (1, 2, 5))):
                announced = trace._working_bytes(full, t=128, h=where["h"].stop if "h" in where else 8)
                peak = peak_bytes(trace.part, full, **where)
                assert announced / 2 < peak < announced + beside, (short, where, peak, announced)
            trace._cache.clear()
            announced, peak = trace._working_bytes(full), peak_bytes(trace.__getitem__, full)
            trace._cache.clear()
            assert announced / 2 < peak < announced + beside, (short, peak, announced)


@pytest.mark.parametrize("name", quick_share(LONG, 3, 1))
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_run_itself_stays_within_the_limit(name, padded, dtype):
    model = model_of(stack(BlockSpec(mixer=LONG[name]), context=1200)).to(dtype)
    pos, limit = (torch.arange(1200)[None] - 5).clamp(min=-1) if padded else None, dtype.itemsize << 19
    peak = peak_bytes(lambda: Trace(model, tokens_of(1, 1200), pos=pos, limit_bytes=limit))
    assert peak <= limit, peak  # n² numbers would be 6 MB in fp32 for each head, 12 MB in fp64


@pytest.mark.parametrize("name", ["alibi", "relative-one-head", "softcap-sink-relative"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_difference_stays_within_the_limit(name, dtype):
    model, limit = model_of(stack(BlockSpec(mixer=LONG[name]), context=400)).to(dtype), dtype.itemsize << 18
    trace = Trace(model, tokens_of(1, 400), limit_bytes=limit)
    assert peak_bytes(trace.difference) <= limit


@pytest.mark.parametrize("name", LONG)
def test_attention_in_pieces_is_attention_at_once(name):
    model, tokens = model_of(of(LONG[name])), tokens_of(2, 70)
    padded = (torch.arange(70).expand(2, 70) - torch.tensor([[0], [9]])).clamp(min=-1)
    with torch.no_grad():
        for pos, plain in ((torch.arange(70)[None], True), (padded, False)):
            whole = model.run(tokens, Call(pos, plain))
            for room in (1, 40_000, 200_000):
                found = model.run(tokens, Call(pos, plain, room_bytes=room))
                there = (pos >= 0).expand(2, 70)
                assert close(found[there], whole[there]), room


def test_logits_beyond_the_limit_are_taken_by_rows():
    model, tokens = model_of(of(ROPE).changed(vocab=20_000, context=1000)), tokens_of(1, 1000)
    made, limit = [], 2 << 20
    assert peak_bytes(lambda: made.append(Trace(model, tokens, limit_bytes=limit))) <= limit  # all logits are 80 MB
    with torch.no_grad():
        assert close(made[0].part("head.logits", b=0, t=[3, -1]), model(tokens)[0, [3, -1]])
    with pytest.raises(MemoryLimitError, match=r"head.logits needs 80,192,000 bytes"):
        made[0].logits
    for edit in (zero("norm.out", t=3), zero("head.logits", v=3)):
        with pytest.raises(MemoryLimitError, match=f"edit of {edit.name} needs all logits, 80,000,000 bytes"):
            Trace(model, tokens, edits=[edit], limit_bytes=limit)
    early = [scale("blocks.0.resid_out", 2.0, t=3)]
    with torch.no_grad():
        wanted = model(tokens, probe=Probe(lambda name: False, tuple(early)))
    assert close(Trace(model, tokens, edits=early, limit_bytes=limit).part("head.logits", t=-1), wanted[:, -1])


def test_all_logits_are_worked_out_within_the_limit_where_they_fit():
    for head, copies in ((HeadSpec(), 1), (HeadSpec(scale=0.5), 2), (HeadSpec(softcap=3.0), 3)):
        model = model_of(of(ROPE).changed(vocab=20_000, head=head))
        limit = copies * 100 * 20_000 * 4 + 100_000
        assert limit / 2 < peak_bytes(lambda m=model, n=limit: Trace(m, tokens_of(1, 100), limit_bytes=n)) <= limit
        assert Trace(model, tokens_of(1, 100), limit_bytes=limit - 80_000).logits is not None


def test_an_edit_that_needs_all_n_squared_numbers_is_refused_where_they_do_not_fit():
    model, edit = model_of(of(ROPE).changed(context=600)), scale("blocks.1.mixer.pattern", 2.0, t=3)
    with pytest.raises(MemoryLimitError, match=r"edit of blocks.1.mixer.pattern needs 36,115,200 bytes at once"):
        Trace(model, tokens_of(1, 600), edits=[edit], limit_bytes=4 << 20)
    pair_model = model_of(pair())
    edit = scale("decoder.blocks.0.cross.scores", 2.0)
    needed = (6 * 4 * 4 + 4) * 50 * 60 + (3 * 60 + 3 * 50) * DIM * 4  # with the block inputs and the memory
    with pytest.raises(MemoryLimitError, match=rf"decoder.blocks.0.cross.scores needs {needed:,} bytes"):
        Trace(pair_model, (tokens_of(1, 60), tokens_of(1, 50)), edits=[edit], limit_bytes=150_000)


EDIT_KINDS = [lambda n: scale(n, 2.0), zero, lambda n: noise(n, 1.0), lambda n: add(n, 0.5), mean]


def sufficient(work, limit: int) -> int:
    """The limit with which `work(limit)` is not refused, as the refusals name it, starting with too small a one."""
    for _ in range(4):
        try:
            work(limit)
        except MemoryLimitError as error:
            limit = int(re.search(r"needs ([\d,]+) bytes", str(error))[1].replace(",", ""))
        else:
            return limit
    raise AssertionError("what a refusal names never suffices")


@pytest.mark.parametrize("short", quick_share(["dots", "scores", "pattern", "head_out"], 2, 1))
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("mixer", [AttentionSpec(heads=8), LONG["relative-one-head"], LONG["alibi-window"]])
def test_what_an_edit_is_said_to_need_suffices(short, padded, mixer):
    long = 300 if short != "head_out" else 40
    block = BlockSpec(mixer=mixer, channel=None)
    model, tokens = model_of(stack(block, dim=256 if short == "head_out" else DIM, context=300)), tokens_of(1, long)
    pos = (torch.arange(long)[None] - 5).clamp(min=-1) if padded else None
    beside = peak_bytes(lambda: Trace(model, tokens, pos=pos))
    for kind in EDIT_KINDS:
        edits, made = [kind(f"blocks.0.mixer.{short}")], []

        def work(limit, edits=edits, made=made):
            made[:] = [Trace(model, tokens, pos=pos, edits=edits, limit_bytes=limit)]
            made[0].difference()

        limit = sufficient(work, 6 * 4 * long * model.spec.dim)
        assert limit > 6 * 4 * long * model.spec.dim
        assert limit / 2 < peak_bytes(work, limit) <= limit + beside


def test_many_values_one_after_the_other_stay_within_the_limit(tmp_path):
    model, tokens = model_of(stack(*[BlockSpec(mixer=AttentionSpec())] * 6, context=300)), tokens_of(1, 300)
    beside = peak_bytes(lambda: Trace(model, tokens))  # with all that one block makes
    limit = sufficient(lambda n: Trace(model, tokens, limit_bytes=n)["blocks.0.mixer.pattern"], 1 << 20)
    trace = Trace(model, tokens, limit_bytes=limit)
    names = trace.names()
    assert sum(4 * math.prod(size for _, size in trace.sizes(name)) for name in names) > 3 * limit
    assert limit / 2 < peak_bytes(lambda: [trace[name].ndim for name in names]) <= limit + beside
    trace = Trace(model, tokens, limit_bytes=limit)
    trace.names()
    assert limit / 2 < peak_bytes(trace.save, tmp_path / "all.safetensors") <= limit + beside
    back = StoredTrace(tmp_path / "all.safetensors")
    assert back.names() == names and torch.equal(back["blocks.5.mixer.pattern"], trace["blocks.5.mixer.pattern"])


EXPERTS = {
    "gated": ("pre", ExpertsSpec(expert=GatedSpec(hidden=256), experts=8)),
    "relu2": ("post", ExpertsSpec(expert=MlpSpec(activation="relu2", hidden=512), experts=8, active=1)),
    "narrow": ("parallel", ExpertsSpec(expert=MlpSpec(hidden=1), experts=16, active=1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", quick_first(EXPERTS, ["gated"]))
def test_the_difference_of_experts_stays_within_the_limit(name, dtype):
    """All experts for all tokens at once take several times what the run needs, where each token has one or two."""
    wiring, channel = EXPERTS[name]
    norm = LayerNormSpec() if wiring == "pre" else None
    block = BlockSpec(mixer=AttentionSpec(), channel=channel, wiring=wiring, norm=norm)
    model, tokens = model_of(stack(block, context=1000)).to(dtype), tokens_of(2, 500)
    beside, limit = peak_bytes(lambda: Trace(model, tokens)), 1 << 19
    trace = Trace(model, tokens, limit_bytes=limit)
    trace.names()
    assert peak_bytes(trace.difference) <= limit + beside
    assert trace.difference()["blocks.0.channel.out"] < (1e-5 if dtype == torch.float32 else 0.05)


def test_an_edit_within_experts_is_compared_in_one_piece_or_refused():
    model, tokens = model_of(of(ROPE, channel=EXPERTS["relu2"][1])), tokens_of(1, 200)
    places = [mean("blocks.0.channel.weights"), noise("blocks.1.channel.router", 0.1, t=3)]
    for edit in (*places, zero("blocks.0.channel.out", t=5)):
        assert max(Trace(model, tokens, edits=[edit]).difference().values()) < 1e-5
        with pytest.raises(MemoryLimitError, match=rf"{edit.name[:8]}.channel.out needs [\d,]+ bytes"):
            Trace(model, tokens, edits=[edit], limit_bytes=200_000).difference()
    inside = Trace(model, tokens, edits=[mean("blocks.0.channel.experts.0.pre")], limit_bytes=200_000)
    assert inside.difference()["blocks.0.channel.out"] == 0  # the run was written out as well


@pytest.mark.parametrize("channel", [None, ExpertsSpec()])
def test_the_difference_of_a_wide_model_stays_within_the_limit(channel):
    block = BlockSpec(mixer=AttentionSpec(heads=16), channel=channel)
    model, tokens = model_of(stack(block, dim=512)), tokens_of(1, 16)
    limit, beside = 196_608, peak_bytes(lambda: Trace(model, tokens))
    trace = Trace(model, tokens, limit_bytes=limit)
    trace.names()
    assert peak_bytes(trace.difference) <= limit + beside
