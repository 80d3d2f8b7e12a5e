"""A run as one HTML file: the page itself, its numbers and its explanations, which needs neither network nor server.

The file holds what the server would send: the document of the run, explanations under the addresses that the page asks
for, and values as the bytes of a safetensors file, both packed (gzip, base64); and of runs beside it what the views
that compare ask of them. A policy in the file forbids it every request, and every script but the page's own.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import itertools
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qsl, urlencode

import msgspec
import torch
from torch import Tensor

from ..data.display import By
from ..errors import GlassformerError, InputError, UnsupportedError
from ..explain.explained import EXPLANATIONS, available, explain
from ..explain.explainer import Report, quiet
from ..explain.explanation import Explanation
from ..figures.font import face
from ..sources import SIBLINGS
from ..text_trace import TextTrace
from ..trace import Trace
from ..weights import write_safetensors
from .again import commanded
from .beside import estimates, film, siblings, wanted, weights
from .documents import PageRun, PageWriting, Saved, SavedRun
from .outline import outline
from .settings import settings

PAGE = Path(__file__).parent.parent / "serve" / "page"
VALUE_BYTES = 16 << 20  # of values in fp32; what is asked for least is left out of a larger run
PACKED = 4 / 3 * 1.001  # of random bytes, gzip and base64
SPARE_BYTES = 8192
MOST_EXPLANATIONS, FEWER = 400, 160  # in a file; where its bytes are limited
EXPLAINED_BYTES = 16 << 20  # of explanations as JSON, which a text of some hundred tokens would fill many times
EXACT = 16  # tokens of a text whose influence is measured exactly; of a longer one it is estimated
SLOW = ("influence", "tracing", "circuit", "roles", "pruning")
# Of the explanations of one answer what is not asked for anew in each layer or at each token.
ONCE = {"attribution": {"layer"}, "edges": {"token"}, "tracing": {"token", "of"}, "circuit": {"token"}}
# Hangul, and the signs by which blanks, line ends and bytes are shown; as RANGES of the page's letters.svelte.ts.
HANGUL = re.compile("[ᄀ-ᇿ⇥⏎\u2420-\u2423◌⟨⟩\u3000-\u303f\u3130-\u318fꥠ-\ua97f가-\ud7ff\uff00-\uffef]")
SAME = ("model", "text", "source", "changes", "picture")  # by which the page finds a run again
# Short names in the order in which a large run keeps them; what stands in none is kept before the last two.
FIRST = ("pattern", "weights", "scores", "dots", "resid_in", "resid_mid", "resid_out", "q", "k", "v", "z")
LAST = ("hidden", "pre", "head_out", "logits")
Told = Callable[[str, int, int], None]  # what is being done, how much of it, of how much (0: not known)
POLICY = (
    "default-src 'none'; script-src '{}'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def page_of(
    trace: Trace,
    lang: str = "en",
    slow: bool = True,
    beside: Iterable[TextTrace] | None = None,
    seen: Sequence[Seen] = (),
    writings: tuple[PageWriting, ...] = (),
    left: tuple[str, ...] = (),
    place: str = "",
    most_bytes: int | None = None,
    report: Told = lambda what, done, all: None,
) -> str:
    """The run as one HTML file. lang: the language in which it opens, "" for the browser's; the rest, and what is
    raised, as of body_of."""
    script, style = built()
    return html_of(script, style, lang, body_of(trace, slow, beside, seen, writings, left, place, most_bytes, report))


def body_of(
    trace: Trace,
    slow: bool = True,
    beside: Iterable[TextTrace] | None = None,
    seen: Sequence[Seen] = (),
    writings: tuple[PageWriting, ...] = (),
    left: tuple[str, ...] = (),
    place: str = "",
    most_bytes: int | None = None,
    report: Told = lambda what, done, all: None,
) -> str:
    """The elements in which the page finds a run, and letters for what is written there. slow: with explanations that
    take seconds.

    beside      runs to compare it with: the same text through other models, another text, the same with edits. With
                them, and with None, the families that were trained with the model, where there are any; with () none
    seen        what was looked at, of this run and of others; writings: what was written; left: what was seen and is
                known to be missing, beside which the file names what has no room in it
    place       where the page opens, as behind # in its address; "": at the beginning
    most_bytes  of these elements, which then hold what is asked for first; None: VALUE_BYTES of values
    report      is told how far it is: "beside" and "explain" with what is computed of other runs and of this one,
                "pack"; what it raises ends the work

    Raises UnsupportedError where the page is not built, InputError for a trace of several texts or images.
    """
    script, _ = built()
    many = len(trace.stacks[-1].tokens)
    if many > 1 and not isinstance(trace, TextTrace):
        raise InputError(f"this is a trace of {many} images; trace one of them for its page")
    parts = [*parts_of(trace, slow, others_of(trace, slow, beside), seen, most_bytes, report)]
    usual = {name: plain(EXPLANATIONS[name].settings()) for part in parts for name, _ in part.saved.run.explains}
    usual["settings"] = {}

    def document(without: tuple[str, ...] = ()) -> bytes:
        runs = tuple(part.saved for part in parts)
        return msgspec.json.encode(Saved(runs, usual, writings, (*left, *without), place))

    letters = "".join(sorted(set(HANGUL.findall(script + document().decode()))))
    style = f"<style>{face(letters) if letters else ''}</style>"
    report("pack", 0, 0)
    limit = VALUE_BYTES
    if most_bytes is not None:
        limit = min(limit, int((most_bytes - len(style) - len(packed(document())) - SPARE_BYTES) / PACKED))
    values, without = values_of(parts, limit)
    return "\n".join(
        (
            style,
            f'<script type="application/octet-stream" id="saved">{packed(document(without))}</script>',
            f'<script type="application/octet-stream" id="values">{packed(values)}</script>',
        )
    )


def others_of(trace: Trace, slow: bool, beside: Iterable[TextTrace] | None) -> list[TextTrace]:
    """The runs beside a run in its page: those that were given, and the families that were trained with its model, each
    once; as of body_of."""
    others = [*(beside or ())]
    if slow and (others or beside is None):
        given = [outline(one, "") for one in others]
        families = siblings(trace)
        others += [one for one in families if not any(alike(outline(one, ""), other) for other in given)]
    return others


def html_of(script: str, style: str, lang: str, body: str) -> str:
    """The page as one HTML file. body: the elements by which it finds its numbers."""
    allowed = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    lines = (
        "<!doctype html>",
        f'<html lang="{lang}">' if lang else "<html>",
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(allowed)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark"><title>Glassformer</title><link rel="icon" href="data:,">',
        f"<style>{style}</style>",
        f'<script type="module">{script}</script></head>',
        '<body><div id="app"></div>',
        body,
        "</body></html>",
    )
    return "\n".join(lines) + "\n"


def built() -> tuple[str, str]:
    """The page's own script and style, as they can stand in an HTML file. Raises UnsupportedError where it is not
    built."""
    if not (PAGE / "index.html").is_file():
        raise UnsupportedError(
            "the page is not built; build it (make page, in the folder of the source), or install a wheel of "
            "glassformer"
        )
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    script, style = (
        "".join(
            (PAGE / name).read_text(encoding="utf-8") for name in re.findall(rf'="\./(assets/[^"]+\.{kind})"', html)
        )
        for kind in ("js", "css")
    )
    # In a file a script ends at the first such letters, wherever they stand; in strings and patterns \x3C is the same.
    return re.sub(r"<(?=!--|/?script)", r"\\x3C", script, flags=re.IGNORECASE), style.replace("</", "<\\/")


def packed(data: bytes) -> str:
    """Bytes as main.ts unpacks them."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


