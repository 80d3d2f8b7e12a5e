"""What belongs to the whole model: ties, initialisation, refusals, focus on rows and heads."""

import math

import msgspec
import pytest
import torch

import glassformer as gf
from contract.cases import (
    CASES,
    MIXERS,
    assert_same,
    built,
    call_of,
    drawn,
    kept,
    relative_error,
    run,
    stack,
    start,
    tokens_of,
    two_stacks,
)
from glassformer.call import Call
from glassformer.errors import InputError, SettingError
from glassformer.given import check_tokens
from glassformer.mask import Mask
from glassformer.mixers.attention import Attention, AttentionSpec, CrossSpec
from glassformer.model import BlockSpec, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.channel import MlpSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.init import InitSpec
from glassformer.nn.position import (
    LearnedSpec,
    NtkScaling,
    RelativeBiasSpec,
    RopeSpec,
    SinusoidalSpec,
    YarnScaling,
    rope_frequencies,
    sinusoid,
)
from glassformer.tap import Probe, Stop
from glassformer.trace import Trace


def test_a_tied_head_is_the_table_and_a_shared_table_is_one():
    model = build_model(stack())
    assert model.head.weight is model.embed.token.weight
    assert build_model(stack(head=HeadSpec(tied=False))).head.weight is not model.embed.token.weight
    both = build_model(two_stacks(CrossSpec(), share=True))
    assert both.decoder.head.weight is both.encoder.embed.token.weight is both.decoder.embed.token.weight
    apart = build_model(two_stacks(CrossSpec()))
    assert apart.decoder.embed.token.weight is not apart.encoder.embed.token.weight
    assert apart.decoder.head.weight is apart.decoder.embed.token.weight


def test_only_shared_relative_tables_are_shared():
    own, shared = RelativeBiasSpec(buckets=8, max_distance=8), RelativeBiasSpec(buckets=8, max_distance=8, shared=True)
    blocks = [BlockSpec(mixer=AttentionSpec(position=position)) for position in (own, shared, None, shared, own)]
    tables = [b.mixer.relative and b.mixer.relative.table for b in build_model(stack(*blocks)).blocks]
    assert tables[1] is tables[3] and tables[2] is None
    assert len({id(table) for table in tables}) == 4
    wider = BlockSpec(mixer=AttentionSpec(heads=2, position=shared))
    other = AttentionSpec(position=shared.changed(max_distance=100))
    full = AttentionSpec(position=shared, mask=Mask(causal=False))
    for wrong in (wider, BlockSpec(mixer=other), BlockSpec(mixer=full)):
        with pytest.raises(SettingError, match=r"^blocks\.5\.mixer\.position: a shared bias needs the same heads"):
            build_model(stack(*blocks, wrong))


@pytest.mark.parametrize(("outputs", "factor"), [("scaled", (2 * 3) ** -0.5), ("zero", 0.0), ("same", 1.0)])
def test_initial_weights_have_the_asked_deviation(outputs, factor):
    torch.manual_seed(0)
    blocks = [BlockSpec(mixer=AttentionSpec(bias=True, out_bias=True))] * 3
    spec = stack(*blocks, dim=128, vocab=200, head=HeadSpec(tied=False))
    model = build_model(spec.changed(init=InitSpec(std=0.05, embedding_std=0.3, outputs=outputs)))
    block = model.blocks[1]
    for weight in (block.mixer.q.weight, block.channel.up.weight, model.head.weight):
        assert weight.std().item() == pytest.approx(0.05, rel=0.05)
    for weight in (block.mixer.out.weight, block.channel.down.weight):
        assert weight.std().item() == pytest.approx(0.05 * factor, rel=0.05)
    assert model.embed.token.weight.std().item() == pytest.approx(0.3, rel=0.05)
    assert all((linear.bias == 0).all() for linear in (block.mixer.q, block.mixer.out, block.channel.up))
    by_inputs = build_model(spec.changed(init=InitSpec(std=None, outputs="same"))).blocks[1].channel
    assert by_inputs.up.weight.std().item() == pytest.approx(128**-0.5, rel=0.05)
    assert by_inputs.down.weight.std().item() == pytest.approx(512**-0.5, rel=0.05)


@torch.no_grad()
def test_zero_outputs_start_as_the_identity():
    model = build_model(stack(*[BlockSpec(mixer=AttentionSpec())] * 2, init=InitSpec(outputs="zero")))
    probe = Probe()
    model(tokens_of(1, 5), probe=probe)
    assert torch.equal(probe.values["blocks.1.resid_out"], probe.values["embed.out"])


