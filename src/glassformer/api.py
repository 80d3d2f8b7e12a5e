"""What people call: a model with its tokenizer, and traces that know their text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import load_model, read_about, save_new
from .classifier import Classifier
from .data.chat import Conversation, Messages, conversation
from .data.display import By, Cell, cells_of_ids, letter
from .data.folder import lacking, tokenizer_file
from .data.published import Published
from .data.tokenizer import START, STOP, Tokenizer
from .edit import SEEDS, Edit
from .edit import listed as listed_edits
from .embedding import Embedding
from .errors import InputError, UnsupportedError, check_whole, nearest
from .generate import Event, GenerateSpec, Watch, WithoutText, generate, in_parts, listed, longest
from .hearing import Hearing
from .image import ImageModel
from .machine import check_device, check_dtype, check_room
from .model import AnySpec, EncoderDecoder, Model, build_model, without_memory
from .patches import resolved
from .sources import place_of
from .spec import from_data
from .text_trace import TextTrace
from .trace import DEFAULT_LIMIT_BYTES
from .train.evaluate import Score, score

TOKENIZER, SOURCE = "tokenizer.json", "source_tokenizer.json"  # the second of an encoder-decoder's source, if another


class Loaded(Hearing, Embedding):
    """A model and its tokenizer. Calling it gives logits `b t v`; everything else starts from a text or token ids.

    A text is run as training saw it: behind the end-of-document token, which also gives the first word a distribution
    (switch it off with `start=False`).
    """

    place: Path | None = None  # the folder or file that it was read from

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer | None = None,
        name: str = "",
        about: dict[str, Any] | None = None,
        source: Tokenizer | None = None,
    ) -> None:
        """source: the tokenizer of an encoder-decoder's source where it is another; its `closing` ids stand behind a
        text, and only a published one puts a token before it."""
        self.model, self.tokenizer, self.name, self.about = model, tokenizer, name, about or {}
        self.source = source

    def __repr__(self) -> str:
        kind = "encoder-decoder" if isinstance(self.model, EncoderDecoder) else "model"
        stack, first = self._stack, next(self.model.parameters())
        count = sum(p.numel() for p in self.model.parameters())
        kept = f"{str(first.dtype).removeprefix('torch.')} on {first.device}"
        return (
            f"<{kind} {self.name or 'without a name'}: {count:,} parameters, {len(stack.blocks)} blocks of width "
            f"{stack.spec.dim}, vocabulary {stack.spec.vocab}, context {self.context}, {kept}>"
        )

    @property
    def spec(self) -> AnySpec:
        """The settings of the model."""
        return self.model.spec

    @property
    def _stack(self) -> Model:
        """The stack that writes: the model itself, or its decoder."""
        return self.model.decoder if isinstance(self.model, EncoderDecoder) else self.model

    @property
    def context(self) -> int:
        """The longest text, in tokens, that the model is meant to read and write; of an encoder-decoder, to write."""
        return self._stack.spec.context

    def room(self, prompt: str | list[str] | list[list[int]]) -> int:
        """How many new tokens the context holds behind the longest of the prompts; 0 or less where there is no room, a
        number without end where nothing that the model keeps grows with the text."""
        if longest(self._stack) is None:
            return sys.maxsize
        if isinstance(self.model, EncoderDecoder):
            begin = self._choice({}).begin or getattr(self.tokenizer, "begin", ())
            return self.context - max(1, len(begin))  # whatever the source
        lengths = [len(self.encode(one) if isinstance(one, str) else one) for one in listed(prompt)]
        return self.context - max(lengths)

    def __call__(self, given: Any) -> Tensor:
        """Logits `b t v` of a text, token ids, or a batch of ids; an encoder-decoder's, of a pair (source, target)."""
        with torch.no_grad():
            return self.model(*self.inputs(given))

    def inputs(self, given: Any, start: bool = True) -> tuple[Tensor, ...]:
        """What the model is called with: the ids `b t` of a text or of ids; an encoder-decoder's, those of a source
        and a target, which the model itself writes where a source text stands alone."""
        if not isinstance(self.model, EncoderDecoder):
            return (self._ids(given, start),)
        if self.hears:
            return self.heard(given)
        if isinstance(given, str):
            given = (given, self.written(given))
        if not (isinstance(given, tuple | list) and len(given) == 2):
            raise InputError("this is an encoder-decoder: give a pair (source, target), or a source text")
        source, target = self._ids(self.read(given[0], start)), self._ids(self._target(given[1], start))
        if len(source) != len(target):
            raise InputError(f"the pair has {len(source)} sources and {len(target)} targets; give as many of both")
        return source, target

    def _target(self, given: Any, start: bool) -> Any:
        """What an encoder-decoder's target is: of a text its ids, behind those with which every target begins."""
        if not isinstance(given, str) or not given:
            return given
        spec, tokenizer = self._choice({}), self._tokenizer()
        begin = [*(spec.begin or tokenizer.begin), *spec.forced] if start else []
        return [*begin, *tokenizer.encode(given).ids]

    def read(self, given: Any, start: bool = True) -> Any:
        """What an encoder-decoder reads of a source text: its ids, with what stands before (start) and behind them."""
        tokenizer = self.source or self.tokenizer
        if not isinstance(self.model, EncoderDecoder) or not isinstance(given, str) or tokenizer is None:
            return given
        start = start and (self.source is None or isinstance(self.source, Published))
        ids = tokenizer.encode(given, start).ids
        if not ids:
            raise InputError("the source is empty; give at least one token of it")
        return [*ids, *tokenizer.closing]

    def trace(
        self,
        text: Any,
        *,
        edits: Edit | Iterable[Edit] = (),
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        start: bool = True,
    ) -> TextTrace:
        """A trace of a text, of token ids, of a batch `b t`, or of a (source, target) pair; of a source text alone with
        the target that the model writes for it."""
        return TextTrace(self, text, edits=edits, limit_bytes=limit_bytes, start=start)

    def page(self, trace: TextTrace, *how: Any, **more: Any) -> str:
        """A run of this model as one HTML file, as page.saved.page_of makes it."""
        from .page import saved  # only here: a trace should not wait for it

        return saved.page_of(trace, *how, **more)

    Classifier.page = page

    def generate(
        self,
        prompt: str | list[str] | list[list[int]],
        *,
        watch: Watch | None = None,
        edits: Edit | Iterable[Edit] = (),
        **settings: Any,
    ) -> Iterator[Event]:
        """Events of a generation: one per new token, each with the newly complete characters. Settings as in
        GenerateSpec (max_new_tokens, temperature, top_p, seed …); those that the model has of its own, such as the
        tokens with which a target begins, are in about["generation"]. A token may be given by its text there, as
        the language to write is: forced=["ko_KR"]. watch and edits: as in generate.generate. Raises UnsupportedError
        for a model that writes no text."""
        self._check_writes()
        tokenizer = self.tokenizer
        if tokenizer is None:
            if any(isinstance(one, str) for one in listed(prompt)):
                self._tokenizer()
            tokenizer = WithoutText(self._stack.spec.vocab)
        spec, prompts = self._choice(settings), [self.parts(one) for one in listed(prompt)]

        edits = resolved(listed_edits(edits), self.trace)

        def write(given: list[Any]) -> Iterator[Event]:
            return generate(self.model, tokenizer, [self.read(one, spec.start) for one in given], spec, watch, edits)

        return in_parts(write, prompts)

    def chat(self, messages: Messages, *, system: str | None = None) -> Conversation:
        """The prompt by which the model answers (data.chat.conversation), for `generate([prompt.ids],
        ends=prompt.ends)`."""
        self._check_writes()
        if not isinstance(self.tokenizer, Published):
            raise InputError("this model has no chat template; leave --chat out, or name a model that has one (-m)")
        return conversation(self.tokenizer, messages, system)

    def _choice(self, settings: dict[str, Any]) -> GenerateSpec:
        """The settings with those of the model's own."""
        if isinstance(settings.get("stop"), str):
            settings = settings | {"stop": [settings["stop"]]}
        searches = settings.get("beams", 1) != 1  # which weighs texts by the model's own probability
        others = {"repetition_penalty"} if searches else {"length_penalty", "early_stopping"}
        own = {name: one for name, one in self.about.get("generation", {}).items() if name not in others}
        for name in ("ends", "suppressed", "suppressed_first"):  # ids beyond the vocabulary are never written
            if isinstance(own.get(name), list):
                own[name] = [id for id in own[name] if not isinstance(id, int) or id < self._stack.spec.vocab]
        given = own | settings
        for name in ("begin", "forced", "ends", "suppressed", "suppressed_first"):
            if isinstance(given.get(name), list | tuple):
                given[name] = [self._named(name, one) if isinstance(one, str) else one for one in given[name]]
        return from_data(given, GenerateSpec)

    def _named(self, setting: str, text: str) -> int:
        """The id of a token that is named by its text, such as the code of a language."""
        known = self._tokenizer().library.get_vocab(with_added_tokens=True)
        if text not in known:
            raise InputError(f"{setting}: the tokenizer has no token {text!r}; {nearest(text, known)}")
        return known[text]

    def parts(self, prompt: Any) -> list[Any]:
        """What the model reads one at a time: the words of a text where an encoder-decoder has no piece for a blank."""
        if self.source is None or not isinstance(prompt, str) or self.source.spells(" "):
            return [prompt]
        return prompt.split() or [prompt]

    def written(self, source: Any) -> list[int]:
        """The target of one source as an encoder-decoder itself writes it, the most probable token each time: its ids,
        behind those with which every target begins."""
        begin = self._choice({}).begin or self._tokenizer().begin
        events = self.generate([self.read(source)], max_new_tokens=self.context - len(begin))
        return [*begin, *(event.token for event in events if event.finished != "end")]

    def encode(self, text: str, start: bool = True) -> list[int]:
        """The token ids of a text as the model reads it: behind the tokens before every text, if any, unless start is
        False; with those behind it too where the model reads in both directions."""
        return [*self._tokenizer().encode(text, start=start).ids, *(self.closing if start else [])]

    def evaluate(self, source: Path | str, *, overlap: float = 0.5) -> Score:
        """How well the model predicts a text file or folder, each file behind the start token (train.evaluate.score).

        Raises InputError for a text, folder or overlap that cannot be used, and for numbers that are not finite.
        """
        if not 0 <= overlap < 1:
            raise InputError(f"overlap: {overlap} is not allowed; use a share from 0 to below 1")
        self._check_writes()
        if isinstance(self.model, EncoderDecoder) or self.model.head is None:
            raise UnsupportedError("only a model that writes text from left to right can be evaluated on a text")
        return score(self.model, self._tokenizer(), source, overlap)

    def cells(self, ids: list[int], by: By = "token", *, source: bool = False, **how: Any) -> list[Cell]:
        """Token ids as a person reads them, grouped by token, character or word; as numbers without a tokenizer.
        source: they are an encoder-decoder's source. how: text and continues, as in data.display.cells_of_ids."""
        tokenizer = self.source if source and self.source is not None else self.tokenizer
        if tokenizer is None or max(ids, default=0) >= tokenizer.vocab_size:
            return [Cell(str(token), (i,), 0, 0, str(token)) for i, token in enumerate(ids)]
        found = cells_of_ids(tokenizer, ids, by, **how)
        return [replace(cell, text=letter(cell.text)) for cell in found]

    def cell(self, token: int) -> Cell:
        """One token id as a person reads it behind a text: its text, or its bytes where it is a part of a character."""
        cell = self.cells([token], continues=True)[0]
        return replace(cell, text=STOP) if cell.text == START and not cell.source else cell

    def save(self, folder: Path | str, *, dtype: str | torch.dtype | None = None) -> None:
        """Write a new folder that `load` reads: spec, weights (stored as dtype where it is given, "float16" too),
        tokenizers, and how the model was made. Raises InputError for a folder that holds something already."""
        kept = {name: one for name, one in ((TOKENIZER, self.tokenizer), (SOURCE, self.source)) if one is not None}
        save_new(self.model, folder, self.about, dtype, kept)

    def export(self, folder: Path | str, *, tokenizer: bool = True, **settings: Any) -> dict[str, Any]:
        """Write a new folder that transformers loads, with the tokenizer or without; its config.json. settings: family,
        shard_bytes, as hf.folder.write_folder has them.

        Raises UnsupportedError, with the places of the spec, for what no family has, and as `save` does.
        """
        from .hf.folder import write_folder  # only here: a trace should not wait for it

        if tokenizer and self.source is not None and not getattr(self.tokenizer, "files", None):
            raise UnsupportedError(
                "this model reads its source with another tokenizer than that of its target, and a published folder "
                "has one; leave both out (--no-tokenizer)"
            )
        own = {"tokenizer": self.tokenizer} if tokenizer else {}
        return write_folder(self.model, folder, about=self.about, **own, **settings)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            if self.place is None:
                raise InputError("this model has no tokenizer; give token ids instead of a text")
            raise InputError(f"{lacking(self.place, self.about)}; put it there, or give token ids in Python")
        return self.tokenizer

    def _ids(self, given: Any, start: bool = True) -> Tensor:
        """The ids `b t` of a text, of one list of ids, or of a batch of them."""
        if isinstance(given, str):
            if not given:
                raise InputError("the text is empty; give at least one character")
            return torch.tensor([self.encode(given, start)], device=self.device)
        try:
            ids = torch.as_tensor(given, device=self.device)
            if (ids.numel() and (ids.is_floating_point() or ids.dtype == torch.bool)) or ids.ndim not in (1, 2):
                raise ValueError
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                "give a text, a list of token ids, or a batch of ids of equal length (one text at a time; a pair "
                "of source and target for an encoder-decoder)"
            ) from None
        return (ids[None] if ids.ndim == 1 else ids).long()

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device


