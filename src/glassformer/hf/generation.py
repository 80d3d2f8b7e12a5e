"""What a published model says of how it writes: config.json and generation_config.json as settings of a GenerateSpec.

Only what belongs to the model: how a target begins, what ends a text, what may not be written, how much less probable
repetitions become, and how a beam search weighs hypotheses and when it ends. Whether text is drawn, with what
temperature or how many beams, is left to whoever writes with it. So is how long a text may become, and with that
forced_eos_token_id, which ends one that is cut off there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..data.ids import begin_and_ends, is_pair, listed, start_field
from ..data.speech import FIRST_TIME_S, SpeechSpec
from ..errors import SettingError, UnsupportedError
from ..spec import LENGTH_POWER
from .rules import WRITING


def own_generation(config: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of GenerateSpec that a model has of its own. said: generation_config.json, which overrules.

    Raises SettingError for what is no list of ids or no number, UnsupportedError for words that may not be written
    together and for what else changes even the most probable text and is not followed here.
    """
    begin, ends = begin_and_ends(config, said)
    rest = said or config  # a config.json is asked only where the other file is not there
    found: dict[str, Any] = {
        "ends": ends,
        "suppressed": listed(rest, "suppress_tokens") + _alone(rest.get("bad_words_ids")),
        "suppressed_first": listed(rest, "begin_suppress_tokens"),
        "no_repeat": _count(rest, "no_repeat_ngram_size"),
        "min_new_tokens": _count(rest, "min_new_tokens"),
        "repetition_penalty": _number(rest, "repetition_penalty"),
        "length_penalty": _number(rest, "length_penalty"),
        "early_stopping": _ending(rest.get("early_stopping")),
    }
    for name, nothing in NOT_FOLLOWED.items():
        if rest.get(name) not in nothing:
            raise UnsupportedError(
                f"{name}: {rest[name]!r} is not followed when a text is written here; remove it from the configuration"
            )
    if is_pair(config):
        found |= {"begin": begin, "forced": listed(rest, "forced_bos_token_id")}
        # Their length has the token that a target begins with.
        found["min_new_tokens"] = max(found["min_new_tokens"], _count(rest, "min_length") - 1)
    return {name: value for name, value in found.items() if _tells(name, value)}


def check_ids(config: Mapping[str, Any], said: Mapping[str, Any], vocab: int) -> None:
    """Raise SettingError for an id with which a target would begin that a vocabulary of so many does not hold. said:
    generation_config.json, which overrules. Ids that end a text, or are kept out of it, are never written then."""
    begin = start_field(config, said) or ""
    if not is_pair(config):  # whose texts begin as the tokenizer says
        return
    for name, overruled in ((begin, said.get(begin) is not None), ("forced_bos_token_id", bool(said))):
        file, settings = ("generation_config.json", said) if overruled else ("config.json", config)
        wrong = next((one for one in listed(settings, name) if one >= vocab), None)
        if wrong is not None:
            raise SettingError(
                f"{name}: {file} gives the token id {wrong}, beyond the vocabulary (0 to {vocab - 1}); restore the "
                "configuration"
            )


def published_generation(own: Mapping[str, Any]) -> dict[str, Any]:
    """The other way round: the fields of generation_config.json for what a model has of its own.

    Raises UnsupportedError for a target that begins with several tokens, which has no field there.
    """
    begin, forced = own.get("begin", []), own.get("forced", [])
    if len(begin) > 1 or len(forced) > 1:
        raise UnsupportedError(
            f"a target that begins with {len(begin) + len(forced)} tokens cannot be written for transformers; set "
            "about['generation'] to one of begin and one of forced"
        )
    found: dict[str, Any] = {name: own[ours] for ours, name in SAME.items() if _tells(ours, own.get(ours))}
    found |= {name: given[0] for name, given in zip(FIRST, (begin, forced), strict=True) if given}
    ends = own.get("ends", [])
    return found | ({"eos_token_id": ends[0] if len(ends) == 1 else ends} if ends else {})


