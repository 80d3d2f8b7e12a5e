"""A training run as data: what is trained, on what, how long and how. Recipes are such data in TOML files."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ..data.text import text_files
from ..data.vocabulary import TokenizerSpec
from ..errors import InputError, SettingError, nearest
from ..mixers.attention import AttentionSpec
from ..model import BlockSpec, ModelSpec
from ..nn.channel import MlpSpec
from ..nn.embed import EmbedSpec
from ..nn.head import HeadSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec
from ..nn.position import RopeSpec
from ..spec import Spec, from_data, with_settings


class AdamWSpec(Spec, frozen=True, tag="adamw"):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019). Only matrices and tables decay, vectors do not.

    rate is the highest learning rate, betas how slowly the means of gradient and square forget, eps what keeps the
    division safe, decay the share of a weight that is lost per step at rate 1.
    """

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    decay: float = 0.1


class MuonSpec(Spec, frozen=True, tag="muon"):
    """Muon (Jordan et al. 2024): the momentum of each matrix inside the blocks is orthogonalised before it is used.

    Tables, the head and vectors have no two sides to balance; they are trained by `others`. Each matrix moves by
    rate · √(max(1, rows/columns)) along the orthogonalised momentum; decay is that of AdamW.
    """

    rate: float = 0.02
    momentum: float = 0.95
    decay: float = 0.0
    others: AdamWSpec = AdamWSpec()


class ScheduleSpec(Spec, frozen=True, tag="schedule"):
    """The factor on every rate: it rises linearly over `warmup` steps to 1 and falls to `final` at the last step.

    shape: cosine and linear fall all the way; trapezoid stays at 1 and falls linearly over the last `cooldown` share
    of the steps; constant stays.
    """

    shape: Literal["cosine", "linear", "trapezoid", "constant"] = "cosine"
    warmup: int = 100
    final: float = 0.1
    cooldown: float = 0.4

    def __post_init__(self) -> None:
        if self.warmup < 0 or not 0 <= self.final <= 1 or not 0 < self.cooldown <= 1:
            raise SettingError("schedule: warmup must be 0 or more, final from 0 to 1, cooldown above 0 to 1")


DEFAULT_PROMPT = "\n"


