"""Token mixers: what mixes information between tokens. One contract (`base`), one file a family."""

from .attention import Attention, AttentionSpec
from .base import TokenMixer

# Adding a family: its file, and one line in each of these two.
MIXERS: dict[type, type[TokenMixer]] = {AttentionSpec: Attention}
MixerSpec = AttentionSpec
