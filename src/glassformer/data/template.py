"""Templates of conversations: Jinja in a sandbox, with the functions that published ones use, and limits.

A template came with a model from somewhere, so it may do no harm: the sandbox lets it read nothing but the messages and
call nothing but methods of texts and lists; time, the steps of its loops and the size of every text are bounded.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.visitor import NodeTransformer

from ..errors import CheckpointError, InputError

SECONDS = 5.0
CHARACTERS = 1 << 20  # of any text or list that is made on the way, and of the outcome
STEPS = 1 << 26  # characters of the template that its loops may pass through in all
FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby",
    "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "trim", "unique",
    "upper",
)  # fmt: skip
_LIMIT = "it takes longer, or makes a longer text, than is allowed"


class _Refused(Exception):
    """What raise_exception of a template says about the messages."""


def rendered(template: str, variables: Mapping[str, Any]) -> str:
    """The text that a template makes of its variables (messages, add_generation_prompt, bos_token …).

    Raises InputError where the template itself refuses the messages, CheckpointError where it is broken, does what is
    not allowed, or goes beyond the limits.
    """
    try:
        if len(template) > CHARACTERS:
            raise SecurityError(_LIMIT)
        sandbox = _Sandbox(len(template))
        parts, size = [], 0
        for part in sandbox.from_string(template).generate(**variables):
            parts.append(part)
            size += len(part)
            sandbox.check(size)
        return "".join(parts)
    except _Refused as error:
        raise InputError(f"the model's chat template refuses these messages: {error}") from None
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the model's chat template does not work ({_said(error)}); give the prompt as a plain text, without --chat"
        ) from None
    except (RecursionError, MemoryError):
        raise CheckpointError(
            f"the model's chat template does not work ({_LIMIT}); give the prompt as a plain text, without --chat"
        ) from None


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox for one rendering, with limits. size: the length of the template."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, size: int) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.size, self.steps, self.until = size, 0, time.monotonic() + SECONDS
        self.filters = {name: self._guarded(self.filters[name]) for name in FILTERS} | {
            "tojson": self._guarded(_tojson)
        }
        kept = {name: self.globals[name] for name in ("range", "dict", "namespace", "cycler", "joiner")}
        self.globals = kept | {
            "raise_exception": _refuse, "strftime_now": _now,
        }  # fmt: skip
        self.finalize = self._shown

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """The template with every loop counted and every ~ measured."""
        return _Limited().visit(Parser(self, source, name, filename).parse())

    def check(self, *sizes: int) -> None:
        """Raise SecurityError where time has run out or something would be too long."""
        if time.monotonic() > self.until or any(size > CHARACTERS for size in sizes):
            raise SecurityError(_LIMIT)

    def call(__self, __context: Any, __obj: Any, *given: Any, **named: Any) -> Any:
        """Call something, within the limits."""
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        everything = [getattr(method, "__self__", None), *given, *named.values()]
        __self.check(*__self._sizes(getattr(method, "__name__", ""), everything))
        return __self._measured(super().call(__context, __obj, *given, **named))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operation, within the limits."""
        several = [one for one in (left, right) if _sized(one)]
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "+" and len(several) == 2:
            self.check(len(left) + len(right))
        elif operator == "%" and several:
            self.check(*self._sizes("format", [left, right]))
        elif operator == "*" and several:
            count = right if several[0] is left else left
            self.check(len(several[0]) * count if isinstance(count, int) else 0)
        elif numbers and operator in ("*", "**"):
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            self.check(CHARACTERS + 1 if bits > 4096 else 0)
        return self._measured(super().call_binop(context, operator, left, right))

    def _sizes(self, name: str, given: list[Any]) -> Iterator[int]:
        """How long what a call makes may become, from its name and what it is given."""
        texts = [len(one) for one in given if isinstance(one, str)]
        yield from (abs(one) if isinstance(one, int) else _weight(one) for one in given)
        if name in ("replace", "do_replace"):
            yield max(texts, default=0) * max(texts[1:] or [1], default=1) if max(texts, default=0) > 1024 else 0
        if name in ("join", "do_join"):
            lists = [one for one in given if isinstance(one, list | tuple)]
            yield sum(len(str(part)) + sum(texts) for one in lists for part in one)
        if name in ("format", "format_map"):
            yield from (int(one[:9]) for text in given if isinstance(text, str) for one in re.findall(r"\d+", text))

    def _measured(self, made: Any) -> Any:
        self.check(len(made) if _sized(made) else 0)
        return made

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*given: Any, **named: Any) -> Any:
            self.check(*self._sizes(function.__name__, [*given, *named.values()]))
            return self._measured(function(*given, **named))

        return guarded

    def _joined(self, *parts: Any) -> str:
        self.check(*map(_weight, parts))
        texts = [str(part) for part in parts]
        self.check(sum(map(len, texts)))
        return "".join(texts)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.steps += self.size
            if self.steps > STEPS:
                raise SecurityError(_LIMIT)
            self.check()
            yield item

    def _shown(self, value: Any) -> Any:
        size = _weight(value)
        self.steps += size
        if self.steps > STEPS or size > CHARACTERS:
            raise SecurityError(_LIMIT)
        return value


class _Limited(NodeTransformer):
    """Loops go through `counted`, and ~ through `joined`."""

    def visit_For(self, node: nodes.For, *given: Any, **named: Any) -> nodes.Node:
        """A loop over what is counted."""
        self.generic_visit(node, *given, **named)
        node.iter = _called("counted", [node.iter], node)
        return node

    def visit_Concat(self, node: nodes.Concat, *given: Any, **named: Any) -> nodes.Node:
        """Texts that are joined within the limits."""
        self.generic_visit(node, *given, **named)
        return _called("joined", node.nodes, node)


def _called(name: str, given: list[nodes.Expr], near: nodes.Node) -> nodes.Call:
    made = nodes.Call(nodes.EnvironmentAttribute(f"_{name}"), given, [], None, None)
    return made.set_lineno(near.lineno, override=True)


class _Generation(Extension):
    """`{% generation %}`, by which some templates mark what the model wrote: here what is within, as it is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What is between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _sized(value: Any) -> bool:
    return isinstance(value, str | list | tuple)


def _weight(value: Any) -> int:
    """About how long a value is when it is written out, lists in lists included; it counts little beyond CHARACTERS."""
    total, left = 0, [value]
    while left and total <= CHARACTERS:
        one = left.pop()
        total += 1 + (len(one) if isinstance(one, str) else 0)
        if isinstance(one, list | tuple | dict):
            left += [*one, *one.values()] if isinstance(one, dict) else one
    return total


def _refuse(message: Any = "") -> None:
    raise _Refused(str(message)[:500])


def _now(form: str) -> str:
    if len(form) > 100 or re.search(r"\d{3}", form):
        raise SecurityError(_LIMIT)
    return datetime.datetime.now().strftime(form)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
