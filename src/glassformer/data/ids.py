"""The ids with which a published model begins a target and ends a text: config.json and generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import SettingError

# The ids that a family's own classes have where no file names them.
OF_T5 = {"decoder_start_token_id": 0, "eos_token_id": 1}
OF_BART = {"decoder_start_token_id": 2, "eos_token_id": 2}
DEFAULTS: dict[str, dict[str, int]] = {
    **{"t5": OF_T5, "mt5": OF_T5, "bart": OF_BART, "whisper": {}},
    **{"mbart": {"bos_token_id": 0, "eos_token_id": 2}, "marian": {"eos_token_id": 0}},
}
STARTS = ("decoder_start_token_id", "bos_token_id", "pad_token_id")  # the first that is named begins a target


def is_pair(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is that of an encoder-decoder."""
    return bool(config.get("is_encoder_decoder", str(config.get("model_type")) in DEFAULTS))


def begin_and_ends(config: Mapping[str, Any], said: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The ids with which a target begins, of an encoder-decoder, and those that end a text. said:
    generation_config.json, which overrules. Raises SettingError for what is no list of ids."""
    ids = _ids(config, said)
    first = start_field(config, said)
    return listed(ids, first)[:1] if first else [], listed(ids, "eos_token_id")


def start_field(config: Mapping[str, Any], said: Mapping[str, Any]) -> str | None:
    """The field with the id by which the target of an encoder-decoder begins; None where none does."""
    ids = _ids(config, said)
    return next((name for name in STARTS if name in ids), None) if is_pair(config) else None


def listed(settings: Mapping[str, Any], name: str) -> list[int]:
    """The ids in a field that holds one or a list of them; -1 stands for none."""
    value = settings.get(name)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        raise SettingError(f"{name}: {value!r} is no list of token ids; restore the configuration")
    return [one for one in found if one >= 0]


def _ids(config: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    return DEFAULTS.get(str(config.get("model_type")), {}) | _given(config) | _given(said)


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
