"""The verbs that look at a model: trace, influence, classify, models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import InputError, UnsupportedError, check_above
from ..terminal.edits import edits_of
from ..terminal.options import (
    COMMON,
    MEASURE,
    Common,
    EditFile,
    Edits,
    Fitting,
    Measure,
    ModelName,
    ModelNames,
    Place,
    RowsBy,
    Whole,
    check_text,
)
from ..terminal.output import console, language, note_several, print_json, save_run, say
from .fetch import listed, show_catalogue
from .loading import chosen_run, loaded_as, naming

if TYPE_CHECKING:
    from ..explain.aligned import Aligned
    from ..explain.mixing import MixerSheet
    from ..explain.sheet import Sheet


def trace(
    text: Annotated[str, Parameter(help="The sentence to run, in quotes.")],
    /,
    *,
    token: Annotated[
        str | None,
        Parameter(help="The word to explain, or the number of its row, from 0, as #2; left out: the last word."),
    ] = None,
    layer: Annotated[Whole | None, Parameter(help="The layer, from 0; left out: where the context moves most.")] = None,
    head: Annotated[Whole | None, Parameter(help="The head, from 0; left out: the one that moves most.")] = None,
    all_heads: Annotated[
        bool, Parameter(negative="", show_default=False, help="How far every head moves the token.")
    ] = False,
    by: RowsBy = None,
    of: Annotated[
        Literal["text", "source"] | None,
        Parameter(help="Of an encoder-decoder: what its target reads of itself, or of the source, as when left out."),
    ] = None,
    closed: Annotated[
        bool, Parameter(negative="", show_default=False, help="Do not open words into their tokens.")
    ] = False,
    top: Annotated[
        Whole, Parameter(help="How many candidates for the next token to show, at most the whole vocabulary.")
    ] = 8,
    save: Annotated[
        Place | None,
        Parameter(
            help="Also write every value of the run to FILE.safetensors, or the explorer's page of it, which needs no "
            "network, to FILE.html; a folder that is not there is made."
        ),
    ] = None,
    memory: Annotated[Whole, Parameter(help="Memory limit of the trace, in MiB.")] = 1024,
    start: Annotated[bool, Parameter(help="Run the text behind the start-of-document token.")] = True,
    edit: Edits = (),
    edits: EditFile = None,
    temperature: Annotated[
        float,
        Parameter(
            help="What the logits of the candidates for the next token are divided by where they are printed; 1: as "
            "trained."
        ),
    ] = 1.0,
    target: Annotated[
        str | None,
        Parameter(help="Of an encoder-decoder: what it is to have written for TEXT; left out: what it writes itself."),
    ] = None,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print how the context vector of one token of TEXT is computed; of an encoder-decoder, what it writes for TEXT,
    from which tokens, and how one token of that came about.

    Example:  glassformer trace "The cat ate the fish" --token ate --layer 2
    """
    from ..explain.mixing import readers

    check_text(text, {"top": top, "memory": memory})
    check_above("--temperature", temperature)
    _check_save(save, temperature)
    loaded, lang = loaded_as(model, common, "text", "sound"), language(common.lang)
    how = {"edits": edits_of(edit, edits), "limit_bytes": memory << 20, "start": start}
    runs = [loaded.trace(part, **how) for part in _given(loaded, text, target)]
    pair = len(runs[0].stacks) == 2
    by = by or ("token" if pair else "word")
    run = chosen_run(runs, token, by)
    of = of or ("source" if pair and readers(run) else "text")
    aligned = [one.alignment(layer=layer if of == "source" else None, head=head) for one in runs] if pair else []
    shown = {"by": by, "top": top, "temperature": temperature, "of": of}
    sheet = run.sheet(token, layer=layer, head=head, **shown)
    sheets = run.sheets(token, layer=sheet.layer, **shown) if all_heads else []
    if save is not None:
        save_run(run, save, common.lang)
    if common.json:
        print_json({"alignments": aligned, "sheet": sheets or sheet} if pair else sheets or sheet)
        return
    _show(aligned, sheet, sheets, lang, loaded.name, closed)
    if not sheets and 0 < len(sheet.next) < top:
        say("all_shown", common.lang, aside=True, count=len(sheet.next))
    if token is not None:
        note_several(run, token, by, sheet, common.lang)


def _check_save(save: Path | None, temperature: float) -> None:
    """Raise InputError for a file that no run is written into, or not with what was asked for."""
    if save is None:
        return
    if save.suffix not in (".safetensors", ".html"):
        raise InputError(f"--save: {save} does not end in .safetensors, the format of a trace, or in .html, its page")
    if save.suffix == ".html" and temperature != 1:
        raise InputError(
            "--temperature: a page (--save FILE.html) is written of the run at temperature 1; leave one of them out"
        )