def test_building_follows_the_random_state_alone():
    first, second = (
        torch.manual_seed(seed) and build_model(stack(BlockSpec(mixer=AttentionSpec()))) for seed in (3, 3)
    )
    other = build_model(stack(BlockSpec(mixer=AttentionSpec())))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.embed.token.weight, other.embed.token.weight)


def test_more_positions_than_were_learned_are_refused():
    model = kept("embed-learned")
    with pytest.raises(InputError, match=r"^position 32 is beyond this model's 32 learned positions; give at most 32"):
        model(tokens_of(1, 33))
    assert model(tokens_of(1, 32)).shape == (1, 32, 23)
    with pytest.raises(InputError, match="position 40 is beyond"):
        model(tokens_of(1, 1), pos=torch.tensor([[40]]))


def test_the_length_alone_tells_where_positions_end():
    """On an accelerator positions are not looked at, but where no positions are given their number is known."""
    with torch.device("meta"):
        model = build_model(CASES["embed-learned"])
        with pytest.raises(InputError, match="position 32 is beyond"):
            model(torch.zeros(1, 33, dtype=torch.long))
        assert model(torch.zeros(1, 32, dtype=torch.long)).shape == (1, 32, 23)
        _, state = model.step(torch.zeros(1, 30, dtype=torch.long), model.empty(1, 40))
        with pytest.raises(InputError, match="position 33 is beyond"):
            model.step(torch.zeros(1, 4, dtype=torch.long), state)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.tensor([1, 2]), r"shape \(batch, length\); not torch.int64 of shape \(2,\)"),
        (torch.tensor([[1.0]]), r"whole numbers of shape \(batch, length\); not torch.float32 of shape \(1, 1\)"),
        (torch.tensor([[True]]), "not torch.bool"),
        ([[1, 2]], "not list"),
        (torch.tensor([[1, 23]]), r"token id 23 is outside the vocabulary of 23 \(0 to 22\)"),
        (torch.tensor([[-1, 2]]), "token id -1 is outside"),
    ],
)
def test_what_is_no_batch_of_token_ids_is_refused(given, message):
    model = kept("mixer-plain")
    with pytest.raises(InputError, match=message):
        model(given)
    with pytest.raises(InputError, match=message):
        model.step(given, model.empty(1, 4))
    with pytest.raises(InputError, match=message):
        Trace(model, given)


@torch.no_grad()
@pytest.mark.parametrize("scaling", [None, YarnScaling(factor=4.0, original=16), NtkScaling(factor=2.0)])
def test_positions_are_as_exact_as_the_model(scaling):
    """In fp64 the scores of shifted positions agree as fp64 does; angles in fp32 would be 4e-8 off at best."""
    rope = AttentionSpec(head_dim=8, position=RopeSpec(scaling=scaling))
    model, tokens = drawn(build_model(stack(BlockSpec(mixer=rope)))).double(), tokens_of(1, 9)
    here, there = (model(tokens, pos=torch.arange(9)[None] + shift) for shift in (0, 1000))
    assert_same(here, there, 1e-12)
    frequency, _ = rope_frequencies(RopeSpec(base=7.0), 6, dtype=torch.float64)
    assert frequency.tolist() == pytest.approx([7.0 ** (-i / 3) for i in range(3)], rel=1e-14)
    found = sinusoid(torch.tensor([[1000]]), 4, SinusoidalSpec(base=7.0), torch.float64)[0, 0]
    assert found.tolist() == pytest.approx([f(1000 * a) for a in (1, 7**-0.5) for f in (math.sin, math.cos)], rel=1e-11)


def test_learned_positions_may_start_counting_later():
    model = drawn(build_model(stack(embed=EmbedSpec(position=LearnedSpec(offset=2)), norm=None, head=None, context=5)))
    found = model(torch.tensor([[3, 3]]))
    assert model.embed.position.num_embeddings == 7
    assert_same(found[0, 1] - found[0, 0], (model.embed.position.weight[3] - model.embed.position.weight[2]))


@torch.no_grad()
def test_previous_adds_the_second_table_at_the_token_before():
    model = drawn(build_model(stack(embed=EmbedSpec(previous=True, scale=2.0), norm=None, head=None)))
    first, second = model.embed.token.weight, model.embed.previous.weight
    found = model(torch.tensor([[4, 7, 9]]))[0]
    assert_same(found, torch.stack((2 * first[4], 2 * first[7] + second[4], 2 * first[9] + second[7])))


