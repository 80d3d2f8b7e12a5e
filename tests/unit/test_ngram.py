"""The Kneser-Ney baseline against sums, a case worked out by hand, and the same formulas written with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from glassformer.bench.compression import xz_bits_per_byte, xz_bits_per_byte_after
from glassformer.bench.ngram import discounts_of, fit
from glassformer.errors import InputError, SettingError

VOCAB = 13


def stream(length: int, seed: int = 0) -> np.ndarray:
    """Tokens with structure: mostly a fixed successor, sometimes a skewed draw; token 12 never occurs."""
    random = np.random.default_rng(seed)
    tokens = [0]
    for draw, jump in zip(random.random(length - 1), random.zipf(1.6, length - 1), strict=True):
        tokens.append((3 * tokens[-1] + len(tokens) % 2) % 12 if draw < 0.6 else int(jump) % 12)
    return np.array(tokens)


class Slow:
    """The formulas of the module's docstring, one gram at a time."""

    def __init__(self, tokens, vocab, order):
        self.vocab = vocab
        grams = [Counter(zip(*(tokens[k:] for k in range(n)), strict=False)) for n in range(1, order + 1)]
        # Every longer gram is a different left neighbour of its own tail.
        self.counts = [*(Counter(gram[1:] for gram in longer) for longer in grams[1:]), grams[-1]]
        self.discounts, self.after = [], []
        for counts in self.counts:
            n = Counter(counts.values())
            y = n[1] / (n[1] + 2 * n[2])
            self.discounts.append([0, 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]])
            after = defaultdict(list)
            for gram, count in counts.items():
                after[gram[:-1]].append(count)
            self.after.append(after)

    def p(self, word, context, n):
        if n == 0:
            return 1 / self.vocab
        context = tuple(context[max(len(context) - (n - 1), 0) :])
        if len(context) < n - 1:
            return self.p(word, context, n - 1)
        counts = self.after[n - 1].get(context, [])
        lower = self.p(word, context[1:], n - 1)
        if sum(counts) == 0:
            return lower
        own = self.counts[n - 1].get((*context, word), 0)
        freed = sum(self.discounts[n - 1][min(count, 3)] for count in counts)
        return (own - self.discounts[n - 1][min(own, 3)] + freed * lower) / sum(counts)


def test_equals_the_dictionary_form():
    vocab = 400
    tokens = np.minimum(np.random.default_rng(3).zipf(1.35, 6000), vocab - 1)
    tokens[::3] = (7 * np.roll(tokens, 1)[::3] + 1) % (vocab - 1)
    slow, fast = Slow(tokens.tolist(), vocab, 4), fit(tokens, vocab, 4)
    for level, discounts in zip(fast.levels, slow.discounts, strict=True):
        assert level.discounts == pytest.approx(discounts), "the counts are such that no guard is needed"
    for context in [tokens[5:8], tokens[1000:1003], [1, 8, 1], [1, 1, 1], [399, 1, 8], [1, 8, 399], [2, 399, 1], []]:
        expected = [slow.p(word, tuple(context), 4) for word in range(vocab)]
        assert fast.probabilities(context) == pytest.approx(expected, rel=1e-12)


def test_worked_out_by_hand():
    # 0 1 0 1 2: bigrams 01 twice, 10 and 12 once, so D = 2 / (2 + 2·1); each token follows one kind of token.
    model = fit(np.array([0, 1, 0, 1, 2]), vocab=3, order=2)
    assert model.probabilities([]) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert model.probabilities([0]) == pytest.approx([1 / 12, 10 / 12, 1 / 12])
    assert model.probabilities([1]) == pytest.approx([5 / 12, 2 / 12, 5 / 12])
    assert model.probabilities([2]) == pytest.approx([1 / 3, 1 / 3, 1 / 3]), "nothing ever came after 2"
    assert model.bits(np.array([1, 2]), context=[0]) == pytest.approx(-math.log2(10 / 12) - math.log2(5 / 12))


