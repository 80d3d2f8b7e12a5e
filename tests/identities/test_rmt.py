"""The Recurrent Memory Transformer: segments by hand through ordinary blocks, what passes between them, its traces."""

import pytest
import torch

from contract.cases import VOCAB, assert_same, call_of, drawn, relative_error, run, stack, tokens_of
from glassformer.call import Call
from glassformer.edit import zero
from glassformer.errors import SettingError
from glassformer.explain.cost import cost
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.rmt import Rmt, RmtSpec
from glassformer.model import Block, BlockSpec, build_model
from glassformer.nn.channel import GatedSpec
from glassformer.nn.position import RopeSpec
from glassformer.tap import Probe
from glassformer.trace import Trace

SEGMENT, MEMORY, DIM, T = 4, 3, 16, 11
ATTENTION = AttentionSpec(position=RopeSpec(), kv_heads=2)
SPEC = RmtSpec(layers=2, segment=SEGMENT, memory=MEMORY, attention=ATTENTION, channel=GatedSpec())


def model(spec: RmtSpec = SPEC, seed: int = 0) -> torch.nn.Module:
    return drawn(build_model(stack(BlockSpec(mixer=spec, channel=None, norm=None, residual=False), norm=None)), seed)


@torch.no_grad()
def test_segments_by_hand_through_ordinary_blocks():
    """[M, H, M] through blocks of the model's own, which see all that is before; the second M is the next one."""
    mixer = drawn(Rmt(SPEC, DIM)).double()
    for name, part in mixer.named_modules():
        part.path = name or "mixer"
    blocks = []
    for layer in mixer.layers:
        block = Block(BlockSpec(mixer=ATTENTION, channel=SPEC.channel), DIM).double()
        names = {"attention_norm": "mixer_norm", "attention": "mixer"}
        weights = {}
        for name, value in layer.state_dict().items():
            head, _, rest = name.partition(".")
            weights[f"{names.get(head, head)}.{rest}"] = value
        block.load_state_dict(weights)
        blocks.append(block)
    x = torch.randn(1, T, DIM, generator=torch.Generator().manual_seed(1)).double()
    memory, out = mixer.memory[None], []
    for segment in x.split(SEGMENT, 1):
        line = torch.cat((memory, segment, memory), 1)
        for block in blocks:
            line, _ = block(line, call_of(line.shape[1]))
        line = mixer.norm(line, call_of(line.shape[1]))
        out.append(line[:, MEMORY:-MEMORY])
        memory = line[:, -MEMORY:]
    wanted = torch.cat(out, 1)
    for probe in (None, Probe()):
        assert_same(mixer.parallel(x, call_of(T, probe)), wanted, 1e-12)
    state, parts = mixer.empty(1, T, call_of(1)), []
    for i in range(T):  # without a model, which knows the position after the last one
        part, state = mixer.step(x[:, i : i + 1], state, Call(torch.tensor([[i]]), plain=True))
        parts.append(part)
    assert_same(torch.cat(parts, 1), wanted, 1e-12)


@torch.no_grad()
def test_memory_is_the_only_way_between_segments():
    tokens, other = tokens_of(1, T), tokens_of(1, T)
    other[:, 1] = (other[:, 1] + 1) % VOCAB
    m, written = model(), "blocks.0.mixer.written"
    for edits, reaches in (((), True), ((zero(written),), False), ((zero(written, t=SEGMENT - 1),), False)):
        a, b = (run(m, x, probe=Probe(edits=edits)) for x in (tokens, other))
        assert relative_error(a[:, :SEGMENT], b[:, :SEGMENT]) > 1e-3
        assert (relative_error(a[:, SEGMENT:], b[:, SEGMENT:]) > 1e-3) == reaches
    # So each segment between the first token and the last is a step of the path, in one mixer as in a stack of two.
    assert [cost(m.spec, n).path for n in (1, SEGMENT, SEGMENT + 1, T)] == [1, 1, 2, 3]
    two = m.spec.changed(blocks=(BlockSpec(mixer=AttentionSpec(mask=Mask(window=9))), *m.spec.blocks))
    assert cost(two, T).path == 2  # 8 tokens on, into the last segment, and through its state
    # A place within a segment writes nothing.
    assert_same(run(m, tokens, probe=Probe(edits=(zero(written, t=1),))), run(m, tokens))


@torch.no_grad()
def test_what_layers_tap_is_one_value_over_the_text():
    m, tokens, probe = model(), tokens_of(2, T), Probe()
    run(m, tokens, probe=probe)
    at = "blocks.0.mixer.layers.1.attention"
    pattern, v = probe.values[f"{at}.pattern"], probe.values[f"{at}.v"]
    assert pattern.shape == (2, 4, T, T) and v.shape == (2, T, 2, 4)
    segment = torch.arange(T) // SEGMENT
    seen = (segment[:, None] == segment) & (torch.arange(T)[:, None] >= torch.arange(T))
    assert torch.equal(pattern > 0, seen.expand_as(pattern))
    assert torch.equal(probe.values[f"{at}.scores"].isfinite(), seen.expand_as(pattern))
    rest = 1 - pattern.sum(-1)  # what the memory takes
    assert rest.min() > 0 and rest.max() < 1
    written = probe.values["blocks.0.mixer.written"]
    ends = torch.arange(T) % SEGMENT == SEGMENT - 1
    assert written[:, ends].abs().min() > 0 and written[:, ~ends].abs().max() == 0
    assert written.shape[-1] == MEMORY * DIM


@torch.no_grad()
def test_a_trace_recomputes_every_value_and_edits_them():
    m, tokens = model(), tokens_of(2, T)
    for edits in ((), (zero("blocks.0.mixer.layers.0.attention.v", s=slice(3, 6)),)):
        trace, probe = Trace(m, tokens, edits=edits), Probe(edits=edits)
        run(m, tokens, probe=probe)
        assert trace.names() == list(probe.values)
        for name, value in probe.values.items():
            assert_same(trace[name].nan_to_num(neginf=0), value.nan_to_num(neginf=0))
            assert dict(trace.sizes(name)) == dict(zip(trace.axes(name).split(), value.shape, strict=True))
        name = "blocks.0.mixer.layers.1.attention.pattern"
        assert_same(trace.part(name, t=9, h=1), probe.values[name][:, 1, 9])
        assert max(trace.difference().values()) < 2e-6


@torch.no_grad()
def test_rows_of_different_length_tap_what_each_alone_would():
    m, tokens = model(), tokens_of(2, 9)
    pos = torch.tensor([[-1, -1, 0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, -1, 4, 5, -1, -1]])
    together = Probe()
    run(m, tokens, pos=pos, probe=together)
    for i, there in enumerate(pos >= 0):
        alone = Probe()
        run(m, tokens[i, there][None], probe=alone)
        for name, value in alone.values.items():
            found = together.values[name][i : i + 1]
            for axis, letter in enumerate(together.axes[name].split()):
                if letter in ("t", "s"):
                    found = found.index_select(axis, there.nonzero()[:, 0])
            assert_same(found.nan_to_num(neginf=0), value.nan_to_num(neginf=0))


@pytest.mark.parametrize("attention", [AttentionSpec(mask=Mask(window=3)), AttentionSpec(smear=True)])
def test_a_mask_of_its_own_is_refused(attention):
    with pytest.raises(SettingError, match=r"^attention: here the segments are the mask"):
        RmtSpec(attention=attention)
