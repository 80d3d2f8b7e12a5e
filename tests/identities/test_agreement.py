"""The number of a verb to come (Abnar and Zuidema 2020): what the sentences say, what blank-out measures, and how well
the layers' attention ranks the words."""

import statistics
from collections import Counter
from random import Random

import numpy as np
import pytest
import torch
from sheet_models import drawn as heavy

from glassformer.api import Loaded
from glassformer.bench.agreement import (
    BOUNDS,
    accuracy,
    answer_of,
    apart,
    blank_out,
    broken,
    correlations,
    lines,
    spec_of,
    tensors,
    trained,
)
from glassformer.data import agreement
from glassformer.data.agreement import IDS, NOUNS, VERBS, sentence
from glassformer.model import build_model

NUMBER = {form: number for word in NOUNS for number, form in enumerate((word, word + "s"))}
AGREES = {form: number for word in VERBS for number, form in enumerate((word + "s", word))}


class Reading:
    """Reads a sentence by the grammar in the docstring of data.agreement, from left to right."""

    def __init__(self, words):
        self.words, self.at, self.nouns = words, 1, []
        assert words[0] == "<class>"
        if self.peek in agreement.PREPOSITIONS:
            self.preposition()
            self.take((",",))
        self.head = self.phrase()
        if self.at < len(words):
            self.take(agreement.ADVERBS)
        assert self.at == len(words)

    @property
    def peek(self):
        return self.words[self.at] if self.at < len(self.words) else None

    def take(self, allowed):
        word = self.words[self.at]
        assert word in allowed
        self.at += 1
        return word

    def phrase(self):
        self.take(agreement.DETERMINERS)
        if self.peek in agreement.ADJECTIVES:
            self.at += 1
        place, noun = self.at, self.take(NUMBER)
        self.nouns.append(place)
        if self.peek in agreement.PREPOSITIONS:
            self.preposition()
        elif self.peek == "that":
            self.at += 1
            if self.peek in AGREES:
                assert AGREES[self.take(AGREES)] == NUMBER[noun]
                self.phrase()
            else:
                inner = self.phrase()
                assert AGREES[self.take(AGREES)] == NUMBER[self.words[inner]]
        return place

    def preposition(self):
        self.take(agreement.PREPOSITIONS)
        self.phrase()


def test_the_number_is_that_of_the_head_whatever_stands_around_it():
    random, attractors, others, first = Random(0), 0, 0, 0
    for _ in range(2000):
        one = sentence(random)
        words = [agreement.WORDS[i] for i in one.ids]
        assert len(words) <= 25 and str(one) == " ".join(words)
        read = Reading(words)
        assert one.head == read.head and one.number == NUMBER[words[one.head]]
        wrong = [at for at in read.nouns if NUMBER[words[at]] != one.number]
        assert sorted(one.attractors) == wrong
        attractors, others, first = (
            attractors + len(wrong),
            others + len(read.nouns) - 1,
            first + (read.nouns[0] == read.head),
        )
    # as many attractors as helpers, so that neither the first noun nor the most of them tell the number
    assert 0.47 < attractors / others < 0.53 and 0.45 < first / 2000 < 0.55
    assert others / 2000 > 1.5 and len(IDS) == len(agreement.WORDS)


def test_shorter_sentences_are_padded_with_no_token():
    some = [sentence(Random(seed)) for seed in range(20)]
    tokens, pos, numbers = tensors(some)
    assert numbers.tolist() == [one.number for one in some] and len({len(one.ids) for one in some}) > 3
    for one, row, places in zip(some, tokens.tolist(), pos.tolist(), strict=True):
        assert tuple(row[: len(one.ids)]) == one.ids and places[: len(one.ids)] == [*range(len(one.ids))]
        assert set(places[len(one.ids) :]) <= {-1}
    model = heavy(build_model(spec_of(16, 2)))
    together = model(tokens, pos=pos)
    for one, row in zip(some, together, strict=True):
        assert row.tolist() == pytest.approx(model(torch.tensor([one.ids]))[0].tolist(), abs=1e-4)
    right = sum(row.argmax().item() == one.number for one, row in zip(some, together, strict=True))
    assert accuracy(model, some) == right / 20


@torch.no_grad()
def test_blank_out_and_ranks_are_those_made_by_hand():
    model = heavy(build_model(spec_of(16, 3)))
    loaded, one = Loaded(model, name="agreement"), sentence(Random(3))
    n = len(one.ids)

    def p(ids):
        return model(torch.tensor([ids]))[0].double().softmax(0)[one.number].item()

    by_hand = [abs(p(one.ids) - p([1 if s == t else i for s, i in enumerate(one.ids)])) for t in range(1, n)]
    assert agreement.WORDS[1] == "<unknown>" and max(by_hand) > 0.01
    assert blank_out(answer_of(loaded, one)).tolist() == pytest.approx(by_hand, abs=1e-5)

    run = loaded.trace(torch.tensor([one.ids]))
    patterns = [run[f"blocks.{layer}.mixer.pattern"][0].double().mean(0) for layer in range(3)]
    rolled, wanted = torch.eye(n).double(), {"pattern": [], "rollout": []}
    for pattern in patterns:
        rolled = (pattern + torch.eye(n)) / 2 @ rolled
        for name, rows in (("pattern", pattern), ("rollout", rolled)):
            ranks = [np.argsort(np.argsort(each)) for each in (rows[0, 1:].numpy(), by_hand)]
            wanted[name].append(np.corrcoef(*ranks)[0, 1])
    found = correlations(loaded, [one], ("pattern", "rollout", "flow"))
    for name, values in wanted.items():
        assert [each[0] for each in found["blank-out"][name]] == pytest.approx(values, abs=1e-6)
    assert found["blank-out"]["flow"][0][0] == pytest.approx(values[0]), "through one layer flow is rollout"
    assert apart(found)[0] == pytest.approx(wanted["rollout"][-1] - wanted["pattern"][-1], abs=1e-6)
    table = [line.split() for line in lines(found)]
    assert Counter(line[0] for line in table) == {"blank-out": 3, "gradient": 3}
    assert table[1][:5] == ["blank-out", "rollout", *(f"{value:.2f}" for value in wanted["rollout"])]


def test_a_bound_that_does_not_hold_is_told():
    assert broken(BOUNDS) == []
    for name, least in BOUNDS.items():
        for bad in (least - 0.01, float("nan")):
            wrong = broken({**BOUNDS, name: bad})
            assert len(wrong) == 1 and wrong[0].startswith(f"{name}: ")


@pytest.mark.slow
def test_rollout_ranks_the_words_better_than_the_last_layers_weights():
    model, random = trained(0), Random(10_000)
    held = [sentence(random) for _ in range(200)]
    found = correlations(Loaded(model, name="agreement"), held, ("pattern", "rollout"))
    values = {"accuracy": accuracy(model, held), "rollout − pattern": statistics.mean(apart(found))}
    assert broken(values) == [], values
