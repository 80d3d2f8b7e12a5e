"""The article's statements S1, S2, S9 to S14, S17, S18 and S20 to S22, as far as this core carries them.

S15, S16 lie in test_order, S14 and S19 also in test_exact_sums, the published counts of S2 in unit/test_presets.
"""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contract.cases import VOCAB, assert_same, call_of, drawn, relative_error, source_of, stack, tokens_of, two_stacks
from glassformer.edit import replace
from glassformer.mask import Mask
from glassformer.mixers.attention import Attention, AttentionSpec, CrossSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.channel import ACTIVATIONS, ExpertsSpec, GatedSpec, MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import RMSNormSpec
from glassformer.nn.position import LearnedSpec
from glassformer.tap import Probe

PLAIN = stack(BlockSpec(mixer=AttentionSpec(bias=True)), BlockSpec(mixer=AttentionSpec()))


def looked_at(model, tokens: Tensor, *edits) -> dict[str, Tensor]:
    probe = Probe(edits=edits)
    with torch.no_grad():
        model(tokens, probe=probe)
    return probe.values


def mixer_values(mixer: Attention, x: Tensor, *edits) -> dict[str, Tensor]:
    """Values of one attention that is given vectors directly."""
    probe = Probe(edits=edits)
    with torch.no_grad():
        mixer.parallel(x, call_of(x.shape[1], probe))
    return {name.rpartition(".")[2]: value for name, value in probe.values.items()}


# ---------------------------------------------------------------- parameters


