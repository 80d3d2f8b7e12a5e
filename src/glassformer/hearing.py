"""What people call of a model that reads sound: transcripts, languages, and what a trace of speech is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .data.audio import RATES, as_sound, resampled
from .data.folder import lacking
from .data.speech import SpeechSpec, speech_of
from .data.tokenizer import Tokenizer
from .edit import Edit, listed
from .errors import InputError, UnsupportedError
from .generate.transcription import Listener, Segment, TranscribeSpec
from .model import EncoderDecoder
from .patches import resolved
from .spec import from_data


class Hearing:
    """The part of a loaded model that needs one which reads sound.

    A sound is the path of a WAV file, or an array or tensor of samples from -1 to 1 (or whole numbers of 16 bits), of
    the model's rate where no other is given.
    """

    model: nn.Module
    tokenizer: Tokenizer | None
    about: dict[str, Any]
    place: Path | None
    trace: Callable[..., Any]

    @property
    def hears(self) -> bool:
        """Whether the model reads sound."""
        return isinstance(self.model, EncoderDecoder) and self.model.spec.encoder.reads_sound

    @property
    def reads(self) -> str:
        """What the model reads: "text", or "sound"."""
        return "sound" if self.hears else "text"

    def transcribe(
        self, sound: Any, *, rate: int | None = None, edits: Edit | Iterable[Edit] = (), **settings: Any
    ) -> Iterator[Segment]:
        """The phrases that are spoken in a sound of any length, in order, each window's as soon as it is read. rate: of
        an array, in samples a second. edits: changes of every run, as of a trace of each window by itself; a patch
        names another sound by its file. Settings as in TranscribeSpec (language, task, timestamps, beams …).

        Raises at once InputError for what is no single sound and for a language, task or value to be edited that the
        model does not know, UnsupportedError for a model that reads no sound.
        """
        listener, spec = self._listener(edits), from_data(settings, TranscribeSpec)
        return listener.transcribe(self._one(sound, rate), spec)

    def languages(self, sound: Any, *, rate: int | None = None) -> dict[str, float]:
        """How probable each language is in the first window of a sound, the most probable first."""
        listener = self._listener()
        shares = listener.languages(listener.hear(self._one(sound, rate)[: listener.embed.samples]))
        return dict(sorted(shares.items(), key=lambda one: -one[1]))

    def heard(self, given: Any) -> tuple[Tensor, Tensor]:
        """The sound `b n` and the target `b t` of a pair; of one sound alone, the target that the model writes."""
        listener = self._listener()
        pair = isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[0], int | float)
        sound, target = given if pair else (given, None)
        sounds = listener.ready(as_sound(sound, listener.embed.spec.rate))
        listener.embed.check(sounds)
        if target is None or isinstance(target, str):
            if len(sounds) != 1:
                raise InputError("give the ids of a target for each of several sounds, or one sound")
            target = listener.target(sounds[0], target)
        try:
            ids = torch.as_tensor(target, dtype=torch.long, device=sounds.device)
        except (TypeError, ValueError, RuntimeError):
            raise InputError("the target of a sound is a text, or token ids; give one of them") from None
        ids = ids[None] if ids.ndim == 1 else ids
        if len(ids) != len(sounds):
            raise InputError(f"the pair has {len(sounds)} sources and {len(ids)} targets; give as many of both")
        return sounds, ids

    def _one(self, given: Any, rate: int | None) -> Tensor:
        """One sound `n`."""
        own = self.model.encoder.embed.spec.rate
        found = as_sound(given, own)
        if len(found) != 1:
            raise InputError(f"there are {len(found)} sounds, or channels; give one at a time")
        if rate is None or isinstance(given, str):
            return found[0]
        if type(rate) is not int or rate not in RATES:
            raise InputError(f"rate: {rate!r} is not allowed; use a whole number from {RATES[0]} to {RATES[-1]}")
        return torch.from_numpy(resampled(found[0].numpy(force=True), rate, own))

    def _listener(self, edits: Edit | Iterable[Edit] = ()) -> Listener:
        if not self.hears:
            raise UnsupportedError("this model reads no sound, so it cannot transcribe; load a speech model")
        if self.tokenizer is None:
            raise InputError(f"{lacking(self.place, self.about)}; without it no text can be written")
        known = self.about.get("speech")
        speech = speech_of(self.tokenizer, (), ()) if known is None else from_data(known, SpeechSpec)
        return Listener(self.model, self.tokenizer, speech, resolved(listed(edits), self.trace))
