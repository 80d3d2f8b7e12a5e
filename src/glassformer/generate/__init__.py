"""Generation: a model continues texts, token by token, with a static cache."""

from .beams import Beam, beam
from .decoding import Event, Watch, WithoutText, generate, in_parts, listed
from .reading import longest
from .sampling import GenerateSpec

__all__ = ["Beam", "Event", "GenerateSpec", "Watch", "WithoutText", "beam", "generate", "in_parts", "listed", "longest"]
