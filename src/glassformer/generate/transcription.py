"""Speech to text: what a listener hears in windows of a sound, with the tokens by which Whisper is told what to do
(Radford et al. 2022, section 2.3 and 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ..call import at_rest
from ..data.speech import FIRST_TIME_S, SpeechSpec
from ..edit import Edit, listed
from ..errors import InputError, SettingError, nearest
from ..model import EncoderDecoder
from ..spec import LENGTH_POWER, Spec, check_between, check_least
from ..state import State
from .beams import Beam, searched
from .edited import Editing
from .sampling import GenerateSpec

if TYPE_CHECKING:
    from ..data.tokenizer import Tokenizer

SILENCE, DOUBT = 0.6, -1.0  # a window is taken for silence where both say so: P(no speech), and log P of a token


class TranscribeSpec(Spec, frozen=True, tag="transcribe"):
    """How a sound is written down.

    language        code of what is spoken, such as "ko"; None: the most probable one in the first window
    task            "transcribe": in that language; "translate": in English
    timestamps      whether the times of phrases are written; None: where the sound is longer than one window, whose
                    next one then begins behind the last whole phrase
    beams           hypotheses of beam search; 1: the most probable token each time
    length_penalty  α in a hypothesis' score log p / length^α, its length without the end token
    max_new_tokens  tokens of one window, at most; None: half of what the model can write
    """

    language: str | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    timestamps: bool | None = None
    beams: int = 1
    length_penalty: float = 1.0
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        check_least(self, 1, "beams", "max_new_tokens")
        check_between(self, -LENGTH_POWER, LENGTH_POWER, "length_penalty")


@dataclass(frozen=True, slots=True)
class Segment:
    """A phrase of speech.

    start, end       in seconds from the beginning of the sound
    timed            whether the model wrote start, and whether end; one that it did not write is the window's
    text             what was said
    tokens           the ids of the text
    language         code of the language spoken
    log_probability  of a token of this window, on average
    silence          probability that this window holds no speech
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    language: str
    log_probability: float
    silence: float
    timed: tuple[bool, bool]


