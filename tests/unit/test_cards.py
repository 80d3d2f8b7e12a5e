"""Cards say what this very module computes: checked at settings off the defaults."""

import pytest
import torch

from contract.cases import CASES, kept, stack, two_stacks
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.mixers.recurrent import GruSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.channel import ExpertsSpec, GatedSpec, MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import AlibiSpec, LearnedSpec, RelativeBiasSpec, RopeSpec, SinusoidalSpec
from glassformer.tap import Probe
from glassformer.trace import Trace

BIAS = RelativeBiasSpec(buckets=8, max_distance=8)
FORMULAS = {
    "embed.out": {
        "E[x_t]": EmbedSpec(),
        "E[x_t] + p_t": EmbedSpec(position=LearnedSpec()),
        "norm(2 · E[x_t] + E'[x_{t−1}] + p_t)": EmbedSpec(
            scale=2.0, previous=True, position=SinusoidalSpec(), norm=LayerNormSpec()
        ),
    },
    "embed.position": {
        "sin(t/50^{2i/d}), cos(…)": EmbedSpec(position=SinusoidalSpec(base=50.0)),
        "P[t], a learned row": EmbedSpec(position=LearnedSpec()),
        "P[t+2], a learned row": EmbedSpec(position=LearnedSpec(offset=2)),
    },
    "blocks.0.mixer.scores": {
        "q_i·k_j / √d_k": AttentionSpec(),
        "q_i·k_j + b_h(j−i)": AttentionSpec(scale=1.0, position=BIAS),
        "0.3 q_i·k_j": AttentionSpec(scale=0.3),
        "q_i·k_j / √d_k − m_h|i−j|": AttentionSpec(position=AlibiSpec()),
        "5 tanh(q_i·k_j / √d_k / 5)": AttentionSpec(softcap=5.0),
    },
    "blocks.0.mixer.k": {
        "x_j W_K": AttentionSpec(),
        "R_j smear(norm(x_j W_K + b))": AttentionSpec(
            bias=True, qk_norm=RMSNormSpec(), smear=True, position=RopeSpec()
        ),
    },
    "blocks.0.mixer.pattern": {
        "softmax_j(s_ij)": AttentionSpec(),
        "exp(s_ij) / (exp(sink_h) + Σ_j exp(s_ij))": AttentionSpec(sink=True),
    },
    "blocks.0.mixer.out": {
        "Concat(z) W_O": AttentionSpec(bias=True),
        "Concat(z) W_O + b_O": AttentionSpec(out_bias=True),
    },
    "blocks.0.channel.out": {
        "σ(xW₁+b₁)W₂+b₂": MlpSpec(),
        "σ(xW₁)W₂": MlpSpec(bias=False),
        "(σ(xW_g)⊙xW₁)W₂": GatedSpec(),
        "(σ(xW_g+b_g)⊙(xW₁+b₁))W₂+b₂": GatedSpec(bias=True),
        "Σ_m w_m · FFN_m(x)": ExpertsSpec(),
    },
    "norm.out": {
        "(x−μ)/σ · w + b": LayerNormSpec(),
        "(x−μ)/σ": LayerNormSpec(weight=False, bias=False),
        "x/rms(x) · (1+w)": RMSNormSpec(offset=1.0),
    },
    "head.logits": {
        "norm(x) W_U": HeadSpec(),
        "3 · tanh((0.5 · (norm(x) W_U + b))/3)": HeadSpec(tied=False, bias=True, scale=0.5, softcap=3.0),
    },
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_are_those_of_the_module(name):
    layer, _, short = name.rpartition(".")
    for formula, part in FORMULAS[name].items():
        block, more = BlockSpec(mixer=AttentionSpec()), {}
        if layer.endswith("mixer"):
            block = block.changed(mixer=part)
        elif layer.endswith("channel"):
            block = block.changed(channel=part)
        else:
            more = {layer: part}
        assert build_model(stack(block, **more)).get_submodule(layer).cards[short].formula == formula


def test_what_a_sentence_says_of_weights_and_masks_is_true():
    def card(spec, name):
        layer, _, short = name.rpartition(".")
        return build_model(spec).get_submodule(layer).cards[short]

    assert "weighted" in card(stack(), "norm.out").en and "가중치" in card(stack(), "norm.out").ko
    bare = card(stack(norm=RMSNormSpec(weight=False)), "norm.out")
    assert "weighted" not in bare.en and "가중치" not in bare.ko
    full = stack(BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False))))
    assert "mask" not in card(full, "blocks.0.mixer.scores").en
    assert (
        "less a multiple of the distance"
        in card(stack(BlockSpec(mixer=AttentionSpec(position=AlibiSpec()))), "blocks.0.mixer.scores").en
    )
    assert "mask" not in card(two_stacks(CrossSpec()), "decoder.blocks.0.cross.scores").en
    assert card(stack(norm=None), "head.logits").formula == "x W_U"
    wiring = BlockSpec(mixer=AttentionSpec(), wiring="post")
    assert card(stack(wiring), "blocks.0.resid_mid").symbol == "norm(x + MultiHead)"
    assert card(stack(wiring.changed(norm=None)), "blocks.0.resid_mid").formula == "x_l = x_0 + Σ changes"
    assert card(stack(wiring.changed(residual=False)), "blocks.0.resid_out").formula == "norm(FFN)"
    for wiring in ("after", "sandwich"):
        spec = stack(BlockSpec(mixer=AttentionSpec(), wiring=wiring))
        assert card(spec, "blocks.0.resid_mid").symbol == "x + norm(MultiHead)"
        assert card(spec, "blocks.0.resid_out").formula == "x_l = x_0 + Σ changes"
        assert card(spec, "blocks.0.channel_out_norm.out").symbol == "norm(FFN)"
        assert "added" in card(spec, "blocks.0.mixer_out_norm.out").en
        assert "normed" in card(spec, "blocks.0.mixer.out").en
        assert "before it is normed" in card(spec, "blocks.0.mixer.head_out").en


