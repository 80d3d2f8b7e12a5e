"""What the folders of sentence-transformers say beside the network: how the vectors of the tokens become one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedError
from ..nn.pool import PooledSpec
from .imported import read_json

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
    if not (folder / "modules.json").is_file():
        return None
    try:
        return _read(folder, read_json(folder / "modules.json"))
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / 'modules.json'} is broken ({error!r}); fetch it again") from None


def _read(folder: Path, modules: list[dict[str, Any]]) -> Sentences | None:
    kinds = [str(one["type"]).rpartition(".")[2] for one in modules]
    if kinds == ["Transformer"]:  # the network alone, a vector for each token
        return None
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise UnsupportedError(
            f"{folder / 'modules.json'}: the parts {', '.join(kinds)} are not known here; known are Transformer, "
            "Pooling and perhaps Normalize"
        )
    network, pooling = (str(one["path"] or "") for one in modules[:2])
    if any(Path(path).is_absolute() or ".." in Path(path).parts for path in (network, pooling)):
        raise CheckpointError(f"{folder / 'modules.json'} names no folder inside this one; fetch it again")
    pool = _pool(folder / pooling / "config.json")
    own = _settings(folder / network / "sentence_bert_config.json")
    more = _settings(folder / "config_sentence_transformers.json")
    if own.get("do_lower_case"):
        raise UnsupportedError(f"{folder}: do_lower_case of sentence_bert_config.json is not read; only false")
    prompts, usual = more.get("prompts") or {}, more.get("default_prompt_name")
    about = {"longest": own.get("max_seq_length"), "prefix": prompts.get(usual, ""), "prompts": prompts}
    return Sentences(PooledSpec(pool=pool, unit="Normalize" in kinds), {key: one for key, one in about.items() if one})


def _settings(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


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
