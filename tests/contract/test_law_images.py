"""The laws for models of images: those of `test_law_form`, `test_law_sight` and `test_law_cost`, as far as they have a
meaning without tokens that come one after the other."""

import copy
import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from contract.cases import assert_same, relative_error
from contract.image_cases import CASES, built, images_of, kept
from contract.test_law_cost import VIEWS
from glassformer.checkpoint import load_model, save_model
from glassformer.edit import noise, scale, zero
from glassformer.errors import InputError, SettingError
from glassformer.explain.cost import cost, fields_of
from glassformer.model import AnySpec, build_model
from glassformer.spec import from_json, to_json
from glassformer.stored import StoredTrace
from glassformer.tap import AXES, Probe
from glassformer.trace import Trace

HANGUL = re.compile("[가-힣]")
each = pytest.mark.parametrize("name", CASES)
SHAPES = {"pooler": (12,), "headless": (5, 16), "headless-maps": (3, 4, 4), "pooler-maps": (3,)}
QUICK = {"deit", "pooler", "lenet", "layers", "vit"}  # one for every different line of code that is compiled


def traced(name, images, **extra):
    probe = Probe(**extra)
    with torch.no_grad():
        return kept(name)(images, probe=probe), probe


@each
def test_looking_at_everything_changes_nothing(name):
    images = images_of(name, 3)
    found, probe = traced(name, images)
    with torch.no_grad():
        assert_same(found, kept(name)(images))
    spec = CASES[name]
    assert found.shape == (3, *((spec.classes,) if spec.classes else SHAPES[name])) and len(probe.values) > 1


@each
def test_names_are_module_paths_with_axes_and_cards(name):
    model, images = kept(name), images_of(name, 2)
    _, probe = traced(name, images)
    modules, spec = dict(model.named_modules()), CASES[name]
    for full, value in probe.values.items():
        path, _, short = full.rpartition(".")
        assert modules[path].path == path, full
        letters = probe.axes[full].split()
        assert set(letters) <= AXES.keys() and len(set(letters)) == len(letters) == value.ndim, full
        sizes = dict(zip(letters, value.shape, strict=True))
        assert sizes["b"] == 2 and sizes.get("k", spec.classes) == spec.classes
        card = modules[path].cards[short]
        assert card.symbol and card.formula and card.en.endswith(".") and HANGUL.search(card.ko), full
    for path, module in model.named_modules():
        tapped = {full.rpartition(".")[2] for full in probe.values if full.rpartition(".")[0] == path}
        assert set(getattr(module, "cards", {})) == tapped, path


@each
def test_an_edit_of_any_value_acts_and_acts_alike_on_the_fast_path(name):
    images = images_of(name, 2)
    plain, probe = traced(name, images)
    for full in probe.values:
        for edit in (noise(full, 1.0), scale(full, -1.0), zero(full)):
            fast, glass = (traced(name, images, want=lambda _, a=a: a, edits=(edit,))[0] for a in (False, True))
            assert relative_error(fast.nan_to_num(), glass.nan_to_num()) < 1e-4, full
            if edit.kind == "noise" and ".experts." not in full:
                assert relative_error(glass.nan_to_num(), plain) > 1e-4, f"editing {full} changed nothing"


@each
def test_a_trace_recomputes_every_value_under_a_tight_limit_and_comes_back_from_its_file(name, tmp_path):
    model, images = kept(name), images_of(name, 2)
    out, probe = traced(name, images)
    largest = max(value.numel() for value in probe.values.values())
    for limit in (1 << 30, 64 * largest):
        trace = Trace(model, images, limit_bytes=limit)
        assert trace.names() == list(probe.values)
        assert_same(trace.logits, out)
        for full, value in probe.values.items():
            assert trace.axes(full) == probe.axes[full]
            assert [size for _, size in trace.sizes(full)] == list(value.shape)
            infinite = value.isinf()
            assert torch.equal(trace[full].isinf(), infinite)
            assert_same(trace[full].masked_fill(infinite, 0), value.masked_fill(infinite, 0))
            assert len(trace.labels(trace.axes(full).split()[-1], full)) == value.shape[-1]
    assert all(value < 1e-5 for value in trace.difference().values())
    trace.save(tmp_path / "a.safetensors")
    back = StoredTrace(tmp_path / "a.safetensors")
    assert back.names() == trace.names()
    if CASES[name].classes:
        assert back.labels("k") == [str(i) for i in range(CASES[name].classes)]


def test_the_places_of_a_trace_have_names():
    trace = Trace(kept("vit"), images_of("vit", 1))
    assert trace.labels("t") == ["class", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "2,0", "2,1", "2,2"]
    assert trace.labels("s", "blocks.0.mixer.pattern") == trace.labels("t")
    assert Trace(kept("lenet"), images_of("lenet", 1)).labels("c", "blocks.2.out") == [str(i) for i in range(16)]
    assert Trace(kept("deit"), images_of("deit", 1)).labels("t")[:3] == ["class", "distilled", "0,0"]
    named = build_model(CASES["linear"].changed(labels=("a", "b", "c"))).eval()
    assert Trace(named, images_of("linear", 1)).labels("k") == ["a", "b", "c"]


