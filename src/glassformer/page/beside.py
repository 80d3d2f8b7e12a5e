"""The runs that a saved page holds beside its own: which there are, and what the views ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..checkpoint import load_model, read_about
from ..data.tokenizer import Tokenizer
from ..explain.kinds.film import snapshots
from ..sources import DEFAULT_MODEL, SHIPPED, SIBLINGS
from ..text_trace import TextTrace
from ..trace import Trace
from .documents import PageRun

# What the views ask of a run beside the page's own: the families of each, hands on of what comes next and what moved.
ONCE = ("sight", "cost", "states", "next")
BY_TOKEN = ("next", "fields")
GROUPED = ("sight", "fields")
TOLD = 96  # tokens of a long text, its last ones, of which each is asked for
WHOLE = 32  # cells; of more the families show the influence on one at a time, as in ui/src/lib/window.ts


def siblings(trace: Trace) -> list[TextTrace]:
    """The same text through the families that were trained alike, for a run of a model that was trained with them;
    none for another. Nothing is changed in them: beside a run in which something was, its own model as it is is one of
    them. They are small and load in a few milliseconds."""
    if not isinstance(trace, TextTrace):
        return []
    loaded = trace.loaded
    own = loaded.place is not None and loaded.place.parent == SHIPPED
    if not own or loaded.name not in (DEFAULT_MODEL, *SIBLINGS):
        return []
    found = []
    ids = trace.stacks[-1].tokens[0].tolist()
    for name in SIBLINGS:
        if name == loaded.name and not trace.edits:
            continue
        folder = SHIPPED / name
        model = load_model(folder, trace.stacks[-1].tokens.device, trace.stacks[-1].kept[0].dtype)
        other = type(loaded)(model, Tokenizer.load(folder / "tokenizer.json"), name, read_about(folder))
        other.place = folder
        start = trace.loaded.encode(trace.text) == ids
        found.append(other.trace(trace.text if start else ids, limit_bytes=trace.limit_bytes, start=start))
    return found


def wanted(run: PageRun, slow: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The explanations that the views ask of a run beside the page's own, with their settings."""
    there = {name for name, _ in run.explains}
    for name in ONCE:
        if name in there:
            yield name, {}
    for name in BY_TOKEN:
        if name in there:
            yield from ((name, {"token": token}) for token in last(run.stacks[-1].length))
    for name in GROUPED if split(run) else ():
        if name in there:
            places = [{"token": i} for i in last(split(run))] if name in BY_TOKEN else [{}]
            yield from ((name, place | {"by": "character"}) for place in places)
    if run.edits and "effect" in there:  # each is two more runs
        tokens = run.stacks[-1].length
        yield from (("effect", {"token": token}) for token in (range(tokens) if tokens <= WHOLE else [tokens - 1]))
    if slow and "influence" in there:
        yield from (("influence", how) for how in estimates(run))


def last(count: int) -> range:
    """The last places of a text, all of a short one."""
    return range(max(0, count - TOLD), count)


def split(run: PageRun) -> int:
    """How many characters a text has, where one of them is several tokens and views show it by character; else 0."""
    cells = run.stacks[-1].cells.get("character", ())
    return len(cells) if any(len(one.tokens) > 1 for one in cells) else 0


def estimates(run: PageRun) -> list[dict[str, Any]]:
    """How the families ask for the influence: by token, and by character where that is another grouping; of a long text
    for that on its last cell."""
    found = []
    for by in ("token", "character") if split(run) else ("token",):
        count = len(run.stacks[-1].cells[by])
        row = {"row": count - 1} if count > WHOLE else {}
        found.append({"method": "estimate"} | row | ({} if by == "token" else {"by": by}))
    return found


def film(trace: Trace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The film of what comes next, behind the last token at every step whose weights were kept."""
    how = {"show": "next", "how": f"token={trace.stacks[-1].length - 1}"}
    steps = snapshots(trace)
    if steps:
        yield "film", how
    yield from (("film", {"step": step, **how}) for step in steps)


def weights(run: PageRun) -> list[str]:
    """The names of the weights of its mixers: what the views ask of the values of a run beside the page's own."""
    mixers = [block.mixer for stack in run.stacks for block in stack.blocks if block.mixer.weights]
    return [f"{mixer.path}.{mixer.weights}" for mixer in mixers]
