"""Rotary positions in configurations: `rope_theta`, `rope_scaling` and, since transformers 5, `rope_parameters`."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError
from ..nn.position import LinearScaling, Llama3Scaling, RopeSpec, YarnScaling
from ..spec import from_data, to_data
from .rules import Config, Rule

FIELDS = ("rope_theta", "rope_scaling")


def older(config: Config) -> Config:
    """A configuration with `rope_parameters` as one with `rope_theta` and `rope_scaling`, which every version reads."""
    parameters = config.pop("rope_parameters", None)
    if parameters is not None:
        rest = dict(parameters)
        if "rope_theta" in rest:
            config["rope_theta"] = rest.pop("rope_theta")
        if "partial_rotary_factor" in rest:
            config["partial_rotary_factor"] = rest.pop("partial_rotary_factor")
        config["rope_scaling"] = None if rest.pop("rope_type", "default") == "default" else _without_theta(parameters)
        if config["rope_scaling"] is None and rest:
            raise UnsupportedError(f"rope_parameters: {', '.join(rest)} without a rope_type means nothing known here")
    return config


def _without_theta(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name not in ("rope_theta", "partial_rotary_factor")}


def rope(*places: str, context: str = "max_position_embeddings") -> Rule:
    """The rule of RoPE at the places of a position."""

    def read(config: Config) -> Any:
        scaling = _scaling(config["rope_scaling"], config[context])
        return to_data(RopeSpec(base=config["rope_theta"], scaling=scaling))

    def write(data: Any) -> Config:
        spec = from_data(data, RopeSpec)
        return {"rope_theta": spec.base, "rope_scaling": _written(spec.scaling)}

    return Rule((*FIELDS, context), places, read, write)


def _scaling(given: dict[str, Any] | None, context: int) -> LinearScaling | YarnScaling | Llama3Scaling | None:
    if given is None:
        return None
    rest = dict(given)
    kind = rest.pop("rope_type", None) or rest.pop("type", None)
    rest.pop("type", None)
    if kind == "linear":
        made = LinearScaling(factor=rest.pop("factor"))
    elif kind == "llama3":
        made = Llama3Scaling(
            factor=rest.pop("factor"),
            low=rest.pop("low_freq_factor"),
            high=rest.pop("high_freq_factor"),
            original=rest.pop("original_max_position_embeddings"),
        )
    elif kind == "yarn":
        made = YarnScaling(
            factor=rest.pop("factor"),
            original=rest.pop("original_max_position_embeddings", context),
            beta_fast=rest.pop("beta_fast", None) or 32.0,
            beta_slow=rest.pop("beta_slow", None) or 1.0,
            attention=rest.pop("attention_factor", None),
        )
    elif kind == "default":
        made = None
    else:
        raise UnsupportedError(f"rope_scaling: the type {kind!r} is not known; known are linear, llama3, yarn")
    if rest:
        raise UnsupportedError(f"rope_scaling: {', '.join(rest)} is not known for the type {kind}")
    return made


def _written(scaling: Any) -> dict[str, Any] | None:
    if scaling is None:
        return None
    if isinstance(scaling, LinearScaling):
        return {"rope_type": "linear", "factor": scaling.factor}
    if isinstance(scaling, Llama3Scaling):
        return {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.original,
        }
    if isinstance(scaling, YarnScaling):
        written = {
            "rope_type": "yarn",
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original,
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
        }
        return written if scaling.attention is None else {**written, "attention_factor": scaling.attention}
    raise ValueError(scaling)