class RunSpec(Spec, frozen=True, tag="run"):
    """Everything that decides a training run.

    data            a text file or a folder of them; $NAME stands for an environment variable
    validation      the share of the text, from its end, that is held out; or the path of a text of its own
    model           its `vocab` may be 0, which means the size of the `tokenizer`
    optimizer       and the `schedule` of its rates
    steps           updates; each sees accumulate · batch · block tokens
    batch, block    windows in one pass forward and backward, and their length in tokens
    accumulate      passes whose gradients are averaged before an update
    clip            the largest norm of the whole gradient; None: any
    dtype           of the passes; weights and optimizer stay in float32. auto: see `train.loop.precision`
    threads         processor threads while training; None: PyTorch's choice
    compile         torch.compile; it needs a C++ compiler and about a minute at the start
    seed            of the initial weights, the windows and dropout
    evaluate_every  steps between validation losses; None: only at the end
    evaluate_blocks windows of the validation split used on the way; None: the whole split. The last is always whole
    sample_every    steps between samples (None: only at the end), of sample_tokens tokens after `prompt`
    save_every      steps between checkpoints; None: only at the end and when interrupted
    snapshots       how many sets of weights are kept for a film of the training, from the first to the last step, the
                    steps between them growing; 0: none
    """

    data: str
    model: ModelSpec
    steps: int
    validation: float | str = 0.1
    tokenizer: TokenizerSpec = TokenizerSpec()
    batch: int = 32
    block: int = 128
    accumulate: int = 1
    optimizer: AdamWSpec | MuonSpec = AdamWSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    clip: float | None = 1.0
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int | None = None
    compile: bool = False
    seed: int = 0
    evaluate_every: int | None = 250
    evaluate_blocks: int | None = None
    sample_every: int | None = 250
    sample_tokens: int = 100
    prompt: str = DEFAULT_PROMPT
    save_every: int | None = 250
    snapshots: int = 12

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "block", "accumulate"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name}: {getattr(self, name)} is not allowed; use 1 or more")
        for name in ("evaluate_every", "evaluate_blocks", "sample_every", "save_every", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(f"{name}: {value} is not allowed; use 1 or more, or leave it out")
        if self.snapshots < 0 or self.sample_tokens < 0:
            raise SettingError("snapshots and sample_tokens: use 0 or more")
        if self.clip is not None and self.clip <= 0:
            raise SettingError(f"clip: {self.clip} is not allowed; use a number above 0, or null for no clipping")
        if self.block > self.model.context:
            raise SettingError(f"block: {self.block} is longer than model.context={self.model.context}")


# Settings that may differ when a run goes on: they change what is seen of it or how fast it is, not what was learnt.
_PACE = ("steps", "threads", "evaluate_every", "evaluate_blocks", "sample_every", "sample_tokens", "prompt")
FREE = frozenset((*_PACE, "data", "save_every", "snapshots"))


def read_run(path: str | Path, settings: Mapping[str, str] | None = None) -> RunSpec:
    """A recipe (.toml or .json), or, for a text file or a folder of texts, the defaults of `recommended`; then changed
    by `settings`, dotted path to value, where `model.layers` is the number of blocks.

    In a recipe, `model.layers` copies of `model.block` may stand for `model.blocks`. A relative path in it starts at
    the recipe's folder. Raises InputError for a missing file, SettingError for wrong settings.
    """
    path, settings = Path(path), dict(settings or {})
    run = _read_recipe(path) if path.suffix in (".toml", ".json") else recommended(path)
    layers = settings.pop("model.layers", None)
    if layers is not None:
        if not layers.isdecimal() or int(layers) < 1:
            raise SettingError(f"model.layers: {layers!r} is not allowed; use a number from 1")
        run = run.changed(model=run.model.changed(blocks=run.model.blocks[:1] * int(layers)))
    return with_settings(run, settings)


def _read_recipe(path: Path) -> RunSpec:
    if not path.is_file():
        near = [str(p.name) for p in path.parent.glob("*.*")] if path.parent.is_dir() else []
        raise InputError(f"{path}: there is no such file" + (f"; {nearest(path.name, near)}" if near else ""))
    text = path.read_text(encoding="utf-8")
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise SettingError(f"{path}: not valid {path.suffix[1:].upper()}: {error}") from None
    try:
        return run_from_data(data, path.parent)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def run_from_data(data: dict[str, Any], folder: Path = Path()) -> RunSpec:
    """The run of a recipe's data; relative paths in it start at `folder`."""
    data = dict(data)
    if isinstance(data.get("model"), dict):
        data["model"] = _written_out(data["model"], data.get("block"))
    for name in ("data", "validation"):
        if isinstance(data.get(name), str):
            data[name] = _located(data[name], name, folder)
    return from_data(data, RunSpec)


def _written_out(model: dict[str, Any], block: Any) -> dict[str, Any]:
    """The model's settings with `layers` and `block` replaced by as many blocks, and what the run decides filled in."""
    model = {"vocab": 0} | model
    if "layers" in model or "block" in model:
        if "blocks" in model:
            raise SettingError("model.blocks: give either blocks, or layers and block")
        layers, one = model.pop("layers", 1), model.pop("block", None)
        if not isinstance(layers, int) or layers < 1 or not isinstance(one, dict):
            raise SettingError("model.layers: layers must be a number from 1 and block a table of settings")
        model["blocks"] = [one] * layers
    if "context" not in model and isinstance(block, int):
        model["context"] = block
    return model


def _located(text: str, name: str, folder: Path) -> str:
    """A path of a recipe with its environment variables filled in."""
    for variable in re.findall(r"\$\{?(\w+)", text):
        if variable not in os.environ:
            raise SettingError(
                f"{name}: the environment variable {variable} in {text!r} is not set; set it to the folder of the "
                f"data, or give the path itself with --set {name}=PATH"
            )
    path = Path(os.path.expandvars(text)).expanduser()
    return str(path if path.is_absolute() else folder / path)


# ---------------------------------------------------------------- a text without a recipe

# From so many bytes of text on: (width, blocks, window, windows in a pass, passes in an update, readings of the text).
# A larger text carries a larger model; a small one is read more often, but not so often that it is learnt by heart.
# About 1,000 tokens a pass keep what is worked on in a processor's cache (17 % faster than 4,000; dev/LOG.md).
_SIZES = (
    (0, 128, 4, 64, 16, 1, 6),
    (300_000, 128, 4, 64, 16, 1, 3),
    (2_000_000, 192, 5, 128, 8, 2, 3),
    (10_000_000, 256, 6, 128, 8, 8, 2),
    (100_000_000, 384, 8, 256, 4, 16, 1),
)


def recommended(source: Path | str) -> RunSpec:
    """The run for a text file or folder that has no recipe, chosen by its size in bytes.

    Below 2 MB tokens are bytes; above, BPE with the power of two below bytes/2000 as its vocabulary, at most 16,384.
    Width, depth and readings of the text come from `_SIZES`; the steps follow from the expected number of tokens (3.5
    bytes a token with BPE), and are at least 300. Everything else as in runs/shakespeare.toml.
    """
    size = sum(path.stat().st_size for path in text_files(source))
    _, dim, layers, block, batch, accumulate, readings = next(row for row in reversed(_SIZES) if size >= row[0])
    if size < 2_000_000:
        tokenizer, tokens = TokenizerSpec(method="byte", vocab=257), size
    else:
        vocab = min(1 << (size // 2000).bit_length() - 1, 16_384)
        tokenizer, tokens = TokenizerSpec(method="bpe", vocab=vocab), size / 3.5
    steps = max(300, round(readings * tokens / (batch * accumulate * block)))
    return RunSpec(
        data=str(source),
        tokenizer=tokenizer,
        model=modern(dim, layers, block),
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


def modern(dim: int, layers: int, context: int) -> ModelSpec:
    """The decoder that learnt most here per second of processor time, as in runs/shakespeare.toml; see dev/LOG.md."""
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