def load(
    name: str | Path | None = None, *, device: str | torch.device = "cpu", dtype: str | torch.dtype = "float32"
) -> Loaded | Classifier:
    """A model: the shipped one (None or its name), a folder that training wrote, one that `glassformer pull` fetched
    (its name), one of the Hugging Face hub ("organisation/model", also with "@revision"), or one written elsewhere: a
    Hugging Face folder, a .gguf file, the folders of hama's and g2p-en's grapheme-to-phoneme models and of llama2.c, or
    their .npz or .bin. dtype as "float64" or torch.float64."""
    numbers = check_dtype(dtype)
    check_device(device)
    if torch.device(device).type == "mps" and numbers == torch.float64:
        raise InputError("dtype: float64 is not known to mps; use float32 or bfloat16, or --device cpu")
    place, called = place_of(name)
    found = _imported(place, device, numbers) or _own(place, device, numbers)
    found.place, found.name = place, called
    return found


def _own(folder: Path, device: str | torch.device, numbers: torch.dtype) -> Loaded | Classifier:
    """The model in a folder of this package's format."""
    model = load_model(folder, device, numbers)
    names = (TOKENIZER, SOURCE) if isinstance(model, EncoderDecoder) else (TOKENIZER,)
    found = {name: Tokenizer.load(folder / name) for name in names if (folder / name).is_file()}
    return _made(model, found.get(TOKENIZER), found.get(SOURCE), read_about(folder), folder)


