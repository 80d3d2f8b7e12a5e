"""The one contract of every token mixer."""

from __future__ import annotations

from torch import Tensor, nn

from ..call import Call
from ..state import State
from ..tap import Card


class TokenMixer(nn.Module):
    """Mixes information between tokens.

    empty     the past of nothing
    step      any chunk of one or more tokens, given the past; consumes the state
    parallel  the whole sequence; by default `step` from `empty`, overridden where there is a faster form

    A mixer whose output at a position depends on later ones says `causal = False`; `step` is then refused by name
    (by the model, which knows the name). Tracing is not a third path: it is either call with a probe.
    """

    path = ""
    causal = True
    cards: dict[str, Card] = {}

    def empty(self, batch: int, room: int, call: Call) -> State:
        """The state before the first token, for `batch` rows and at most `room` tokens."""
        raise NotImplementedError(type(self).__name__)

    def step(self, x: Tensor, state: State, call: Call) -> tuple[Tensor, State]:
        """x `b t d`, any t ≥ 1, after the past in `state`: (output `b t d`, the state after it)."""
        raise NotImplementedError(type(self).__name__)

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """x `b t d`, the whole sequence, to `b t d`."""
        return self.step(x, self.empty(x.shape[0], x.shape[1], call), call)[0]
