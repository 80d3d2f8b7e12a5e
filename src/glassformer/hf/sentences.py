"""What the folders of sentence-transformers hold beside the network: how the vectors of its tokens become one, and how
a text is read. RULES is read in both directions, as the table of a family is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedError, nearest
from ..files import read_json, read_object, write_json
from ..nn.pool import PooledSpec
from ..spec import from_data, to_data
from .rules import Config, Rule, differences, get, put, same

LIST = "modules.json"
POOLING, READING, PROMPTS = "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"
PARTS = ("Transformer", "Pooling", "Normalize")
FLAG = "pooling_mode_"
POOLS = {"cls_token": "first", "mean_tokens": "mean", "lasttoken": "last"}  # behind FLAG, as fields that are true
WORDS = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}  # of the newer field pooling_mode


@dataclass(frozen=True)
class Sentences:
    """head: what the vectors of the tokens become. about: how a text is read: `longest` in tokens, `prefix` before
    every text, `prompts` by name; and `similarity` of two vectors, where it is another than their cosine."""

    head: PooledSpec
    about: dict[str, Any]


def pooling_of(spec: Any) -> PooledSpec | None:
    """The head of a model of sentence vectors, which has no weights: published it stands beside the network, which ends
    in the vectors of the tokens. None for any other model."""
    head = getattr(spec, "head", None)
    alone = isinstance(head, PooledSpec) and head.pooler is None and head.classes is None
    return head if alone else None


def network_of(spec: Any) -> Any:
    """The spec of a model without such a head."""
    return spec if pooling_of(spec) is None else spec.changed(head=None)


# ---------------------------------------------------------------- the table


def _pool(config: Config) -> str:
    flags = [name.removeprefix(FLAG) for name, on in config.items() if name.startswith(FLAG) and on]
    given = config.get("pooling_mode", flags)
    modes = [given] if isinstance(given, str) else list(given)
    named = [WORDS.get(one, one) for one in modes]
    if len(named) != 1 or named[0] not in POOLS:
        shown = ", ".join(map(str, modes)) or "none"
        raise UnsupportedError(f"the pooling {shown} is not known here; known is one of {', '.join(WORDS)}")
    return POOLS[named[0]]


def _prefix(config: Config) -> Config:
    prompts = config["prompts"] or {}
    return {"prompts": prompts, "prefix": prompts.get(config["default_prompt_name"], "")}


def _prompts(about: Config) -> Config:
    prompts, prefix = about["prompts"], about["prefix"]
    usual = next((name for name, text in prompts.items() if text == prefix), None) if prefix else None
    return {"prompts": prompts, "default_prompt_name": usual}


RULES = (
    Rule(("parts",), ("head.unit",), lambda config: PARTS[2] in config["parts"], lambda on: {"parts": PARTS[: 2 + on]}),
    Rule((FLAG,), ("head.pool",), _pool, lambda pool: {f"{FLAG}{name}": pool == ours for name, ours in POOLS.items()}),
    same("max_seq_length", "about.longest"),
    Rule(
        ("similarity_fn_name",),
        ("about.similarity",),
        lambda config: None if config["similarity_fn_name"] == "cosine" else config["similarity_fn_name"],
        lambda name: {"similarity_fn_name": name},
    ),
    Rule(("prompts", "default_prompt_name"), ("about",), _prefix, _prompts),
)
DEFAULTS: Config = dict.fromkeys(("max_seq_length", "prompts", "default_prompt_name", "similarity_fn_name"))
# Settings of the programs that load the parts, under the older and the newer names.
PASSED = ("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs")
# What in them changes no number of the same weights.
IDLE = frozenset(("dtype", "torch_dtype", "attn_implementation", "add_pooling_layer", "trust_remote_code", "revision"))
FIXED: dict[str, tuple[Any, ...]] = {
    "do_lower_case": (False,),
    "include_prompt": (True,),
    "transformer_task": ("feature-extraction",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
    "module_output_name": ("token_embeddings",),
    **dict.fromkeys((*PASSED, "processing_kwargs"), ({}, None)),
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
}
OF_READING = FIXED.keys() | {"max_seq_length", "unpad_inputs"}  # the second: how a batch is laid out
BARE = {"longest": None, "prefix": "", "prompts": {}, "similarity": None}


def _meant(config: Config) -> dict[str, Any]:
    """What the fields of all files mean: the head and what is said about texts, as plain data."""
    for name, allowed in FIXED.items():
        if name in config and config[name] not in allowed:
            only = ", ".join(map(repr, allowed))
            raise UnsupportedError(
                f"{name}: {config[name]!r} is not supported in a sentence-transformers model; only {only}"
            )
    data, full = {"head": to_data(PooledSpec()), "about": {**BARE}}, DEFAULTS | config
    for rule in RULES:
        for place in rule.places:
            put(data, place, rule.read(full))
    return data


# ---------------------------------------------------------------- files to a head


def read_sentences(folder: Path) -> Sentences | None:
    """What modules.json and the files that it names say; None where there is none.

    Raises UnsupportedError for a part, a pooling or a setting that is not known here, CheckpointError for broken files.
    """
    if not (folder / LIST).is_file():
        return None
    try:
        return _read(folder, read_parts(folder))
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / LIST} is broken ({error!r}); fetch it again") from None


def read_parts(folder: Path) -> list[tuple[str, Path]]:
    """The parts in the order of modules.json: the kind of each, and the folder of its files.

    Raises CheckpointError for a broken list, and for a path that leads out of the folder.
    """
    path, parts = folder / LIST, read_json(folder / LIST)
    if not isinstance(parts, list) or not all(isinstance(one, dict) for one in parts) or not parts:
        raise CheckpointError(f"{path} must be a list of JSON objects, one for each part; fetch it again")
    made = []
    for one in parts:
        inside = one.get("path", "")
        if not isinstance(inside, str) or Path(inside).is_absolute() or ".." in Path(inside).parts:
            raise CheckpointError(f"{path} names no folder inside this one; fetch it again")
        made.append((str(one.get("type")).rpartition(".")[2], folder / inside))
    return made


def _read(folder: Path, parts: list[tuple[str, Path]]) -> Sentences | None:
    kinds = tuple(kind for kind, _ in parts)
    if kinds == PARTS[:1]:  # the network alone, a vector for each token
        return None
    if kinds not in (PARTS[:2], PARTS):
        raise UnsupportedError(
            f"{folder / LIST}: the parts {', '.join(kinds)} are not known here; known are Transformer, "
            "Pooling and perhaps Normalize"
        )
    given = read_object(folder / PROMPTS) | _reading(parts[0][1] / READING)
    given |= read_object(parts[1][1] / "config.json", needed=True)
    found = _meant(given | {"parts": kinds})
    return Sentences(from_data(found["head"], PooledSpec), {key: one for key, one in found["about"].items() if one})


def _reading(path: Path) -> Config:
    """The settings of how a text is read, without those that change no number."""
    given = read_object(path)
    for name, value in given.items():
        if name not in OF_READING:
            raise UnsupportedError(
                f"{name}: this field of a sentence-transformers configuration (here {value!r}) is not known; "
                f"{nearest(name, OF_READING)}"
            )
        if name in PASSED and isinstance(value, dict):
            given[name] = {one: what for one, what in value.items() if one not in IDLE}
    return given


# ---------------------------------------------------------------- a head to files


def write_sentences(folder: Path, found: Sentences, width: int) -> None:
    """Write modules.json and the files that it names into the folder of a network that gives `width` numbers a token.

    Raises UnsupportedError, before anything is written, with the first setting that they cannot say.
    """
    data = {"head": to_data(found.head), "about": BARE | found.about}
    config: Config = {}
    for rule in RULES:
        config |= rule.write(get(data, rule.places[0])[0])
    different = differences(data, _meant(config))
    if different:
        raise UnsupportedError(f"a sentence-transformers model cannot be this one: {different[0]}")
    paths = [f"{number}_{kind}" if number else "" for number, kind in enumerate(config["parts"])]
    kinds = [f"sentence_transformers.models.{kind}" for kind in config["parts"]]
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    flags = {name: on for name, on in config.items() if name.startswith(FLAG)}
    similar = ("similarity_fn_name",) if config["similarity_fn_name"] else ()
    files: Mapping[str, Any] = {
        LIST: listed,
        POOLING: {"word_embedding_dimension": width, **flags},
        READING: {"max_seq_length": config["max_seq_length"], "do_lower_case": False},
        PROMPTS: {name: config[name] for name in ("prompts", "default_prompt_name", *similar)},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, content)
