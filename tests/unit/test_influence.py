"""Influence against autograd's own Jacobian, its estimate against the exact numbers, and its memory."""

import pytest
import torch
from quick import quick_share
from torch.utils._python_dispatch import TorchDispatchMode

import glassformer as gf
from contract.cases import CASES, ONE_STACK, built, kept, stack, tokens_of
from contract.image_cases import CASES as IMAGE_CASES
from contract.image_cases import built as built_for_images
from contract.image_cases import images_of
from glassformer.bench.memory import peak_bytes
from glassformer.errors import InputError, MemoryLimitError
from glassformer.explain import influence as influence_module
from glassformer.explain.influence import influence
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.dense import WindowSpec
from glassformer.mixers.recurrent import RnnSpec
from glassformer.model import BlockSpec, EncoderDecoder, build_model, call_of_all
from glassformer.nn.channel import MlpSpec
from glassformer.nn.embed import Embed


def by_autograd(model, tokens):
    """`t s`, from the gradients of the tables, whose rows are each used once: no token comes twice."""
    call = call_of_all(tokens, None, None)
    x, _ = model.embed(tokens, call)
    for block in model.blocks:
        x, _ = block(x, call)
    y = (x if model.norm is None else model.norm(x, call))[0]
    tables = [one.weight for one in (model.embed.token, model.embed.previous) if one is not None]
    squares = torch.zeros(len(y), len(y)).double()
    for t, vector in enumerate(y):
        for number in vector:
            parts = torch.autograd.grad(number, tables, retain_graph=True)
            squares[t] += sum(part[tokens[0]].square().sum(1) for part in parts)
    return squares.sqrt()


@pytest.mark.parametrize("name", quick_share(ONE_STACK, 4, 0))
def test_exact_influence_is_the_norm_of_the_jacobian(name):
    model, tokens = built(name).double(), torch.tensor([[7, 2, 9, 0, 5, 4]])
    found = influence(model, tokens, method="exact")
    assert found.errors is None and found.error == 0 and found.passes == 6 * model.spec.widths[-1]
    assert torch.allclose(found.norms, by_autograd(model, tokens), rtol=1e-8, atol=1e-12)
    assert torch.allclose(found.shares.sum(1), torch.ones(6).double())


@pytest.mark.parametrize("name", ["mixer-rope", "mixer-lstm", "mixer-rmt", "cross-plain"])
def test_what_comes_later_is_not_run(name):
    model, tokens = built(name).double(), tokens_of(1, 12)
    given = (tokens_of(1, 5, 1), tokens) if isinstance(model, EncoderDecoder) else tokens
    whole = influence(model, given).norms
    stack, seen = getattr(model, "decoder", model), []
    hook = stack.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    assert torch.allclose(influence(model, given, rows=[2, 4]).norms, whole[[2, 4]], rtol=1e-9, atol=1e-14)
    hook.remove()
    assert set(seen) == {5}


def test_a_long_text_is_estimated_where_the_exact_numbers_would_take_minutes(monkeypatch):
    monkeypatch.setattr(influence_module, "EXACT_WORK", 1e6)
    model = kept("mixer-rope")
    assert influence(model, tokens_of(1, 2), rows=1, directions=8).errors is None
    assert influence(model, tokens_of(1, 30), rows=29, directions=8).errors is not None
    assert influence(model, tokens_of(1, 30), rows=1, directions=8).errors is None


def test_rows_are_those_of_the_whole():
    model, tokens = built("mixer-rope").double(), tokens_of(1, 9)
    whole = influence(model, tokens).norms
    for rows, places in (([7, -9], [7, 0]), (slice(2, 4), [2, 3]), (8, [8])):
        some = influence(model, tokens, rows=rows)
        assert some.rows == tuple(places) and torch.allclose(some.norms, whole[places], rtol=1e-12)


def test_an_estimate_is_right_within_its_stated_error():
    model, tokens = built("mixer-rope").double(), tokens_of(1, 12)
    exact = influence(model, tokens, method="exact").norms
    found = [influence(model, tokens, method="estimate", directions=8, seed=seed) for seed in range(30)]
    assert all(one.passes == 12 * 8 for one in found)
    far = torch.stack([(one.norms - exact).abs() / one.errors.clamp(min=1e-12) for one in found])
    seen = torch.ones(12, 12).tril().bool()
    assert 0.55 < (far[:, seen] < 1).double().mean() < 0.85  # 68 % of normal errors lie within one standard error
    assert (far[:, seen] < 4).double().mean() > 0.97
    assert (torch.stack([one.norms for one in found])[:, ~seen] == 0).all()
    more = influence(model, tokens, method="estimate", directions=14)
    assert more.error < sum(one.error for one in found) / len(found)


