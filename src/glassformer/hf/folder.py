"""A model as a folder that transformers loads: config.json, weights, generation_config.json, and the files of its
tokenizer or of how its pictures are prepared; of a model of sentence vectors one that sentence-transformers loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors
from torch import Tensor, nn

from ..data.published import Published, Settings, longest
from ..data.speech import SpeechSpec
from ..data.tokenizer import Tokenizer
from ..errors import InputError, UnsupportedError
from ..files import given_path, new_folder, write_json
from ..model import EncoderDecoder
from ..spec import from_data
from ..weights import write_safetensors
from . import FAMILIES, Config, export
from .generation import published_generation, speech_generation, written_generation
from .rules import FREE, WRITING, Family
from .sentences import Sentences, network_of, pooling_of, write_sentences

SHARD_BYTES = 5 * 10**9  # of one file of weights, as transformers has it
IDS = {name for name in FREE if name.endswith(("_token_id", "suppress_tokens"))} | {"bad_words_ids"}
# Of `about`: what other files of the folder hold.
_OF_FILES = ("config", "generation_config", "generation", "speech", "sentences")


def write_folder(
    model: nn.Module,
    folder: Path | str,
    *,
    family: str | None = None,
    tokenizer: Tokenizer | None = None,
    about: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Config:
    """Write a model into a new folder as a published family has it (None: that which it came from, else the first that
    can say it); its config.json.

    about: how the model was made; what its own config.json said besides, where it was published, is kept. The folder
    appears when it is whole. Raises InputError for one that holds something, UnsupportedError as `export` does.
    """
    if shard_bytes < 1:
        raise InputError(f"shard_bytes: {shard_bytes} is not allowed; use 1 or more")
    with new_folder(given_path(folder)) as made:
        config, tensors = export(model, family or _own_family(model, about or {}))
        chosen = FAMILIES[config["model_type"]]
        vocab = _cut(model, about or {})
        whole = _besides(chosen, config, about or {}, tokenizer, vocab) | {"dtype": _number_format(tensors)}
        for name, fields in chosen.beside.items():
            write_json(made / name, {field: whole.pop(field) for field in sorted(fields & whole.keys())})
        write_json(made / "config.json", whole)
        known = None if tokenizer is None else as_published(tokenizer, getattr(model.spec, "context", None))
        if pooling_of(model.spec) is not None:
            _write_sentences(made, model.spec, known, about or {})
            known = known and _padded(known, whole)
        if known is not None and known.files:
            known.save_files(made)
        elif known is not None:
            known.save(made)
            _write_inputs(made, model.spec)
            _write_special(made)
        _write_weights(made, tensors, shard_bytes)
        said = _within(written_generation(whole, about or {}, _own(model, about or {}, tokenizer)), vocab)
        if said:
            write_json(made / "generation_config.json", said)
        told = {name: value for name, value in (about or {}).items() if name not in _OF_FILES}
        if told:
            write_json(made / "about.json", told)
    return whole


def _own_family(model: nn.Module, about: Mapping[str, Any]) -> str | None:
    """The family that a published model came from, where it can still be said in it."""
    family = FAMILIES.get((about.get("config") or {}).get("model_type"))
    return None if family is None or family.nearest(network_of(model.spec))[1] else family.name


def _own(model: nn.Module, about: Mapping[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What the model says of how it writes; what it says nothing of begins and ends as its tokenizer has it."""
    if "speech" in about:
        return speech_generation(from_data(about["speech"], SpeechSpec))
    own, pair, vocab = about.get("generation", {}), isinstance(model, EncoderDecoder), _writes(model)
    wrong = next((id for name in ("begin", "forced") for id in own.get(name, []) if id >= vocab), None)
    if wrong is not None:
        raise UnsupportedError(
            f"a target that begins with token id {wrong} cannot be written with a vocabulary of {vocab}; set "
            "about['generation'] to tokens of it"
        )
    if tokenizer is not None and ("generation" in about or pair):
        own = {"ends": sorted(tokenizer.ends)} | ({"begin": list(tokenizer.begin)} if pair else {}) | own
    return published_generation(own)


def _number_format(tensors: Mapping[str, Tensor]) -> str:
    return str(next(iter(tensors.values())).dtype).removeprefix("torch.")


def _writes(model: nn.Module) -> int | None:
    """How many tokens a model writes; None for one that reads no text."""
    return getattr((model.decoder if isinstance(model, EncoderDecoder) else model).spec, "vocab", None)


def _cut(model: nn.Module, about: Mapping[str, Any]) -> int | None:
    """The same where the published model that this one was wrote more; else None, and what it said is kept."""
    before, vocab = about.get("config") or {}, _writes(model)
    family = FAMILIES.get(before.get("model_type"))
    held = {**family.defaults, **before} if family else before
    published = held.get("decoder_vocab_size") or held.get("vocab_size") or 0
    return vocab if vocab is not None and vocab < published else None


