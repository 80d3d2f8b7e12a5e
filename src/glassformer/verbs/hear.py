"""The verb that writes down what is spoken: transcribe."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from ..errors import GlassformerError, InputError
from ..terminal.edits import edits_of
from ..terminal.options import COMMON, Common, EditFile, Edits, Whole
from ..terminal.output import language, print_json
from .loading import loaded_as


def transcribe(
    file: Annotated[str, Parameter(name="FILE.wav", help="A WAV file of any length, rate and number of channels.")],
    /,
    *,
    spoken: Annotated[
        str | None, Parameter(help="Language spoken in the file, as en or ko; left out: the most probable one.")
    ] = None,
    task: Annotated[
        Literal["transcribe", "translate"], Parameter(help="transcribe: in that language; translate: in English.")
    ] = "transcribe",
    times: Annotated[
        bool | None,
        Parameter(
            negative="--no-times",
            help="When each phrase begins and ends; left out: of a sound longer than the model reads at once.",
        ),
    ] = None,
    beams: Annotated[Whole, Parameter(help="Above 1: beam search of this width.")] = 1,
    edit: Edits = (),
    edits: EditFile = None,
    model: Annotated[
        str | None, Parameter(name=["--model", "-m"], help="The folder or the name of a speech model.")
    ] = None,
    common: Common = COMMON,
) -> None:
    """Write down what is spoken in FILE.wav, phrase by phrase, or translate it to English.

    Example:  glassformer transcribe speech.wav -m whisper-base --spoken ko --times
    """
    from ..terminal.complaint import with_options
    from ..terminal.hearing import show_segments

    if model is None:
        raise InputError("-m: no speech model is shipped; fetch one with `glassformer pull whisper-base` and name it")
    loaded = loaded_as(model, common, "sound")
    try:
        changes = edits_of(edit, edits)
        how = {"language": spoken, "task": task, "timestamps": times, "beams": beams}
        segments = loaded.transcribe(file, edits=changes, **how)
    except GlassformerError as error:
        names = {"language": "--spoken", "task": "--task", "language, task": "--spoken, --task"}
        raise type(error)(with_options(str(error), names)) from None
    if common.json:
        for segment in segments:
            print_json(segment, None)
    else:
        show_segments(segments, language(common.lang), times is not False)