# ---------------------------------------------------------------- what the page asks for


@dataclass(frozen=True)
class Seen:
    """What a person has looked at of a run: its explanations by their request, and the names of values."""

    trace: Trace
    document: PageRun
    explanations: dict[str, Explanation]
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A run in a saved page, and the names of its values, those that matter most first."""

    trace: Trace
    saved: SavedRun
    values: list[str]


def parts_of(
    trace: Trace,
    slow: bool,
    beside: list[TextTrace],
    seen: Sequence[Seen],
    most_bytes: int | None = None,
    report: Told = lambda what, done, all: None,
) -> Iterator[Part]:
    """The runs of a saved page: its own first, with everything that its views ask for. Each run stands there once, with
    all that was seen of it, however often it was made."""
    run = outline(trace, "saved")
    long = run.shape != "image" and run.stacks[-1].length > EXACT
    without = (*(SLOW if long or not slow else ()), *(() if trace.edits else ("effect",)))
    names = [name for name, _ in available(trace) if name not in without]
    tell = partial(report, "explain")
    others = together([*seen, *(compared(trace, one, slow, partial(report, "beside")) for one in beside)])
    own = [one for one in others if alike(one.document, run)]
    found = {address: one for of in own for address, one in of.explanations.items()}
    found |= explanations(trace, run, names, most_bytes, tell) | pairs(trace, beside)
    if slow:  # the families of which this is one, and the film of its training
        asks = estimates(run) if long or run.model in SIBLINGS else []
        found |= made(trace, [("influence", how) for how in asks], report=tell)
        found |= made(trace, film(trace) if "film" in names else [], report=tell)
    saved = SavedRun("", run, told(trace, run, found), {"settings": settings(trace)})
    yield Part(trace, saved, sorted(trace.names(), key=_rank))
    for k, one in enumerate(one for one in others if one not in own):
        document = msgspec.structs.replace(one.document, id=f"beside-{k}")
        found = told(one.trace, document, one.explanations)
        yield Part(one.trace, SavedRun(document.id, document, found, {}), list(one.values))


def compared(trace: Trace, other: TextTrace, slow: bool, report: Report = quiet) -> Seen:
    """A run to compare the page's own with: what the views ask of it."""
    document = outline(other, "")
    same = isinstance(trace, TextTrace) and other.loaded.name == trace.loaded.name
    found = made(other, wanted(document, slow), report=report)
    return Seen(other, document, found, tuple(weights(document)) if same else ())


