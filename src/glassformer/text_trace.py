"""A trace that knows its text: what a person calls a word, and the views of it."""

from __future__ import annotations

import contextlib
import html
import operator
import re
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from .data.audio import moments
from .data.display import By, Cell, find
from .edit import Edit
from .errors import GlassformerError, InputError, UnsupportedError, check_above
from .explain.aligned import Aligned, alignment
from .explain.drawn import html_of
from .explain.explained import explain
from .explain.grid import Grid, grid
from .explain.influence import Influence, influence
from .explain.mixing import MixerSheet, mixer_sheet, written_at
from .explain.moved import Moved, moved
from .explain.sheet import Sheet, attention_paths, heads_of, sheet
from .explain.sight import sight, through
from .explain.weights import Weights, weights
from .files import PAGES, replacing
from .nn.head import Head
from .place import Index, indices
from .trace import Trace

if TYPE_CHECKING:
    from .api import Loaded

KEPT_BYTES = 2_600_000  # of a run in the page that a saved notebook holds; with the page around it less than 3 MB
What = Literal["influence", "weights"]
Of = Literal["text", "source"]


class TextTrace(Trace):
    """A trace that knows its text: `cells` are its tokens as a person reads them, `text` what they spell."""

    def __init__(
        self, loaded: Loaded, given: Any, *, edits: Edit | Iterable[Edit], limit_bytes: int, start: bool = True
    ) -> None:
        self.loaded, self._start = loaded, start
        tokens = loaded.inputs(given, start)
        pair = len(tokens) == 2
        super().__init__(loaded.model, tokens if pair else tokens[0], edits=edits, limit_bytes=limit_bytes)
        texts = given if pair and isinstance(given, tuple | list) else [given, None] if pair else [given]
        self.given = given if isinstance(given, str) else None
        self._texts = [one if isinstance(one, str) else None for one in texts]  # as they were given
        for key, stack, text in zip(("encoder.", "") if pair else ("",), self.stacks, self._texts, strict=True):
            if stack.model.spec.reads_sound:  # its places are called by their times
                continue
            names = [cell.text for cell in loaded.cells(stack.tokens[0].tolist(), source=key == "encoder.", text=text)]
            self._labels |= {f"{key}t": names, f"{key}s": names}
        ids = self.stacks[-1].tokens[0].tolist()
        known = loaded.tokenizer is not None and max(ids) < loaded.tokenizer.vocab_size
        self.text = loaded.tokenizer.decode(ids) if known else " ".join(map(str, ids))
        if known and text is not None and loaded.tokenizer.placed(text, ids) is not None:
            self.text = text

    def _other(self, given: Any) -> Trace:
        return self.loaded.trace(given, limit_bytes=self.limit_bytes, start=self._start)

    def __repr__(self) -> str:
        tokens, text = self.stacks[-1].tokens, self.text if len(self.text) <= 40 else f"{self.text[:39]}…"
        more = f", {len(self.edits)} edits" if self.edits else ""
        batch = f"{tokens.shape[0]} rows of " if tokens.shape[0] > 1 else ""
        return f"<trace of {text!r}: {batch}{tokens.shape[1]} tokens{more}, by {self.loaded.name or 'a model'}>"

    def _repr_html_(self) -> str | None:
        """The page of this run in a frame, reading only, for a notebook without its kernel; under it in plain words
        what it is, which also shows where frames are not allowed. None, and so the line of text, where there is no
        page. Within the frame it can neither ask for anything nor touch the notebook."""
        try:
            page = self.loaded.page(self, "", slow=False, most_bytes=KEPT_BYTES)
        except GlassformerError:  # the page is not built, or this is a batch
            return None
        return self.framed(page)

    def framed(self, page: str) -> str:
        """A page of this run in a frame, with what the text goes on with under it in plain words."""
        return framed(page, repr(self), self._expected())

    def _expected(self) -> str:
        """What the text goes on with, as a table; empty for a model that writes nothing."""
        try:
            return html_of(explain("next", self))
        except GlassformerError:
            return ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """How a notebook shows this: alive, as gf.widget does, where anywidget is installed and a kernel runs, and with
        it always what a kept notebook shows without a kernel. In IPython's terminal the line of text alone."""
        shell = _shell()
        if shell is not None and getattr(shell, "kernel", None) is None:
            return {"text/plain": repr(self)}
        widget = self._widget()
        if widget is not None:
            return widget._repr_mimebundle_()
        drawn = self._repr_html_()
        return {"text/plain": repr(self)} | ({"text/html": drawn} if drawn else {})

    def _ipython_display_(self) -> None:
        """The same, where it is alive with what to do once it is not (notebook.shown.AGAIN). Elsewhere IPython asks for
        what stands above."""
        widget = self._widget()
        if widget is None:
            raise NotImplementedError
        widget._ipython_display_()

    def _widget(self) -> Any:
        """This as gf.widget shows it; None without a kernel, without anywidget, and where there is no page."""
        if getattr(_shell(), "kernel", None) is None:
            return None
        import glassformer  # by its public name: what shows a trace alive stands far above this file

        with contextlib.suppress(GlassformerError):
            return glassformer.widget(self)
        return None

    def save(
        self,
        path: Path | str,
        names: Iterable[str] | None = None,
        *,
        lang: Literal["en", "ko"] = "en",
        beside: TextTrace | Iterable[TextTrace] | None = None,
    ) -> None:
        """Write values (None: all) into FILE.safetensors, as any trace does; or FILE.html, the page of this run, which
        opens without a network and without this program. lang: the language in which that opens. A folder that is not
        there is made, as wherever something is saved.

        beside: further traces that the page compares this one with: the same text through other models, another text
        through this model, the same text with edits. For a shipped model the families that were trained with it
        are there too, which takes some seconds; with `[]` none."""
        if Path(path).suffix.lower() not in PAGES:
            super().save(path, names)
            return
        if names is not None:
            raise InputError("names: the page chooses what it needs; leave it out, or save to FILE.safetensors")
        others = beside if beside is None else [beside] if isinstance(beside, TextTrace) else list(beside)
        for one in others or ():
            if not isinstance(one, TextTrace):
                raise InputError(f"beside: {type(one).__name__} is no trace of a text; give what model.trace returns")
        page = self.loaded.page(self, lang, True, others)
        with replacing(Path(path)) as temporary:
            temporary.write_text(page, encoding="utf-8")

    def cells(self, by: By = "word") -> list[Cell]:
        """The tokens (an encoder-decoder's: of the target) grouped by word, character or token, special ones alone.
        Raises InputError for a batch, whose rows are different texts."""
        [tokens, *others] = self.stacks[-1].tokens.tolist()
        if others:
            raise InputError(
                f"this is a trace of {len(others) + 1} texts; trace one of them for its words and its sheet"
            )
        return self.loaded.cells(tokens, by, text=self._texts[-1])

    def sheet(
        self,
        token: str | int | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
        by: By = "word",
        top: int = 8,
        temperature: float = 1.0,
        of: Of = "text",
    ) -> Sheet | MixerSheet:
        """How one token's context vector is computed. token: a word of the text, or the number of its row (from 0, with
        `by` "word" counting words) as a number or as "#2"; None: the last word. Of several rows (a word that occurs
        again, a phrase) the last: see `rows`. top: how many candidates for the next token, at most the vocabulary;
        temperature: what their logits are divided by, of a model that has candidates.

        The four steps where a layer (None: one of the model's) mixes by softmax attention, else what its mixer of
        another kind reads and keeps. of: "source", with a pair: how the token came to be written, from the source.
        """
        layer, head = (None if one is None else _whole(name, one) for name, one in (("layer", layer), ("head", head)))
        chosen, groups = self.rows(token, by)[-1], self.cells(by)
        how = {"text": self.text, "layer": layer, "head": head, "cell": self.loaded.cell}
        check_above("temperature", temperature)
        if temperature != 1 and not isinstance(self.stacks[-1].model.head, Head):
            raise InputError("temperature: this model has no candidates for a next token; leave it out")
        how |= {"top": _whole("top", top, 1), "temperature": temperature}
        if of == "source":
            return mixer_sheet(self, groups, chosen, source=self._source_cells(by), **how)
        if of != "text":
            raise InputError(f"of: {of!r} is not allowed; use text, source")
        paths = attention_paths(self)
        others = layer is not None and layer not in paths and 0 <= layer < len(self.stacks[-1].model.blocks)
        return (mixer_sheet if others or not paths else sheet)(self, groups, chosen, **how)

    def alignment(self, *, layer: int | None = None, head: int | None = None) -> Aligned:
        """For each token of the target which tokens of the source it was written from. layer None: the one that the
        model names for it, else the last that looks there; head None: the mean over all."""
        layer = self.loaded.about.get("alignment", {}).get("layer") if layer is None else layer
        layer, head = (None if one is None else _whole(name, one) for name, one in (("layer", layer), ("head", head)))
        source, target = self.source_cells("token"), self.cells("token")
        names = {"text": self.source_text, "written": self.text, "model": self.loaded.name}
        return alignment(self, source, target, layer=layer, head=head, **names)

    def vectors(self, token: str | int | None = None, *, by: By = "word") -> Tensor:
        """How the vector of a word changes from layer to layer, `l d`: first the fixed one from the table, the same in
        every text, then what leaves each block, which depends on the text around. token and by as in `sheet`; of a word
        of several tokens the mean of theirs. Raises UnsupportedError where the blocks change the width."""
        stack = self.stacks[-1]
        if len(set(stack.model.spec.widths)) > 1:
            raise UnsupportedError("vectors: the blocks of this model change the width of its vectors")
        places = list(self.cells(by)[self.rows(token, by)[-1]].tokens)
        names = [f"{stack.prefix}embed.token", *(stack.entry(i + 1) for i in range(len(stack.model.blocks)))]
        return torch.stack([self.part(name, b=0, t=places).mean(0) for name in names])

    def source_cells(self, by: By = "word") -> list[Cell]:
        """The tokens of a pair's source, as `cells` gives those of its target. Raises UnsupportedError for one text."""
        if len(self.stacks) == 1:
            raise UnsupportedError("only an encoder-decoder has a source and an alignment; name another model")
        if self.loaded.hears:
            return self._moments(self.stacks[0].length)
        return self.loaded.cells(self.stacks[0].tokens[0].tolist(), by, source=True, text=self._texts[0])

    def _moments(self, places: int) -> list[Cell]:
        """The places of the encoder, or the frames of its spectrogram, by their times."""
        stack = self.stacks[0]
        return moments(places, stack.length * stack.model.spec.embed.seconds / places, self._seconds)

    @property
    def _seconds(self) -> float:
        """How long the sound of this trace is, without the silence behind it."""
        stack = self.stacks[0]
        return stack.tokens.shape[-1] / stack.rate

    @property
    def source_text(self) -> str:
        """What a pair's source spells, letters composed to syllables, or how long its sound is; empty for one text."""
        if self.loaded.hears:
            return f"{self._seconds:.2f} s"
        cells = self.source_cells() if len(self.stacks) == 2 else []
        return unicodedata.normalize("NFC", "".join(cell.source for cell in cells))

    def influence(self, **how: Any) -> Influence:
        """The influence of every token on every other's last vector; how as in explain.influence (rows, of,
        method, directions, seed, limit_bytes). Raises InputError for a run with edits."""
        if self.edits:
            raise InputError("influence is that of a model as it is; trace the text without edits")
        tokens = [stack.tokens for stack in self.stacks]
        return influence(self.model, tokens[0] if len(tokens) == 1 else tuple(tokens), **how)

    def weights(
        self, rows: Index | None = None, *, layer: int | None = None, head: int | None = None, of: Of = "text"
    ) -> Weights:
        """The magnitude of the weights in one layer's sum, as in explain.weights: attention's pattern, or the effective
        weights of linear attention and state-space models; of: "source", those of a pair's alignment. layer None: the
        first that has them, of an alignment the last; head None: the mean."""
        return weights(self, indices(rows, self.stacks[-1].tokens.shape[1], "weights", "t"), layer, head, of)

    def moved(
        self,
        token: str | int | None = None,
        *,
        by: By = "word",
        what: What = "influence",
        of: Of = "text",
        **how: Any,
    ) -> Moved:
        """How strongly each word of the text moves one token's last vector, or with what weight one layer's sum takes
        it; token and by as in `sheet`, how as in `influence` or `weights`. of: "source", with a pair: each word of the
        source, and the vector from which the token was written, one step before it."""
        chosen, groups, own = self.rows(token, by)[-1], self.cells(by), of != "source"
        cells = groups if own else self._source_cells(by)
        at = groups[chosen].tokens[-1] if own else written_at(groups[chosen])
        found, width = self._found(what, [at], how | {"of": of}), self.stacks[-1].model.spec.widths[-1]
        if not own and self.loaded.hears:
            cells = self._moments(found.norms.shape[1])
        names = {"text": self.text, "source": self.source_text, "model": self.loaded.name}
        return moved(found, cells, groups, chosen, of=of, position=at, width=width, **names)

    def grid(self, *, by: By = "character", what: What = "influence", **how: Any) -> Grid:
        """The same for every token of the text, those that spell one character together, as the figure shows it."""
        groups, blocks = self.cells(by), self.stacks[-1].model.blocks
        if how.get("of", "text") != "text":
            raise UnsupportedError("the figure draws how a text's tokens move one another; leave of (--of) out")
        rows, n, sources = [cell.tokens[-1] for cell in groups], self.stacks[-1].length, self.stacks[0].length
        found = self._found(what, rows, how)
        if what == "weights":
            seen = through(self.model.get_submodule(found.name.rpartition(".")[0]), n, sources, rows)
        else:
            seen = sight(self.stacks[-1].model, n, sources, rows)
        mixers = [block.mixer.called for block in blocks]
        return grid(found, groups, seen, text=self.text, model=self.loaded.name, mixers=mixers)

    def _source_cells(self, by: By) -> list[Cell]:
        """The source's rows beside rows of the target: tokens, where the source has a tokenizer of its own."""
        return self.source_cells(by if self.loaded.source is None else "token")

    def _found(self, what: str, rows: list[int], how: dict[str, Any]) -> Influence | Weights:
        for name, given, allowed in (("what", what, get_args(What)), ("of", how.get("of", "text"), get_args(Of))):
            if given not in allowed:
                raise InputError(f"{name}: {given!r} is not allowed; use {', '.join(allowed)}")
        return self.influence(rows=rows, **how) if what == "influence" else self.weights(rows, **how)

    def sheets(
        self, token: str | int | None = None, *, layer: int | None = None, **how: Any
    ) -> list[Sheet] | list[MixerSheet]:
        """A sheet for each head of a layer; layer None: where the token's context moves most. how: as in `sheet`."""
        one = self.sheet(token, layer=layer, **how)
        if isinstance(one, Sheet):
            return heads_of(self, self.cells(how.get("by", "word")), one)
        return [self.sheet(token, layer=one.layer, head=head, **how) for head in range(one.heads)]

    def rows(self, token: str | int | None = None, by: By = "word") -> list[int]:
        """The rows of the sheet that a word, a phrase, a number or None means, as in `sheet`."""
        groups = self.cells(by)
        if token is None:
            spoken = [i for i, cell in enumerate(groups) if cell.source.strip()]  # no blank and no special token
            return [spoken[-1] if spoken else len(groups) - 1]
        if isinstance(token, str) and (token in self.text or not re.fullmatch(r"#\d+", token)):
            return find(self.text, groups, token)
        place = int(token[1:]) if isinstance(token, str) else _whole("token", token)
        if not -len(groups) <= place < len(groups):
            raise InputError(f"there is no row {place}; this text has {len(groups)} (0 to {len(groups) - 1})")
        return [place % len(groups)]


def framed(page: str, called: str, more: str = "") -> str:
    """A page in a frame that can touch nothing around it. called, more: what stands below, the second in HTML."""
    inside, style = page.replace("&", "&amp;").replace('"', "&quot;"), "width:100%;height:44rem;border:0"
    frame = f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{inside}"></iframe>'
    return f"{frame}<details><summary>{html.escape(called)}</summary>{more}</details>"


def _shell() -> Any:
    """IPython's, where this runs in one."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _whole(name: str, given: Any, least: int | None = None) -> int:
    """A whole number of any library as an int."""
    try:
        number = operator.index(given)
    except TypeError:
        raise InputError(f"{name}: {given!r} is not allowed; use a whole number") from None
    if least is not None and number < least:
        raise InputError(f"{name}: {number} is not allowed; use {least} or more")
    return number
