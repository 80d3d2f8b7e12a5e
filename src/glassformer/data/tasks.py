"""Synthetic tasks that ask for a memory over a long lag, drawn anew for every batch; and texts that repeat themselves.

Each is a function from a batch size and a random generator to a Batch; the numbers that a model without memory gets are
beside it, so that a loss can be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

ORDER_SYMBOLS, ORDER_CLASSES = 8, 4  # a b c d X Y E B; XX XY YX YY
COPY_SYMBOLS, COPIED = 10, 10  # blank, eight letters, the sign to repeat; how many letters are to be repeated
ADDING_BASELINE = 1 / 6  # the variance of the sum of two numbers from [0, 1], which is what guessing 1 costs


@dataclass(frozen=True)
class Batch:
    """inputs: token ids `b t`, or numbers `b t f`; targets: a class or a number `b` that the last position shall tell,
    or a class `b t` for each position."""

    inputs: Tensor
    targets: Tensor


def temporal_order(batch: int, generator: Generator) -> Batch:
    """Task 6a of Hochreiter & Schmidhuber (1997): in which order did the two of X and Y come?

    E, then letters a to d, with X or Y at places t1 from 10 to 20 and t2 from 50 to 60, then B; 100 to 110 symbols in
    all, as many in each row of a batch. The class (XX, XY, YX, YY) is to be told at B.
    """
    length = int(torch.randint(100, 111, (), generator=generator))
    tokens = torch.randint(0, 4, (batch, length), generator=generator)
    first = torch.randint(10, 21, (batch, 1), generator=generator)
    second = torch.randint(50, 61, (batch, 1), generator=generator)
    classes = torch.randint(0, ORDER_CLASSES, (batch,), generator=generator)
    tokens.scatter_(1, first, 4 + classes[:, None] // 2).scatter_(1, second, 4 + classes[:, None] % 2)
    tokens[:, 0], tokens[:, -1] = 6, 7
    return Batch(tokens, classes)


def adding(batch: int, length: int, generator: Generator) -> Batch:
    """The adding problem (Hochreiter & Schmidhuber 1997, as Bai et al. 2018 set it): numbers from [0, 1], of which one
    in each half is marked; the sum of these two is to be told at the end. Inputs `b t 2`: number and mark."""
    if length < 2:
        raise ValueError(f"the adding problem needs two halves; a length of {length} has none")
    values = torch.rand(batch, length, generator=generator)
    half = length // 2
    marks = torch.zeros(batch, length)
    for low, high in ((0, half), (half, length)):
        marks.scatter_(1, torch.randint(low, high, (batch, 1), generator=generator), 1.0)
    return Batch(torch.stack((values, marks), -1), (values * marks).sum(1))


def copy_memory(batch: int, lag: int, generator: Generator) -> Batch:
    """The copy task (Hochreiter & Schmidhuber 1997, as Bai et al. 2018 set it): ten letters, lag - 1 blanks, then the
    sign eleven times; at the last ten places the letters are to be repeated, elsewhere the blank."""
    letters = torch.randint(1, 9, (batch, COPIED), generator=generator)
    blank = letters.new_zeros(batch, lag)
    inputs = torch.cat((letters, blank[:, 1:], torch.full((batch, COPIED + 1), 9)), 1)
    targets = torch.cat((letters.new_zeros(batch, COPIED), blank, letters), 1)
    return Batch(inputs, targets)


def copy_baseline(lag: int) -> float:
    """The loss of a model that has forgotten the letters and guesses evenly among the eight, nats per place."""
    return COPIED * math.log(8) / (lag + 2 * COPIED)


def looking_back(batch: int, length: int, symbols: int, distances: tuple[int, ...], generator: Generator) -> Batch:
    """Letters, and a sign (the last of the symbols) at the end, where the letters are to be told that stand at these
    distances before it: targets `b a`, or `b` for one distance."""
    letters = torch.randint(0, symbols - 1, (batch, length), generator=generator)
    letters[:, -1] = symbols - 1
    targets = letters[:, [length - 1 - distance for distance in distances]]
    return Batch(letters, targets if len(distances) > 1 else targets[:, 0])


def first_of_two(batch: int, length: int, symbols: int, generator: Generator) -> Batch:
    """Letters, among them one X and one Y (the last three symbols are X, Y and the sign) at two places drawn from all,
    and the sign at the end, where is to be told whether X came first (0) or Y (1). Each row stands beside the one in
    which X and Y have changed places, so that without their order nothing can be known."""
    letters = torch.randint(0, symbols - 3, ((batch + 1) // 2, length), generator=generator)
    places = torch.rand(len(letters), length - 1, generator=generator).argsort(1)[:, :2]
    both = letters.repeat(2, 1)
    for half, marks in ((both[: len(letters)], (-3, -2)), (both[len(letters) :], (-2, -3))):
        half.scatter_(1, places, torch.tensor([[symbols + mark for mark in marks]]).expand(len(letters), 2))
    both[:, -1] = symbols - 1
    later = (places[:, 0] > places[:, 1]).long()
    return Batch(both[:batch], torch.cat((later, 1 - later))[:batch])


@dataclass(frozen=True)
class Repeats:
    """tokens `b t`; known: bool `b t`, whether the token at a place follows from what stands before it."""

    tokens: Tensor
    known: Tensor


def repeated(batch: int, length: int, symbols: int, generator: Generator, least: int = 8) -> Repeats:
    """Random symbols that come again and again, as induction heads are tested on (Olsson et al. 2022, with 25 of them).

    Each row repeats a run of symbols, all different, whose own length lies between `least` and half of the row: were it
    the same in all, a head that looks back by a fixed distance would know what comes, without any induction. A token is
    known from one place behind the end of the first run on: there the one before it is met for the second time.
    """
    if not 2 <= least <= min(length // 2, symbols):
        raise ValueError(f"a row of {length} from {symbols} symbols holds no run of {least} that comes twice")
    most = min(length // 2, symbols)
    runs = torch.randint(least, most + 1, (batch, 1), generator=generator)
    order = torch.rand(batch, symbols, generator=generator).argsort(1)
    places = torch.arange(length)
    return Repeats(order.gather(1, places % runs), places > runs)
