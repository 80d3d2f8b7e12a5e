"""Templates of conversations: Jinja in a sandbox, with the functions that published ones use, and limits.

A template came with a model from somewhere, so it may do no harm: the sandbox lets it read nothing but the messages and
call nothing but some methods of texts and lists; time, the steps of its loops and the size of every text are bounded.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.visitor import NodeTransformer

from ..errors import CheckpointError, InputError
from .template_sizes import CHARACTERS, METHODS, STEPS, formatted, sized, sizes, weight

SECONDS = 5.0
FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby",
    "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "trim", "unique",
    "upper",
)  # fmt: skip
_PLAIN = str | bytes | int | float | list | tuple | dict
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
    except (TemplateError, SyntaxError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
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
        self.tests = {name: self._guarded(test) for name, test in self.tests.items()}
        self.finalize = self._shown

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """The template with every loop counted and every ~ measured."""
        return _Limited().visit(Parser(self, source, name, filename).parse())

    def check(self, size: int) -> None:
        """Raise SecurityError where time has run out or something would be too long."""
        if time.monotonic() > self.until or size > CHARACTERS:
            raise SecurityError(_LIMIT)

    def call(__self, __context: Any, __obj: Any, *given: Any, **named: Any) -> Any:
        """Call something, within the limits: a macro, a function, or a method that published templates use."""
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        of, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(of, _PLAIN) and name not in METHODS:
            raise SecurityError(f"{name!r} of a text, list or number is unsafe")
        if isinstance(__obj, LoopContext):  # a loop within itself
            given = tuple(map(__self._counted, given))
        elif name == "join":
            given = tuple(map(__self._listed, given))
        __self._bounded(name, [of, *given] if isinstance(of, _PLAIN) else given, named)
        return __self._measured(super().call(__context, __obj, *given, **named))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operation, within the limits."""
        several = [one for one in (left, right) if sized(one)]
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "+" and len(several) == 2:
            self.check(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            self.check(weight(right))
            self.check(formatted(left, [right]))
        elif operator == "*" and several:
            count = right if several[0] is left else left
            self.check(len(several[0]) * count if isinstance(count, int) else 0)
        elif numbers and operator in ("*", "**"):
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            self.check(CHARACTERS + 1 if bits > 4096 else 0)
        return self._measured(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """What an object has under a key that is not too long to be compared."""
        return super().getitem(obj, self._weighed(argument))

    def _weighed(self, value: Any) -> Any:
        """A value that is compared or looked up, which takes as long as it is when written out."""
        self.check(weight(value))
        return value

    def _sought(self, value: Any) -> Any:
        """The same of what something is looked for in."""
        return self._counted(value) if isinstance(value, Iterator) else self._weighed(value)

    def _bounded(self, name: str, given: Sequence[Any], named: dict[str, Any]) -> None:
        for size in sizes(name, given, named):
            self.check(size)

    def _measured(self, made: Any) -> Any:
        self.check(len(made) if sized(made) else 0)
        return made

    def _listed(self, value: Any) -> Any:
        return list(self._counted(value)) if isinstance(value, Iterator) else value

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or a test within the limits; each item of a list takes as long as the texts beside it."""
        skipped = int(hasattr(function, "jinja_pass_arg"))
        listed = self._listed if function.__name__ == "do_join" else self._sought

        @functools.wraps(function)
        def guarded(*given: Any, **named: Any) -> Any:
            rest = [listed(one) if isinstance(one, Iterator) else one for one in given[skipped:]]
            self._bounded(function.__name__, rest, named)
            texts = sum(len(one) for one in (*rest[1:], *named.values()) if isinstance(one, str))
            self._pass(sum(len(one) for one in rest[:1] if isinstance(one, list | tuple)) * texts)
            return self._measured(function(*given[:skipped], *rest, **named))

        return guarded

    def _joined(self, *parts: Any) -> str:
        total = 0
        for part in parts:
            total += weight(part)
            self.check(total)
        return "".join(map(str, parts))

    def _pass(self, count: int) -> None:
        self.steps += count
        if self.steps > STEPS:
            raise SecurityError(_LIMIT)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        total = 0
        for item in items:
            self._pass(self.size)
            total += weight(item)
            self.check(total)
            yield item

    def _shown(self, value: Any) -> Any:
        self._pass(weight(self._weighed(value)))
        return value


class _Limited(NodeTransformer):
    """Loops go through `counted`, ~ through `joined`, and what is compared or is a key through `weighed`."""

    def visit_For(self, node: nodes.For, *given: Any, **named: Any) -> nodes.Node:
        """A loop over what is counted."""
        self.generic_visit(node, *given, **named)
        node.iter = _called("counted", [node.iter], node)
        return node

    def visit_Concat(self, node: nodes.Concat, *given: Any, **named: Any) -> nodes.Node:
        """Texts that are joined within the limits."""
        self.generic_visit(node, *given, **named)
        return _called("joined", node.nodes, node)

    def visit_Compare(self, node: nodes.Compare, *given: Any, **named: Any) -> nodes.Node:
        """Values that are compared within the limits."""
        self.generic_visit(node, *given, **named)
        node.expr = _called("weighed", [node.expr], node)
        for one in node.ops:
            one.expr = _called("sought" if one.op in ("in", "notin") else "weighed", [one.expr], node)
        return node

    def visit_Pair(self, node: nodes.Pair, *given: Any, **named: Any) -> nodes.Node:
        """A key within the limits."""
        self.generic_visit(node, *given, **named)
        node.key = _called("weighed", [node.key], node)
        return node


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
