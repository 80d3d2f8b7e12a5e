"""Folders as models are published on the Hugging Face hub: config.json, weights, and the files of a tokenizer; those of
sentence-transformers too, whose parts modules.json lists. And GGUF files, whose metadata say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data.folder import FILES, read_tokenizers
from ..data.tokenizer import Tokenizer
from ..errors import CheckpointError, GlassformerError
from ..files import read_object
from ..hf import FAMILIES, Config, check_beginning, family_of, read_model
from ..hf.generation import own_generation
from ..hf.sentences import LIST, read_parts, read_sentences
from ..model import AnySpec
from ..nn.pool import PooledSpec
from ..weights import Weights
from .gguf import read_whole
from .gguf_model import configured
from .gguf_tokenizer import read_tokenizer
from .shards import read_weights
from .whisper import published_speech

SAID = ("name", "author", "organization", "license", "url", "source.url", "description")  # of general. in GGUF


@dataclass
class Checkpoint:
    """A model as it was published: its configuration, its weights by their published names, none of them read yet, and
    its tokenizers as in Imported."""

    config: Config
    weights: Weights
    tokenizer: Tokenizer | None = None
    source: Tokenizer | None = None
    about: dict[str, Any] = field(default_factory=dict)
    head: PooledSpec | None = None  # in the place of the published one

    def model(self, place: Path, device: str | torch.device, dtype: torch.dtype) -> nn.Module:
        """The model in evaluation mode; raises as hf.check_beginning and hf.read_model do."""
        check_beginning(self.config, self.about.get("generation_config", {}))
        return read_model(self.config, self.weights, place, device, dtype, head=self.head)


def is_huggingface(path: Path) -> Path | None:
    """The folder with the config.json of a published model, where there is one at `path`."""
    if not path.is_dir():
        return None
    folder = _transformer(path)
    return folder if "model_type" in read_object(folder / "config.json") else None


def _transformer(path: Path) -> Path:
    """The folder of the network itself; older sentence-transformers have it inside, in the one that they list first."""
    return path if (path / "config.json").is_file() or not (path / LIST).is_file() else read_parts(path)[0][1]


def read_huggingface(folder: Path) -> Checkpoint:
    """The model in a folder that `is_huggingface` found."""
    config = _with_others(read_object(folder / "config.json"), folder)
    weights = read_weights(folder)
    tokenizer = source = None
    if any((folder / name).is_file() for name in FILES):
        tokenizer, source = read_tokenizers(folder, config)
    said = read_object(folder / "generation_config.json")
    about: dict[str, Any] = {"format": "Hugging Face", "config": config} | _summaries(str(config["model_type"]), "")
    about |= {"generation_config": said} if said else {}
    if config["model_type"] == "whisper" and tokenizer is not None:
        about["speech"] = published_speech(config, said, tokenizer)
    else:
        about["generation"] = own_generation(config, said)
    above = folder.parent if not (folder / LIST).is_file() else folder
    sentences = read_sentences(above) if _transformer(above) == folder else None
    if sentences is not None:
        about["sentences"] = sentences.about
    head = None if sentences is None else sentences.head
    return Checkpoint(config, weights, tokenizer, source, about, head)


def published_spec(folder: Path) -> AnySpec:
    """What the settings in a folder that `is_huggingface` found say, without its weights: the network without a head
    that others have put on it. Raises as hf.family_of and Family.spec do."""
    config = _with_others(read_object(folder / "config.json"), folder)
    return family_of(config).spec(config)


def _with_others(config: Config, folder: Path) -> Config:
    """The configuration together with what its family has in further files, such as preprocessor_config.json."""
    family = FAMILIES.get(str(config["model_type"]))
    for name in family.beside if family else ():
        config = read_object(folder / name) | config
    return config


def read_gguf(file: Path) -> Checkpoint:
    """The model in a file that `is_gguf` found."""
    held = read_whole(file)
    try:
        config, weights = configured(held)
        tokenizer = read_tokenizer(held)
    except GlassformerError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:  # an entry of another type
        raise CheckpointError(f"{file} is broken or truncated ({error}); fetch it again") from None
    said = {name: held.metadata[f"general.{name}"] for name in SAID if f"general.{name}" in held.metadata}
    about: dict[str, Any] = {"format": "GGUF", "config": config} | _summaries(
        config["model_type"], said.get("name", "")
    )
    about |= {"licence": said["license"]} if "license" in said else {}
    return Checkpoint(config, weights, tokenizer, about=about | {"said": said})


def _summaries(kind: str, name: str) -> dict[str, str]:
    shown = f"{name} ({kind})" if name else kind
    return {"summary": f"A published model: {shown}", "summary_ko": f"공개된 모델: {shown}"}