@each
def test_edits_of_a_trace_act_and_an_unknown_name_is_refused(name):
    model, images = kept(name), images_of(name, 1)
    first = Trace(model, images).names()[0]
    edited, _ = traced(name, images, edits=(scale(first, 0.5),))
    assert_same(Trace(model, images, edits=scale(first, 0.5)).logits, edited)
    with pytest.raises(InputError, match="no value named 'blocks.9.out'"):
        Trace(model, images, edits=zero("blocks.9.out"))


@each
def test_an_image_alone_gives_what_it_gives_in_a_batch(name):
    images = images_of(name, 3)
    with torch.no_grad():
        together = kept(name)(images)
        assert_same(torch.cat([kept(name)(image[None]) for image in images]), together)


@each
def test_bf16_is_as_exact_with_everything_looked_at(name):
    half, wide, images = built(name).bfloat16(), built(name), images_of(name, 8)
    wide.load_state_dict(half.state_dict())
    with torch.no_grad():
        wanted = wide.double()(images.bfloat16().double())
        plain, glass = half(images.bfloat16()), half(images.bfloat16(), probe=Probe())
    plain, glass = ((x.double() - wanted).square().mean().sqrt() for x in (plain, glass))
    assert 0 < plain < (0.2 if name == "vit-sinusoids" else 0.05) * wanted.square().mean().sqrt()  # it routes
    assert glass <= 2 * plain


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_compiles_as_one_graph(name):
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(kept(name), backend="eager", fullgraph=True)(images_of(name, 2))
        assert_same(found, kept(name)(images_of(name, 2)))
    torch._dynamo.reset()


@each
def test_json_round_trip_and_meta_device(name):
    spec = CASES[name]
    assert from_json(to_json(spec), AnySpec) == spec and hash(from_json(to_json(spec), AnySpec)) == hash(spec)
    with torch.device("meta"):
        model = build_model(spec)
    wanted = {n: p.shape for n, p in kept(name).named_parameters()}
    assert {n: p.shape for n, p in model.named_parameters()} == wanted
    assert all(p.is_meta for p in model.parameters())


@each
def test_every_parameter_is_drawn_and_learns(name):
    model = build_model(CASES[name])
    assert not any(p.isnan().any() for p in model.parameters())
    model(images_of(name, 4)).square().sum().backward()
    for label, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all() and (p.grad.abs().max() > 0 or ".experts." in label), (
            label
        )


@each
def test_a_saved_model_comes_back_bit_by_bit(name, tmp_path):
    model = built(name)
    save_model(model, tmp_path)
    back = load_model(tmp_path)
    assert back.spec == model.spec and not back.training
    with torch.no_grad():
        assert torch.equal(back(images_of(name, 2)), model(images_of(name, 2)))


