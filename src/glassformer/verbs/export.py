"""The verb that writes a model for others: export."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import GlassformerError, InputError
from ..terminal.complaint import with_options
from ..terminal.options import COMMON, Common, Place, Whole
from ..terminal.output import print_json, say
from .loading import loaded_as


def export(
    model: Annotated[str, Parameter(help="A model's name, folder or hub id.")],
    folder: Annotated[Place, Parameter(help="The folder to write, which must be new or empty.")],
    /,
    *,
    family: Annotated[
        str | None,
        Parameter(help="The published family to write it as, such as llama; left out: the first that can be it."),
    ] = None,
    tokenizer: Annotated[bool, Parameter(help="Write its tokenizer too.")] = True,
    shard: Annotated[Whole, Parameter(help="The most that one file of weights may hold, in MB.")] = 5000,
    common: Common = COMMON,
) -> None:
    """Write a model as a folder that Hugging Face transformers loads, with the same numbers. A model that no published
    family can be is refused, with the setting that has no published form.

    Example:  glassformer export out/my-llama my-llama-hf
    """
    if shard < 1:
        raise InputError(f"--shard: {shard} is not allowed; use 1 or more")
    loaded = loaded_as(model, common)
    more = {"tokenizer": tokenizer} if loaded.reads == "text" else {}
    try:
        config = loaded.export(folder, family=family, shard_bytes=shard * 10**6, **more)
    except GlassformerError as error:
        raise type(error)(with_options(str(error), {"family": "--family"})) from None
    files = sorted(path.name for path in folder.iterdir())
    made = {"family": config["model_type"], "architecture": config["architectures"][0]}
    without = _without(loaded, **made)
    if common.json:
        print_json({"folder": str(folder), **made, "files": files, "without": without})
        return
    say("exported", common.lang, folder=folder, **made)
    if without:
        say("exported_without", common.lang, names=", ".join(without))


def _without(loaded: Any, family: str, architecture: str) -> list[str]:
    """The part that a published class has beside the network of a model of sentence vectors, and the model has not."""
    from ..hf import FAMILIES  # only here: a trace should not wait for it
    from ..hf.sentences import pooling_of

    chosen = FAMILIES[family]
    lacking = chosen.lacking.get(architecture)
    if lacking is None or pooling_of(loaded.spec) is None:
        return []
    return [lacking[0].removeprefix(chosen.prefix).removesuffix(".weight")]