def _within(settings: Config, vocab: int | None) -> Config:
    """Published settings without the ids that so many tokens do not hold, as of a vocabulary that was cut since."""

    def fits(value: Any) -> bool:
        return all(map(fits, value)) if isinstance(value, list) else not isinstance(value, int) or value < vocab

    def known(value: Any) -> Any:
        return [one for one in value if fits(one)] if isinstance(value, list) else value if fits(value) else None

    if vocab is None:
        return settings
    held = {name: known(value) if name in IDS else value for name, value in settings.items()}
    return {name: value for name, value in held.items() if value == settings[name] or value not in (None, [])}


def _besides(
    family: Family, config: Config, about: Mapping[str, Any], tokenizer: Tokenizer | None, vocab: int | None
) -> Config:
    """A configuration with what says nothing of the computation: of the published model that this one was, as far as
    its ids are those of tokens, and where that has no word of them, the ids of the tokenizer that goes with it."""
    before, said = about.get("config"), {name for rule in family.rules for name in rule.fields}
    if isinstance(before, dict):
        same = before.get("model_type") == family.name
        names = {"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "id2label", "label2id"}
        free = (FREE | family.free if same else WRITING | IDS) - names - said
        kept = _within({name: value for name, value in before.items() if name in free}, vocab)
        config = kept | config | {name: value for name, value in kept.items() if name in FREE}
        if same and ("generation" in about or "speech" in about):  # a folder, which said itself what it had to say
            return config
    if tokenizer is None:
        return config
    ends = sorted(tokenizer.ends)
    ids = {"bos_token_id": next(iter(tokenizer.start), None), "eos_token_id": ends[0] if len(ends) == 1 else ends}
    return {name: value for name, value in ids.items() if value not in (None, [])} | config


def _write_weights(folder: Path, tensors: Mapping[str, Tensor], most_bytes: int) -> None:
    """One file, or several and an index, none of them larger than asked for unless one tensor alone is."""
    files: list[list[str]] = [[]]
    size = 0
    for name, value in tensors.items():
        if files[-1] and size + value.nbytes > most_bytes:
            files.append([])
            size = 0
        files[-1].append(name)
        size += value.nbytes
    count, places = len(files), {}
    for number, names in enumerate(files, 1):
        file = "model.safetensors" if count == 1 else f"model-{number:05}-of-{count:05}.safetensors"
        sizes = {name: (tensors[name].dtype, tuple(tensors[name].shape)) for name in names}
        write_safetensors(folder / file, sizes, tensors.__getitem__, {"format": "pt"})
        places |= dict.fromkeys(names, file)
    if count > 1:
        total = sum(value.nbytes for value in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_json(folder / "model.safetensors.index.json", index)


def as_published(tokenizer: Tokenizer, context: int | None) -> Published:
    """A tokenizer in the form that other programs read: the token before every text, which `encode` puts there itself,
    is put there by its post-processor, and is named as the one that begins and ends a text."""
    if isinstance(tokenizer, Published):
        return tokenizer
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    end, id = tokenizer.end, tokenizer.end_id
    if not tokenizer.closing:
        library.post_processor = processors.Sequence(
            [processors.TemplateProcessing(single=f"{end} $A", pair=f"{end} $A {end} $B:1", special_tokens=[(end, id)])]
        )
    return Published(library, Settings({"bos": end, "eos": end}, (id,), (id,), context))


def _write_sentences(folder: Path, spec: Any, tokenizer: Published | None, about: Mapping[str, Any]) -> None:
    """How vectors of texts are made, with how many tokens are read written out."""
    said = about.get("sentences") or {}
    read = said | {"longest": longest(spec.context, tokenizer, said)}
    write_sentences(folder, Sentences(pooling_of(spec), read), spec.dim)


def _padded(tokenizer: Published, config: Config) -> Published:
    """A tokenizer that can fill up a batch of texts: where it names no token for that, any special one will do, since
    what it fills is masked."""
    special = tokenizer.special.get(config.get("pad_token_id", -1), next(iter(tokenizer.special.values()), ""))
    if "pad" in tokenizer.settings.names or not special:
        return tokenizer
    settings = replace(tokenizer.settings, names=tokenizer.settings.names | {"pad": special})
    return Published(tokenizer.library, settings)


def _write_inputs(folder: Path, spec: Any) -> None:
    """What transformers' tokenizer hands on: with the parts of a pair where the model tells them apart."""
    apart = ["token_type_ids"] if getattr(getattr(spec, "embed", None), "types", 0) > 1 else []
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, config | {"model_input_names": ["input_ids", *apart, "attention_mask"]})


def _write_special(folder: Path) -> None:
    """special_tokens_map.json, which older programs read, from tokenizer_config.json."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    special = {name: value for name, value in config.items() if name.endswith("_token") and isinstance(value, str)}
    write_json(folder / "special_tokens_map.json", special)
