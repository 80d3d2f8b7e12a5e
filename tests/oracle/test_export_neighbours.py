"""Models whose RoPE turns neighbours, written as families that turn numbers half a head apart."""

import os
from pathlib import Path

import pytest
import torch
from published import LOGITS, lively, tokens, transformers

import glassformer as gf
from glassformer.checkpoint import filled
from glassformer.hf import export
from glassformer.hf.rope import in_halves
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, EncoderDecoderSpec, ModelSpec
from glassformer.nn.channel import GatedSpec, MlpSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import Llama3Scaling, RopeSpec, YarnScaling

STORIES = Path(os.environ.get("GLASSFORMER_DATA", "data")) / "stories260k"
VOCAB = 96
GATED, RMS, NORM = GatedSpec(hidden=48), RMSNormSpec(), LayerNormSpec()
ROPE = RopeSpec(pairing="neighbours")
GROUPED = {"heads": 4, "kv_heads": 2, "position": ROPE}


def decoder(wiring="pre", channel=GATED, norm=RMS, **attention):
    block = BlockSpec(mixer=AttentionSpec(**attention), channel=channel, norm=norm, wiring=wiring)
    spec = ModelSpec(vocab=VOCAB, dim=32, blocks=(block,) * 2, context=64, norm=norm, head=HeadSpec(tied=False))
    return gf.build(spec)


EXPORTED = {
    "llama": decoder(**GROUPED | {"position": ROPE.changed(scaling=Llama3Scaling(original=16))}),
    "mistral": decoder(**GROUPED | {"mask": Mask(window=8), "position": ROPE.changed(scaling=YarnScaling(factor=4.0))}),
    "qwen2": decoder(bias=True, **GROUPED),
    "qwen3": decoder(qk_norm=RMS, **GROUPED),
    "olmo2": decoder("after", qk_norm=RMS, qk_norm_over="all", **GROUPED),
    "gpt_neox": decoder(
        "parallel",
        MlpSpec(hidden=48),
        NORM,
        **{"heads": 2, "bias": True, "out_bias": True, "position": ROPE.changed(share=0.5)},
    ),
}


@pytest.mark.parametrize("family", EXPORTED)
@torch.no_grad()
def test_transformers_gives_the_same_logits_and_so_does_what_comes_back(family, tmp_path):
    loaded, ids = EXPORTED[family], tokens(VOCAB, 24)
    lively(loaded.model)
    config = loaded.export(tmp_path / "out", family=family)
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    wanted, back = loaded.model(ids), gf.load(tmp_path / "out")
    assert type(other).__name__ == config["architectures"][0] and config["model_type"] == family
    assert (other(ids).logits - wanted).abs().max() <= LOGITS
    assert (back.model(ids) - wanted).abs().max() <= LOGITS
    assert {block.mixer.position.pairing for block in back.spec.blocks} == {"halves"}
    assert {block.mixer.position.pairing for block in loaded.spec.blocks} == {"neighbours"}


LAYERS = {"qk_norm": NORM, "bias": True, **GROUPED}
UNPUBLISHED = {
    "norms with biases": decoder(**LAYERS),
    "of all heads, partly turned": decoder(
        smear=True, qk_norm_over="all", **LAYERS | {"position": ROPE.changed(share=0.5)}
    ),
}


@pytest.mark.parametrize("name", UNPUBLISHED)
@torch.no_grad()
def test_what_no_family_can_be_is_the_same_in_halves_too(name):
    loaded, ids = UNPUBLISHED[name], tokens(VOCAB, 24)
    lively(loaded.model)
    spec, tensors = in_halves(loaded.model)
    assert spec != loaded.spec and "neighbours" not in str(spec)
    assert (filled(spec, tensors, Path(), "cpu")(ids) - loaded.model(ids)).abs().max() <= LOGITS


@torch.no_grad()
def test_both_stacks_of_an_encoder_decoder():
    stack = EXPORTED["llama"].spec
    encoder = stack.changed(
        head=None, blocks=tuple(one.changed(mixer=one.mixer.changed(mask=Mask(causal=False))) for one in stack.blocks)
    )
    cross = gf.build("t5", vocab=VOCAB, dim=32, blocks=2, heads=4).spec.decoder.blocks[0].cross
    writer = stack.changed(blocks=tuple(one.changed(cross=cross) for one in stack.blocks))
    loaded = gf.build(EncoderDecoderSpec(encoder=encoder, decoder=writer))
    lively(loaded.model)
    spec, tensors = in_halves(loaded.model)
    given = tokens(VOCAB, 9), tokens(VOCAB, 12, seed=1)
    assert "neighbours" in str(loaded.spec) and "neighbours" not in str(spec)
    assert (filled(spec, tensors, Path(), "cpu")(*given) - loaded.model(*given)).abs().max() <= LOGITS


def test_halves_are_written_as_they_are():
    loaded = decoder(**GROUPED | {"position": RopeSpec()})
    _, tensors = export(loaded.model)
    assert torch.equal(tensors["model.layers.0.self_attn.q_proj.weight"], loaded.model.blocks[0].mixer.q.weight)


@pytest.mark.skipif(not STORIES.is_dir(), reason="needs the data set stories260k")
@torch.no_grad()
def test_a_model_of_llama2c_tells_the_same_story_there_with_the_same_tokens(tmp_path):
    loaded = gf.load(STORIES)
    loaded.export(tmp_path / "out")
    other, tokenizer = (
        kind.from_pretrained(tmp_path / "out") for kind in (transformers.LlamaForCausalLM, transformers.AutoTokenizer)
    )
    back = gf.load(tmp_path / "out")
    for text in ("Once upon a time", "Lily's  big, red ball!\nShe", "고양이가 생선을", "<s> a", "ß~€"):
        ids = loaded.encode(text)
        assert tokenizer(text).input_ids == ids == back.encode(text)
        assert tokenizer.decode(ids, skip_special_tokens=True) == loaded.tokenizer.decode(ids)
        wanted = loaded(ids)
        for found in (other(torch.tensor([ids])).logits, back(ids)):
            assert (found - wanted).abs().max() <= 5e-5 * wanted.abs().max()
    ids = loaded.encode("Once upon a time")
    written = other.generate(torch.tensor([ids]), max_new_tokens=60, do_sample=False)[0, len(ids) :].tolist()
    for one in (loaded, back):
        assert [event.token for event in one.generate([ids], max_new_tokens=60, temperature=0)] == written
