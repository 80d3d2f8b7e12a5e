"""Interpolated modified Kneser-Ney n-grams over token ids, the baseline that a trained model has to beat.

Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1999), section 3: for a word w
after the context h (the n-1 tokens before it), and h' = h without its first token,

    p_n(w | h) = max(c(hw) - D(c(hw)), 0) / c(h·)  +  gamma(h) · p_{n-1}(w | h'),      p_0 = 1 / vocab

At the highest order c counts occurrences; below it c(hw) is the number of different tokens seen before hw. D has three
values per order, for the counts 1, 2, and 3 or more, and gamma(h) is the mass they free.

An n-gram is one integer: the number of its first n-1 tokens among the sorted (n-1)-grams, times the vocabulary, plus
its last token. So five tokens fit into 64 bits, every table is a sorted array, and the n-grams that continue one
context lie side by side.
"""

from typing import NamedTuple

import numpy as np

from ..errors import InputError, SettingError

Array = np.ndarray


class Level(NamedTuple):
    """The n-grams of one length, sorted, and what the formula needs of each context (indexed by (n-1)-gram)."""

    keys: Array  # (n-gram,) int64: context · vocab + last token
    counts: Array  # (n-gram,) int64: occurrences, or different tokens before it
    totals: Array  # (context,) float64: c(h·)
    gammas: Array  # (context,) float64: mass left to the next shorter context
    discounts: Array  # (4,) float64: D(0) = 0, D(1), D(2), D(3 and more)


class KneserNey:
    """A fitted model. Its probabilities sum to one over the vocabulary after every context, seen or not."""

    def __init__(self, levels: list[Level], vocab: int):
        self.levels = levels
        self.vocab = vocab

    @property
    def order(self) -> int:
        """The longest n-gram that is counted; the context is one token shorter."""
        return len(self.levels)

    def token_bits(self, tokens: Array, context: Array | tuple = ()) -> Array:
        """-log2 p of each token (t,), given all before it and, before the first, the tokens of `context`."""
        tokens = _checked(tokens, self.vocab)
        before = _checked(context, self.vocab)[-(self.order - 1) :] if self.order > 1 else tokens[:0]
        stream = np.concatenate([before, tokens])
        p = np.full(len(stream), 1.0 / self.vocab)
        ending = np.zeros(len(stream), np.int64)  # the number of the (n-1)-gram that ends here, -1 where none is known
        for number, level in enumerate(self.levels):
            # The context of token i ends at i-1. The empty context (number 0) stands before every token.
            place = ending if number == 0 else np.concatenate([[-1], ending[:-1]])
            total = np.where(place >= 0, level.totals[place], 0.0)
            found = self._find(level, place, stream)
            counts = np.where(found >= 0, level.counts[found], 0)
            seen = total > 0
            own = (counts - level.discounts[np.minimum(counts, 3)]) / np.where(seen, total, 1.0)
            p = np.where(seen, own + level.gammas[place] * p, p)
            ending = found
        return -np.log2(p[len(before) :])

    def bits(self, tokens: Array, context: Array | tuple = ()) -> float:
        """The bits that coding `tokens` takes after `context`; divided by the text's bytes, bits per byte."""
        return float(self.token_bits(tokens, context).sum())

    def probabilities(self, context: Array | tuple) -> Array:
        """p(w | context) for every w: (v,). Only the last order-1 tokens of the context matter."""
        context = _checked(context, self.vocab)
        p = np.full(self.vocab, 1.0 / self.vocab)
        for number, level in enumerate(self.levels):
            place = self._number(context[len(context) - number :]) if number <= len(context) else -1
            if place < 0 or level.totals[place] <= 0:
                break  # nothing is known after this context, hence after no longer one either
            first, last = np.searchsorted(level.keys, [place * self.vocab, (place + 1) * self.vocab])
            counts = level.counts[first:last]
            p = p * level.gammas[place]
            p[level.keys[first:last] % self.vocab] += (counts - level.discounts[np.minimum(counts, 3)]) / level.totals[
                place
            ]
        return p

    def _number(self, gram: Array) -> int:
        """The number of an n-gram among those of its length, 0 for the empty one, -1 if it was never seen."""
        place = np.zeros(1, np.int64)
        for level, token in zip(self.levels, gram, strict=False):
            place = self._find(level, place, np.array([token]))
        return int(place[0])

    def _find(self, level: Level, place: Array, tokens: Array) -> Array:
        """The numbers of the n-grams made of the contexts `place` and the `tokens` after them, -1 where unseen."""
        keys = place * self.vocab + tokens
        found = np.minimum(np.searchsorted(level.keys, keys), len(level.keys) - 1)
        return np.where((place >= 0) & (level.keys[found] == keys), found, -1)


