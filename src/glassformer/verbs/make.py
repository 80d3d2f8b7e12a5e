"""The verbs that let a model work: generate, train, evaluate."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import GlassformerError, InputError
from ..terminal.edits import edits_of
from ..terminal.options import (
    CHOICE,
    COMMON,
    OF_TRAINING,
    OPTIONS,
    Choice,
    Common,
    EditFile,
    Edits,
    ModelName,
    OfTraining,
    Place,
    settings_of,
)
from ..terminal.output import console, discard_output, language, print_json, say
from .loading import loaded_as


def generate(
    prompt: Annotated[
        list[str], Parameter(name="PROMPT...", help="The text to continue, in quotes; more of them for a batch.")
    ],
    /,
    *,
    chat: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Let the model answer the text, by the chat template that it came with.",
        ),
    ] = False,
    system: Annotated[
        str | None, Parameter(help="With --chat: what the model is told before the conversation.")
    ] = None,
    source: Annotated[
        str | None,
        Parameter(name="--from", help="The language of the text, by its code, where the model reads one: ko_KR."),
    ] = None,
    choice: Choice = CHOICE,
    edit: Edits = (),
    edits: EditFile = None,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Continue a text, shown as it is written; several texts run as one batch. An encoder-decoder writes what it makes
    of a text, such as a translation or a pronunciation.

    Example:  glassformer generate "영화가" --temperature 0.7 --seed 3
    """
    from ..terminal.complaint import with_options
    from ..terminal.generation import lead, show_batch, show_stream

    if system is not None and not chat:
        raise InputError("--system: only a conversation has a system message; give --chat too, or leave --system out")
    loaded, lang = loaded_as(model, common, "text"), language(common.lang)
    pair = hasattr(loaded.spec, "encoder")  # its target stands alone, and is not drawn
    if source is not None:
        from ..data.languages import in_language

        loaded.source = in_language(loaded.source or loaded.tokenizer, source)
    talks = [loaded.chat(one, system=system) for one in prompt] if chat else []
    read = [talk.ids for talk in talks] or prompt
    settings = {"max_new_tokens": min(64, max(1, loaded.room(read)))} | choice.settings(drawn=not pair)
    settings |= {"ends": talks[0].ends} if talks else {}
    settings |= {"edits": edits_of(edit, edits)} if edit or edits is not None else {}
    try:
        events = loaded.generate(read, seed=common.seed, **settings)
    except GlassformerError as error:
        raise type(error)(with_options(str(error), OPTIONS)) from None
    if common.json:
        shown = []
        for event in events:
            shown.append(event)
            print_json(event, None)
    elif len(prompt) == 1:
        shown = show_stream(lead(loaded, prompt[0], chat), events, lang)
    else:
        shown = show_batch([lead(loaded, one, chat) for one in prompt], events)
    new = settings["max_new_tokens"]
    if new < 64 and choice.max_new_tokens is None and any(event.finished == "length" for event in shown):
        say("full", common.lang, aside=True, context=loaded.context, new=new)


def train(
    source: Annotated[
        str,
        Parameter(name="TEXT|RECIPE", help="A text file in UTF-8 or a folder of them, or a recipe (.toml, .json)."),
    ],
    /,
    *,
    out: Annotated[Place | None, Parameter(help="The run folder; left out: out/NAME of the recipe or text.")] = None,
    set: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            help="path=value, as --set steps=500 or --set model=llama; may be given again.",
        ),
    ] = (),
    fresh: Annotated[bool, Parameter(negative="", show_default=False, help="Start anew instead of resuming.")] = False,
    only: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="Of a recipe of several runs, this one; may be given again."),
    ] = (),
    common: OfTraining = OF_TRAINING,
) -> int:
    """Train a model from a recipe, or a language model straight from a text file or folder. Resumes by itself. A recipe
    of several runs trains one after another into OUT/NAME, and a table compares them.

    Example:  glassformer train my.txt --set steps=500
    """
    from ..machine import check_device
    from ..terminal.several import train_all
    from ..train import read_runs

    check_device(common.device)
    settings = settings_of(set)
    settings |= {} if common.dtype is None else {"dtype": common.dtype}
    settings |= {} if common.seed is None else {"seed": str(common.seed)}
    named = Path(source) if Path(source).name.strip(".") else Path(source).resolve()  # `.` and `..` are no names
    folder = out or Path("out") / (named.stem or "text")
    runs = read_runs(source, settings, None if fresh else folder, only)
    try:
        train_all(runs, folder, common.device, fresh, language(common.lang), common.json)
    except BrokenPipeError:
        discard_output()
        say("left", common.lang, aside=True)
        return 141  # as a program that SIGPIPE ends: the training is not complete
    return 0


def evaluate(
    file: Annotated[
        Place,
        Parameter(
            help="A text file in UTF-8 or a folder of them; for a model of images an .npz with x_test and y_test, or a "
            "folder with MNIST's IDX files (t10k-images-idx3-ubyte …)."
        ),
    ],
    /,
    *,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print how well a model predicts a text file or folder: bits per byte, loss and perplexity per token. Of a model
    that reads images: how many of the test images in FILE it puts into a wrong class.

    The text runs through windows as long as the model's context, each half a context behind the one before. Every token
    counts once, predicted from at least the half context before it (from all of its file, where that is less).

    Example:  glassformer evaluate notes.txt --model out/notes
    """
    from ..train.classify import Errors

    loaded = loaded_as(model, common)
    score = loaded.evaluate(file)
    if common.json:
        print_json(score)
    elif isinstance(score, Errors):
        from ..terminal.classes import show_errors

        show_errors(score, loaded, console(), language(common.lang))
    else:
        say("predicted", common.lang, **asdict(score))
