"""Identities 1 and 2 of published_results.md: parts add up to the whole, and deleting one is predictable."""

import pytest
import torch
from torch import Tensor

from contract.cases import assert_same, drawn, stack, tokens_of
from glassformer.edit import replace
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, Model, build_model
from glassformer.nn.channel import GatedSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec, Norm, RMSNormSpec
from glassformer.nn.position import LearnedSpec, RopeSpec
from glassformer.tap import Probe

ATTENTION = AttentionSpec(kv_heads=2, position=RopeSpec(), bias=True, out_bias=True)
STACKS = {
    "layernorm": stack(*[BlockSpec(mixer=ATTENTION)] * 3, embed=EmbedSpec(position=LearnedSpec(), scale=2.0)),
    "rmsnorm": stack(
        *[BlockSpec(mixer=ATTENTION, norm=RMSNormSpec(offset=1.0), channel=GatedSpec())] * 3,
        norm=RMSNormSpec(),
        head=HeadSpec(tied=False, bias=True, scale=0.5),
    ),
    "parallel": stack(*[BlockSpec(mixer=ATTENTION, wiring="parallel")] * 2),
    "post": stack(*[BlockSpec(mixer=ATTENTION, wiring="post")] * 3, norm=None),
    "after": stack(*[BlockSpec(mixer=ATTENTION, wiring="after", norm=RMSNormSpec())] * 2),
    "sandwich": stack(*[BlockSpec(mixer=ATTENTION, wiring="sandwich")] * 2),
    "post, rmsnorm": stack(*[BlockSpec(mixer=ATTENTION, wiring="post", norm=RMSNormSpec())] * 2, norm=LayerNormSpec()),
}


def looked_at(model: Model, tokens: Tensor, *edits) -> dict[str, Tensor]:
    probe = Probe(edits=edits)
    with torch.no_grad():
        model(tokens, probe=probe)
    return probe.values


def through(norm: Norm | None, parts: list[Tensor], values: dict[str, Tensor]) -> list[Tensor]:
    """Each part through a norm whose scale is that of the whole (frozen), and the norm's bias as a part of its own."""
    if norm is None:
        return parts
    scale = values[f"{norm.path}.scale"][..., None]
    parts = [norm.centred(part) * scale * norm.gain for part in parts]
    return parts if norm.bias is None else [*parts, norm.bias.expand_as(parts[0])]


def contributions(model: Model, values: dict[str, Tensor]) -> list[Tensor]:
    """Everything that adds up to the last block's output: embedding, every head, every MLP, biases."""
    parts = [values["embed.token"]]
    if "embed.position" in values:
        parts.append(values["embed.position"])
    for i, block in enumerate(model.blocks):
        heads = [*values[f"blocks.{i}.mixer.head_out"].unbind(2), block.mixer.out.bias.expand_as(parts[0])]
        change = [values[f"blocks.{i}.channel.out"]]
        if block.spec.wiring == "post":
            parts = through(block.mixer_norm, parts + heads, values)
            parts = through(block.channel_norm, parts + change, values)
        else:
            parts = parts + through(block.mixer_out_norm, heads, values)
            parts = parts + through(block.channel_out_norm, change, values)
    return parts


@torch.no_grad()
@pytest.mark.parametrize("name", STACKS)
def test_s19_embedding_heads_and_mlps_sum_to_the_residual_stream_and_to_the_logits(name):
    model = drawn(build_model(STACKS[name]))
    values = looked_at(model, tokens_of(2, 9))
    parts = contributions(model, values)
    assert len(parts) > 4 * len(model.blocks)
    assert_same(torch.stack(parts).sum(0), values[f"blocks.{len(model.blocks) - 1}.resid_out"])
    head = model.head
    direct = [part @ head.weight.T * head.spec.scale for part in through(model.norm, parts, values)]
    if head.bias is not None:
        direct.append(head.bias.expand_as(direct[0]) * head.spec.scale)
    assert_same(torch.stack(direct).sum(0), values["head.logits"], 2e-5)