def test_s1_a_step_by_hand_equals_the_optimizers_and_the_input_stays():
    by_hand, by_torch, tokens = drawn(build_model(PLAIN)), drawn(build_model(PLAIN)), tokens_of(2, 9)
    given = tokens.clone()
    optimizer = torch.optim.SGD(by_torch.parameters(), lr=0.1)

    def loss(model):
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    first = loss(by_hand)
    gradients = torch.autograd.grad(first, list(by_hand.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(by_hand.parameters(), gradients, strict=True):
            parameter -= 0.1 * gradient
    loss(by_torch).backward()
    optimizer.step()
    for a, b in zip(by_hand.parameters(), by_torch.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert loss(by_hand) < first
    assert torch.equal(tokens, given) and not tokens.is_floating_point()


D, V = 16, VOCAB
COUNTS = {
    "plain": (stack(BlockSpec(mixer=AttentionSpec())), V * D + 4 * D * D + (8 * D * D + 5 * D) + 2 * 2 * D + 2 * D),
    "grouped heads": (
        stack(BlockSpec(mixer=AttentionSpec(kv_heads=1, head_dim=6, bias=True, out_bias=True), channel=None)),
        V * D + D * 24 + 24 + 2 * (D * 6 + 6) + 24 * D + D + 2 * D + 2 * D,
    ),
    "gated, rms, untied": (
        stack(
            BlockSpec(mixer=AttentionSpec(), channel=GatedSpec(hidden=40), norm=RMSNormSpec()),
            norm=RMSNormSpec(),
            head=HeadSpec(tied=False, bias=True),
        ),
        V * D + 4 * D * D + 3 * 40 * D + 3 * D + V * D + V,
    ),
    "experts": (
        stack(BlockSpec(mixer=AttentionSpec(), channel=ExpertsSpec(expert=GatedSpec(hidden=8), experts=3))),
        V * D + 4 * D * D + 3 * D + 3 * 3 * 8 * D + 3 * 2 * D,
    ),
    "tables": (
        stack(embed=EmbedSpec(position=LearnedSpec(offset=2), previous=True), context=10, norm=None),
        2 * V * D + 12 * D,
    ),
    "sink, smear": (
        stack(BlockSpec(mixer=AttentionSpec(sink=True, smear=True, kv_heads=2), channel=None, norm=None), norm=None),
        V * D + 2 * D * D + 2 * D * D // 2 + 4 + 2,
    ),
    "two stacks, one table": (
        two_stacks(CrossSpec(), share=True),
        # encoder: attention, MLP, 3 norms; decoder: two blocks of 2 attentions, MLP, 3 norms, and the last norm
        V * D + 4 * D * D + (8 * D * D + 5 * D) + 6 * D + 2 * (8 * D * D + 8 * D * D + 5 * D + 6 * D) + 2 * D,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_s2_parameter_counts_follow_the_formulas(name):
    spec, count = COUNTS[name]
    assert sum(p.numel() for p in build_model(spec).parameters()) == count


# ---------------------------------------------------------------- attention


def test_s9_weights_sum_to_one_and_the_output_lies_in_the_hull_of_the_values():
    values = looked_at(drawn(build_model(PLAIN)), tokens_of(2, 9))
    for i in range(2):
        pattern, z, v = (values[f"blocks.{i}.mixer.{short}"] for short in ("pattern", "z", "v"))
        assert (pattern >= 0).all()
        assert_same(pattern.sum(-1), torch.ones(2, 4, 9))
        for t in range(9):
            # A convex sum lies between the extremes in every direction, not only along the axes.
            directions = torch.randn(4, 20, generator=torch.Generator().manual_seed(t))
            reach = v[:, : t + 1] @ directions  # b s h 20
            at = z[:, t] @ directions
            assert (at <= reach.amax(1) + 1e-5).all() and (at >= reach.amin(1) - 1e-5).all()
        assert_same(z[:, 0], v[:, 0])


def test_s10_query_key_and_value_are_three_projections_of_the_same_vector():
    model = drawn(build_model(PLAIN))
    values = looked_at(model, tokens_of(2, 9))
    for i, block in enumerate(model.blocks):
        x = values[f"blocks.{i}.mixer_norm.out"]
        for short in ("q", "k", "v"):
            linear = getattr(block.mixer, short)
            wanted = torch.einsum("btd,fd->btf", x, linear.weight) + (0 if linear.bias is None else linear.bias)
            assert_same(values[f"blocks.{i}.mixer.{short}"].flatten(-2), wanted.detach())


def test_s11_each_of_the_four_steps_follows_from_the_one_before():
    values = looked_at(drawn(build_model(PLAIN)), tokens_of(2, 6))
    q, k, v, dots, scores, pattern, z = (
        values[f"blocks.1.mixer.{short}"] for short in ("q", "k", "v", "dots", "scores", "pattern", "z")
    )
    for t in range(6):
        for h in range(4):
            for s in range(6):
                wanted = sum(q[0, t, h, e].item() * k[0, s, h, e].item() for e in range(4))
                assert dots[0, h, t, s].item() == pytest.approx(wanted, abs=1e-5)
                scaled = dots[0, h, t, s].item() / math.sqrt(4) if s <= t else -math.inf
                assert scores[0, h, t, s].item() == pytest.approx(scaled, rel=1e-6)
            total = sum(math.exp(score) for score in scores[0, h, t].tolist())
            for s in range(6):
                assert pattern[0, h, t, s].item() == pytest.approx(
                    math.exp(scores[0, h, t, s].item()) / total, abs=1e-6
                )
            for e in range(4):
                wanted = sum(pattern[0, h, t, s].item() * v[0, s, h, e].item() for s in range(6))
                assert z[0, t, h, e].item() == pytest.approx(wanted, abs=1e-5)


def entropy(pattern: Tensor) -> float:
    return -(pattern * pattern.clamp(min=1e-30).log()).sum(-1).mean().item()


WIDTHS = (4, 16, 64, 256)


def test_s12_without_scaling_dots_grow_with_the_width_and_the_softmax_becomes_a_spike():
    t, seen = 64, {}
    for width, scaled in itertools.product(WIDTHS, (True, False)):
        x = torch.randn(4, t, width, generator=torch.Generator().manual_seed(width))
        spec = AttentionSpec(heads=1, head_dim=width, mask=Mask(causal=False), scale=None if scaled else 1.0)
        draws = []
        for seed in range(8):
            mixer, generator = Attention(spec, width), torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for parameter in mixer.parameters():  # queries and keys of unit variance
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) / math.sqrt(width))
            values = mixer_values(mixer, x)
            pattern = values["pattern"]
            slope = (pattern * (1 - pattern)).mean().item()  # how much a score can still move its own weight
            draws.append((values["dots"].var().item(), values["scores"].var().item(), entropy(pattern), slope))
        seen[width, scaled] = [sum(numbers) / 8 for numbers in zip(*draws, strict=True)]
    for width in WIDTHS:
        assert 0.6 * width < seen[width, False][0] < 1.5 * width
        assert 0.6 < seen[width, True][1] < 1.5
        assert seen[width, True][2] > 0.8 * math.log(t)
    free = [seen[width, False] for width in WIDTHS]
    assert all(wide[2] < 0.8 * narrow[2] and wide[3] < narrow[3] for narrow, wide in itertools.pairwise(free))
    assert free[-1][2] < 0.1 * math.log(t)


def test_s13_keys_decide_how_much_and_values_decide_what():
    mixer = drawn(Attention(AttentionSpec(kv_heads=2), 16))
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    other = torch.randn(2, 7, 2, 4, generator=torch.Generator().manual_seed(1))
    plain = mixer_values(mixer, x)
    swapped_v = mixer_values(mixer, x, replace("v", other))
    assert torch.equal(swapped_v["pattern"], plain["pattern"])
    wanted = torch.einsum("bhts,bshe->bthe", plain["pattern"], other.repeat_interleave(2, 2))
    assert_same(swapped_v["z"], wanted)
    assert relative_error(swapped_v["z"], plain["z"]) > 0.1
    swapped_k = mixer_values(mixer, x, replace("k", other))
    assert torch.equal(swapped_k["v"], plain["v"])
    scores = torch.einsum("bthe,bshe->bhts", plain["q"], other.repeat_interleave(2, 2)) / 2
    pattern = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf).softmax(-1)
    assert_same(swapped_k["pattern"], pattern)
    assert_same(swapped_k["z"], torch.einsum("bhts,bshe->bthe", pattern, plain["v"].repeat_interleave(2, 2)))


def best_readout_error(heads: int, weights: Tensor) -> float:
    """The share of variance that the best linear read-out of z leaves unexplained, when the last token is to give back
    the first number of key 0 beside the first number of key 1, and looks at the keys with `weights` (`h s`)."""
    mixer = drawn(Attention(AttentionSpec(heads=heads, head_dim=8 // heads, mask=Mask(causal=False)), 4))
    x = torch.randn(500, 3, 4, generator=torch.Generator().manual_seed(2))
    scores = weights.log()[None, :, None].expand(500, heads, 3, 3)
    z = mixer_values(mixer, x, replace("scores", scores))["z"][:, 2].flatten(1)
    wanted = x[:, :2, 0]
    found = z @ torch.linalg.lstsq(z, wanted).solution
    return ((wanted - found).square().sum() / wanted.square().sum()).item()


def test_s14_one_head_fails_where_two_succeed():
    assert best_readout_error(2, torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])) < 1e-9
    grid = [(a / 10, b / 10) for a in range(11) for b in range(11 - a)]
    errors = [best_readout_error(1, torch.tensor([[a, b, 1 - a - b]]).clamp(min=0)) for a, b in grid]
    # One mixture of both keys carries each of two independent numbers half at best.
    assert min(errors) > 0.4


# ---------------------------------------------------------------- the channel mixer


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_s17_the_mlp_widens_activates_and_narrows(activation):
    spec = stack(BlockSpec(mixer=AttentionSpec(), channel=MlpSpec(activation=activation)))
    model = drawn(build_model(spec))
    values, mlp = looked_at(model, tokens_of(1, 5)), model.blocks[0].channel
    x, pre, hidden, out = (
        values[f"blocks.0.{short}"] for short in ("channel_norm.out", "channel.pre", "channel.hidden", "channel.out")
    )
    assert (x.shape[-1], pre.shape[-1], hidden.shape[-1], out.shape[-1]) == (16, 64, 64, 16)
    assert_same(pre, (x @ mlp.up.weight.T + mlp.up.bias).detach())
    for a, b in zip(pre.flatten().tolist(), hidden.flatten().tolist(), strict=True):
        wanted = max(a, 0.0) if activation == "relu" else a * 0.5 * (1 + math.erf(a / math.sqrt(2)))
        assert b == pytest.approx(wanted, abs=1e-6)
    assert_same(out, (hidden @ mlp.down.weight.T + mlp.down.bias).detach())


CHANNELS = [MlpSpec(), GatedSpec(activation="gelu"), ExpertsSpec(experts=3)]


@torch.no_grad()
@pytest.mark.parametrize("channel", CHANNELS, ids=lambda spec: type(spec).__name__)
def test_s17_a_token_alone_gives_the_same_as_in_its_sentence(channel):
    layer = drawn(build_model(stack(BlockSpec(mixer=AttentionSpec(), channel=channel)))).blocks[0].channel
    x = torch.randn(1, 7, 16, generator=torch.Generator().manual_seed(0))
    whole = layer(x, call_of(7))
    for t in range(7):
        assert_same(layer(x[:, t : t + 1], call_of(1))[0, 0], whole[0, t])


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda spec: type(spec).__name__)
def test_s18_the_jacobian_of_the_mlp_is_block_diagonal_and_that_of_attention_is_not(channel):
    block = drawn(build_model(stack(BlockSpec(mixer=AttentionSpec(), channel=channel)))).blocks[0]
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))

    def reach(f) -> Tensor:  # t s: how much output t moves with input s
        return torch.autograd.functional.jacobian(lambda y: f(y[None])[0], x).abs().amax((1, 3))

    alone = reach(lambda y: block.channel(y, call_of(5)))
    assert (alone.diagonal() > 1e-3).all() and (alone - alone.diagonal().diag()).abs().max() == 0
    mixed = reach(lambda y: block.mixer.parallel(y, call_of(5)))
    assert (mixed[torch.ones(5, 5).tril().bool()] > 1e-4).all() and mixed.triu(1).abs().max() == 0


