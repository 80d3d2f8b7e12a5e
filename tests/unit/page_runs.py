"""Small runs of every family, for the tests of what the page is given."""

import sound_models
import torch
from sheet_models import SPECS, drawn, loaded, pair

import glassformer as gf
from glassformer import named
from glassformer.api import Loaded
from glassformer.classifier import Classifier
from glassformer.mixers.attention import CrossSpec
from glassformer.model import build_model

TINY = {"vocab": 40, "dim": 16, "blocks": 2, "heads": 2, "hidden": 24, "context": 32, "segment": 4, "memory": 2}
OWN = {"bahdanau": {"hidden": 12}, "lenet": {}, "mlp-image": {"size": 8}, "vit": {"size": 8, "patch": 4, "classes": 3}}
PLAIN = (
    "rope",
    "grouped",
    "sink",
    "sandwich",
    "post",
    "parallel",
    "window-sinks",
    "prefix",
    "full",
    "no-head",
    "top-k",
)


def preset(name):
    """A preset with drawn weights, as small as its choices allow."""
    known = named.choices_of(name)
    given = {key: value for key, value in TINY.items() if key in known} | OWN.get(name, {})
    spec = gf.preset(name, **{key: value for key, value in given.items() if key in known})
    return drawn(build_model(spec))


def run(name):
    """The trace of a preset over a few tokens, one of which comes twice, or over an image."""
    model = preset(name)
    if not hasattr(model, "encoder") and hasattr(model, "shapes"):
        spec = model.spec
        image = torch.rand(spec.channels, spec.size, spec.size, generator=torch.Generator().manual_seed(0))
        return Classifier(model, name).trace(image)
    ids = [3, 7, 1, 7, 5, 2, 9]
    return Loaded(model, name=name).trace(([4, 8, 6], ids) if hasattr(model, "encoder") else ids)


def runs():
    """Of every preset, of shapes of attention, of pairs and of sound, each a function that makes it."""
    made = {name: (lambda name=name: run(name)) for name in gf.presets()}
    made |= {name: (lambda name=name: loaded(SPECS[name]).trace("고양이가 생선을 먹었다")) for name in PLAIN}
    made["pair"] = lambda: loaded(pair()).trace(("생선을", "먹었다"))
    made["pair-post"] = lambda: loaded(pair(CrossSpec(kv_heads=1, sink=True), "post")).trace(("생선을", "먹었다"))
    made["sound"] = lambda: sound_models.listener().trace((sound_models.tone(0.2), [1, 4, 2, 4]))
    return made
