"""Beam search: several hypotheses at a time, the best by the model's own probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from msgspec import structs
from torch import Tensor, nn

from ..model import EncoderDecoder
from ..state import State
from .edited import Editing
from .reading import check_prompts, read, step
from .sampling import GenerateSpec, allowed


@dataclass(frozen=True, slots=True)
class Beam:
    """One hypothesis of beam search.

    ids                the new tokens, without the end token
    log_probabilities  of each of them, and of the end token where it has one; 0 of a token that was forced
    log_probability    their sum
    score              log_probability / length^α; the end token and forced ones count into the length
    end                the end token that it took; None: it stopped at max_new_tokens
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    log_probability: float
    score: float
    end: int | None = None

    @property
    def ended(self) -> bool:
        """Whether it is complete."""
        return self.end is not None


def beam(
    model: nn.Module,
    ids: list[int],
    spec: GenerateSpec,
    end_id: int | None = None,
    vocab: int | None = None,
    editing: Editing | None = None,
) -> list[Beam]:
    """The spec.beams best continuations of one prompt (or targets of one source), best first.

    Each round the hypotheses are extended by every token (below `vocab`) and the best `beams` go on; one that takes
    the end token among the best `beams` is complete. The search ends as spec.early_stopping says, once `beams` are
    complete, or at max_new_tokens, where the unfinished count as they are. With one beam this is greedy decoding; with
    as many beams as there are sequences it is exhaustive. score = log p / length^α (Wu et al. 2016 without their
    constant 5). editing: what is edited in every run.
    """
    pair, known = isinstance(model, EncoderDecoder), () if end_id is None else (end_id,)
    spec = structs.replace(spec, begin=spec.begin or (known if pair else ()), ends=spec.ends or known)
    check_prompts(model, [ids], spec)
    given = list(spec.begin) if pair else ids
    logits, state = read(model, [ids], spec, editing)

    def scores(logits: Tensor, rows: list[list[int]]) -> Tensor:
        wide = logits.to(_of_sums(logits))
        logs = wide[:, :vocab] - wide.logsumexp(1, keepdim=True)
        return allowed(logs, [given + row for row in rows], len(rows[0]), spec)

    found = searched(model, logits, state, spec, scores)
    return sorted(found, key=lambda one: -one.score)[: spec.beams]


def searched(
    model: nn.Module,
    logits: Tensor,
    state: State,
    spec: GenerateSpec,
    scores_of: Callable[[Tensor, list[list[int]]], Tensor],
) -> list[Beam]:
    """All hypotheses that the search completes, from the logits `1 v` and the state behind a prompt. scores_of: the
    log-probabilities `b v` of the next token, -∞ where it is ruled out, from logits `b v` and each row's new tokens."""
    width, done = spec.beams, []
    ends = torch.tensor(spec.ends, dtype=torch.long, device=logits.device)
    tokens = torch.zeros(1, 0, dtype=torch.long, device=logits.device)
    logs = torch.zeros(1, 0, dtype=_of_sums(logits), device=logits.device)
    for number in range(spec.max_new_tokens):
        scores = scores_of(logits, tokens.tolist()).to(logs.dtype)
        parent, token, log = _extended(scores, logs.sum(1), width * (1 + max(1, len(ends))))
        tokens = torch.cat((tokens[parent], token[:, None]), 1)
        logs = torch.cat((logs[parent], log[:, None]), 1)
        ended, last = torch.isin(token, ends), number == spec.max_new_tokens - 1
        # A hypothesis is complete only where it is among the best `width`, the others that ended are dropped.
        best = zip(tokens[:width], logs[:width], ended[:width].tolist(), strict=True)
        done += [_complete(ids, each, spec, end) for ids, each, end in best if end or last]
        live = (~ended).nonzero()[:width, 0]
        tokens, logs, parent = tokens[live], logs[live], parent[live]
        if last or not len(live) or _settled(done, logs, spec):
            break
        logits, state = step(model, tokens[:, -1], _forked(state, parent))
    return done


def _settled(done: list[Beam], logs: Tensor, spec: GenerateSpec) -> bool:
    """Whether the search ends: `beams` are complete and, as far as spec.early_stopping asks for that, the best of those
    that go on, of log-probabilities `b t`, would come to no higher score."""
    if len(done) < spec.beams:
        return False
    if spec.early_stopping is True or spec.beams == 1:
        return True
    longest = spec.early_stopping == "never" and spec.length_penalty > 0  # else a score only falls with the length
    length = spec.max_new_tokens if longest else logs.shape[1]
    worst = sorted(one.score for one in done)[-spec.beams]
    return logs.sum(1).max().item() / length**spec.length_penalty <= worst


def _extended(scores: Tensor, sums: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best one-token extensions, at most `count`: (hypothesis extended, token, log-probability of the token).

    Of so many that those which do not end are enough, where each hypothesis takes every end token.
    """
    total = (sums[:, None] + scores).flatten()
    best = total.topk(min(count, len(total)))
    best = best.indices[~best.values.isneginf()]
    return best // scores.shape[1], best % scores.shape[1], scores.flatten()[best]


def _of_sums(logits: Tensor) -> torch.dtype:
    """The number format of sums of log-probabilities; Apple's processors have no fp64."""
    return torch.float32 if logits.device.type == "mps" else torch.float64


def _forked(state: State, parent: Tensor) -> State:
    """The state with row i continuing hypothesis parent[i]; most rounds towards the end keep the order."""
    rows = state.next_pos.shape[0]
    same = rows == len(parent) and bool((parent == torch.arange(rows, device=parent.device)).all())
    return state if same else state.reorder(parent)


def _complete(tokens: Tensor, logs: Tensor, spec: GenerateSpec, ended: bool) -> Beam:
    ids, each = tokens.tolist(), logs.tolist()
    total = sum(each)
    ids, end = (ids[:-1], ids[-1]) if ended else (ids, None)
    return Beam(tuple(ids), tuple(each), total, total / len(each) ** spec.length_penalty, end)
