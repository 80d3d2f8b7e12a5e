"""An edit of the positions: every position signal taken away, turned round and shifted, each against another model."""

import math

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from glassformer.generate import GenerateSpec, WithoutText, generate
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.mixers.linear import LinearSpec
from glassformer.mixers.recurrent import LstmSpec
from glassformer.mixers.rmt import RmtSpec
from glassformer.model import BlockSpec, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.position import (
    AlibiSpec,
    LearnedSpec,
    RelativeBiasSpec,
    RelativeSinusoidSpec,
    RopeSpec,
    SinusoidalSpec,
)
from glassformer.positions import signals
from glassformer.trace import Trace

VOCAB, DIM, N = 23, 16, 11
IDS = torch.randint(VOCAB, (2, N), generator=torch.Generator().manual_seed(7))
BIAS = RelativeBiasSpec(buckets=8, max_distance=8)
SCORED = {
    "rope": RopeSpec(),
    "rope of neighbours": RopeSpec(pairing="neighbours"),
    "rope of a part": RopeSpec(share=0.5),
    "alibi": AlibiSpec(),
    "relative": BIAS,
}
MASKS = {"causal": Mask(), "both ways": Mask(causal=False), "window": Mask(window=3), "prefix": Mask(prefix=4)}


def model_of(mixer, position=None):
    blocks = tuple(BlockSpec(mixer=mixer) for _ in range(2))
    spec = ModelSpec(vocab=VOCAB, dim=DIM, blocks=blocks, context=64, embed=EmbedSpec(position=position))
    return grown(build_model(spec))


def grown(model):
    """With weights so large that a mistake moves the output far."""
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=drawn) * (0.6 if p.ndim < 2 else 1.5 / math.sqrt(p.shape[-1])))
    return model.eval()


def run(model, *edits, ids=IDS, **how):
    return Trace(model, ids, edits=edits, **how)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def without(model, other):
    """The other model with all weights of the first that it has."""
    other.load_state_dict(other.state_dict() | {k: v for k, v in model.state_dict().items() if k in other.state_dict()})
    return other


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SCORED)
def test_at_one_place_there_is_no_signal_in_the_scores(name, mask):
    """As a model with the same weights that was built with no position; what a token may see stays as it is."""
    own = model_of(AttentionSpec(heads=2, mask=MASKS[mask], position=SCORED[name]))
    bare = without(own, model_of(AttentionSpec(heads=2, mask=MASKS[mask])))
    plain, edited = run(own), run(own, gf.zero("positions"))
    close(edited.logits, run(bare).logits)
    assert (edited.logits - plain.logits).abs().max() > 0.01  # a hundred times what rounding leaves
    close(edited["blocks.1.mixer.pattern"], run(bare)["blocks.1.mixer.pattern"])  # written out, not the fast path
    dark = plain["blocks.0.mixer.scores"].isneginf()
    assert torch.equal(dark, edited["blocks.0.mixer.scores"].isneginf())
    close(edited.part("blocks.1.mixer.pattern", t=[2, 9], h=1), edited["blocks.1.mixer.pattern"][:, 1, [2, 9]])
    assert max(edited.difference().values()) < 1e-4


@pytest.mark.parametrize("name", ["rope", "alibi", "relative"])
def test_no_model_that_looks_both_ways_notices_from_which_end_positions_are_counted(name):
    """Turned round: where nothing forbids a look, as the model called with these positions."""
    own = model_of(AttentionSpec(heads=2, mask=Mask(causal=False), position=SCORED[name]))
    turned = run(own, gf.scale("positions", -1), gf.add("positions", N - 1))
    with torch.no_grad():
        wanted = own(IDS, pos=torch.arange(N - 1, -1, -1).expand(2, -1))
    close(turned.logits, wanted)
    if name != "alibi":  # which knows no direction
        assert (turned.logits - run(own).logits).abs().max() > 0.1
    close(run(own, gf.add("positions", 9)).logits, run(own).logits)  # relative to each other nothing has moved