def test_a_block_that_changes_the_width_says_what_goes_past_its_mixer():
    block = BlockSpec(mixer=GruSpec(), width=20)
    cards = build_model(stack(block, head=HeadSpec(tied=False))).blocks[0].cards
    assert cards["resid_mid"].formula == "x W_s + GRU" and cards["resid_out"].formula == "x + FFN"
    bare = build_model(stack(block.changed(residual=False), head=HeadSpec(tied=False))).blocks[0].cards
    assert bare["resid_mid"].formula == "GRU"


def test_what_a_sentence_says_of_gates_experts_and_residuals_is_true():
    def cards(**settings):
        block = build_model(stack(BlockSpec(mixer=AttentionSpec(), **settings))).blocks[0]
        return block, block.channel.cards

    _, plain = cards(channel=MlpSpec())
    _, gated = cards(channel=GatedSpec())
    assert "before the activation" in plain["pre"].en and "after the activation" in plain["hidden"].en
    assert "before the gate" in gated["pre"].en and "after the gate" in gated["hidden"].en
    assert all("게이트" in gated[short].ko and "활성화" not in gated[short].ko for short in ("pre", "hidden"))
    for kind in (MlpSpec(), GatedSpec()):
        block, mixed = cards(channel=ExpertsSpec(expert=kind))
        answer = block.channel.experts[1].cards["out"]
        assert "router weight" in answer.en and "라우터 가중치" in answer.ko and answer.formula != mixed["out"].formula
    for wiring in ("pre", "post", "parallel", "after", "sandwich"):
        block, bare = cards(wiring=wiring, residual=False)
        said = [*block.cards.values(), bare["out"], block.mixer.cards["out"]]
        assert not [card for card in said if " adds " in card.en or "더" in card.ko.replace("더라도", "")]
        block, _ = cards(wiring=wiring)
        assert " adds " in block.mixer.cards["out"].en or block.spec.norms_out


@pytest.mark.parametrize("name", CASES)
def test_a_module_has_cards_for_exactly_what_it_taps(name):
    """Run over the source and the target as the laws do; the norms of QK and of a rework have no taps of their own."""
    from contract.cases import run, tokens_of

    probe = Probe()
    with torch.no_grad():
        run(kept(name), tokens_of(1, 4), probe=probe)
    for path, module in kept(name).named_modules():
        if not path.endswith(("q_norm", "k_norm", "rework.norm")):
            tapped = {full.rpartition(".")[2] for full in probe.values if full.rpartition(".")[0] == path}
            assert set(getattr(module, "cards", {})) == tapped, path


def test_models_and_traces_show_themselves_in_a_line():
    model = build_model(stack(BlockSpec(mixer=AttentionSpec()))).eval()
    assert repr(model) == f"<Model of 1 blocks of width 16: {sum(p.numel() for p in model.parameters()):,} parameters>"
    assert repr(Trace(model, torch.tensor([[1, 2, 3]]))) == "<Trace of 1×3 tokens through 1 layers, 0 edits>"
    assert repr(build_model(two_stacks(CrossSpec()))).count("\n") == 0