def together(runs: Iterable[Seen]) -> list[Seen]:
    """Each run once, with what was seen of all those that are alike."""
    found = list[Seen]()
    for one in runs:
        k = next((k for k, other in enumerate(found) if alike(one.document, other.document)), len(found))
        for other in found[k : k + 1]:
            values = dict.fromkeys((*other.values, *one.values))
            one = Seen(other.trace, other.document, other.explanations | one.explanations, tuple(values))
        found[k : k + 1] = [one]
    return found


def alike(one: PageRun, other: PageRun) -> bool:
    """Whether two documents are of the same run."""
    return [getattr(one, name) for name in SAME] == [getattr(other, name) for name in SAME]


def pairs(trace: Trace, beside: list[TextTrace]) -> dict[str, Explanation]:
    """Two contexts: this text and each other one of the same model."""
    if not (isinstance(trace, TextTrace) and EXPLANATIONS["two"].applies(trace)):
        return {}
    texts = {one.text: None for one in beside if one.loaded.name == trace.loaded.name and one.text != trace.text}
    return made(trace, (("two", {"second": text}) for text in texts))


def told(trace: Trace, run: PageRun, found: dict[str, Explanation]) -> dict[str, Explanation]:
    """Explanations by their address, each with the command line that prints its numbers where there is one."""
    return {
        address: commanded(one, trace, run.model, dict(parse_qsl(address.partition("?")[2])))
        for address, one in found.items()
    }


def plain(settings: Any) -> dict[str, Any]:
    """Settings by name."""
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


def request(name: str, settings: dict[str, Any], usual: dict[str, Any]) -> str:
    """The address of an explanation or a document, as source.ts writes it: settings that are as usual left out."""
    given = sorted((key, str(value)) for key, value in settings.items() if value != usual[key])
    return f"{name}?{urlencode(given)}" if given else name