def _made(
    model: nn.Module, tokenizer: Tokenizer | None, source: Tokenizer | None, about: dict[str, Any], place: Path
) -> Loaded | Classifier:
    """What is called, of what was read at a place. Raises CheckpointError for the tokenizer of a larger model."""
    if isinstance(model, ImageModel):
        return Classifier(model, about=about)
    pair = isinstance(model, EncoderDecoder)
    writes = (model.decoder if pair else model).spec.vocab
    reads = (model.encoder.spec.vocab if pair else 0) or writes  # a sound has no vocabulary
    if tokenizer is not None:
        tokenizer = tokenizer.within(writes if source else min(writes, reads), tokenizer_file(place))
    if source is not None:
        source = source.within(reads, tokenizer_file(place, SOURCE))
    return Loaded(model, tokenizer, about=about, source=source)


def _imported(path: Path, device: str | torch.device, numbers: torch.dtype) -> Loaded | Classifier | None:
    """The model at a path in another package's format; None where it is a folder of this one."""
    if (path / "model.json").is_file():
        return None
    from .formats import reader_of  # only here: a trace should not wait for it

    read = reader_of(path)
    if read is None:
        return None
    found = read()
    return _made(found.model(path, device, numbers), found.tokenizer, found.source, found.about, path)


def build(spec: str | AnySpec, *, seed: int = 0, **overrides: Any) -> Loaded | Classifier:
    """A freshly initialised model of a preset (with overrides such as vocab=65) or of a spec."""
    from .named import spec_of  # only here: a trace should not wait for it

    check_whole("seed", seed, *SEEDS)
    spec = spec_of(spec, **overrides)
    with torch.random.fork_rng():
        planned = without_memory(spec)  # refuses what is too large even to be written down
        check_room(sum(p.nbytes for p in planned.parameters()), "spec")
        torch.manual_seed(seed)
        model = build_model(spec).eval()
        return Classifier(model) if isinstance(model, ImageModel) else Loaded(model)


def parameters(model: Loaded | Classifier | nn.Module) -> list[tuple[str, tuple[int, ...], int]]:
    """(name, shape, count) of every parameter, a shared one once: what gradient descent changes."""
    module = model.model if isinstance(model, Loaded | Classifier) else model
    if not isinstance(module, nn.Module):
        raise InputError(f"{model!r} is no model that was built; give what glassformer.load or build returns")
    return [(name, tuple(p.shape), p.numel()) for name, p in module.named_parameters()]
