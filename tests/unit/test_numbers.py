"""Settings that are numbers no model can use, NaN and infinity first, are refused where they are given."""

import re

import msgspec
import pytest

from glassformer.errors import SettingError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.nn.channel import ExpertsSpec
from glassformer.nn.init import InitSpec
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import (
    LearnedSpec,
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    RopeSpec,
    SinusoidalSpec,
    YarnScaling,
)
from glassformer.spec import Spec

NAN, INF = float("nan"), float("inf")
UNUSABLE = [
    (RopeSpec, {"base": 1.0}, "base: 1.0 is not allowed; use more than 1"),
    (RopeSpec, {"base": -5.0}, "base: -5.0"),
    (RopeSpec, {"share": 0.0}, "share: 0.0 is not allowed; use more than 0, at most 1"),
    (RopeSpec, {"share": 1.5}, "share: 1.5"),
    (SinusoidalSpec, {"base": 0.0}, "base: 0.0"),
    (LearnedSpec, {"offset": -1}, "offset: -1 is not allowed; use 0 or more"),
    (LinearScaling, {"factor": 0.0}, "factor: 0.0 is not allowed; use more than 0"),
    (NtkScaling, {"factor": -1.0}, "factor: -1.0"),
    (YarnScaling, {"factor": 2.0, "original": 0}, "original: 0"),
    (YarnScaling, {"factor": 2.0, "beta_slow": 40.0}, "beta_slow: 40.0 is not allowed; use less than beta_fast=32.0"),
    (YarnScaling, {"factor": 2.0, "attention": 0.0}, "attention: 0.0"),
    (Llama3Scaling, {"low": 4.0}, "low: 4.0 is not allowed; use less than high=4.0"),
    (LayerNormSpec, {"eps": 0.0}, "eps: 0.0 is not allowed; use more than 0"),
    (RMSNormSpec, {"eps": -1e-6}, "eps: -1e-06"),
    (InitSpec, {"std": -0.1}, "std: -0.1 is not allowed; use 0 or more"),
    (InitSpec, {"embedding_std": -0.1}, "embedding_std: -0.1"),
    (ExpertsSpec, {"experts": 0}, "experts: 0 is not allowed; use 1 or more"),
    (ExpertsSpec, {"balance": -1.0}, "balance: -1.0"),
    (CrossSpec, {"memory_dim": 0}, "memory_dim: 0"),
    (CrossSpec, {"softcap": -1.0}, "softcap: -1.0"),
    (ModelSpec, {"vocab": 3, "dim": 4, "blocks": (), "dropout": 1.0}, "dropout: 1.0 is not allowed; use 0 to below 1"),
    (BlockSpec, {"mixer": AttentionSpec(), "dropout": -0.1}, "dropout: -0.1"),
]


@pytest.mark.parametrize(("kind", "fields", "message"), UNUSABLE)
def test_numbers_that_no_model_can_use_are_refused(kind, fields, message):
    with pytest.raises(SettingError, match="^" + re.escape(message)):
        kind(**fields)


NEEDED = {
    LinearScaling: {"factor": 2.0},
    NtkScaling: {"factor": 2.0},
    YarnScaling: {"factor": 2.0},
    BlockSpec: {"mixer": AttentionSpec()},
    ModelSpec: {"vocab": 3, "dim": 4, "blocks": ()},
}


def subclasses(kind: type) -> set[type]:
    return {kind, *(deeper for sub in kind.__subclasses__() for deeper in subclasses(sub))}


# Every setting of a part of the core that a spec may name.
PARTS = [
    kind
    for kind in sorted(subclasses(Spec), key=lambda kind: kind.__name__)
    if kind.__module__.startswith(("glassformer.nn", "glassformer.mixers")) and kind.__struct_config__.tag
]
CORE = [BlockSpec, ModelSpec, Mask, *PARTS]


def test_nan_and_infinity_are_refused_everywhere():
    seen = 0
    for kind in CORE:
        for field in msgspec.structs.fields(kind):
            if "float" not in str(field.type):
                continue
            for value in (NAN, INF, -INF):
                with pytest.raises(SettingError, match=f"^{field.name}: "):
                    kind(**{**NEEDED.get(kind, {}), field.name: value})
                seen += 1
    assert seen >= 60