def _given(loaded: Any, text: str, target: str | None) -> list[Any]:
    """What is run: the text, or the words that a model reads one at a time; with a target that was given, the pair."""
    parts = loaded.parts(text)
    if target is None:
        return parts
    if not hasattr(loaded.spec, "encoder"):
        raise InputError("--target: only an encoder-decoder writes a target; leave it out, or name another model")
    if len(parts) > 1:
        raise InputError(f"--target: this model reads one word at a time, and there are {len(parts)}; give one word")
    return [(parts[0], target)]


def _show(
    aligned: list[Aligned], sheet: Sheet | MixerSheet, sheets: list[Any], lang: str, name: str, closed: bool
) -> None:
    """Print what a target reads of its source, then the sheet of the token, or those of all heads where there are."""
    from ..explain.mixing import MixerSheet
    from ..terminal.aligned import show_alignment
    from ..terminal.mixing import show_mixer
    from ..terminal.sheet import show_heads, show_sheet

    for one in aligned:
        show_alignment(one, console(), lang)
    if isinstance(sheet, MixerSheet):
        show_mixer(sheets or [sheet], console(), lang, name, closed)
    elif sheets:
        show_heads(sheets, console(), lang)
    else:
        show_sheet(sheet, console(), lang, name, closed)


def influence(
    text: Annotated[str, Parameter(help="The sentence to run, in quotes.")],
    /,
    *,
    token: Annotated[
        str | None,
        Parameter(help="The word to explain, or the number of its row, from 0, as #2; left out: the last word."),
    ] = None,
    by: RowsBy = None,
    of: Annotated[
        Literal["text", "source"] | None,
        Parameter(help="Of an encoder-decoder: how its target moves it, or the source, as when left out."),
    ] = None,
    closed: Annotated[
        bool, Parameter(negative="", show_default=False, help="Do not open words into their tokens.")
    ] = False,
    save: Annotated[
        Place | None,
        Parameter(help="Also draw every token's influence on every other, one panel a model, as FILE.svg."),
    ] = None,
    start: Annotated[bool, Parameter(help="Run the text behind the start-of-document token.")] = True,
    measure: Measure = MEASURE,
    model: ModelNames = (),
    common: Common = COMMON,
) -> None:
    """Print how strongly each word of TEXT moves the vector of one token, in a model of any family or in several.

    Example:  glassformer influence "The cat ate the fish" --token ate -m small -m out/my-lstm
    """
    from ..terminal.influence import show_moved

    check_text(text, {"memory": measure.memory})
    if save is not None and save.suffix != ".svg":
        raise InputError(f"--save: {save} does not end in .svg, the format of the figure")
    if by in ("character", "token") and len(model) > 1:
        raise InputError(f"--by: {by} cuts a text as one model's tokenizer does; leave it out, or give one model")
    lang, how = language(common.lang), measure.settings(common.seed)
    loaded = [loaded_as(name, common, "text", "sound") for name in model or (None,)]
    limit, several, parts, tables = measure.memory << 20, len(loaded) > 1, [], []
    for one in loaded:
        with naming(one.name, several):
            parts.append([one.trace(part, start=start, limit_bytes=limit) for part in one.parts(text)])
    pairs = {len(found[0].stacks) == 2 for found in parts}
    by = by or ("token" if pairs == {True} else "word")
    of = of or ("source" if pairs == {True} else "text")
    if save is not None and of == "source":
        raise InputError("--save: the figure draws how a text's tokens move one another; give --of text with it")
    runs = [chosen_run(found, token, by) for found in parts]
    if len({(run.text, run.source_text) for run in runs}) > 1:
        raise InputError(
            "-m: these models did not read the same text (an encoder-decoder writes its own); give one alone"
        )
    for run in runs:
        with naming(run.loaded.name, several):
            tables.append(run.moved(token, by=by, of=of, **how))
    if save is not None:
        from ..figures.influence import draw

        draw(save, runs, lang, by="token" if by == "token" else "character", **how)
        say("drawn", common.lang, aside=True, path=save)
    if common.json:
        print_json(tables if len(tables) > 1 else tables[0])
        return
    show_moved(tables, console(), lang, closed)


