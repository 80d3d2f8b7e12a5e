"""How the next token is chosen from its logits, and where the text stops: settings and small pure functions.

Each function takes logits `b v` and gives logits `b v`; a token that may not be chosen gets -∞. They are applied in
the order of this file. None but the repetition penalty ever removes the most probable token.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, SettingError
from ..spec import LENGTH_POWER, Spec, check_between

_OF_DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop")  # not in beam search


class GenerateSpec(Spec, frozen=True, tag="generate"):
    """How a text is continued.

    max_new_tokens      tokens to write, at most
    temperature         logits are divided by it; 0 is greedy: the most probable token, always
    top_k               only the k most probable tokens; None: all
    top_p               only the most probable tokens that together reach this probability; None: all
    min_p               only tokens at least this share of the most probable one's probability; None: all
    repetition_penalty  above 1 makes tokens that were already read or written less probable; 1 changes nothing
    stop                the text ends before the first of these strings
    seed                row r of a batch draws from seed + r, as a single run with that seed does: in float32 both
                        write the same, in bfloat16 the rounding of a batch may part them
    beams               above 1: beam search with this many hypotheses, instead of greedy
    length_penalty      α in a hypothesis' score log p / length^α; 0 compares log p itself, larger favours longer ones,
                        below 0 shorter ones
    early_stopping      when the search ends, once `beams` hypotheses are complete. true: at once; false: when
                        none that goes on would have a higher score now; "never": when none could at max_new_tokens
    begin               tokens with which an encoder-decoder's target begins; none: the tokenizer's
    forced              the first new tokens, whatever the model says, such as the language to be written
    ends                tokens that end a text; none: the tokenizer's
    suppressed          tokens that are never chosen; suppressed_first: not as the first that is not forced
    min_new_tokens      no end before so many tokens
    no_repeat           above 0: no so many tokens in a row occur twice (Paulus et al. 2018)
    start               a text is put behind the end token, as documents are in training; token ids stay as given
    chunk               prompt tokens read at a time, which bounds the memory that a long prompt needs
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int = 0
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    begin: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    min_new_tokens: int = 0
    no_repeat: int = 0
    start: bool = True
    chunk: int = 512

    def __post_init__(self) -> None:
        # Written as "not inside" so that NaN is refused as well.
        ranges = (
            ("max_new_tokens", self.max_new_tokens >= 1, "1 or more"),
            ("temperature", self.temperature == 0 or 1e-4 <= self.temperature < math.inf, "0 for greedy, or 0.0001 up"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more, or null for all tokens"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0 to 1, or null for all tokens"),
            ("min_p", self.min_p is None or 0 <= self.min_p <= 1, "0 to 1, or null for all tokens"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "above 0; 1 changes nothing"),
            ("seed", 0 <= self.seed < 2**63, "0 to 2^63 - 1"),
            ("beams", self.beams >= 1, "1 or more"),
            ("min_new_tokens", self.min_new_tokens >= 0, "0 or more"),
            ("no_repeat", self.no_repeat >= 0, "1 or more, or 0 to let every text occur twice"),
            ("chunk", self.chunk >= 1, "1 or more"),
        )
        for name, fits, allowed in ranges:
            if not fits:
                raise SettingError(f"{name}: {getattr(self, name)} is not allowed; use {allowed}")
        check_between(self, -LENGTH_POWER, LENGTH_POWER, "length_penalty")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise SettingError(f"stop: {self.stop!r} is not allowed; use a list of texts, none of them empty")
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            if self.beams > 1 and name in _OF_DRAWING and getattr(self, name) != default:
                raise SettingError(
                    f"{name}: beam search weighs whole texts by the model's own probability and has no use for it; "
                    "leave it out, or use 1 beam"
                )


# ---------------------------------------------------------------- what may be written at all


