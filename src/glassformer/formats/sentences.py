"""What the folders of sentence-transformers say beside the network: how the vectors of the tokens become one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedError
from ..files import read_json, read_object
from ..nn.pool import PooledSpec

LIST = "modules.json"
POOLS = {"cls": "first", "mean": "mean", "lasttoken": "last"}
OLDER = {"cls_token": "cls", "mean_tokens": "mean"}  # behind pooling_mode_, as fields that are true or false


@dataclass(frozen=True)
class Sentences:
    """head: what the vectors of the tokens become. about: how a text is read: `longest` in tokens, `prefix` before
    every text, `prompts` by name."""

    head: PooledSpec
    about: dict[str, Any]


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
        raise CheckpointError(f"{path} is broken: it lists no parts; fetch it again")
    made = []
    for one in parts:
        inside = one.get("path", "")
        if not isinstance(inside, str) or Path(inside).is_absolute() or ".." in Path(inside).parts:
            raise CheckpointError(f"{path} names no folder inside this one; fetch it again")
        made.append((str(one.get("type")).rpartition(".")[2], folder / inside))
    return made


def _read(folder: Path, parts: list[tuple[str, Path]]) -> Sentences | None:
    kinds = [kind for kind, _ in parts]
    if kinds == ["Transformer"]:  # the network alone, a vector for each token
        return None
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise UnsupportedError(
            f"{folder / LIST}: the parts {', '.join(kinds)} are not known here; known are Transformer, "
            "Pooling and perhaps Normalize"
        )
    pool = _pool(parts[1][1] / "config.json")
    own = read_object(parts[0][1] / "sentence_bert_config.json")
    more = read_object(folder / "config_sentence_transformers.json")
    if own.get("do_lower_case"):
        raise UnsupportedError(f"{folder}: do_lower_case of sentence_bert_config.json is not read; only false")
    prompts, usual = more.get("prompts") or {}, more.get("default_prompt_name")
    about = {"longest": own.get("max_seq_length"), "prefix": prompts.get(usual, ""), "prompts": prompts}
    return Sentences(PooledSpec(pool=pool, unit="Normalize" in kinds), {key: one for key, one in about.items() if one})


def _pool(path: Path) -> Any:
    config = read_json(path)
    flags = [key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on]
    given = config.get("pooling_mode", [OLDER.get(one, one) for one in flags])
    modes = [given] if isinstance(given, str) else list(given)
    if len(modes) != 1 or modes[0] not in POOLS:
        shown = ", ".join(map(str, modes)) or "none"
        raise UnsupportedError(f"{path}: the pooling {shown} is not known here; known is one of {', '.join(POOLS)}")
    if config.get("include_prompt", True) is not True:
        raise UnsupportedError(f"{path}: include_prompt: only true is read, which pools over the prompt as well")
    return POOLS[modes[0]]