def test_token_ids_are_checked():
    check_tokens(torch.tensor([[0, 10]]), 11)
    with pytest.raises(InputError, match=r"token id 11 is outside the vocabulary of 11 \(0 to 10\)"):
        check_tokens(torch.tensor([[0, 11]]), 11)
    with pytest.raises(InputError, match="token id -1 is outside"):
        check_tokens(torch.tensor([[-1, 3]]), 11)
    with pytest.raises(InputError, match="no tokens were given"):
        check_tokens(torch.zeros(1, 0, dtype=torch.long), 11)


@pytest.mark.parametrize("place", ["model", "block"])
def test_dropout_acts_in_training_only(place):
    drop = {"dropout": 0.5}
    block = BlockSpec(mixer=AttentionSpec(), **(drop if place == "block" else {}))
    model, tokens = drawn(build_model(stack(block, **(drop if place == "model" else {})))), tokens_of(1, 6)
    with torch.no_grad():
        assert torch.equal(model(tokens), model(tokens))
        model.train()
        assert relative_error(model(tokens), model(tokens)) > 0.05


@torch.no_grad()
def test_smearing_mixes_each_key_with_the_one_before():
    """Olsson et al. 2022: k_j is a learned share of its own and of its predecessor's key."""
    smeared = drawn(Attention(AttentionSpec(smear=True), 16))
    plain = Attention(AttentionSpec(), 16)
    plain.load_state_dict({n: p for n, p in smeared.state_dict().items() if n != "smear"})
    x, probes = torch.randn(1, 5, 16), (Probe(), Probe())
    for mixer, probe in zip((smeared, plain), probes, strict=True):
        mixer.parallel(x, call_of(5, probe))
    found, own = (probe.values["k"][0] for probe in probes)
    share = [1 / (1 + math.exp(-a)) for a in smeared.smear.tolist()]
    assert_same(found[0], own[0])
    for t in range(1, 5):
        for g in range(4):
            assert_same(found[t, g], share[g] * own[t, g] + (1 - share[g]) * own[t - 1, g])


FOCUS = ["plain", "kv-2-softcap", "relative", "alibi", "sink", "smear", "rope", "window-rope", "biases", "full"]


@torch.no_grad()
@pytest.mark.parametrize("name", FOCUS)
def test_rows_and_heads_of_a_recomputation_are_those_of_the_whole(name):
    mixer = built(f"mixer-{name}").blocks[0].mixer
    x, pos = torch.randn(2, 7, 16), torch.tensor([[0, 1, 2, 3, 4, 5, 6], [-1, -1, 0, 1, 2, 3, 4]])
    segments = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 2, 2]])
    rows, heads = torch.tensor([6, 2, 3]), torch.tensor([3, 1])
    whole = Probe()
    mixer.parallel(x, Call(pos, segments=segments, probe=whole))
    part = Probe(last=frozenset((f"{mixer.path}.head_out",)))
    with pytest.raises(Stop):
        mixer.parallel(x, Call(pos, segments=segments, probe=part, rows=rows, heads=heads))
    for short, axis in (("pattern", 2), ("z", 1), ("head_out", 1)):
        full = whole.values[f"{mixer.path}.{short}"]
        wanted = full.index_select(axis, rows).index_select(3 - axis, heads)
        assert_same(part.values[f"{mixer.path}.{short}"], wanted)
    assert len(MIXERS) > len(FOCUS)


ONES = torch.ones(1, 6, dtype=torch.long)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pos": torch.tensor([[0]])}, r"pos: give whole numbers of shape \(2, 6\); not torch.int64 of shape \(1, 1\)"),
        ({"pos": ONES[:, :5]}, r"pos: .* not torch.int64 of shape \(1, 5\)"),
        ({"pos": ONES.expand(3, 6)}, r"pos: .* not torch.int64 of shape \(3, 6\)"),
        ({"pos": ONES.float()}, r"pos: .* not torch.float32"),
        ({"pos": [[0] * 6]}, r"pos: .* not list"),
        ({"segments": ONES[:, :5]}, r"segments: give whole numbers of shape \(2, 6\)"),
        ({"memory_pos": ONES}, "memory_pos: there is no memory"),
        (
            {"memory": torch.zeros(2, 4)},
            r"memory: give an encoder's output of shape \(2, length, width\); not \(2, 4\)",
        ),
        ({"memory": torch.zeros(1, 4, 16)}, r"memory: .* not \(1, 4, 16\)"),
        ({"memory": torch.zeros(2, 4, 16), "memory_pos": ONES}, r"memory_pos: give whole numbers of shape \(2, 4\)"),
    ],
)
def test_what_does_not_fit_the_tokens_is_refused(more, message):
    tokens, model = tokens_of(2, 6), kept("mixer-plain")
    with pytest.raises(InputError, match=message):
        model(tokens, **more)
    if "memory" not in message:
        state = model.empty(2, 9)
        with pytest.raises(InputError, match=message):
            model.step(tokens, state, **more)
        model.step(tokens, state)  # nothing was consumed