class Listener:
    """A speech model with its tokenizer and tokens, for one sound after another."""

    def __init__(
        self, model: EncoderDecoder, tokenizer: Tokenizer, speech: SpeechSpec, edits: Edit | Iterable[Edit] = ()
    ) -> None:
        """edits: changes of every run, of each window by itself. Raises InputError for ids, and for values of edits,
        that the model does not have."""
        self.model, self.tokenizer, self.speech = model, tokenizer, speech
        changes = listed(edits)
        self.editing = Editing.of(model, changes) if changes else None
        self.embed, self.context = model.encoder.embed, model.decoder.spec.context
        named = [speech.start, speech.end, speech.untimed, *speech.languages.values()]
        if max(named) >= model.decoder.spec.vocab:
            raise InputError(
                f"speech: token id {max(named)} is outside the vocabulary (0 to {model.decoder.spec.vocab - 1})"
            )

    # ------------------------------------------------------------ one sound

    def transcribe(self, sound: Tensor, spec: TranscribeSpec) -> Iterator[Segment]:
        """The phrases of a sound `n`, in order, each window's as soon as it is read.

        Raises at once InputError for a language that the model does not know, or a task that it cannot do.
        """
        prompt, new = self.prompt(spec), self._new(spec)
        whole = len(sound) <= self.embed.samples
        timed = not whole if spec.timestamps is None else spec.timestamps
        return self._windows(sound, spec, prompt, timed, new)

    def _windows(
        self, sound: Tensor, spec: TranscribeSpec, prompt: list[int] | None, timed: bool, new: int
    ) -> Iterator[Segment]:
        rate, length, at = self.embed.spec.rate, self.embed.samples, 0
        while at < len(sound):
            memory = self.hear(sound[at : at + length])
            if prompt is None:
                shares = self.languages(memory)
                prompt = self.prompt(spec, max(shares, key=shares.__getitem__))
            begin = prompt if timed else [*prompt, self.speech.untimed]
            best, silence = self.written(memory, begin, spec, new)
            mean = best.log_probability / (len(best.ids) + best.ended)
            pieces, after = self._pieces(best.ids, at, min(length, len(sound) - at), timed, at + length < len(sound))
            if not (silence > SILENCE and mean < DOUBT):
                code = next((code for code, id in self.speech.languages.items() if id in prompt), "en")
                for start, end, ids, told in pieces:
                    text = self.tokenizer.decode(ids)
                    if text.strip():
                        yield Segment(start / rate, end / rate, text, tuple(ids), code, mean, silence, told)
            at = after

    def hear(self, sound: Tensor) -> Tensor:
        """The encoder's output `1 s d` of a sound `n` of at most one window."""
        with at_rest(self.model):
            ready = self.ready(sound[None])
            return self.model.encoder(ready) if self.editing is None else self.editing.memory(ready)["memory"]

    def ready(self, sounds: Tensor) -> Tensor:
        """Samples on the model's device and in its number format, but in fp32 at least, as the spectrogram needs."""
        weight = self.embed.conv1.weight
        return sounds.to(weight.device, torch.promote_types(weight.dtype, torch.float32))

    def languages(self, memory: Tensor) -> dict[str, float]:
        """How probable each language is."""
        logits = self._read(memory, [self.speech.start], 1)[0]
        shares = logits[0, list(self.speech.languages.values())].double().softmax(0).tolist()
        return dict(zip(self.speech.languages, shares, strict=True))

    def prompt(self, spec: TranscribeSpec, code: str | None = None) -> list[int] | None:
        """The tokens with which a transcript begins; None where its language is still to be found out."""
        speech, code = self.speech, spec.language or code
        if not speech.languages:
            if spec.task == "translate" or code not in (None, "en"):
                raise InputError("language, task: this model knows English alone, and writes what is spoken")
            return [speech.start]
        if code is not None and code not in speech.languages:
            raise InputError(f"language: {code!r} is not known to this model; {nearest(code, speech.languages)}")
        task = speech.transcribe if spec.task == "transcribe" else speech.translate
        if task is None:
            raise InputError(f"task: this model has no token for {spec.task!r}; use the other one")
        return None if code is None else [speech.start, speech.languages[code], task]

    def _new(self, spec: TranscribeSpec) -> int:
        """How many tokens a window may have."""
        new = self.context // 2 if spec.max_new_tokens is None else spec.max_new_tokens
        if new > self.context - 4:  # what a prompt takes
            raise SettingError(f"max_new_tokens: {new} is not allowed; use at most {self.context - 4}")
        return new

    def target(self, sound: Tensor, text: str | None = None) -> list[int]:
        """The ids of a text behind the prompt of a sound `n` of one window; None: of what is written for it."""
        memory, spec = self.hear(sound), TranscribeSpec()
        begin = self.prompt(spec)
        if begin is None:
            shares = self.languages(memory)
            begin = self.prompt(spec, max(shares, key=shares.__getitem__))
        begin = [*begin, self.speech.untimed]
        if text is not None:
            return [*begin, *self.tokenizer.encode(text).ids]
        return [*begin, *self.written(memory, begin, spec, self._new(spec))[0].ids]

    # ------------------------------------------------------------ one window

    def written(self, memory: Tensor, begin: list[int], spec: TranscribeSpec, new: int) -> tuple[Beam, float]:
        """The best text for a window behind the tokens `begin`, and the probability that nobody speaks."""
        logits, state, silence = self._read(memory, begin, new, spec.beams)
        timed = self.speech.untimed not in begin

        def scores(logits: Tensor, rows: list[list[int]]) -> Tensor:
            return self._scores(logits, rows, timed)

        settings = GenerateSpec(beams=spec.beams, max_new_tokens=new, ends=(self.speech.end,), early_stopping=True)
        found = searched(self.model, logits, state, settings, scores)
        return max(found, key=lambda one: one.log_probability / max(1, len(one.ids)) ** spec.length_penalty), silence

    def _read(self, memory: Tensor, begin: list[int], new: int, beams: int = 1) -> tuple[Tensor, State, float]:
        """Logits `1 v` behind the prompt, the state, and how probable silence was behind its first token."""
        tokens, room = torch.tensor([begin], device=memory.device), len(begin) + new
        first = begin.index(self.speech.start) + 1
        if self.editing is None:
            with at_rest(self.model):
                state = self.model.decoder.empty(1, room, memory=memory)
                logits, state = self.model.step(tokens, state)
            heard, last = logits[0, first - 1], logits[:, -1]
        else:
            last, state = self.editing.start(room, beams, memory=memory).after(tokens[:, :first])
            heard = last[0]
            if first < len(begin):
                last, state = state.after(tokens[:, first:])
        silence = 0.0 if self.speech.silence is None else heard.double().softmax(0)[self.speech.silence].item()
        return last, state, silence

    def _scores(self, logits: Tensor, rows: list[list[int]], timed: bool) -> Tensor:
        """Log-probabilities `b v` among the tokens that may follow the new ones of each row."""
        speech, wide = self.speech, torch.promote_types(logits.dtype, torch.float32)
        banned = [*speech.suppressed, *(() if rows[0] else speech.suppressed_first)]
        banned = [id for id in banned if id < logits.shape[1]]  # what no model writes may stand there
        logits = logits.to(wide).index_fill(1, torch.tensor(banned, dtype=torch.long, device=logits.device), -torch.inf)
        if timed:
            logits = torch.stack([self._timed(one, row) for one, row in zip(logits, rows, strict=True)])
        return logits.log_softmax(1)

    def _timed(self, logits: Tensor, ids: list[int]) -> Tensor:
        """Logits `v` behind the new tokens `ids` of a text with times: it begins with one, they come in pairs around
        phrases, and never go back; and where all times together are more probable than any word, one is written."""
        zero, end, logits = self.speech.untimed + 1, self.speech.end, logits.clone()
        logits[self.speech.untimed] = -torch.inf
        if not ids:
            logits[:zero] = -torch.inf
            logits[zero + round(FIRST_TIME_S / self.speech.tick) + 1 :] = -torch.inf
            return logits
        times, last = [id for id in ids if id >= zero], ids[-1] >= zero
        opened = last and (len(ids) < 2 or ids[-2] >= zero)  # a phrase has begun, and its words follow
        if last:
            logits[slice(zero, None) if opened else slice(0, end)] = -torch.inf
        if times:
            logits[zero : times[-1] + (0 if last and not opened else 1)] = -torch.inf
        if logits[zero:].logsumexp(0) > logits[:zero].max():
            logits[:zero] = -torch.inf
        return logits

    def _pieces(
        self, ids: Sequence[int], at: int, length: int, timed: bool, more: bool
    ) -> tuple[list[tuple[int, int, list[int], tuple[bool, bool]]], int]:
        """(start, end, ids, which of both the model wrote) of the phrases of a window that begins at sample `at` and
        has so many, and where the next window begins; more: there is sound behind this one."""
        rate, zero = self.embed.spec.rate, self.speech.untimed + 1
        after = at + self.embed.samples
        if not timed:
            return [(at, at + length, [id for id in ids if id < self.speech.end], (False, False))], after
        found, start, words, begun = [], at, [], False
        for id in ids:
            if id < self.speech.end:
                words.append(id)
            elif id >= zero:
                place = at + min(length, round((id - zero) * self.speech.tick * rate))
                if words:
                    found.append((start, place, words, (begun, True)))
                start, words, begun = place, [], True
        opened = len(ids) > 1 and min(ids[-2:]) >= zero
        if more and start > at and found and (words or opened):  # cut off by the window's end: read once more
            return found, start
        return found + ([(start, at + length, words, (begun, False))] if words else []), after
