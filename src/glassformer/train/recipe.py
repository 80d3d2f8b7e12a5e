"""Recipes (runs as TOML or JSON files), and the run for a text that comes without one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..data.text import text_files
from ..data.vocabulary import TokenizerSpec
from ..errors import InputError, SettingError, nearest
from ..files import given_path
from ..image import ImageModelSpec
from ..mixers import MIXERS
from ..mixers.attention import AttentionSpec
from ..model import BlockSpec, EncoderDecoderSpec, ModelSpec, without_memory
from ..named import choices_of, preset, presets
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec
from ..nn.position import RopeSpec
from ..spec import from_data, whole_number, with_settings
from .run import AdamWSpec, AnyRun, ImageRunSpec, MuonSpec, RunSpec, ScheduleSpec
from .store import STATE, read_begun, read_facts

MOST_LAYERS = 4096


def read_run(path: str | Path, settings: Mapping[str, str] | None = None, folder: str | Path | None = None) -> AnyRun:
    """A recipe (.toml or .json), or, for a text file or a folder of texts, the run that `folder` (a run folder) holds
    and, where it holds none, the defaults of `recommended`; then changed by `settings`, dotted path to value, where
    `model` may be the name of a preset and `model.layers` is the number of blocks.

    In a recipe, `model.layers` copies of `model.block` may stand for `model.blocks`; with both, each of the blocks is
    laid over `model.block`. A relative path in it starts at the recipe's folder. One that holds several runs is for
    `read_runs`. Raises InputError for a missing file, SettingError for wrong settings, CheckpointError for a
    broken run folder.
    """
    path, settings = given_path(path), dict(settings or {})
    if not is_recipe(path):
        return set_in(_resumed(path, settings, folder) or _recommended(path, settings), settings)
    data = read_recipe(path)
    if "runs" in data:
        raise SettingError(f"{path}: runs: this recipe holds several runs; read them with train.read_runs")
    with in_file(path):
        run = run_from_data(data, path.parent, settings)
    return set_in(run, settings)


def is_recipe(path: Path) -> bool:
    """Whether a path names a recipe, not a text."""
    return path.suffix in (".toml", ".json")


def set_in(run: AnyRun, settings: Mapping[str, str]) -> AnyRun:
    """The run changed by settings, dotted path to value, as `read_run` takes them."""
    settings = dict(settings)
    layers = settings.pop("model.layers", None)
    if re.fullmatch(r"[\w-]+", settings.get("model", "")):
        run = _with_preset(run, settings.pop("model"), layers)
    elif layers is not None:
        run = run.changed(model=_with_layers(run.model, layers))
    if isinstance(run, ImageRunSpec):
        return with_settings(run, settings)
    method = settings.get("tokenizer.method", run.tokenizer.method)
    if method != run.tokenizer.method and method in _METHODS and "tokenizer.vocab" not in settings:
        settings["tokenizer.vocab"] = str(fitting_vocab(method, _size(settings.get("data", run.data))))
    return with_settings(run, settings)


def _with_preset(run: AnyRun, name: str, layers: str | None) -> AnyRun:
    """The run with the model of a preset, as wide, with as many heads and, but for `layers`, as deep as the one that it
    has."""
    model = run.model
    if not isinstance(model, ModelSpec):
        raise SettingError("model: a preset can be put in the place of a language model only; set model.kind instead")
    blocks = max(len(model.blocks), 1) if layers is None else _layers(layers)
    size = {"dim": model.dim, "blocks": blocks, "context": model.context}
    size |= {"heads": getattr(model.blocks[0].mixer, "heads", 1) if model.blocks else 1}
    found = _writer(name, size) if name in presets() else None
    if found is None:
        _refuse_preset(name, size)
    return run.changed(model=found.changed(vocab=model.vocab))


def _refuse_preset(name: str, size: Mapping[str, int]) -> NoReturn:
    """Raise SettingError that says what is meant by a name that is no preset which writes text, and how it is had."""
    kinds = [str(one.__struct_config__.tag) for one in MIXERS]
    if name in kinds:
        raise SettingError(f"model: {name} is a mixer, no preset; give --set model.blocks.*.mixer.kind={name} instead")
    if name not in presets():
        close = nearest(name, [*presets(), *kinds], shown=0)
        if close.startswith("did you mean"):
            raise SettingError(f"model: there is no preset {name!r}; {close}")
        writers = [one for one in presets() if _writer(one, size)]
        raise SettingError(
            f"model: there is no preset {name!r}; use one that writes from left to right ({', '.join(writers)})"
        )
    spec = preset(name)
    if isinstance(spec, ImageModelSpec):
        raise SettingError(
            f"model: {name} reads images, not a text; give a recipe of images (kind = image-run, as runs/{name}.toml)"
        )
    if isinstance(spec, EncoderDecoderSpec):
        raise SettingError(
            f"model: {name} reads one text and writes another, and train has a single text to learn from; build it in "
            f"Python (glassformer.build) and train it in a loop of your own"
        )
    raise SettingError(
        f"model: {name} reads in both directions, so it would see the tokens that train lets it predict; build it in "
        f"Python (glassformer.build) and train it in a loop of your own"
    )


def _writer(name: str, size: Mapping[str, int]) -> ModelSpec | None:
    """The spec of a preset in this size, as far as it has such choices; None where it does not write text."""
    spec = preset(name, **{choice: value for choice, value in size.items() if choice in choices_of(name)})
    if not isinstance(spec, ModelSpec) or spec.head is None:
        return None
    return spec if without_memory(spec).causal else None


def _with_layers(model: ModelSpec | ImageModelSpec, layers: str) -> ModelSpec | ImageModelSpec:
    """The model with so many blocks like those that it has, which must be alike."""
    number = _layers(layers)
    if len(set(model.blocks)) > 1:
        raise SettingError(
            f"model.layers: the {len(model.blocks)} blocks differ, and {number} copies of one would lose the others; "
            "write model.blocks out in a recipe"
        )
    return model.changed(blocks=model.blocks[:1] * number)


def _layers(given: str) -> int:
    number = whole_number(given)
    if number is None or not 1 <= number <= MOST_LAYERS:
        raise SettingError(f"model.layers: {given!r} is not allowed; use a number from 1 to {MOST_LAYERS}")
    return number


def _recommended(path: Path, settings: dict[str, str]) -> RunSpec:
    method, block = settings.get("tokenizer.method"), settings.get("block", "")
    longest = (whole_number(block) or 0) if "model.context" not in settings else 0
    method = "bpe" if method == "file" else method  # the pieces of a tokenizer at hand are as long
    return recommended(path, method if method in _METHODS else None, longest)


def _resumed(path: Path, settings: dict[str, str], folder: str | Path | None) -> RunSpec | None:
    """The run that a folder holds, on the text at `path`; None where it holds none."""
    if folder is None:
        return None
    facts = read_facts(Path(folder) / STATE)
    run = facts.run if facts else read_begun(Path(folder))
    if not isinstance(run, RunSpec) or (facts is None and run.data != path.name):  # of it nothing was learnt yet
        return None
    text_files(path)  # a mistyped path is named as such
    held = run.validation
    if isinstance(held, str) and "validation" not in settings:
        held = next((str(place) for place in (path.parent / held, Path(held)) if place.exists()), None)
        if held is None:
            raise InputError(
                f"{folder} holds a run that kept {run.validation} for validation, and it is not beside {path}; "
                "name it with --set validation=PATH"
            )
    tokenizer = run.tokenizer
    if tokenizer.path is not None:
        tokenizer = tokenizer.changed(path=str(Path(folder) / "tokenizer.json"))
    return run.changed(data=str(path), validation=held, tokenizer=tokenizer)


def read_recipe(path: Path) -> dict[str, Any]:
    """The data of a recipe. Raises InputError for a file that cannot be read, SettingError for one that is none."""
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; give the recipe file itself")
    if not path.is_file():
        near = [str(p.name) for p in path.parent.glob("*.*")] if path.parent.is_dir() else []
        raise InputError(f"{path}: there is no such file" + (f"; {nearest(path.name, near)}" if near else ""))
    kind = path.suffix[1:].upper()
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if kind == "TOML" else json.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (first wrong byte at offset {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: not valid {kind}: {error}") from None
    if not isinstance(data, dict):
        raise SettingError(f"{path}: a recipe is a table of settings such as data and steps, not {data!r:.40}")
    return data


@contextlib.contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Put the recipe's path before the message of a SettingError raised inside."""
    try:
        yield
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def run_from_data(data: dict[str, Any], folder: Path = Path(), settings: Mapping[str, str] | None = None) -> AnyRun:
    """The run of a recipe's data, by its `kind` (image-run; left out: run); relative paths in it start at `folder`. A
    path that `settings` names is not looked for at the recipe's place."""
    data, named = {"kind": "run"} | data, settings or {}
    if isinstance(data.get("model"), dict):
        more = {"vocab": 0} if data["kind"] == "run" else {}
        data["model"] = _written_out(more | data["model"], data.get("block"))
    for name in ("data", "validation"):
        if isinstance(data.get(name), str) and name not in named:
            data[name] = _located(data[name], name, folder)
    tokenizer = data.get("tokenizer")
    if isinstance(tokenizer, dict) and isinstance(tokenizer.get("path"), str) and "tokenizer.path" not in named:
        data["tokenizer"] = tokenizer | {"path": _located(tokenizer["path"], "tokenizer.path", folder)}
    return from_data(data, AnyRun)