@pytest.mark.parametrize("position", [LearnedSpec(offset=2), SinusoidalSpec()])
def test_vectors_that_are_added(position):
    """Positions moved: other rows; and the vectors themselves taken away: as a model that has none."""
    own = model_of(AttentionSpec(heads=2), position)
    moved = run(own, gf.add("positions", 5), gf.scale("positions", 0, t=3))
    with torch.no_grad():
        rows = own(IDS, pos=(torch.arange(N) + 5).expand(2, -1))  # shifted, each still sees what came before it
        base = Trace(own, IDS, pos=(torch.arange(N) + 5).expand(2, -1))
    close(run(own, gf.add("positions", 5)).logits, rows)
    close(moved["embed.position"][:, 4:], base["embed.position"][:, 4:])
    close(moved["embed.position"][:, 3], run(own)["embed.position"][:, 0])
    close(run(own, gf.zero("embed.position")).logits, run(without(own, model_of(AttentionSpec(heads=2)))).logits)


def test_relative_sinusoids_leave_what_was_learned_for_the_contents():
    """Transformer-XL: (q + u)·k stays; the rest is the same for every key, so the softmax does not notice it."""
    mask = Mask(window=8)
    own = model_of(AttentionSpec(heads=2, mask=mask, position=RelativeSinusoidSpec()))
    bare = without(own, model_of(AttentionSpec(heads=2, mask=mask, bias="qv")))
    for one, other in zip(own.blocks, bare.blocks, strict=True):
        other.mixer.q.bias.data = one.mixer.relative.u.detach().flatten()
        other.mixer.v.bias.data.zero_()
    close(run(own, gf.zero("positions")).logits, run(bare).logits)


def test_linear_attention():
    own = model_of(LinearSpec(heads=2, normalise=False, position=RopeSpec()))
    bare = without(own, model_of(LinearSpec(heads=2, normalise=False)))
    close(run(own, gf.zero("positions")).logits, run(bare).logits)
    assert (run(own).logits - run(bare).logits).abs().max() > 0.1


def test_the_memory_transformer():
    """Its segments are numbered anew, each with its memory: there all can only be made the same."""
    spec = RmtSpec(layers=2, segment=4, memory=2, attention=AttentionSpec(heads=2, position=BIAS))
    own = model_of(spec)
    bare = without(own, model_of(spec.changed(attention=AttentionSpec(heads=2))))
    close(run(own, gf.zero("positions")).logits, run(bare).logits)
    with pytest.raises(InputError, match="numbers each of its segments anew"):
        run(own, gf.scale("positions", 2))


def test_each_side_of_a_pair_has_its_own():
    def pair(position):
        def stack(mixers, head, **how):
            blocks = (BlockSpec(mixer=mixers, **how),)
            return ModelSpec(vocab=VOCAB, dim=DIM, blocks=blocks, context=64, head=head)

        encoder = stack(AttentionSpec(heads=2, mask=Mask(causal=False), position=position), None)
        decoder = stack(AttentionSpec(heads=2, position=position), HeadSpec(), cross=CrossSpec(heads=2))
        return grown(build_model(EncoderDecoderSpec(encoder=encoder, decoder=decoder)))

    own = pair(BIAS)
    bare, given = without(own, pair(None)), (IDS, IDS[:, :5])
    both = run(own, gf.zero("encoder.positions"), gf.zero("decoder.positions"), ids=given)
    close(both.logits, run(bare, ids=given).logits)
    one = run(own, gf.zero("encoder.positions"), ids=given)
    assert (one.logits - both.logits).abs().max() > 0.1
    close(one["encoder.norm.out"], both["encoder.norm.out"])