def allowed(scores: Tensor, written: list[list[int]], step: int, spec: GenerateSpec) -> Tensor:
    """Scores `b v` with -∞ for the tokens that the spec rules out as new token number `step`, from 0; of a forced one 0
    and -∞ for all others. written: the tokens of each row so far, those included that it began with."""
    if step < len(spec.forced):
        only = torch.full_like(scores, -torch.inf)
        only[:, spec.forced[step]] = 0.0
        return only
    banned = {*spec.suppressed, *(spec.suppressed_first if step == len(spec.forced) else ())}
    banned |= set(spec.ends if step < spec.min_new_tokens else ())
    if not banned and not spec.no_repeat:
        return scores
    rows = [sorted(banned | _repeating(ids, spec.no_repeat)) for ids in written]
    places = [(row, id) for row, ids in enumerate(rows) for id in ids if id < scores.shape[1]]
    if not places:
        return scores
    if max(map(len, rows)) >= scores.shape[1]:
        raise InputError("no token is left to choose; leave out suppressed, no_repeat or min_new_tokens")
    row, id = torch.tensor(places, device=scores.device).T
    return scores.index_put((row, id), scores.new_tensor(-torch.inf))


def _repeating(ids: list[int], n: int) -> set[int]:
    """The tokens that would complete n in a row that `ids` holds already."""
    tail = ids[len(ids) - n + 1 :] if n else []
    return {ids[at + n - 1] for at in range(len(ids) - n + 1) if ids[at : at + n - 1] == tail} if n else set()


# ---------------------------------------------------------------- the filters, in the order they are applied


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Tokens in `seen` (bool `b v`) less probable: a positive logit is divided by the penalty, a negative multiplied.

    Keskar et al. 2019 (CTRL), section 4.1, divides both; as everywhere since, a negative logit is multiplied, because
    dividing it would make the token more probable. A token seen twice is penalised once.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """logits / temperature, shifted so that the largest is 0 (no low temperature overflows)."""
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def top_k(logits: Tensor, k: int) -> Tensor:
    """The k largest logits; all that equal the k-th are kept (Fan et al. 2018)."""
    least = logits.topk(min(k, logits.shape[-1]), -1).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """The nucleus (Holtzman et al. 2020): a token stays while those before it together have less than p.

    "Before" means more probable or, among equals, of lower id; so the token that reaches p is the last that stays.
    """
    if p >= 1:
        return logits  # else rounding of the sums might drop the least probable
    # `torch.sort` with stable=True keeps equals in the order of their ids.
    ordered, token = torch.sort(logits, dim=-1, descending=True, stable=True)
    probability = ordered.softmax(-1)
    dropped = probability.cumsum(-1) - probability >= p
    return logits.masked_fill(dropped.scatter(-1, token, dropped), -torch.inf)


def min_p(logits: Tensor, share: float) -> Tensor:
    """Tokens whose probability is at least `share` times the largest (Nguyen et al. 2024)."""
    if share == 0:
        return logits
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(share), -torch.inf)


def filtered(logits: Tensor, spec: GenerateSpec) -> Tensor:
    """Temperature, top-k, top-p and min-p of the spec, each where it is asked for."""
    logits = tempered(logits, spec.temperature)
    if spec.top_k is not None:
        logits = top_k(logits, spec.top_k)
    if spec.top_p is not None:
        logits = top_p(logits, spec.top_p)
    return logits if spec.min_p is None else min_p(logits, spec.min_p)


def drawn(logits: Tensor, uniform: Tensor) -> Tensor:
    """One token `b` from softmax(logits), given uniform numbers `b v` in [0, 1): argmax of logits + Gumbel noise.

    Preferred to looking one number up in the cumulated distribution, where a rounding difference of the logits (a
    batch against a single run) shifts every later token's border; here it matters between the best two alone.
    """
    # 0 would be an infinitely bad draw for a token that may be the only one left.
    noise = -torch.log(-torch.log(uniform.clamp(min=1e-30)))
    return (logits + noise).argmax(-1)


# ---------------------------------------------------------------- where the text stops


class StopStrings:
    """Cuts a text, given in pieces, before the stop string that is completed first, as if read letter by letter.

    What may still become a stop string is held back, so that the outcome does not depend on where the pieces end.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops = stops
        self.held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """What can be shown after this piece; sets `found` where a stop string was completed."""
        self.held += piece
        places = [(at + len(stop), at) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if places:
            self.found = True
            shown, self.held = self.held[: min(places)[1]], ""
            return shown
        keep = max((_overlap(self.held, stop) for stop in self.stops), default=0)
        shown, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return shown

    def rest(self) -> str:
        """What was held back, once nothing more comes."""
        rest, self.held = self.held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop` without completing it."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