def _written_out(model: dict[str, Any], block: Any) -> dict[str, Any]:
    """The model's settings with `layers` and `block` replaced by as many blocks, or each of `blocks` laid over `block`,
    and what the run decides filled in."""
    if "blocks" in model:
        if "layers" in model:
            raise SettingError("model.layers: give either layers, or blocks one by one")
        shared, blocks = model.pop("block", {}), model["blocks"]
        if isinstance(shared, dict) and isinstance(blocks, list) and all(isinstance(one, dict) for one in blocks):
            model["blocks"] = [laid_over({"kind": "block"} | shared, one) for one in blocks]
    elif "layers" in model or "block" in model:
        layers, one = model.pop("layers", 1), model.pop("block", None)
        if not isinstance(layers, int) or not 1 <= layers <= MOST_LAYERS or not isinstance(one, dict):
            raise SettingError(
                f"model.layers: layers must be a number from 1 to {MOST_LAYERS}, and block a table of settings"
            )
        model["blocks"] = [{"kind": "block"} | one] * layers
    if "context" not in model and isinstance(block, int):
        model["context"] = block
    return model


def laid_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """The settings of `base` with those of `over` put over them, table by table. A table of another `kind` has settings
    of its own, and takes the place of the whole table below it; so does a list."""
    if "kind" in base and over.get("kind", base["kind"]) != base["kind"]:
        return over
    inner = {
        name: laid_over(base[name], value)
        for name, value in over.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return base | over | inner


def _located(text: str, name: str, folder: Path) -> str:
    """A path of a recipe with its environment variables filled in."""
    if not text:
        raise SettingError(f"{name}: the path is empty; name a file or a folder")
    for variable in re.findall(r"\$\{?(\w+)", text):
        if variable not in os.environ:
            rest = re.sub(rf"^\$\{{?{variable}\}}?/", "", text)
            raise SettingError(
                f"{name}: the environment variable {variable} in {text!r} is not set; set it to the folder that holds "
                f"{rest} (export {variable}=FOLDER), or give the path itself with --set {name}=PATH"
            )
    path = Path(os.path.expandvars(text)).expanduser()
    return str(path if path.is_absolute() else folder / path)


# ---------------------------------------------------------------- a text without a recipe

_METHODS = ("byte", "char", "bpe", "unigram")

# From so many bytes of text on: (width, blocks, window, windows in a pass, passes in an update, readings of the text).
# A larger text carries a larger model; a small one is read more often, but not so often that it is learnt by heart.
# About 1,000 tokens a pass keep what is worked on in a processor's cache (17 % faster than 4,000; dev/LOG.md).
_SIZES = (
    (0, 128, 4, 256, 4, 1, 6),
    (300_000, 128, 4, 256, 4, 1, 3),
    (2_000_000, 192, 5, 128, 8, 2, 3),
    (10_000_000, 256, 6, 128, 8, 8, 2),
    (100_000_000, 384, 8, 256, 4, 16, 1),
)


_LARGE = 2_000_000  # bytes; from here on pieces of words pay


def recommended(source: Path | str, method: str | None = None, longest: int = 0) -> RunSpec:
    """The run for a text file or folder that has no recipe, chosen by its size in bytes.

    method: of the tokenizer; None: bytes below 2 MB, BPE above. Its vocabulary is that of `fitting_vocab`. Width, depth
    and readings of the text come from `_SIZES`; the steps follow from the expected number of tokens (with pieces of
    words 3.5 bytes each, 2 below 2 MB), and are at least 60. longest: a window that must fit into the context, too.
    """
    size = _size(source)
    _, dim, layers, block, batch, accumulate, readings = next(row for row in reversed(_SIZES) if size >= row[0])
    method = method or ("byte" if size < _LARGE else "bpe")
    tokens = size if method in ("byte", "char") else size / (2.0 if size < _LARGE else 3.5)
    steps = max(60, round(readings * tokens / (batch * accumulate * block)))
    return RunSpec(
        data=str(source),
        tokenizer=TokenizerSpec(method=method, vocab=fitting_vocab(method, size)),
        model=modern(dim, layers, max(block, longest)),
        steps=steps,
        batch=batch,
        block=block,
        accumulate=accumulate,
        optimizer=MuonSpec(rate=0.02, momentum=0.9, others=AdamWSpec(rate=1.28 / dim, decay=0.0)),
        schedule=ScheduleSpec(shape="linear", warmup=20, final=0.0),
        evaluate_every=max(50, steps // 20),
        evaluate_blocks=256,
        sample_every=max(100, steps // 10),
        save_every=max(50, steps // 20),
    )


def fitting_vocab(method: str, size: int) -> int:
    """A vocabulary for a text of `size` bytes: with pieces of words the power of two below size/2000, from 512 to
    16,384, so that each piece is seen often enough to be learnt."""
    if method in ("byte", "char"):
        return {"byte": 257, "char": 1 << 16}[method]  # an upper limit, beyond the characters of any one language
    return min(max(1 << max(size // 2000, 1).bit_length() - 1, 512), 16_384)


def _size(source: Path | str) -> int:
    return sum(path.stat().st_size for path in text_files(source))


def modern(dim: int, layers: int, context: int) -> ModelSpec:
    """The decoder that learnt most here per second of processor time; see dev/LOG.md."""
    norm = LayerNormSpec(bias=False)  # on a processor its kernel is faster than what RMSNorm is made of
    block = BlockSpec(
        mixer=AttentionSpec(
            heads=max(dim // 32, 1), qk_norm=LayerNormSpec(weight=False, bias=False), position=RopeSpec()
        ),
        channel=MlpSpec(activation="gelu", bias=False),
        norm=norm,
    )
    return ModelSpec(
        vocab=0,
        dim=dim,
        blocks=(block,) * layers,
        context=context,
        embed=EmbedSpec(previous=True),
        norm=norm,
        head=HeadSpec(tied=False),
        init=InitSpec(std=None, embedding_std=0.2, outputs="zero"),
    )
