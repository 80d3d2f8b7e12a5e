"""Attributions of an image's class to its patches or pixels, beside the model run anew on changed images."""

import math
import re

import numpy as np
import pytest
import torch

import glassformer as gf
from contract.image_cases import CASES, images_of, kept
from glassformer.classifier import Classifier
from glassformer.edit import zero
from glassformer.errors import InputError, MemoryLimitError, UnsupportedError
from glassformer.explain.image_answer import ImageAnswer
from glassformer.explain.ledger import ledger
from glassformer.explain.target import Target
from glassformer.mixers.multihead import SoftmaxAttention
from glassformer.nn.pixels import PatchesSpec

CLASSES = [name for name, spec in CASES.items() if spec.classes]
each = pytest.mark.parametrize("name", CLASSES)
ROUGH = ("lenet", "layers", "mlp", "vit-sinusoids", "bare")  # ReLU, the largest of four, experts, a norm of black
BY_ATTENTION = ("pattern", "value-norm", "rollout", "flow", "alti")


def trace(name, **how):
    return Classifier(kept(name), name).trace(images_of(name, 1), **how)


def side_of(name):
    """Places in a row, and the side of each in pixels."""
    spec = CASES[name]
    patch = spec.embed.patch if isinstance(spec.embed, PatchesSpec) else 1
    return spec.size // patch, patch


def logit(name, images, k):
    return kept(name)(images)[:, k]


def summed(name, pixels):
    """Numbers of pixels `c y x` added up in each place, `row column`."""
    side, patch = side_of(name)
    return pixels.sum(0).reshape(side, patch, side, patch).sum((1, 3))


