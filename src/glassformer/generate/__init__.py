"""Generation: a model continues texts, token by token, with a static cache."""

from .decoding import Beam, Event, WithoutText, beam, generate, in_parts, listed, longest
from .sampling import GenerateSpec

__all__ = ["Beam", "Event", "GenerateSpec", "WithoutText", "beam", "generate", "in_parts", "listed", "longest"]