def classify(
    given: Annotated[
        list[str] | None,
        Parameter(
            name="INPUT...",
            help="A text in quotes, an image (PNG, PGM, PPM, .npy, .npz, IDX), or a folder of images; or several.",
        ),
    ] = None,
    /,
    *,
    file: Annotated[
        tuple[Place, ...],
        Parameter(
            negative="", show_default=False, help="A file of texts, each on a line of its own; may be given again."
        ),
    ] = (),
    model: Annotated[
        str,
        Parameter(
            name=["--model", "-m"],
            show_default=False,
            help="A model's name, folder or hub id; left out: lenet, which reads images.",
        ),
    ] = "lenet",
    fit: Fitting = "auto",
    top: Annotated[Whole | None, Parameter(help="How many classes to show; left out: all of one, one of several.")] = (
        None
    ),
    edit: Edits = (),
    edits: EditFile = None,
    temperature: Annotated[
        float,
        Parameter(
            help="What the logits of the classes are divided by; 1: as trained. Not of a model that estimates numbers."
        ),
    ] = 1.0,
    common: Common = COMMON,
) -> int:
    """Print the class distribution that a model gives a text or an image, or the best class of each of several.

    Example:  glassformer classify "The film is a joy from start to end." --model my-classifier
    """
    from ..terminal import classes

    given, lang = given or [], language(common.lang)
    if not given and not file:
        raise InputError("give a text or an image, or a file of texts (--file)")
    for one in given:
        check_text(one, {})
    check_above("--temperature", temperature)
    how = {"edits": edits_of(edit, edits), "temperature": temperature}
    loaded = loaded_as(model, common, "images", "text")
    if loaded.reads == "text":
        if fit != "auto":
            raise InputError(f"--fit: {loaded.name} reads texts; leave it out, or name a model of images with -m")
        try:
            return classes.classify_texts(loaded, given, file, top, common.json, lang, how)
        except UnsupportedError as error:  # mistakes of files and options name those
            raise UnsupportedError(f"{loaded.name}: {error}") from None
    if file:
        raise InputError(f"--file: {loaded.name} reads images; name a model of texts with -m, or leave --file out")
    if not any(map(os.path.exists, given)):
        raise InputError(f"{given[0]}: there is no such image, and {loaded.name} reads no texts; name a model with -m")
    return classes.classify(loaded, [Path(one) for one in given], fit, top, common.json, lang, how)


def models(
    name: Annotated[
        str | None,
        Parameter(help="A model's name, folder or hub id, whose card is shown; left out: a list of all."),
    ] = None,
    /,
    *,
    cost: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="What every preset costs, or that preset or model alone, for a text of --length tokens.",
        ),
    ] = False,
    length: Annotated[Whole | None, Parameter(help="Tokens of that text; left out: 1024.")] = None,
    save: Annotated[
        Place | None, Parameter(help="Also write that model into this new folder, whatever format it was read from.")
    ] = None,
    common: Common = COMMON,
) -> None:
    """List the shipped models, those that can be fetched, and the presets; show the card of one model, or what the
    presets cost.

    Example:  glassformer models small
    """
    from ..checkpoint import read_about
    from ..machine import check_device, check_dtype
    from ..named import presets
    from ..sources import SHIPPED, shipped
    from ..terminal.card import show_card, text_of

    check_device(common.device)
    check_dtype(common.dtype)
    if save is not None and name is None:
        raise InputError("--save: name the model to be written, as in models small --save out/copy")
    if length is not None and not cost:
        raise InputError("--length: it is the length of a text whose cost is asked for; give --cost too")
    if cost:
        _show_costs(name, 1024 if length is None else length, save, common)
        return
    if name is not None:
        loaded = loaded_as(name, common)
        if save is not None:
            loaded.save(save)
        print_json(loaded.about) if common.json else show_card(loaded, console(), language(common.lang))
        return
    about = {name: read_about(SHIPPED / name) for name in shipped()}
    if common.json:
        print_json({"shipped": about, "presets": list(presets())} | listed())
        return
    for name, card in about.items():
        print(f"{name:{max(map(len, about))}}  {text_of(card, 'summary', language(common.lang))}")
    say("presets", common.lang, names=", ".join(presets()))
    show_catalogue(common.lang)


def _show_costs(name: str | None, length: int, save: Path | None, common: Common) -> None:
    """What all presets cost, or what is called so: a preset, a model, or one of each."""
    from ..explain.cost import cost, costs
    from ..image import ImageModelSpec
    from ..named import presets
    from ..named.layers import LAYERS
    from ..sources import shipped
    from ..terminal.cost import show_costs
    from ..terminal.words import say as word

    if save is not None:
        raise InputError("--save: it writes a model, and --cost only counts; give one of them")
    lang, planned = language(common.lang), name in (*presets(), *LAYERS)
    found = costs(length, None if name is None else [name] if planned else [])
    if name is not None and (not planned or name in shipped()):
        spec = loaded_as(name, common).spec
        called = name if not planned else word("cost_model", "en" if common.json else lang, name=name)
        found[called] = cost(spec, 1 if isinstance(spec, ImageModelSpec) else length)
    print_json(found) if common.json else show_costs(found, console(), lang)
