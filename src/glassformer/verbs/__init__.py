"""What the command line can do: one function a verb, whose signature is its options."""

from __future__ import annotations

from .embed import embed
from .explain import explain
from .explore import explore
from .export import export
from .fetch import pull
from .hear import transcribe
from .look import classify, influence, models, trace
from .make import evaluate, generate, train
from .prove import check

VERBS = (explore, trace, explain, generate, train, evaluate, influence, embed, classify, transcribe)
VERBS += (check, models, pull, export)
