"""How published models of images prepare a picture: the fields of preprocessor_config.json, which rules read beside
those of config.json.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import UnsupportedError
from ..nn.resize import ResizeSpec
from ..spec import from_data, to_data
from .rules import Config, Rule

FILE = "preprocessor_config.json"
SCALE = 1 / 255
SHARE = 0.875  # of a scaled picture that DeiT's published settings keep: 224 of 256 pixels, 384 of 438
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # as Pillow numbers them
DEFAULTS = {
    "do_resize": True,
    "size": None,
    "resample": 2,
    "do_center_crop": False,
    "crop_size": None,
    "do_rescale": True,
    "rescale_factor": SCALE,
    "do_normalize": True,
    "image_mean": 0.5,
    "image_std": 0.5,
}
# What kind of program reads the file, and what it does with pictures that are no RGB, which here become so as well.
FREE = frozenset(
    {"image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb", "data_format"}
    | {"default_to_square", "input_data_format", "return_tensors", "device", "disable_grouping", "image_seq_length"}
    | {"_valid_processor_keys", "_processor_class", "auto_map"}
)
# What the classes that read the file mean where it says nothing; "CLIP" stands for CLIPImageProcessor and its variants.
HALF = {"image_mean": 0.5, "image_std": 0.5}
CLASSES: dict[str, Config] = {
    "ViT": {"resample": 2, "do_center_crop": False, **HALF},
    "DeiT": {"resample": 3, "do_center_crop": True, **HALF},
    "CLIP": {
        **{"resample": 3, "do_center_crop": True, "size": {"shortest_edge": 224}, "crop_size": 224},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}
FIXED = {"do_pad": (False, None), "pad_size": (None,)}
FIELDS = frozenset(DEFAULTS) | frozenset(FIXED) | FREE


def ready(config: Config) -> Config:
    """A configuration with what the class that it names means by the fields that it leaves out."""
    kind = config.get("image_processor_type") or config.get("feature_extractor_type")
    if kind is None:
        return config
    name = re.sub(r"(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", str(kind))
    if name not in CLASSES:
        known = ", ".join(f"{one}ImageProcessor" for one in CLASSES)
        raise UnsupportedError(f"image_processor_type: {kind!r} is not known here; known are {known}")
    own = CLASSES[name]
    return own | {field: value for field, value in config.items() if value is not None or field not in own}


def square(value: Any) -> int:
    """The side of a size that is one number, a pair, or a table of height and width."""
    sides = [value["height"], value["width"]] if isinstance(value, dict) else value
    sides = [sides] if isinstance(sides, int) else list(sides)
    if len(set(sides)) > 1:
        raise UnsupportedError(f"size: {value!r} is no square; models of square images are read here")
    if sides[0] < 1:
        raise ValueError(value)
    return int(sides[0])


def pictures(size: str) -> tuple[Rule, ...]:
    """The rules of an embedding's mean and deviation and of the resizing; size: the field of the model's own."""
    scale = ("do_rescale", "rescale_factor", "do_normalize")

    def mean(config: Config) -> Any:
        return _of_channels(config["image_mean"], config) if config["do_normalize"] else 0.0

    def deviation(config: Config) -> Any:
        return _of_channels(config["image_std"] if config["do_normalize"] else 1.0, config)

    def resize(config: Config) -> Any:
        return _resize(config, square(config[size]))

    normal = {"do_rescale": True, "rescale_factor": SCALE, "do_normalize": True}
    fields = ("do_resize", "size", "resample", "do_center_crop", "crop_size", size)
    return (
        Rule((*scale, "image_mean"), ("embed.mean",), mean, lambda value: normal | {"image_mean": value}),
        Rule((*scale, "image_std"), ("embed.deviation",), deviation, lambda value: normal | {"image_std": value}),
        Rule(fields, ("resize",), resize, _written),
    )


def _of_channels(given: Any, config: Config) -> Any:
    """A mean or a deviation on the scale from 0 to 1: one number where all channels have the same."""
    most = 255 * config["rescale_factor"] if config["do_rescale"] else 255.0  # what a white pixel is
    numbers = given if isinstance(given, list | tuple) else [given] * config["num_channels"]
    if len(numbers) != config["num_channels"]:
        raise ValueError(given)
    found = [one if abs(most - 1) < 1e-9 else one / most for one in map(float, numbers)]
    return found[0] if len(set(found)) == 1 else found


def _resize(config: Config, side: int) -> Any:
    crop, size = config["do_center_crop"], config["size"]
    if crop and config["crop_size"] is not None and square(config["crop_size"]) != side:
        raise UnsupportedError(f"crop_size: {config['crop_size']!r} does not fit a model of {side} × {side} pixels")
    if not config["do_resize"]:
        return to_data(ResizeSpec()) if crop else None
    if config["resample"] not in FILTERS:
        raise UnsupportedError(f"resample: {config['resample']!r} is not known; known are 0 to 5")
    proportion = isinstance(size, dict) and "shortest_edge" in size
    if proportion and set(size) != {"shortest_edge"}:
        raise UnsupportedError(f"size: {size!r} is not known here; give shortest_edge alone, or height and width")
    usual = int(side / SHARE) if crop else side
    wanted = usual if size is None else size["shortest_edge"] if proportion else square(size)
    if not crop and (proportion or wanted != side):
        raise UnsupportedError(f"size: {size!r} does not fit a model of {side} × {side} pixels without do_center_crop")
    return to_data(ResizeSpec(side=wanted, proportion=proportion, filter=FILTERS[config["resample"]]))


def _written(value: Any) -> Config:
    if value is None:
        return {"do_resize": False, "do_center_crop": False}
    spec = from_data(value, ResizeSpec)
    side: Any = {"height": spec.side, "width": spec.side}
    resample = next(number for number, name in FILTERS.items() if name == spec.filter)
    size = None if spec.side is None else {"shortest_edge": spec.side} if spec.proportion else side
    return {"do_resize": spec.side is not None, "size": size, "resample": resample, "do_center_crop": True}


def complete(config: Config) -> Config:
    """A written configuration with what follows from other fields: means of every channel, and whether anything is cut
    off."""
    for name in ("image_mean", "image_std"):
        if isinstance(config.get(name), float):
            config[name] = [config[name]] * config["num_channels"]
    side = {"height": config["image_size"], "width": config["image_size"]}
    config["do_center_crop"] = config["do_center_crop"] and config.get("size") != side
    if config["do_center_crop"]:
        config["crop_size"] = side
    kinds = {True: "CLIPImageProcessor", False: "DeiTImageProcessor"}  # what also earlier versions cut out with
    proportion = "shortest_edge" in (config.get("size") or {})
    config["image_processor_type"] = kinds[proportion] if config["do_center_crop"] else "ViTImageProcessor"
    return {name: value for name, value in config.items() if value is not None}