def test_rows_that_are_not_the_states_and_no_tokens_are_refused():
    model = kept("mixer-plain")
    for rows in (1, 2):
        with pytest.raises(InputError, match=f"tokens of {rows} rows do not fit a state of 3"):
            model.step(tokens_of(rows, 2), model.empty(3, 9))
    for nothing in (torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, 3, dtype=torch.long)):
        for work in (model, lambda x: model.step(x, model.empty(len(x), 9))):
            with pytest.raises(InputError, match="no tokens were given; give at least one"):
                work(nothing)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "room", "most"), [("mixer-plain", 5, 5), ("embed-previous", 5, 5), ("cross-learned", 40, 32)]
)
def test_a_step_that_does_not_fit_leaves_the_state_as_it_was(name, room, most):
    model, tokens = kept(name), tokens_of(2, most)
    state = start(model, 2, room)
    _, state = model.step(tokens[:, :-1], state)
    for _ in range(2):
        with pytest.raises(InputError, match="ask for more room|beyond this model's 32 learned positions"):
            model.step(tokens_of(2, 3), state)
    one, _ = model.step(tokens[:, -1:], state)
    assert_same(one[:, 0], run(model, tokens)[:, -1])


def test_cross_attention_without_a_memory_is_refused():
    cross = BlockSpec(mixer=AttentionSpec(), cross=CrossSpec())
    with pytest.raises(SettingError, match=r"^encoder\.blocks\.0\.cross: the encoder has no memory to look at"):
        EncoderDecoderSpec(encoder=stack(cross, head=None), decoder=stack(cross))
    model = build_model(stack(cross)).eval()
    for work in (model, lambda x: Trace(model, x), lambda x: model.empty(1, 5)):
        with pytest.raises(InputError, match="reads an encoder's output by cross-attention; give it one"):
            work(tokens_of(1, 3))


# ---------------------------------------------------------------- settings written in Python


def wrong_settings():
    rope = AttentionSpec(position=RopeSpec())

    def block(**changes):
        return stack(msgspec.structs.replace(BlockSpec(mixer=rope), **changes))

    def mixer(**changes):
        return block(mixer=msgspec.structs.replace(rope, **changes))

    def whole(**changes):
        return msgspec.structs.replace(block(), **changes)

    pairing = msgspec.structs.replace(RopeSpec(), pairing="half")
    return [
        (block(wiring="post-norm"), r"^blocks\.0\.wiring: 'post-norm' is not allowed; use pre, post, .*, sandwich$"),
        (block(wiring="Parallel"), r"^blocks\.0\.wiring: 'Parallel' is not allowed"),
        (
            mixer(position=pairing),
            r"^blocks\.0\.mixer\.position\.pairing: 'half' is not allowed; use halves, neighbours",
        ),
        (mixer(heads=True), r"^blocks\.0\.mixer\.heads: true is not allowed; use a whole number"),
        (
            block(channel=MlpSpec(activation="swish")),
            r"^blocks\.0\.channel\.activation: 'swish' is not allowed; use relu",
        ),
        (whole(init=InitSpec(outputs="none")), r"^init\.outputs: 'none' is not allowed; use scaled, zero, same"),
        (whole(dim=16.5), r"^dim: 16\.5 is not allowed; use a whole number"),
        (whole(norm=object()), r"^a setting holds what no file can hold: .*; use numbers, texts and specs"),
    ]


@pytest.mark.parametrize(("spec", "message"), wrong_settings())
def test_a_setting_written_in_python_is_checked_like_one_of_a_file(spec, message):
    """Python looks at no types, so that a typo would build another model than was meant."""
    for build in (build_model, type(build_model(stack())), gf.build):
        with pytest.raises(SettingError, match=message):
            build(spec)


@pytest.mark.parametrize("given", ["20", [20], None, float("nan")])
def test_what_is_no_number_is_refused_where_it_is_written(given):
    with pytest.raises(SettingError, match=r"^vocab: .* is not allowed; use "):
        build_model(ModelSpec(vocab=given, dim=16, blocks=()))


def test_a_changed_setting_says_what_is_allowed():
    with pytest.raises(
        SettingError, match=r"^blocks\.0\.wiring: 'post-norm' is not allowed; use pre, post, .*, sandwich$"
    ):
        stack().changed(blocks=(msgspec.structs.replace(BlockSpec(mixer=AttentionSpec()), wiring="post-norm"),))
