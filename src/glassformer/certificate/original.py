"""Checks of a published model against the original: `transformers`, where it is installed.

A model that was read from its published folder is held against what transformers makes of that folder; any other that a
published family can express against transformers with its weights in that family's form.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..checkpoint import filled, unique_tensors
from ..errors import UnsupportedError
from ..formats.huggingface import is_huggingface
from ..hf import export, family_of
from ..hf.sentences import network_of, pooling_of
from .line import Line, failed, judged, without
from .paths import AWAY, CHOOSES, TWICE, apart, held, rms, rounding
from .subject import Subject
from .tokens import NONE, all_texts, tokenizers_of
from .written import is_tie, prompts, writes_not

if TYPE_CHECKING:
    from ..api import Loaded
    from ..classifier import Classifier

BOUNDS = {torch.float32: 5e-5}  # of the largest number
HOW = {"local_files_only": True, "trust_remote_code": False}  # no code of a folder is run, and nobody is asked
READING = (OSError, ValueError, KeyError, AttributeError, RuntimeError, ImportError, TypeError)  # what it raises
OWN = ("suppressed", "suppressed_first", "forced", "no_repeat", "min_new_tokens", "repetition_penalty")
ABSENT = "transformers is not installed (pip install transformers)"


def without_pooling(subject: Subject) -> Subject:
    """The same without a head that only sums up what the blocks give, as for sentence vectors: to transformers such a
    model is its blocks."""
    if pooling_of(subject.model.spec) is None:
        return subject
    model = filled(network_of(subject.model.spec), unique_tensors(subject.model), Path(), subject.device)
    return type(subject)(model, subject.rows)


class Absent(Exception):
    """There is no original to compare with; the message says why."""


@dataclass(eq=False)
class Original:
    """What transformers makes of a model, made when it is first asked for. Its outputs are worked out once in each
    number format, in fp32 and in bf16, and the model itself is let go with this object."""

    loaded: Loaded | Classifier
    subject: Subject

    @cached_property
    def model(self) -> nn.Module:
        """The model of transformers, in fp32. Raises Absent where there is none."""
        with quiet() as transformers:
            place = published(self.loaded.place)
            config, tensors = _config(place) if place else self._exported()
            if place and pooling_of(self.loaded.model.spec) is not None:  # whatever head the network was trained with
                config["architectures"] = ["AutoModel"]
            try:
                made = _made(transformers, place, config, tensors)
            except READING as error:
                raise Absent(_unread(transformers, error)) from None
        return made.to(self.subject.device).eval()

    def _exported(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        try:
            return export(self.subject.model)
        except UnsupportedError as error:
            raise Absent(str(error)) from None

    @cached_property
    def wide(self) -> list[Tensor]:
        """Its outputs in fp32, one for each row of the subject."""
        return self._outputs()

    @cached_property
    def narrow(self) -> list[Tensor]:
        """The same in bf16. The model is let go afterwards: what it was before would have to be kept beside it."""
        for value in self.model.parameters():  # not the buffers: the angles of positions stay in fp32 there too
            value.data = value.data.to(torch.bfloat16)
        found = self._outputs()
        del self.model
        return found

    def _outputs(self) -> list[Tensor]:
        with quiet() as transformers, torch.no_grad():
            try:
                return [self._output(row, ours) for row, ours in zip(self.subject.rows, self.subject.fast, strict=True)]
            except READING as error:
                raise Absent(_unread(transformers, error)) from None

    def _output(self, row: Any, ours: Tensor) -> Tensor:
        """What it gives for one row, of its outputs the one that has the shape of ours."""
        dtype = next(self.model.parameters()).dtype
        inputs = {n: x.to(dtype) if x.is_floating_point() else x for n, x in self.subject.inputs(row).items()}
        found = self.model(**inputs)
        for name in ("logits", "pooler_output", "last_hidden_state"):
            value = getattr(found, name, None)
            if value is not None and value[0].shape == ours.shape:
                return value[0]
        raise Absent("what transformers gives has another shape than what this model gives")

    def written(self, row: Any, count: int) -> list[int]:
        """So many tokens behind a row, the most probable each time; end tokens do not end it, nothing is suppressed."""
        inputs, model = self.subject.inputs(row), self.model
        first = inputs["decoder_input_ids"][0, 0].item() if "decoder_input_ids" in inputs else None
        kept, model.generation_config = model.generation_config, type(model.generation_config)()
        model.generation_config.update(pad_token_id=0, decoder_start_token_id=first)
        if "input_ids" in inputs:  # or it would read each token 0 as padding
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        how = {"do_sample": False, "num_beams": 1, "max_new_tokens": count, "min_new_tokens": count}
        with quiet() as transformers, torch.no_grad():
            try:  # not Whisper's own, which detects languages and cuts a sound into windows
                found = transformers.GenerationMixin.generate(model, **inputs, **how)
            except READING as error:
                raise Absent(_unread(transformers, error)) from None
            finally:
                model.generation_config = kept
        return found[0, -count:].tolist()


def _unread(transformers: Any, error: Exception) -> str:
    why = " ".join(str(error).split())[:200]
    return f"transformers {transformers.__version__} does not read it: {why}"


def published(place: Path | None) -> Path | None:
    """The folder of a published model at the place where a model was read; None where there is none."""
    return None if place is None or (place / "model.json").is_file() else is_huggingface(place)


def _config(folder: Path) -> tuple[dict[str, Any], None]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8")), None


def _made(transformers: Any, place: Path | None, config: dict[str, Any], tensors: dict[str, Tensor] | None) -> Any:
    """The model of transformers in fp32: of a published folder, or with a configuration and tensors of ours."""
    names = config.get("architectures") or list(family_of(config).architectures)
    how = {**HOW, "dtype": torch.float32, "attn_implementation": "eager"}
    if tensors is not None:
        how |= {"config": _configured(transformers, config), "state_dict": tensors}
    with torch.random.fork_rng():
        found, told = getattr(transformers, names[0]).from_pretrained(place, output_loading_info=True, **how)
    if tensors is not None and told["unexpected_keys"]:
        raise Absent(f"transformers has no place for {min(told['unexpected_keys'])}")
    return found


def _configured(transformers: Any, config: dict[str, Any]) -> Any:
    rest = {name: value for name, value in config.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **rest)
    made._attn_implementation = "eager"
    return made


@contextlib.contextmanager
def quiet() -> Iterator[Any]:
    """transformers, which inside neither warns nor draws bars. Raises Absent where it is not installed."""
    if importlib.util.find_spec("transformers") is None:
        raise Absent(ABSENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = importlib.import_module("transformers")
        log = transformers.utils.logging
        level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
        log.set_verbosity_error()
        log.disable_progress_bar()
        try:
            yield transformers
        finally:
            log.set_verbosity(level)
            if bars:
                log.enable_progress_bar()


# ---------------------------------------------------------------- the lines


def fp32(original: Original) -> Line:
    """The outputs of every row against those of transformers, in fp32."""
    subject = original.subject
    if subject.dtype != torch.float32:
        return without("original_fp32", "the model was loaded in another number format; check it in float32")
    try:
        wanted = original.wide
    except Absent as absent:
        return without("original_fp32", str(absent))
    line = held("original_fp32", subject, wanted, bounds=BOUNDS)
    largest, mean = (one * max(x.abs().max().item() for x in wanted) for one in apart(subject.fast, wanted))
    return replace(line, detail={**line.detail, "largest_difference": largest, "mean_difference": mean})


def bf16(original: Original) -> Line:
    """The error in bf16, against transformers in fp32, beside that of transformers in bf16."""
    subject = original.subject
    if subject.dtype not in (torch.float32, torch.bfloat16):
        return without("original_bf16", "the model was loaded in another number format; check it in float32")
    try:
        wanted, theirs = original.wide, original.narrow
    except Absent as absent:
        return without("original_bf16", str(absent))
    half = _in_bf16(subject)
    if half.may_choose_otherwise:
        return without("original_bf16", CHOOSES)
    error, own = rms(half.fast, wanted), rms(theirs, wanted)
    if not own <= rounding(half):
        return failed("original_bf16", AWAY)
    detail = {"error": error, "transformers": own, "mean": apart(half.fast, wanted)[1]}
    return judged("original_bf16", error / max(own, 1e-30), TWICE, "ratio", **detail)


def _in_bf16(subject: Subject) -> Subject:
    if subject.dtype == torch.bfloat16:
        return subject
    tensors = {name: value.to(torch.bfloat16) for name, value in unique_tensors(subject.model).items()}
    return type(subject)(filled(subject.model.spec, tensors, Path(), subject.device), subject.rows)


def text(original: Original) -> Line:
    """64 tokens, the most probable each time: how many texts part from that of transformers, where it is no tie."""
    subject = original.subject
    refusal = writes_not(subject)
    if refusal:
        return without("original_text", refusal)
    wrong = ties = count = 0
    reason = ""
    for prompt, room in prompts(subject):
        try:
            theirs = original.written(prompt, room)
        except Absent as absent:
            return without("original_text", str(absent))
        ours = subject.written(prompt, room)
        parted = next((i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), room)
        count += parted
        if parted < room:
            ids = [*subject.ids(prompt), *ours[:parted]]
            scores = subject.alone(subject.changed(prompt, ids))[-1]
            tie = is_tie(scores, theirs[parted], subject)
            ties, wrong = ties + tie, wrong + (not tie)
            reason = reason or ("" if tie else f"the texts part at token {parted}")
    return judged("original_text", wrong, 0, "count", reason or _plainly(original.loaded), of=count, ties=ties)


def _plainly(loaded: Loaded | Classifier) -> str:
    """What to know of the texts of a model that has settings of its own which change even the most probable text."""
    own = loaded.about.get("generation") or loaded.about.get("speech") or {}
    settings = ", ".join(name for name in OWN if own.get(name))
    return f"both texts are written without {settings}, which this model has of its own" if settings else ""


def ids(loaded: Loaded | Classifier) -> Line:
    """How many of the texts have other ids, or other places, than by the original's tokenizer, on either side where an
    encoder-decoder has two."""
    sides = tokenizers_of(loaded)
    if not sides:
        return without("original_ids", NONE)
    place = published(loaded.place)
    if place is None:
        return without("original_ids", "the files of the original tokenizer are not at hand")
    if importlib.util.find_spec("transformers") is None:
        return without("original_ids", ABSENT)
    with quiet() as transformers:
        try:
            theirs = transformers.AutoTokenizer.from_pretrained(place, **HOW)
        except READING as error:
            return without("original_ids", _unread(transformers, error))
        read = [(one, "text") for one in sides[:1]] + [(one, "text_target") for one in sides[1:]]
        chosen = [
            (mine, text, given)
            for mine, given in read
            for text in all_texts()
            if not (mine.method == "unigram" and _is_typed(mine, text))
        ]
        wrong = [text for mine, text, given in chosen if not _as_theirs(mine, theirs, text, given)]
    reason = f"the first is {wrong[0]!r}" if wrong else ""
    return judged("original_ids", len(wrong), 0, "count", reason, of=len(chosen), wrong=wrong)


def _is_typed(mine: Any, text: str) -> bool:
    """Whether a special token stands in a text, which an original of the unigram kind always takes for that token."""
    return any(mark in text for mark in mine.special.values())


def _as_theirs(mine: Any, theirs: Any, text: str, given: str) -> bool:
    """Whether a text, given as that of the one side or the other, has the same ids, and where the original tells places
    the same ones up to blanks, which some put into a token's place and some do not."""
    made = mine.encode(text)
    how = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": theirs.is_fast}
    found = theirs(**{given: text}, **how)
    if made.ids != found["input_ids"]:
        return False
    places = found.get("offset_mapping", made.offsets)
    pieces = [mine.piece_bytes(id) for id in made.ids]
    return all(_same_place(text, *one) for one in zip(pieces, made.offsets, places, strict=True))


def _same_place(text: str, piece: bytes, mine: tuple[int, int], theirs: tuple[int, int]) -> bool:
    """Whether two places have the same characters, but for blanks and for marks that belong to the last of them. A
    blank that was put in stands nowhere here, and there beside the first character."""
    own, other = (text[slice(*span)].strip() for span in (mine, theirs))
    if piece and not piece.strip():
        return not own or mine == theirs
    return own == other or (bool(other) and own.startswith(other) and mine[1] >= theirs[1])