def explanations(
    trace: Trace, run: PageRun, names: list[str], most_bytes: int | None = None, report: Report = quiet
) -> dict[str, Explanation]:
    """The explanations of a run by their address: each as it is asked for at first, then in every layer and at every
    token, then by every grouping (those of the whole model, which take longer, by token), weights of each head too."""
    several = [by for by in get_args(By) if by != "token" and _differs(run, by)]
    places: dict[str, list[Any]] = {"layer": [*range(max(len(one.blocks) for one in run.stacks))]}
    places["token"] = [*range(run.stacks[-1].length)]
    places |= {"stack": [0, 1], "of": ["text", "source"]} if len(run.stacks) == 2 else {}
    asked = dict[str, tuple[str, dict[str, Any]]]()
    heads = max((block.mixer.heads for one in run.stacks for block in one.blocks if block.mixer.axis == "h"), default=0)
    groups = [places | {"by": several}, places | {"by": several, "head": [*range(heads)]}] if several else []
    # What a learned sink takes is written beside the four steps of each head.
    sinks = any(one.sink for stack in run.stacks for block in stack.blocks for one in (block.mixer, block.cross) if one)
    steps = [places | {"head": [*range(heads)]}] if sinks else []
    for more in ({}, places, *steps, *groups):
        for name in names:
            usual = plain(EXPLANATIONS[name].settings())
            without = {"by"} if name in SLOW else {"head"} if name != "weights" else set()
            axes = [key for key in more if key in usual and key not in without | ONCE.get(name, set())]
            for found in itertools.product(*([usual[key], *more[key]] for key in axes)):
                settings = dict(zip(axes, found, strict=True))
                asked.setdefault(request(name, settings, usual), (name, settings))
    # Packed they are a tenth of their bytes.
    most, room = (MOST_EXPLANATIONS, EXPLAINED_BYTES) if most_bytes is None else (FEWER, most_bytes // 2)
    return made(trace, itertools.islice(asked.values(), most), room, report)


def made(
    trace: Trace, asked: Iterable[tuple[str, dict[str, Any]]], most_bytes: int | None = None, report: Report = quiet
) -> dict[str, Explanation]:
    """Explanations by their address, of those that there are: a stack need not have the layer that was asked for.
    most_bytes: as JSON; of a kind, those up to the first that has no room. report: is told how many were asked for."""
    asked = [*asked]
    found, left, full = {}, math.inf if most_bytes is None else most_bytes, set[str]()
    for k, (name, how) in enumerate(asked):
        report(k, len(asked))
        if name in full:
            continue
        with contextlib.suppress(GlassformerError):
            one = explain(name, trace, **how)
            size = 0 if most_bytes is None else len(msgspec.json.encode(one))
            if size > left:
                full.add(name)
                continue
            left -= size
            found[request(name, how, plain(EXPLANATIONS[name].settings()))] = one
    return found


def _differs(run: PageRun, by: str) -> bool:
    """Whether a grouping is another one than the tokens."""
    return any(
        [cell.tokens for cell in one.cells[by]] != [cell.tokens for cell in one.cells["token"]]
        for one in run.stacks
        if by in one.cells
    )


# ---------------------------------------------------------------- values


def values_of(parts: Sequence[Part], most_bytes: int) -> tuple[bytes, tuple[str, ...]]:
    """The values of the runs in fp32, as a safetensors file: all of them, or of large runs those that fit most_bytes,
    and the names of those beside the page's own that do not."""
    chosen, left, without = set[str](), most_bytes, list[str]()
    for part in parts:
        for name in part.values:
            size = 4 * math.prod(n for _, n in part.trace.sizes(name))
            if size <= left:
                chosen.add(_key(part, name))
                left -= size
            elif part.saved.key:
                without.append(f"{part.saved.run.model}: {name}")
    # In the order of the run: what leaves a block and what enters the next stand side by side, and are packed as one.
    found = {
        key: (part.trace, name) for part in parts for name in part.trace.names() if (key := _key(part, name)) in chosen
    }
    shapes = {key: (torch.float32, tuple(n for _, n in of.sizes(name))) for key, (of, name) in found.items()}

    def value(key: str) -> Tensor:
        of, name = found[key]
        return of[name].to(torch.float32)

    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "values.safetensors")
        write_safetensors(file, shapes, value, {})
        return file.read_bytes(), tuple(without)


def _key(part: Part, name: str) -> str:
    return f"{part.saved.key}/{name}" if part.saved.key else name


def _rank(name: str) -> int:
    short = name.rpartition(".")[2]
    if short in FIRST:
        return FIRST.index(short)
    return len(FIRST) + (1 + LAST.index(short) if short in LAST else 0)