# ---------------------------------------------------------------- the three shapes, the last panel, and use


def test_s20_the_rows_of_cross_attention_lie_over_the_source():
    model, tokens = drawn(build_model(two_stacks(CrossSpec()))), tokens_of(3, 4)
    source, source_pos = source_of(3)
    probe = Probe()
    with torch.no_grad():
        model(source, tokens, source_pos=source_pos, probe=probe)
    pattern = probe.values["decoder.blocks.1.cross.pattern"]
    assert pattern.shape == (3, 4, 4, 7)
    assert_same(pattern.sum(-1), torch.ones(3, 4, 4))
    there = (source_pos >= 0)[:, None, None].expand_as(pattern)
    assert (pattern[~there] == 0).all() and (pattern[there] > 0).all()


def test_s21_logits_are_read_from_the_last_normed_vector_and_become_a_distribution():
    spec = stack(BlockSpec(mixer=AttentionSpec()), head=HeadSpec(tied=False, bias=True, scale=0.5, softcap=4.0))
    model = drawn(build_model(spec))
    values = looked_at(model, tokens_of(2, 5))
    logits = (values["norm.out"] @ model.head.weight.T + model.head.bias).detach() * 0.5
    assert_same(values["head.logits"], 4 * torch.tanh(logits / 4))
    probabilities = values["head.logits"].softmax(-1)
    assert_same(probabilities.sum(-1), torch.ones(2, 5))
    assert (probabilities > 0).all()