@pytest.mark.parametrize("factor", [1e-2, 1e2])
def test_what_fades_or_grows_beyond_the_squares_of_fp32_is_still_exact(factor):
    """Numbers of 1e-30 and 1e+30 are plain fp32 ones; their squares are not."""
    model = build_model(stack(BlockSpec(mixer=RnnSpec(), channel=None, residual=False, norm=None), norm=None)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        layer = model.blocks[0].mixer
        for weight, scale in ((layer.cell.weight, 1.0), (layer.cell.recurrent, factor), (layer.out.weight, 1.0)):
            weight.copy_(scale * torch.eye(len(weight)))
    found = influence(model, tokens_of(1, 16), method="exact").norms
    distance = torch.arange(16)
    assert torch.allclose(found[-1].flip(0).double(), 4 * torch.tensor(factor).double() ** distance, rtol=1e-4)


def test_many_draws_agree_with_the_stated_error_at_every_number_of_directions():
    """At one and at two standard errors, and without a bias beyond a fraction of the error."""
    model, tokens = built("mixer-rope").double(), tokens_of(1, 8)
    exact = influence(model, tokens, rows=[7], method="exact").norms
    for directions in (8, 14):
        draws = [
            influence(model, tokens, rows=[7], method="estimate", directions=directions, seed=seed)
            for seed in range(100)
        ]
        far = torch.stack([(one.norms - exact) / one.errors for one in draws])
        one, two = ((far.abs() < k).double().mean().item() for k in (1, 2))
        assert 0.5 < one < 0.8 and 0.82 < two, (directions, one, two)
        spread = torch.stack([one.norms for one in draws]).std(0)
        stated = torch.stack([one.errors for one in draws]).square().mean(0).sqrt()
        assert (0.7 < stated / spread).all() and (stated / spread < 1.4).all(), (directions, stated / spread)
        bias = torch.stack([one.norms for one in draws]).mean(0) - exact
        assert (bias.abs() < stated).all()


def test_an_estimate_that_would_cost_more_is_exact():
    found = influence(kept("mixer-plain"), tokens_of(1, 3), method="estimate", directions=16)
    assert found.errors is None


def of_the_whole_pair(model, source, target, block):
    """`t s`, from the Jacobian of the pair's own call: from what enters `block` to what leaves the decoder's norm."""

    def forward(x):
        left = []
        hooks = [
            block.register_forward_pre_hook(lambda _, given: (x, *given[1:])),
            model.decoder.norm.register_forward_hook(lambda _, __, out: left.append(out)),
        ]
        model(source, target)
        for hook in hooks:
            hook.remove()
        return left[0]

    entered = []
    hook = block.register_forward_pre_hook(lambda _, given: entered.append(given[0].detach()))
    model(source, target)
    hook.remove()
    return torch.autograd.functional.jacobian(forward, entered[0])[0, :, :, 0].square().sum((1, 3)).sqrt()


PAIRS = [name for name in CASES if isinstance(kept(name), EncoderDecoder) and kept(name).decoder.embed.previous is None]


@pytest.mark.parametrize("name", quick_share(PAIRS, 3, 1))
def test_a_pair_has_influence_inside_the_target_and_of_the_source(name):
    model, source, target = built(name).double(), tokens_of(1, 5), tokens_of(1, 4, 1)
    inside, across = (influence(model, (source, target), of=of).norms for of in ("text", "source"))
    assert torch.allclose(inside, of_the_whole_pair(model, source, target, model.decoder.blocks[0]), rtol=1e-8)
    assert torch.allclose(across, of_the_whole_pair(model, source, target, model.encoder.blocks[0]), rtol=1e-8)
    assert (across > 0).any() and ((inside > 0) <= torch.ones(4, 4).tril().bool()).all()


@pytest.mark.parametrize(("hidden", "t", "limits"), [(64, 30, (20, 21)), (4000, 20, (22, 23, 24))])
def test_the_memory_limit_makes_pieces_and_is_kept_and_used(hidden, t, limits):
    """As the allocator sees it: of a model smaller than any limit, and of one with more parameters than the first."""
    block = BlockSpec(mixer=AttentionSpec(), channel=MlpSpec(hidden=hidden))
    model, tokens = build_model(stack(block, block, dim=64 if hidden > 64 else 16)).eval(), tokens_of(1, t)
    wanted = influence(model, tokens, rows=[t - 1]).norms
    assert hidden == 64 or sum(p.nbytes for p in model.parameters()) > 1 << limits[0]
    for limit in (1 << power for power in limits):
        found = []
        peak = peak_bytes(
            lambda limit=limit, found=found: found.append(influence(model, tokens, rows=[t - 1], limit_bytes=limit))
        )
        assert torch.allclose(found[0].norms, wanted, rtol=1e-4)
        assert 0.45 * limit < peak < limit, peak / limit
    with pytest.raises(MemoryLimitError, match=r"needs [\d,]+ bytes at once and the limit is 1,000"):
        influence(model, tokens, limit_bytes=1000)


def test_what_the_parameters_take_is_not_counted_for_each_copy():
    block = BlockSpec(mixer=AttentionSpec(), channel=MlpSpec(hidden=4000))
    model, tokens = build_model(stack(block, dim=64)).eval(), tokens_of(1, 2)
    size = sum(p.nbytes for p in model.parameters())
    found = influence(model, tokens, rows=1, limit_bytes=size // 4)
    assert torch.allclose(found.norms, influence(model, tokens, rows=1).norms, rtol=1e-4)


@pytest.mark.parametrize("name", IMAGE_CASES)
def test_of_an_image_each_pixel_moves_each_class(name):
    model = built_for_images(name).double()
    image = images_of(name, 1).double()
    found = influence(model, image)
    whole = torch.autograd.functional.jacobian(model, image)[0, ..., 0, :, :, :].square().sum(-3).flatten(-2)  # … s
    if not model.spec.classes:  # a row for each vector: its numbers stand last, or first in maps
        whole = whole.sum(1) if whole.ndim == 3 else whole.sum(0).reshape(-1, whole.shape[-1])
    assert found.errors is None and found.norms.shape == whole.shape
    assert torch.allclose(found.norms, whole.sqrt(), rtol=1e-8)
    last = len(whole) - 1
    assert torch.allclose(influence(model, image, rows=[last]).norms, found.norms[[last]], rtol=1e-8, atol=1e-12)
    with pytest.raises(InputError, match="a batch of 2 was given"):
        influence(model, images_of(name, 2).double())


class Largest(TorchDispatchMode):
    """The most numbers that one tensor had among those that were made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            self.numbers = max(
                self.numbers, one.untyped_storage().nbytes() // 4 if isinstance(one, torch.Tensor) else 0
            )
        return made


def test_nothing_is_kept_for_each_direction_of_each_row():
    model = build_model(stack(BlockSpec(mixer=WindowSpec(window=2, hidden=4), channel=None), dim=64)).eval()
    tokens, limit = torch.zeros(1, 200, dtype=torch.long), 1 << 20
    with Largest() as made:
        influence(model, tokens, rows=slice(0, 60), method="estimate", directions=48, limit_bytes=limit)
    assert made.numbers <= limit // 4  # and not 48 * 60 * 200


def test_a_window_is_a_band_and_the_model_is_left_as_it_was():
    model = build_model(stack(BlockSpec(mixer=AttentionSpec(mask=Mask(window=3))))).eval()
    found = influence(model, tokens_of(1, 8)).norms
    i, j = torch.arange(8)[:, None], torch.arange(8)
    assert torch.equal(found > 0, (j <= i) & (i - j < 3))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "fast"}, r"^method: 'fast' is not allowed; use auto, exact, estimate"),
        ({"of": "source"}, r"^of: only an encoder-decoder has a source; use text"),
        ({"directions": 7}, r"^directions: 7 is not allowed; use a whole number from 8"),
        ({"limit_bytes": 0}, r"^limit_bytes: 0 is not allowed"),
        ({"rows": []}, r"^rows: none are given"),
        ({"rows": 9}, r"^influence: axis 't' has no index 9"),
        ({"tokens": tokens_of(2, 3)}, r"^influence is that of one text or image; a batch of 2 was given"),
        ({"tokens": torch.tensor([[99]])}, r"^token id 99 is outside"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    given = {"tokens": tokens_of(1, 3), **given}
    with pytest.raises(InputError, match=message):
        influence(kept("mixer-plain"), given.pop("tokens"), **given)


def test_an_encoder_decoder_wants_a_pair_and_a_settled_model():
    assert isinstance(kept("cross-plain"), EncoderDecoder) and "cross-plain" in CASES
    with pytest.raises(InputError, match="give a pair"):
        influence(kept("cross-plain"), tokens_of(1, 3))
    loose = build_model(stack(BlockSpec(mixer=AttentionSpec(), dropout=0.1))).train()
    with pytest.raises(InputError, match="training mode"):
        influence(loose, tokens_of(1, 3))


def test_who_runs_the_model_at_the_same_time_sees_nothing_of_it(monkeypatch):
    """The tables of the model stay in it while an influence runs it with others."""
    model = gf.load("small")
    alone, table, logits = model.trace("별이 빛난다").influence(rows=[1]), model.model.embed.token.weight, []

    def ran(self, tokens, call, state=None):
        if not logits:
            logits.append(None)
            logits.append(model("고양이가 생선을"))
        assert model.model.embed.token.weight is table
        return forward(self, tokens, call, state)

    forward = Embed.forward
    wanted = model("고양이가 생선을")
    monkeypatch.setattr(Embed, "forward", ran)
    assert torch.equal(model.trace("별이 빛난다").influence(rows=[1]).norms, alone.norms)
    assert torch.equal(logits[1], wanted)