def without(name, image, place, instead):
    """The image with another colour in one place."""
    side, patch = side_of(name)
    y, x = (place // side) * patch, (place % side) * patch
    changed = image.clone()
    changed[0, :, y : y + patch, x : x + patch] = instead
    return changed


def scores(run, **settings):
    return torch.tensor(gf.explain("attribution", run, **settings).figure("scores").values, dtype=torch.float64)


@each
def test_gradient_times_input_of_the_pixels(name):
    run, image = trace(name), images_of(name, 1).requires_grad_()
    best = int(run.logits[0].argmax())
    (slope,) = torch.autograd.grad(logit(name, image, best).sum(), image)
    torch.testing.assert_close(scores(run).float(), summed(name, (slope * image)[0].detach()), atol=2e-6, rtol=1e-5)
    other = (best + 1) % CASES[name].classes
    (slope,) = torch.autograd.grad((logit(name, image, best) - logit(name, image, other)).sum(), image)
    found = scores(run, what="difference", candidate=f"#{best}", against=f"#{other}")
    torch.testing.assert_close(found.float(), summed(name, (slope * image)[0].detach()), atol=2e-6, rtol=1e-5)


@each
@pytest.mark.parametrize("measure", ["mean", "pad"])
def test_removal_is_a_run_with_another_colour_in_each_place(name, measure):
    run, image = trace(name), images_of(name, 1)
    best, side = int(run.logits[0].argmax()), side_of(name)[0]
    instead = image.mean((0, 2, 3))[:, None, None] if measure == "mean" else 0.0
    places = range(side**2) if side < 10 else [0, 5, side**2 - 1]
    with torch.no_grad():
        whole = logit(name, image, best)
        lost = [whole - logit(name, without(name, image, i, instead), best) for i in places]
    found = scores(run, method="removal", measure=measure, orders=2).flatten()[list(places)]
    torch.testing.assert_close(found.float(), torch.cat(lost), atol=3e-5, rtol=1e-4)
    if measure == "mean":  # also where nothing is measured
        torch.testing.assert_close(scores(run, method="removal").flatten()[list(places)], found, atol=1e-5, rtol=1e-5)


@each
@pytest.mark.parametrize("origin", ["mean", "zero"])
def test_integrated_gradients_go_from_one_colour_to_the_image_and_add_up(name, origin):
    run, image = trace(name), images_of(name, 1)
    best = int(run.logits[0].argmax())
    start = torch.zeros_like(image)
    if origin == "mean":
        start += image.mean((0, 2, 3))[:, None, None]
    with torch.no_grad():
        apart = (logit(name, image, best) - logit(name, start, best)).item()
    found = gf.explain("attribution", run, method="integrated", origin=origin, steps=128, candidate=f"#{best}")
    total = torch.tensor(found.figure("scores").values).sum().item()
    if name not in ROUGH:
        assert total == pytest.approx(apart, abs=1e-3 * max(1, abs(apart)))
    completeness = next(one.value for one in found.checks if one.name == "completeness")
    assert completeness == pytest.approx(abs(total - apart) / abs(apart), abs=1e-4)


@pytest.mark.parametrize("name", ["vit", "vit-mean", "vit-sinusoids", "deit", "widening"])
def test_of_patches_the_ledger_is_a_sum(name):
    run = trace(name)
    whole = ledger(run, Target("logit"), "tokens")
    own = scores(run, method="decompx").flatten()
    count = len(kept(name).embed.names())
    assert own.tolist() == pytest.approx(whole.by_token(count)[count - len(own) :].tolist(), rel=1e-6, abs=1e-7)
    rest = whole.whole - whole.by_token(count).sum().item()
    learned = whole.by_token(count)[: count - len(own)].sum().item()
    assert own.sum().item() + learned + rest == pytest.approx(run.logits[0].max().item(), abs=1e-4)
    assert whole.error < 1e-4


@pytest.mark.parametrize("name", ["vit", "vit-mean", "vit-sinusoids", "deit"])
def test_the_weights_with_which_the_classes_look_at_each_patch(name):
    run, model = trace(name), kept(name)
    tokens = len(model.embed.tokens)
    last = max(i for i, block in enumerate(model.blocks) if isinstance(block.mixer, SoftmaxAttention))
    pattern = run[f"blocks.{last}.mixer.pattern"][0].double()  # h t s
    rows = {0: pattern.mean(1), 1: pattern[:, 0], 2: pattern[:, :2].mean(1)}[tokens]
    torch.testing.assert_close(scores(run, method="pattern").flatten(), rows.mean(0)[tokens:], atol=1e-7, rtol=1e-6)
    one = scores(run, method="pattern", head=1).flatten()
    torch.testing.assert_close(one, rows[1][tokens:], atol=1e-7, rtol=1e-6)
    rolled = torch.eye(len(model.embed.names()), dtype=torch.float64)
    for i in range(len(model.blocks)):
        mean = run[f"blocks.{i}.mixer.pattern"][0].double().mean(0)
        rolled = (mean + torch.eye(len(mean))) / 2 @ rolled
    asked = rolled.mean(0) if not tokens else rolled[:tokens].mean(0)
    torch.testing.assert_close(scores(run, method="rollout").flatten(), asked[tokens:], atol=1e-7, rtol=1e-6)
    for method in BY_ATTENTION:
        assert scores(run, method=method).min() >= 0


@each
def test_how_faithful_it_is(name):
    """Curves, single places and AOPC, worked out by running changed images one after the other."""
    run, image = trace(name), images_of(name, 1)
    best, side = int(run.logits[0].argmax()), side_of(name)[0]
    found = gf.explain("attribution", run, measure="pad", orders=2)
    order = np.argsort(-np.array(found.figure("scores").values).flatten(), kind="stable")
    line = found.figure("deletion").lines[0].values
    checked = {0: 0, len(line) - 1: side**2, len(line) // 2: None}
    with torch.no_grad():
        for at in checked:
            count = int(found.figure("deletion").x[at].split("/")[0])
            changed = image
            for place in order[:count]:
                changed = without(name, changed, int(place), 0.0)
            assert line[at] == pytest.approx(logit(name, changed, best).item(), abs=3e-5, rel=1e-4)
        removed = found.figure("removed").values
        assert len(removed) == len(removed[0]) == side
        lost = logit(name, image, best) - logit(name, without(name, image, side**2 - 1, 0.0), best)
        assert removed[-1][-1] == pytest.approx(lost.item(), abs=3e-5, rel=1e-4)
        fallen = []
        for share in (1, 5, 10, 20, 50):
            changed = image
            for place in order[: math.ceil(share * side**2 / 100)]:
                changed = without(name, changed, int(place), 0.0)
            fallen.append((logit(name, image, best) - logit(name, changed, best)).item())
    by_name = {one.name: one for one in found.checks}
    assert by_name["comprehensiveness"].value == pytest.approx(sum(fallen) / 5, abs=3e-5, rel=1e-4)
    kind, ko = ("patch", "조각") if side_of(name)[1] > 1 else ("pixel", "픽셀")
    told = [found.title, found.claim, *(one.title for one in found.figures if one.name != "faithfulness")]
    told += [one.said for one in found.checks]
    for said in told:
        assert "token" not in said.en and "토큰" not in said.ko and "{" not in said.en + said.ko
    assert (
        kind in found.claim.en and ko in found.figure("scores").title.ko and "black" in by_name["sufficiency"].said.en
    )


def test_of_an_edited_run_it_is_that_run_that_is_explained():
    plain, run = trace("vit"), trace("vit", edits=[zero("blocks.0.mixer.head_out", h=1)])
    best = int(run.logits[0].argmax())
    answer = ImageAnswer(run, Target(candidate=f"#{best}"))
    assert answer.value == pytest.approx(run.logits[0, best].item(), abs=1e-5)
    assert answer.of_rows(answer.rows).item() == pytest.approx(run.logits[0, best].item(), abs=1e-5)
    assert not torch.allclose(scores(run, candidate=f"#{best}"), scores(plain, candidate=f"#{best}"), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("vit", {"method": "removal", "measure": "delete"}, "an image has a pixel at every place, so delete is not"),
        ("vit", {"measure": "mask"}, "so mask is not possible; use mean or pad"),
        ("vit", {"method": "integrated", "origin": "pad"}, "origin: an image has no token for padding; use mean"),
        ("vit", {"method": "patching"}, "second: an image is compared with no text"),
        ("vit", {"second": "고양이"}, "second: an image is compared with no text"),
        ("vit", {"of": "source"}, "of: only an encoder-decoder has a source"),
        ("vit", {"what": "vector"}, "what: of an image it is a class that is explained; use logit"),
        ("vit", {"candidate": "dog"}, "candidate: there is no class 'dog'"),
        ("lenet", {"method": "rollout"}, "the classes of this model are read from no tokens; use gradient"),
        ("bare", {"method": "pattern"}, "the classes of this model are read from no tokens; use gradient"),
        ("mlp-mixer", {"method": "alti"}, "layer 1 has no attention weights"),
        ("lenet", {"method": "decompx"}, "decompx: the layers of this model work on no tokens; use gradient"),
    ],
)  # fmt: skip
def test_what_an_image_does_not_have_is_refused(name, settings, said):
    with pytest.raises((InputError, UnsupportedError), match=re.escape(said)):
        gf.explain("attribution", trace(name), **settings)


@pytest.mark.parametrize("name", [name for name in CASES if name not in CLASSES])
def test_without_classes_there_is_nothing_to_explain(name):
    with pytest.raises(UnsupportedError, match="the explanation attribution does not apply to this run"):
        gf.explain("attribution", trace(name))


def test_of_several_images_one_is_explained():
    run = Classifier(kept("vit"), "vit").trace(images_of("vit", 2))
    with pytest.raises(UnsupportedError, match="the explanation attribution does not apply to this run"):
        gf.explain("attribution", run)


def test_more_places_than_memory_has_room_for_are_refused():
    """Of each place that is taken out a mark for every place is kept."""
    limit = 784 * 700
    run = Classifier(kept("lenet"), "lenet").trace(images_of("lenet", 1), limit_bytes=limit)
    assert scores(run).shape == (28, 28)
    for settings in ({"method": "removal"}, {"measure": "mean"}):
        with pytest.raises(
            MemoryLimitError, match=f"one by one takes .* bytes, more than the limit of {limit:,} bytes"
        ):
            gf.explain("attribution", run, **settings)
