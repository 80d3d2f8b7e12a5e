"""Rotary positions in configurations: `rope_theta`, `rope_scaling` and, since transformers 5, `rope_parameters`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoint import unique_tensors
from ..errors import UnsupportedError
from ..mixers.attention import Attention
from ..model import AnySpec
from ..nn.position import LinearScaling, Llama3Scaling, RopeSpec, YarnScaling, rope_width
from ..spec import from_data, to_data
from .rules import Config, Rule


def older(config: Config) -> Config:
    """A configuration with `rope_parameters` as one with `rope_theta` and `rope_scaling`, which every version reads."""
    parameters = config.pop("rope_parameters", None)
    return config if parameters is None else config | flat(parameters)


def flat(parameters: dict[str, Any], theta: str = "rope_theta", scaling: str = "rope_scaling") -> Config:
    """The older fields of one `rope_parameters`; `theta` and `scaling` are their names."""
    rest = dict(parameters)
    made = {theta: rest.pop("rope_theta")} if "rope_theta" in rest else {}
    if "partial_rotary_factor" in rest:
        made["partial_rotary_factor"] = rest.pop("partial_rotary_factor")
    plain = (rest.get("rope_type") or rest.get("type") or "default") == "default"
    unknown = rest.keys() - {"rope_type", "type"}
    if plain and unknown:
        raise UnsupportedError(f"rope_parameters: {', '.join(sorted(unknown))} without a rope_type means nothing here")
    return {**made, scaling: None if plain else rest}


def rope(
    *places: str, theta: str = "rope_theta", share: str | None = None, context: str = "max_position_embeddings"
) -> Rule:
    """The rule of RoPE at the places of a position; theta, share: the fields of its base and of the turned share."""

    def read(config: Config) -> Any:
        turned = 1.0 if share is None else config[share]
        return position(config[theta], config["rope_scaling"], config[context], turned)

    def write(data: Any) -> Config:
        spec = from_data(data, RopeSpec)
        turned = {} if share is None else {share: spec.share}
        return {theta: spec.base, "rope_scaling": written(spec.scaling), **turned}

    return Rule((theta, "rope_scaling", context, *([share] if share else [])), places, read, write)


def position(base: float, scaling: dict[str, Any] | None, context: int, share: float = 1.0) -> dict[str, Any]:
    """The plain data of a RopeSpec; scaling as in `rope_scaling`, for a model of so long texts."""
    return to_data(RopeSpec(base=base, share=share, scaling=_scaling(scaling, context)))


def _scaling(given: dict[str, Any] | None, context: int) -> LinearScaling | YarnScaling | Llama3Scaling | None:
    if not given:
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
        made = _yarn(rest, context)
    elif kind == "default":
        made = None
    else:
        raise UnsupportedError(f"rope_scaling: the type {kind!r} is not known; known are linear, llama3, yarn")
    if rest:
        raise UnsupportedError(f"rope_scaling: {', '.join(rest)} is not known for the type {kind}")
    return made


def _yarn(rest: dict[str, Any], context: int) -> YarnScaling:
    """Takes its fields out of `rest`."""
    original = rest.pop("original_max_position_embeddings", None) or context
    factor = rest.pop("factor", None) or context / original
    attention, some, all_ = (rest.pop(name, None) for name in ("attention_factor", "mscale", "mscale_all_dim"))
    if attention is None and some and all_ and factor > 1:  # DeepSeek's two multiples of 0.1·ln(factor)
        attention = (0.1 * some * math.log(factor) + 1) / (0.1 * all_ * math.log(factor) + 1)
    return YarnScaling(
        factor=factor,
        original=original,
        beta_fast=rest.pop("beta_fast", None) or 32.0,
        beta_slow=rest.pop("beta_slow", None) or 1.0,
        attention=attention,
        truncate=rest.pop("truncate", True),
    )


def written(scaling: Any) -> dict[str, Any] | None:
    """`rope_scaling` as it is written."""
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
        made = {
            "rope_type": "yarn",
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.original,
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
        }
        made |= {} if scaling.truncate else {"truncate": False}
        return made if scaling.attention is None else {**made, "attention_factor": scaling.attention}
    raise ValueError(scaling)


# ---------------------------------------------------------------- which numbers are turned together


def in_halves(model: nn.Module) -> tuple[AnySpec, dict[str, Tensor]]:
    """The spec and the tensors of a model, with numbers half a head apart wherever attention turns neighbours: what
    makes its queries and keys is written in another order, the same in both, which leaves every q·k as it is."""
    data, tensors = to_data(model.spec), unique_tensors(model)
    _turn(data)
    for path, part in model.named_modules():
        if isinstance(part, Attention) and _over_neighbours(part.spec.position):
            turned = rope_width(part.spec.position, part.width)
            for name in tensors.keys() & {
                f"{path}.{maker}.{leaf}" for maker in ("q", "k", "q_norm", "k_norm") for leaf in ("weight", "bias")
            }:
                tensors[name] = halves(tensors[name], part.width, turned)
    return from_data(data, AnySpec), tensors


def halves(x: Tensor, width: int, turned: int) -> Tensor:
    """Rows `h·e …` of heads of a width, or the numbers `e` of one, in the order of halves: of the first `turned` of
    each head those at even places, then those at odd ones."""
    order = [*range(0, turned, 2), *range(1, turned, 2), *range(turned, width)]
    return x.unflatten(0, (-1, width))[:, torch.tensor(order, device=x.device)].flatten(0, 1)


def _over_neighbours(position: Any) -> bool:
    return isinstance(position, RopeSpec) and position.pairing == "neighbours"


def _turn(data: Any) -> None:
    """Set the pairing of every attention in plain data."""
    for one in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _turn(one)
    if isinstance(data, dict) and data.get("kind") == "attention" and (data["position"] or {}).get("kind") == "rope":
        data["position"]["pairing"] = "halves"