@each
@pytest.mark.parametrize("n", [1, 3])
def test_flops_are_those_that_pytorch_counts(name, n):
    """What is only worked out to be looked at is no part of the cost."""
    probe = Probe(lambda full: not (".experts." in full or full.endswith(VIEWS)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        kept(name)(images_of(name, n), probe=probe)
    said = cost(CASES[name], n)
    assert counter.get_total_flops() == said.flops
    assert said.parameters == sum(p.numel() for p in kept(name).parameters()) and said.state_bytes == 0


def seen_by(model, images, entry, place):
    """Rows and columns of the image that one place of a value sees, as the support of the Jacobian."""
    images = images.clone().requires_grad_()
    probe = Probe(lambda full: full == entry)
    model(images, probe=probe)
    [seen] = torch.autograd.grad(probe.values[entry][(0, slice(None), *place)].sum(), images)
    acts = (seen[0].abs().amax(0) > 0).nonzero()
    return tuple((int(acts[:, i].min()), int(acts[:, i].max())) for i in (0, 1))


@pytest.mark.parametrize("name", ["lenet", "layers"])
def test_the_field_of_a_place_is_the_support_of_the_jacobian(name):
    """At every place on the diagonal; a pooled maximum sees its whole square only by its neighbours' sum, so that the
    squares are summed there instead."""
    model, images = copy.deepcopy(kept(name)).double(), images_of(name, 1).double()
    for block in model.blocks:
        if getattr(block.spec, "pool", "") == "max":
            block.spec = block.spec.changed(pool="sum")
    size = CASES[name].size
    for i, (field, shape) in enumerate(zip(cost(CASES[name], 1).fields, model.shapes, strict=True)):
        entry = f"blocks.{i - 1}.out" if i else "embed.out"
        for place in range(shape.sizes[1] if field else 0):
            start = field.start + place * field.step
            wanted = (max(start, 0), min(start + field.size, size) - 1)
            if wanted[0] <= wanted[1]:  # else it lies in the padding alone
                assert seen_by(model, images, entry, (place, place)) == (wanted, wanted), (entry, place)


def test_lenets_fields_are_those_of_the_paper_and_its_pixels_meet_in_c5():
    said = cost(CASES["lenet"], 1)
    assert [field.size for field in said.fields[:-1]] == [1, 5, 6, 14, 16, 32] and said.fields[-1] is None
    assert said.path == 5 and said.steps == 6
    assert fields_of(kept("vit"))[0].size == 4 and cost(CASES["vit"], 1).path == 1 and cost(CASES["mlp"], 1).path == 1


PATCHES = {"kind": "patches", "patch": 2, "dim": 8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": [{"kind": "conv2d", "maps": 2, "kernel": 7}]}, r"^blocks\.0\.kernel: 7 is larger than the input"),
        ({"blocks": [{"kind": "subsample", "size": 3}]}, r"^blocks\.0\.size: 3 does not divide the input, 1 map of 4"),
        (
            {"blocks": [{"kind": "dense", "width": 4}, {"kind": "conv2d", "maps": 2}]},
            r"^blocks\.1\.kind: a convolution reads maps, and is given a vector of 4",
        ),
        (
            {"blocks": [{"kind": "conv2d", "maps": 1, "kernel": 1, "table": [[1]]}]},
            r"^blocks\.0\.table: it names map 1, and the input has 1",
        ),
        (
            {"blocks": [{"kind": "block", "mixer": {"kind": "attention"}}]},
            r"^blocks\.0\.kind: a block mixes tokens, and is given 1 map of 4 × 4; embed the image as patches",
        ),
        ({"embed": PATCHES | {"patch": 3}}, r"^embed\.patch: 3 does not divide size=4; use 1, 2, 4$"),
        (
            {"embed": PATCHES, "blocks": [{"kind": "block", "mixer": {"kind": "attention"}}]},
            r"^blocks\.0\.mixer: it sees earlier tokens only, and the class token comes before all patches",
        ),
        (
            {"embed": PATCHES, "head": {"kind": "classes", "distilled": True}},
            r"^head\.distilled: the image has no distillation token; set embed\.distilled=true too",
        ),
        (
            {"embed": {"kind": "pixels", "mean": [0.1, 0.2]}},
            r"^embed\.mean: there are 2 numbers; give one, or one for each of channels=1",
        ),
        ({"norm": {"kind": "layernorm"}}, r"^norm: the last layer gives 1 map of 4 × 4, which have no single width"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused_with_its_path(changes, message):
    spec = from_json(to_json(CASES["linear"].changed(**({"blocks": []} | changes))), AnySpec)
    with pytest.raises(SettingError, match=message):
        build_model(spec)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a"]}, r"^labels: there are 1; give one for each of classes=3"),
        ({"head": None}, r"^classes: 3 classes need a head that gives them; set it to 0, or head\.kind to classes"),
        ({"classes": 0}, r"^classes: 0 is not allowed; use 2 or more"),
        ({"resize": {"proportion": True}}, r"^resize\.proportion: without side nothing is scaled"),
        (
            {"embed": PATCHES | {"class_token": False, "distilled": True}},
            r"embed\.distilled: the distillation token stands behind the class token",
        ),
        ({"classes": 1}, r"^classes: 1 is not allowed; use 2 or more"),
        ({"embed": PATCHES | {"dim": 7, "position": {"kind": "sinusoidal-2d"}}}, r"embed\.dim: 7 has no two halves"),
        ({"embed": PATCHES | {"position": {"kind": "learned", "offset": 2}}}, r"embed\.position\.offset: 2 has no"),
        ({"blocks": [{"kind": "conv2d", "maps": 2, "table": [[0]]}]}, r"blocks\.0\.table: it has 1 rows; give one"),
        ({"blocks": [{"kind": "conv2d", "maps": 1, "table": [[0, 0]]}]}, r"blocks\.0\.table: \[0, 0\] is not allowed"),
    ],
)  # fmt: skip
def test_settings_that_no_model_has_are_refused(changes, message):
    with pytest.raises(SettingError, match=message):
        CASES["linear"].changed(**changes)


@pytest.mark.parametrize(
    "given",
    [torch.rand(1, 1, 4, 5), torch.rand(1, 2, 4, 4), torch.rand(4, 4), torch.zeros(1, 1, 4, 4, dtype=torch.uint8), [1]],
)
def test_what_is_no_batch_of_such_images_is_refused(given):
    with pytest.raises(InputError, match=r"takes a batch of images, numbers from 0 to 1 of shape \(batch, 1, 4, 4\)"):
        kept("linear")(given)
    with pytest.raises(InputError, match="takes a batch of images|leave them out"):
        Trace(kept("linear"), given)
