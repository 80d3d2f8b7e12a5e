"""A transcript in the terminal: a line for each phrase, as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterable

from ..data.display import visible
from ..generate.transcription import Segment
from .output import say


def show_segments(segments: Iterable[Segment], lang: str, times: bool = True) -> None:
    """Print the phrases, each behind the times that the model wrote where these are wanted, and the language that was
    heard beside the output."""
    shown = 0
    for segment in segments:
        if not shown:
            say("spoken", lang, aside=True, code=segment.language)
        start, end = (
            clock(one) if told else "…" for one, told in zip((segment.start, segment.end), segment.timed, strict=True)
        )
        place = f"[{start} – {end}] " if times and any(segment.timed) else ""
        print(place + visible(segment.text.strip()), flush=True)
        shown += 1
    if not shown:
        say("silent", lang, aside=True)


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, 01:02.50, with hours where there are any."""
    hours, rest = divmod(round(seconds * 100), 360_000)
    minutes, hundredths = divmod(rest, 6000)
    return f"{hours}:" * bool(hours) + f"{minutes:02}:{hundredths / 100:05.2f}"