def fit(tokens: Array, vocab: int, order: int = 5) -> KneserNey:
    """Count the n-grams of the stream `tokens` (t,) up to `order` and set the discounts of each length.

    Time and memory are those of `order` sorts of the stream: 8 million tokens take well under a minute and 2 GB.
    Raises SettingError for an order below 1, InputError for too short a stream or an id outside the vocabulary.
    """
    if order < 1:
        raise SettingError(f"order: {order} is not a length of n-grams; use 1 or more, 5 as a rule")
    tokens = _checked(tokens, vocab)
    if len(tokens) < order:
        raise InputError(f"{len(tokens)} tokens do not hold one n-gram of length {order}; give a longer text")
    uniques, occurrences, suffixes = [], [], []
    ending = np.zeros(len(tokens) + 1, np.int64)  # number of the (n-1)-gram that ends before each place
    for number in range(order):
        # tokens[number:] are those with a whole context; ending[:-1] their contexts, ending[1:] the n-1 tokens
        # that they end themselves, which are the n-gram without its first token.
        keys = ending[:-1] * vocab + tokens[number:]
        unique, first, ending_next, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        uniques.append(unique)
        occurrences.append(count)
        suffixes.append(ending[1:][first])
        ending = ending_next.reshape(-1)
    levels = []
    for number, keys in enumerate(uniques):
        counts = occurrences[number]
        if number < order - 1:
            counts = np.bincount(suffixes[number + 1], minlength=len(keys))
        levels.append(_level(keys, counts, len(uniques[number - 1]) if number else 1, vocab))
    return KneserNey(levels, vocab)


def _level(keys: Array, counts: Array, contexts: int, vocab: int) -> Level:
    """The table of one length: discounts from its counts, then total and freed mass of each context."""
    discounts = discounts_of(counts)
    place = keys // vocab
    totals = np.bincount(place, counts, contexts)
    freed = np.bincount(place, discounts[np.minimum(counts, 3)], contexts)
    gammas = np.divide(freed, totals, out=np.ones(contexts), where=totals > 0)
    return Level(keys, counts, totals, gammas, discounts)


def discounts_of(counts: Array) -> Array:
    """D(0..3) by Chen and Goodman's estimate from how many n-grams occur once, twice, three and four times.

    In a small or strange text the estimate fails (nothing occurs twice, say, or a discount would reach the count);
    then one discount n1 / (n1 + 2 n2) serves for all counts, and one half where even that is undefined.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == number)) for number in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) > 0:
        y = n1 / (n1 + 2 * n2)
        found = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
        if np.all(found[1:] > 0) and np.all(found[1:] < [1, 2, 3]):
            return found
    y = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    return np.array([0.0, y, y, y])


def _checked(tokens: Array | tuple, vocab: int) -> Array:
    """Token ids as one int64 row; raises InputError for an id outside the vocabulary."""
    row = np.asarray(tokens, dtype=np.int64).reshape(-1)
    if len(row) and (row.min() < 0 or row.max() >= vocab):
        raise InputError(
            f"token ids {row.min()} to {row.max()} do not fit a vocabulary of {vocab}; use 0 to {vocab - 1}"
        )
    return row