def test_s22_static_table_first_dynamic_after_the_layers_parameters_untouched():
    model = drawn(build_model(PLAIN))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    word, one, two = 7, torch.tensor([[1, 2, 7]]), torch.tensor([[3, 4, 7]])
    first, second = looked_at(model, one), looked_at(model, two)
    assert torch.equal(first["embed.out"][0, 2], second["embed.out"][0, 2])
    assert torch.equal(first["embed.out"][0, 2], model.embed.token.weight[word])
    for i in range(2):
        apart = relative_error(first[f"blocks.{i}.resid_out"][0, 2], second[f"blocks.{i}.resid_out"][0, 2])
        assert apart > 0.05
        assert relative_error(first[f"blocks.{i}.mixer.pattern"], second[f"blocks.{i}.mixer.pattern"]) > 0.01
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_every_activation_is_the_published_function():
    x = torch.linspace(-4, 4, 41)
    sigmoid = [1 / (1 + math.exp(-a)) for a in x.tolist()]
    wanted = {
        "relu": [max(a, 0.0) for a in x.tolist()],
        "gelu": [a / 2 * (1 + math.erf(a / math.sqrt(2))) for a in x.tolist()],
        "gelu_tanh": [a / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) for a in x.tolist()],
        "relu2": [max(a, 0.0) ** 2 for a in x.tolist()],
        "silu": [a * s for a, s in zip(x.tolist(), sigmoid, strict=True)],
        "sigmoid": sigmoid,
        "tanh": [math.tanh(a) for a in x.tolist()],
    }
    assert wanted.keys() == ACTIVATIONS.keys()
    for name, numbers in wanted.items():
        assert ACTIVATIONS[name](x).tolist() == pytest.approx(numbers, abs=1e-6), name