def written_generation(config: Mapping[str, Any], about: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json for a model with that config.json. own: what it has of its own, in published fields.

    Where nothing of it was changed since the model was read, the file says what it said, and is left out where there
    was none; for once it is there, config.json is asked for nothing that it lacks.
    """
    before = {name: value for name, value in about.get("generation_config", {}).items() if name != "_from_model_config"}
    said = {name: value for name, value in config.items() if name in WRITING}
    if _unchanged(about, config):
        return {**own, **said, **before} if "speech" in about else before
    found = {name: value for name, value in (said | before).items() if name not in COVERED} | dict(own)
    if "generation" in about:  # what was taken away is none, whatever the files or the family name
        named = zip((FIRST[0], "eos_token_id"), begin_and_ends(config, found), strict=True)
        found |= {name: -1 for name, ids in named if ids and name not in own}
    return found


def _unchanged(about: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a published model still writes as its folder said, and goes into one of its family."""
    first, said = about.get("config") or {}, about.get("generation_config", {})
    if first.get("model_type") != config["model_type"]:
        return False
    if "speech" in about:
        lists = {name: about["speech"].get(ours) or [] for ours, name in SAME.items() if ours.startswith("suppressed")}
        return all(list(one) == ((first | said).get(name) or []) for name, one in lists.items())
    return "generation" in about and about["generation"] == own_generation(first, said)


def speech_generation(speech: SpeechSpec) -> dict[str, Any]:
    """The fields of generation_config.json for the tokens that a speech model is told what to do with."""
    tasks = {"transcribe": speech.transcribe, "translate": speech.translate}
    found: dict[str, Any] = {
        "decoder_start_token_id": speech.start,
        "eos_token_id": speech.end,
        "pad_token_id": speech.end,
        "no_timestamps_token_id": speech.untimed,
        "max_initial_timestamp_index": round(FIRST_TIME_S / speech.tick),
        "is_multilingual": bool(speech.languages),
        "suppress_tokens": list(speech.suppressed),
        "begin_suppress_tokens": list(speech.suppressed_first),
    }
    if speech.languages:
        found["lang_to_id"] = {f"<|{code}|>": id for code, id in speech.languages.items()}
        found["task_to_id"] = {task: id for task, id in tasks.items() if id is not None}
    return found


SAME = {
    "suppressed": "suppress_tokens",
    "suppressed_first": "begin_suppress_tokens",
    "no_repeat": "no_repeat_ngram_size",
    "min_new_tokens": "min_new_tokens",
    **{name: name for name in ("repetition_penalty", "length_penalty", "early_stopping")},
}
# Fields that change even the most probable text, with the values by which they do not.
NOT_FOLLOWED: dict[str, tuple[Any, ...]] = {
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "guidance_scale": (None, 1.0),
    "penalty_alpha": (None, 0.0),
    "sequence_bias": (None, {}, []),
    "stop_strings": (None, "", []),
}
COVERED = frozenset(SAME.values()) | {"forced_bos_token_id", "bad_words_ids", "min_length"}
FIRST = ("decoder_start_token_id", "forced_bos_token_id")


def _tells(name: str, value: Any) -> bool:
    """Whether a setting is another than the usual one."""
    return bool(value) or (name == "length_penalty" and value is not None)


def _count(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise SettingError(f"{name}: {value!r} is no number of tokens; restore the configuration")
    return value or 0


def _number(settings: Mapping[str, Any], name: str) -> float | None:
    """A penalty, which changes nothing where it is 1; None there, and where nothing is said."""
    value = settings.get(name)
    if value is None or (value == 1 and value is not True):
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (abs(value) <= LENGTH_POWER if name == "length_penalty" else 0 < value < math.inf):
        raise SettingError(f"{name}: {value!r} is no such number; restore the configuration")
    return float(value)


def _ending(value: Any) -> Any:
    """When a beam search ends, as `early_stopping` says."""
    if value is not None and value is not True and value is not False and value != "never":
        raise SettingError(f"early_stopping: {value!r} is not true, false or 'never'; restore the configuration")
    return value


def _alone(words: Any) -> list[int]:
    """The tokens of words that are never written, which are one token each."""
    several = words if isinstance(words, list) else []
    found = [listed({"bad_words_ids": one}, "bad_words_ids") for one in several]
    if any(len(one) != 1 for one in found):
        raise UnsupportedError("bad_words_ids: words of several tokens are not kept from being written here")
    return [one[0] for one in found]
