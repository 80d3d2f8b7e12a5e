"""What the classes of a published classifier are called: `id2label`, or only how many there are."""

from __future__ import annotations

from ..errors import SettingError, UnsupportedError
from .rules import Config, Rule, named

FIELDS = ("id2label", "num_labels", "architectures")
DEFAULTS: Config = dict.fromkeys((*FIELDS, "problem_type"))


def names(config: Config) -> list[str]:
    """In the order of their numbers. Raises UnsupportedError where a number is left out."""
    if config["id2label"] is None:
        count = 2 if config["num_labels"] is None else config["num_labels"]
        if not 0 <= count <= 1_000_000:
            raise SettingError(f"num_labels: {count!r} is not allowed; use a whole number from 0 to 1000000")
        return numbered(count)
    found = {int(number): name for number, name in config["id2label"].items()}
    if sorted(found) != list(range(len(found))):
        raise UnsupportedError("id2label: the numbers of the classes leave some out; give a name for each from 0")
    return [found[number] for number in range(len(found))]


def numbered(count: int) -> list[str]:
    """The names that transformers gives classes without any."""
    return [f"LABEL_{number}" for number in range(count)]


def table(given: list[str]) -> Config:
    """The names as they are written; `complete` adds what they mean backwards."""
    return {"id2label": {str(i): one for i, one in enumerate(given)}} if given else {}


def complete(config: Config) -> Config:
    """A written configuration with the numbers of its classes by their names."""
    found = {name: int(number) for number, name in config.get("id2label", {}).items()}
    return config | ({"label2id": found} if found else {})


# What the loss was that the model learnt from, and so what its logits are.
PROBLEMS = {
    None: "softmax",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "number",
}


def scores(place: str) -> Rule:
    """The rule of what the logits are, at this place."""
    return named("problem_type", PROBLEMS, place)


def classes(word: str, count: str, labels: str, none: int | None) -> tuple[Rule, Rule]:
    """The rules of the places `count` and `labels`, where the name of the model's class has this word; else `none` and
    nothing. Names that are only numbers are none."""

    def has(config: Config) -> bool:
        given = config["architectures"] or [word]
        return word in str(given[0] if isinstance(given, list) else given)

    def called(config: Config) -> list[str]:
        found = names(config)
        return found if has(config) and found != numbered(len(found)) else []

    return (
        Rule(
            FIELDS,
            (count,),
            lambda config: len(names(config)) if has(config) else none,
            lambda value: table(numbered(value or 0)),
        ),
        Rule(FIELDS, (labels,), called, table),
    )