@pytest.mark.parametrize("order", [1, 2, 5])
def test_sums_to_one_after_every_context(order):
    tokens = stream(500)
    model = fit(tokens, VOCAB, order)
    unseen = [[12], [12] * 5, [], [11, 12], [4, 4, 4, 4, 4, 4]]
    for context in [*unseen, *(tokens[k : k + 4] for k in range(0, 496, 7)), tokens[-4:]]:
        p = model.probabilities(context)
        assert p.shape == (VOCAB,)
        assert p.min() > 0
        assert p.sum() == pytest.approx(1, abs=1e-12)


def test_token_bits_are_the_probabilities_one_by_one():
    model = fit(stream(2000), VOCAB)
    text = np.concatenate([stream(150, seed=5), [12, 12, 3], stream(50, seed=6)])
    expected = [-math.log2(model.probabilities(text[:place])[token]) for place, token in enumerate(text)]
    assert model.token_bits(text) == pytest.approx(expected, rel=1e-12)
    cut = 61
    assert model.bits(text) == pytest.approx(model.bits(text[:cut]) + model.bits(text[cut:], context=text[:cut]))
    assert model.bits(text[cut:]) != pytest.approx(model.bits(text[cut:], context=text[:cut])), "context has no effect"


def test_longer_contexts_help_on_text_of_the_same_kind():
    train, held = stream(20000), stream(2000, seed=1)
    bits = [fit(train, VOCAB, order).bits(held) / len(held) for order in (1, 2)]
    assert bits[1] < bits[0] - 0.3
    counts = np.bincount(train[1:], minlength=12)[:12] / (len(train) - 1)
    entropy = -(counts * np.log2(counts)).sum()
    assert bits[0] == pytest.approx(entropy, abs=0.1), "order 1 must cost about the entropy of the tokens"


def test_keys_do_not_overflow_with_a_large_vocabulary():
    vocab = 16384
    tokens = np.random.default_rng(2).integers(0, vocab, 60000)
    tokens[50000:] = tokens[:10000]
    model = fit(tokens, vocab)
    for place in (100, 51000):
        p = model.probabilities(tokens[place : place + 4])
        assert p.argmax() == tokens[place + 4]
        assert p.sum() == pytest.approx(1)


def test_discounts_where_the_estimate_fails():
    assert discounts_of(np.array([1] * 8 + [2] * 4 + [3] * 2 + [4])).tolist() == pytest.approx([0, 0.5, 1.25, 2.0])
    assert discounts_of(np.array([1, 1, 2])).tolist() == [0, 0.5, 0.5, 0.5]
    assert discounts_of(np.array([1, 1, 1, 1, 2, 5])).tolist() == pytest.approx([0, 2 / 3, 2 / 3, 2 / 3])
    assert discounts_of(np.array([7, 7])).tolist() == [0, 0.5, 0.5, 0.5]
    # Many more threes than twos: the second discount would be 2 - 3·Y·9 < 0, so the single one serves.
    assert discounts_of(np.array([1, 1, 2] + [3] * 9 + [4])).tolist() == [0, 0.5, 0.5, 0.5]


def test_mistakes_name_the_way_out():
    with pytest.raises(SettingError, match="order: 0"):
        fit(stream(10), VOCAB, order=0)
    with pytest.raises(InputError, match="vocabulary of 5; use 0 to 4"):
        fit(stream(100), 5)
    with pytest.raises(InputError, match="longer text"):
        fit(np.array([1, 2]), VOCAB, order=3)
    with pytest.raises(InputError, match="vocabulary of 13"):
        fit(stream(100), VOCAB).probabilities([13])


def test_xz_alone_and_after_a_text():
    noise = np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8).tobytes()
    assert 8.0 < xz_bits_per_byte(noise) < 8.3
    assert xz_bits_per_byte(noise + noise) == pytest.approx(4.07, abs=0.1)
    assert xz_bits_per_byte_after(noise, noise) < 0.3, "what was just read costs next to nothing"
    assert xz_bits_per_byte_after(noise[:2000], noise[2000:]) == pytest.approx(8, abs=0.2)
    with pytest.raises(InputError, match="at least one byte"):
        xz_bits_per_byte(b"")
