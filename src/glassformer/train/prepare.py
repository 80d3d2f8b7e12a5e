"""What a run needs before its first step. Whatever can be refused is refused before anything in the folder changes.

A new run is built beside an older one (in `.train`) and takes its place when it is whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from ..data.packed import Packed, pack
from ..data.text import text_files
from ..data.tokenizer import Tokenizer, train_tokenizer
from ..errors import InputError, SettingError, UnsupportedError, under
from ..files import write_json
from ..model import Model
from ..nn.head import HeadSpec
from ..spec import to_data
from .memory import check_memory
from .own import MODEL, check_own, clear
from .run import DEFAULT_PROMPT, AnyRun, RunSpec
from .store import BEGUN, STATE, Facts, by_name, check_run, check_text, read_facts

Progress = Callable[[str, int, int], None]  # what is being done (tokenizer, text, resume), how much of it, of how much


@dataclass(frozen=True)
class Prepared:
    """facts: of the training state to go on from, None for a new run. prompt: the ids that samples continue."""

    facts: Facts | None
    tokenizer: Tokenizer
    packed: Packed
    prompt: list[int]


def check(run: RunSpec, folder: Path, fresh: bool = False, device: str = "cpu") -> Facts | None:
    """Raise what the run is refused for before its text is read and anything in the folder changes; what is stored of
    it, if it goes on."""
    facts = None if fresh else read_facts(folder / STATE)
    check_memory(run, run.model.vocab or 2, device)  # of the tokenizer's vocabulary there is only an upper limit yet
    check_model(run, run.model.vocab or 2)
    if facts is None:
        check_place(folder, fresh)
    else:
        check_run(run, facts, folder)
    for source in (run.data, run.validation):
        if isinstance(source, str):
            text_files(source)
    given = None if run.tokenizer.path is None else Tokenizer.load(run.tokenizer.path)
    if given and facts and given.fingerprint != Tokenizer.load(folder).fingerprint:
        raise SettingError(
            f"tokenizer.path: {folder} holds a run with another tokenizer than {run.tokenizer.path}; give that one to "
            "go on, choose another folder, or give --fresh to start anew"
        )
    return facts


def prepare(
    run: RunSpec,
    folder: Path,
    fresh: bool = False,
    progress: Progress | None = None,
    device: str = "cpu",
) -> Prepared:
    """The tokenizer (a run that goes on keeps its own), the packed text, and what was stored of the run."""
    tell: Progress = progress or (lambda what, done, total: None)
    facts = check(run, folder, fresh, device)
    if facts is None:
        return _new(run, folder, tell, device)
    tokenizer = Tokenizer.load(folder)
    prompt = prompt_ids(run, tokenizer)
    packed = pack(
        run.data,
        tokenizer,
        folder / "train" / "tokens",
        run.validation,
        lambda done, total: tell("text", done, total),
        lambda fingerprint: check_text(facts, fingerprint, folder),
    )
    tell("resume", facts.step, run.steps)
    return Prepared(facts, tokenizer, packed, prompt)


def _new(run: RunSpec, folder: Path, tell: Progress, device: str) -> Prepared:
    """A run from its first step. Until the last moment an older one in the folder stays as it is."""
    tell("tokenizer", 0, 0)
    tokenizer = train_tokenizer(run.tokenizer, run.data, run.validation)
    if run.model.vocab and run.model.vocab < tokenizer.vocab_size:
        raise InputError(f"model.vocab: {run.model.vocab} is less than the tokenizer's {tokenizer.vocab_size}; use 0")
    check_memory(run, run.model.vocab or tokenizer.vocab_size, device)
    prompt = prompt_ids(run, tokenizer)
    with new_place(run, folder) as beside:
        packed = pack(
            run.data, tokenizer, beside / "tokens", run.validation, lambda done, total: tell("text", done, total)
        )
        _check_length(run, len(packed.train))
    tokenizer.save(folder / "tokenizer.json")
    return Prepared(None, tokenizer, Packed.open(folder / "train" / "tokens"), prompt)


def check_place(folder: Path, fresh: bool) -> None:
    """Raise InputError where a new run in the folder would delete what no run wrote, or a model that is not to go."""
    check_own(folder)
    if any((folder / name).exists() for name in MODEL) and not fresh:
        raise InputError(
            f"{folder} holds a model, but no training to go on with; choose another folder, or give --fresh to "
            "put a new model in its place"
        )


@contextlib.contextmanager
def new_place(run: AnyRun, folder: Path) -> Iterator[Path]:
    """A place beside an older training, which takes its place when the block ends well."""
    beside = folder / ".train"
    clear(beside)
    try:
        yield beside
        write_json(beside / BEGUN.name, to_data(by_name(run)))
    except BaseException:
        clear(beside)
        raise
    for name in (*MODEL, "tokenizer.json"):  # they belong to the older one
        (folder / name).unlink(missing_ok=True)
    clear(folder / "train")
    beside.rename(folder / "train")


def _check_length(run: RunSpec, tokens: int) -> None:
    """A window needs the token after it, too."""
    if tokens <= run.block:
        way_out = f"give more text, or --set block={tokens - 1}" if tokens > 1 else "give more text"
        raise InputError(
            f"{run.data}: tokens to train on: {tokens}, too few for a window of block={run.block}; {way_out}"
        )


def check_model(run: RunSpec, vocab: int) -> None:
    """Raise SettingError or UnsupportedError where the run's model cannot be built, or is no language model."""
    with under("model"):
        if not isinstance(run.model.head, HeadSpec):
            raise SettingError("head: a language model predicts tokens at every place; set head to one of kind head")
        for i, block in enumerate(run.model.blocks):
            if block.reads_memory:
                part = "mixer" if block.cross is None else "cross"
                raise SettingError(f"blocks.{i}.{part}: a text alone gives no encoder to look at; leave it out")
        with torch.device("meta"):
            model = Model(run.model.changed(vocab=vocab))
    for i, block in enumerate(model.blocks):
        if not block.mixer.causal:
            raise UnsupportedError(
                f"model.blocks.{i}.mixer: this {block.spec.mixer.__struct_config__.tag} sees later tokens, so it would "
                "read the very tokens that it learns to predict; let it look back only (mask.causal or causal to true, "
                "bidirectional to false), or take another mixer"
            )


def fresh_model(run: RunSpec, tokenizer: Tokenizer) -> Model:
    """The run's model before its first step; its vocabulary, where 0, is the tokenizer's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        return Model(run.model if run.model.vocab else run.model.changed(vocab=tokenizer.vocab_size))


def prompt_ids(run: RunSpec, tokenizer: Tokenizer) -> list[int]:
    """The ids that samples continue. The default prompt gives way to the end token where it cannot be encoded, and of
    one that leaves no room in the context the end stays, half a context long."""
    if not run.sample_tokens:
        return [tokenizer.end_id]
    try:
        ids = tokenizer.encode(run.prompt).ids or [tokenizer.end_id]
    except InputError as error:
        if run.prompt != DEFAULT_PROMPT:
            raise InputError(f"prompt: {error}") from None
        ids = [tokenizer.end_id]
    return ids if len(ids) < run.model.context else ids[-max(run.model.context // 2, 1) :]