def test_padding_keeps_its_place():
    own = model_of(AttentionSpec(heads=2, position=RopeSpec()))
    pos = torch.stack([torch.arange(N), torch.cat((torch.full((3,), -1), torch.arange(N - 3)))])
    edited = run(own, gf.zero("positions"), pos=pos)
    assert torch.equal(edited.stacks[0].call.places < 0, pos < 0)
    close(edited.logits[1, 3:], run(own, gf.zero("positions"), ids=IDS[1:, 3:]).logits[0])


def test_one_row_of_a_batch():
    own = model_of(AttentionSpec(heads=2, position=AlibiSpec()))
    edited, plain, none = run(own, gf.zero("positions", b=1)), run(own), run(own, gf.zero("positions"))
    close(edited.logits[0], plain.logits[0])
    close(edited.logits[1], none.logits[1])


def test_what_is_refused():
    rope = model_of(AttentionSpec(heads=2, position=RopeSpec()))
    with pytest.raises(InputError, match=r"makes a position 0\.5; positions are whole numbers"):
        run(rope, gf.scale("positions", 0.5))
    with pytest.raises(InputError, match="makes a position -1;"):
        run(rope, gf.scale("positions", -1))
    with pytest.raises(InputError, match="no axis 'h'"):
        run(rope, gf.zero("positions", h=0))
    with pytest.raises(InputError, match="has no position signal"):
        run(model_of(LstmSpec()), gf.zero("positions"))
    with pytest.raises(InputError, match=r"makes a position 70 and this model has learned 64 \(0 to 63\); shift"):
        run(model_of(AttentionSpec(heads=2), LearnedSpec()), gf.add("positions", 60))
    with pytest.raises(InputError, match="no value named 'encoder.positions'"):
        run(rope, gf.zero("encoder.positions"))


def test_which_signals_a_model_has():
    assert signals(model_of(AttentionSpec(heads=2, position=AlibiSpec()), LearnedSpec())) == ("learned", "alibi")
    assert signals(model_of(LstmSpec())) == ()
    assert signals(gf.load("small").model) == ("rope",)


def test_the_shipped_model_by_the_line_of_the_manual():
    model, text = gf.load(), "고양이가 생선을 먹었다"
    none, turned = (
        model.trace(text, edits=edits)
        for edits in ([gf.zero("positions")], [gf.scale("positions", -1), gf.add("positions", 30)])
    )
    ids = model.inputs(text)[0]
    spec = model.spec
    blocks = tuple(one.changed(mixer=one.mixer.changed(position=None)) for one in spec.blocks)
    bare = build_model(spec.changed(blocks=blocks)).eval()
    bare.load_state_dict(model.model.state_dict())
    with torch.no_grad():
        close(none.logits, bare(ids))
    assert (turned.logits - none.logits).abs().max() > 0.1


def test_with_edges_cut_and_values_patched_and_while_writing():
    """Beside other edits, each as in the model that was built without positions."""
    own = model_of(AttentionSpec(heads=2, position=RopeSpec()))
    bare = without(own, model_of(AttentionSpec(heads=2)))
    cuts = [gf.cut("blocks.0.mixer", t=5, s=2), gf.cut("blocks.1.mixer", t=7, s=3, renormalise=False)]
    patch = gf.patch("blocks.0.resid_out", run(bare, ids=IDS.flip(1)), t=4)
    edits = [*cuts, patch, gf.resample("blocks.1.mixer.v", 3)]
    close(run(own, gf.zero("positions"), *edits).logits, run(bare, *edits).logits)
    assert (run(own, *edits).logits - run(bare, *edits).logits).abs().max() > 0.01
    spec, said = GenerateSpec(max_new_tokens=6), []
    for model, how in ((own, [gf.zero("positions"), *cuts]), (bare, cuts)):
        events = generate(model, WithoutText(VOCAB), [[3, 1, 4]], spec, edits=how)
        said.append([(one.token, round(one.probability, 4)) for one in events])
    assert said[0] == said[1]
