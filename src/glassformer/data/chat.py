"""Conversations as a published model was trained to read them: its template, and what keeps a person's text a text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .published import Published

Messages = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Conversation:
    """What a model reads to answer.

    text: the messages as the template writes them. ids: its tokens; the special ones are those of the template only.
    ends: the tokens that end an answer.
    """

    text: str
    ids: list[int]
    ends: tuple[int, ...]


def conversation(tokenizer: Published, messages: Messages, system: str | None = None) -> Conversation:
    """The prompt by which the model goes on with its answer. messages: one text of the user, or a list of messages,
    each with role and content. system: a message of that role before them.

    A special token in a message stays text: its characters are parted by one that occurs nowhere before the template
    sees them, so that in the outcome only the template's own special tokens are found; then the parting goes again.

    Raises InputError for messages that have another form or that the template refuses, and where there is no template;
    CheckpointError for a template that does not work.
    """
    given = _messages(messages, system)
    texts: list[str] = [tokenizer.settings.template or ""]
    _each_text(given, texts.append)
    parting = _unused("".join(texts))
    parted = _each_text(given, lambda text: tokenizer.parted(text, parting))
    prompt = _written(tokenizer, parted, True)
    ids = tokenizer.encode(prompt, special=True, parting=parting).ids
    if not ids:
        raise InputError("this model's chat template writes nothing for these messages; leave --chat out")
    ends = sorted({*tokenizer.ends, *_turn_ends(tokenizer, given, parting)})
    return Conversation(prompt.replace(parting, ""), ids, tuple(ends))


def _messages(messages: Messages, system: str | None) -> list[dict[str, Any]]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence) or not all(isinstance(one, Mapping) for one in messages):
        raise InputError("messages: give a text, or a list of messages such as {'role': 'user', 'content': 'Hello'}")
    for number, one in enumerate(messages):
        if not isinstance(one.get("role"), str) or not isinstance(one.get("content"), str):
            raise InputError(f"messages[{number}]: it needs a role and a content, both texts")
    if not messages:
        raise InputError("messages: there are none; give at least one, such as {'role': 'user', 'content': 'Hello'}")
    if messages[-1]["role"] == "user" and not messages[-1]["content"].strip():
        raise InputError("the message is empty; give the model something to answer")
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, *map(dict, messages)]


def _written(tokenizer: Published, messages: list[dict[str, Any]], reply: bool) -> str:
    """The messages as the template writes them; reply: and the beginning of an answer."""
    from .template import rendered  # only here: Jinja takes a while to load

    template = tokenizer.settings.template
    if template is not None and not template.strip():
        raise InputError("this model's chat template is empty; leave --chat out, or name a model that has one (-m)")
    if template is None:
        raise InputError("this model has no chat template; leave --chat out, or name a model that has one (-m)")
    names = {f"{role}_token": text for role, text in tokenizer.settings.names.items()}
    given = {"messages": messages, "add_generation_prompt": reply, "tools": None, "documents": None}
    return rendered(template, names | given)


def _turn_ends(tokenizer: Published, messages: list[dict[str, Any]], mark: str) -> list[int]:
    """The special token that the template puts right behind an answer."""
    own = [one for one in messages if one["role"] == "system"] + [{"role": "user", "content": "?"}]
    try:
        text = _written(tokenizer, [*own, {"role": "assistant", "content": f"a{mark}"}], False)
    except InputError:
        return []
    behind = text.rpartition(mark)[2] if mark in text else ""
    found = tokenizer.encode(behind.lstrip(), special=True)
    return found.ids[:1] if 0 in found.special else []


def _unused(text: str) -> str:
    """A character that Unicode keeps free for inner use, or for private use, and that is not in a text."""
    free = itertools.chain(range(0xFDD0, 0xFDF0), range(0xF0000, 0xFFFFE))
    return next(one for one in map(chr, free) if one not in text)


def _each_text(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each_text(one, change) for key, one in value.items()}
    return [_each_text(one, change) for one in value] if isinstance(value, list | tuple) else value