def test_s19_the_residual_stream_passes_on_what_it_was_given():
    values = looked_at(drawn(build_model(STACKS["layernorm"])), tokens_of(2, 9))
    for i in range(3):
        before, middle, after = (values[f"blocks.{i}.resid_{place}"] for place in ("in", "mid", "out"))
        assert_same(middle - before, values[f"blocks.{i}.mixer.out"], 1e-4)
        assert_same(after - middle, values[f"blocks.{i}.channel.out"], 1e-4)
    assert torch.equal(values["blocks.0.resid_in"], values["embed.out"])
    assert torch.equal(values["blocks.1.resid_in"], values["blocks.0.resid_out"])


@torch.no_grad()
@pytest.mark.parametrize("mixer", [ATTENTION, AttentionSpec(mask=Mask(window=3, sinks=1)), AttentionSpec(sink=True)])
def test_s14_weighted_values_through_the_heads_rows_are_the_head_output(mixer):
    model = drawn(build_model(stack(BlockSpec(mixer=mixer))))
    values = {k.rpartition(".")[2]: v for k, v in looked_at(model, tokens_of(2, 9)).items() if "mixer." in k}
    layer = model.blocks[0].mixer
    v = values["v"].repeat_interleave(layer.heads // layer.groups, 2)
    for h in range(layer.heads):
        rows = layer.out.weight[:, h * layer.width : (h + 1) * layer.width].T  # e d
        edges = values["pattern"][:, h, :, :, None] * (v[:, :, h] @ rows)[:, None]  # b t s d
        assert_same(edges.sum(2), values["head_out"][:, :, h])
        assert_same(values["z"][:, :, h] @ rows, values["head_out"][:, :, h])
    bias = 0 if layer.out.bias is None else layer.out.bias
    assert_same(values["head_out"].sum(2) + bias, values["out"])


@torch.no_grad()
@pytest.mark.parametrize("kind", ["even", "sharp"])
def test_deleting_a_key_moves_the_output_by_a_over_one_minus_a(kind):
    """o' - o = a/(1-a) · (o - u), where the remaining weights are renormalised; in fp64, since a comes close to 1."""
    mixer = AttentionSpec(position=RopeSpec(), scale=0.5 if kind == "even" else 8.0)
    model = drawn(build_model(stack(BlockSpec(mixer=mixer)))).double()
    tokens, name = tokens_of(1, 8), "blocks.0.mixer"
    values = looked_at(model, tokens)
    pattern, z, v = (values[f"{name}.{short}"] for short in ("pattern", "z", "v"))
    largest = 0.0
    for h in range(4):
        for t in range(1, 8):
            for s in range(t + 1):
                a, o, u = pattern[0, h, t, s], z[0, t, h], v[0, s, h]
                if 1 - a < 1e-9:
                    continue
                deleted = looked_at(model, tokens, replace(f"{name}.scores", -torch.inf, h=h, t=t, s=s))
                assert deleted[f"{name}.pattern"][0, h, t, s] == 0
                assert_same(deleted[f"{name}.pattern"][0, h, t].sum(), torch.tensor(1.0).double())
                found, wanted = deleted[f"{name}.z"][0, t, h], o + a / (1 - a) * (o - u)
                assert (found - wanted).abs().max() <= 1e-5 * v.abs().max()
                largest = max(largest, a.item())
    assert largest > (0.99 if kind == "sharp" else 0.3)


def test_deleting_the_only_key_leaves_nothing_to_renormalise():
    model = drawn(build_model(stack(BlockSpec(mixer=AttentionSpec()))))
    name, tokens = "blocks.0.mixer", tokens_of(1, 3)
    assert looked_at(model, tokens)[f"{name}.pattern"][0, :, 0, 0].tolist() == [1.0] * 4
    values = looked_at(model, tokens, replace(f"{name}.scores", -torch.inf, t=0, s=0))
    assert values[f"{name}.pattern"][0, :, 0].abs().max() == 0 and values[f"{name}.z"][0, 0].abs().max() == 0
