"""The one contract of every token mixer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from ..call import Call
from ..state import State
from ..tap import Card


@dataclass(frozen=True)
class Cost:
    """What one token mixer costs for one text of n tokens.

    flops        of matrix products, convolutions and attention written out (a causal one counted as if it were full):
                 two for each multiplication with its addition, as PyTorch's counter has them
    scan_flops   of recurrences, scans and Fourier transforms besides, two for each multiplication with its addition
    state_bytes  what is kept of n tokens in order to go on with the next
    steps        how many computations must wait for the one before, in the form that reads a whole text; a sum, a
                 product or a Fourier transform over all of its tokens is one
    reach        how many positions back an output looks by itself; None: as far as there are tokens
    stride       within its reach it sees every so many positions (the dilation of a convolution)
    relay        what is far comes through a nonlinear state for every so many tokens (1: for each, as in an RNN), and
                 its path has all of those between; 0: it is one step away, as in attention or through a state that is
                 a sum
    sees         which positions those of a sparse mask are: positions `t` and `s` to bool `t s`; None: all in reach
    """

    flops: int
    scan_flops: int = 0
    state_bytes: int = 0
    steps: int = 1
    reach: int | None = None
    stride: int = 1
    relay: int = 0
    sees: Callable[[Tensor, Tensor], Tensor] | None = None


class TokenMixer(nn.Module):
    """Mixes information between tokens.

    empty     the past of nothing
    step      any chunk of one or more tokens, given the past; consumes the state
    parallel  the whole sequence; by default `step` from `empty`, overridden where there is a faster form

    A mixer whose output at a position depends on later ones says `causal = False`; `step` is then refused by name
    (by the model, which knows the name). Tracing is not a third path: it is either call with a probe.

    symbol       how the cards of the residual write its output
    called       its name within a sentence, in English and Korean
    widens       whether it can give vectors of another width than it gets; it then takes that width as `out`
    reads_memory whether it looks at the encoder's output at every step; its cost then takes the number of sources
    depth        how many layers with a residual of their own it holds
    written_out  values of which one that is looked at makes the mixer leave its fast path; empty where it has none
    in_parts     values of which only the asked rows and heads (`call.rows`, `call.heads`) are worked out, since all of
                 them together may be too many
    """

    path = ""
    causal = True
    widens = False
    reads_memory = False
    symbol = "Mix"
    called = ("the token mixer", "토큰 믹서")
    depth = 1
    written_out: tuple[str, ...] = ()
    in_parts: tuple[str, ...] = ()
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

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """What a text of n tokens costs, where a number of the state takes number_bytes."""
        raise NotImplementedError(type(self).__name__)
