"""Sentences that end before their verb, whose number is that of one noun among others (after Linzen et al. 2016).

    sentence  →  (preposition phrase ",")  phrase  (adverb)
    phrase    →  determiner  (adjective)  noun  (preposition phrase | clause)
    preposition phrase  →  preposition  phrase
    clause    →  "that" verb phrase  |  "that" phrase verb

The verb to come agrees with the noun of the sentence's own phrase. All other nouns draw their number by themselves, so
that every second one is an attractor of the other number; a verb inside a clause agrees with its own noun, which is the
head where the clause says what the head does. Nothing else has a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

WHOLE, BLANK = 0, 1  # the class token, behind which the sentence stands, and the word that nobody knows
DETERMINERS = ("the", "some", "my", "no")
ADJECTIVES = ("old", "small", "green", "loud", "famous", "quiet", "heavy", "odd")
ADVERBS = ("often", "rarely", "now", "still")
PREPOSITIONS = ("near", "behind", "with", "under", "beside", "of")
NOUNS = ("key", "cabinet", "author", "dog", "river", "pilot", "tower", "guard", "lamp", "doctor", "boat", "garden")
VERBS = ("see", "like", "know", "follow", "need", "help")
THAT, COMMA = "that", ","
# A noun and a verb have a form for each number, singular first: "key", "keys"; "sees", "see".
WORDS = (
    "<class>", "<unknown>", *DETERMINERS, *ADJECTIVES, *ADVERBS, *PREPOSITIONS, THAT, COMMA,
    *(form for noun in NOUNS for form in (noun, f"{noun}s")), *(form for verb in VERBS for form in (f"{verb}s", verb)),
)  # fmt: skip
IDS = {word: i for i, word in enumerate(WORDS)}
CLASSES = ("singular", "plural")
OPENED, DESCRIBED, FOLLOWED = 0.5, 0.3, 0.3  # how often a phrase stands first, a noun has an adjective, an adverb ends
MODIFIED = (1.0, 0.4, 0.0)  # how often a noun has a phrase or clause, by how deep it stands
ROOM = 36  # places for words; the longest sentence has 25, with the class token

Nouns = list[tuple[int, int]]  # place and number


@dataclass(frozen=True)
class Sentence:
    """ids: of the words, behind the class token. number: 0 singular, 1 plural, of the verb to come; head: the place of
    the noun that it agrees with; attractors: the places of the nouns of the other number."""

    ids: tuple[int, ...]
    number: int
    head: int
    attractors: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(WORDS[one] for one in self.ids)


def sentence(random: Random) -> Sentence:
    """One sentence of the grammar."""
    words, nouns = ["<class>"], []
    if random.random() < OPENED:
        _preposition(words, nouns, random, depth=1)
        words.append(COMMA)
    at, number = _phrase(words, nouns, random, depth=0)
    if random.random() < FOLLOWED:
        words.append(random.choice(ADVERBS))
    others = tuple(place for place, its in nouns if its != number)
    return Sentence(tuple(IDS[word] for word in words), number, at, others)


def _phrase(words: list[str], nouns: Nouns, random: Random, depth: int) -> tuple[int, int]:
    """Write a phrase; the place and number of its noun."""
    words.append(random.choice(DETERMINERS))
    if random.random() < DESCRIBED:
        words.append(random.choice(ADJECTIVES))
    at, number = len(words), random.randrange(2)
    words.append(random.choice(NOUNS) + "s" * number)
    nouns.append((at, number))
    if random.random() < MODIFIED[depth]:
        if random.choice((True, False)):
            _preposition(words, nouns, random, depth + 1)
        else:
            _clause(words, nouns, random, depth + 1, number)
    return at, number


def _preposition(words: list[str], nouns: Nouns, random: Random, depth: int) -> None:
    words.append(random.choice(PREPOSITIONS))
    _phrase(words, nouns, random, depth)


def _clause(words: list[str], nouns: Nouns, random: Random, depth: int, number: int) -> None:
    """What the noun of this number does, or what is done to it."""
    words.append(THAT)
    if does := random.random() < 0.5:
        words.append(_verb(random, number))
    inner = _phrase(words, nouns, random, depth)
    if not does:
        words.append(_verb(random, inner[1]))


def _verb(random: Random, number: int) -> str:
    return random.choice(VERBS) + "s" * (1 - number)


def padded(sentences: Sequence[Sentence]) -> tuple[list[list[int]], list[list[int]]]:
    """Ids and positions of rows as long as the longest; behind a shorter one there is no token (-1)."""
    length = max(len(one.ids) for one in sentences)
    ids = [[*one.ids, *[BLANK] * (length - len(one.ids))] for one in sentences]
    return ids, [[*range(len(one.ids)), *[-1] * (length - len(one.ids))] for one in sentences]
