"""The verb that makes vectors of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ..terminal.options import COMMON, Common, ModelName, Place, check_text
from ..terminal.output import console, language, print_json, say
from .loading import loaded_as


def embed(
    text: Annotated[list[str], Parameter(name="TEXT...", help="A text in quotes; or several.")],
    /,
    *,
    prefix: Annotated[
        str | None,
        Parameter(help="Put before every text, as E5 wants 'query: '; left out: what the model was published with."),
    ] = None,
    pool: Annotated[
        Literal["first", "last", "mean"] | None,
        Parameter(
            help="Which token's vector stands for the text, or the mean of all; left out: as the model was published, "
            "else the mean."
        ),
    ] = None,
    save: Annotated[Place | None, Parameter(help="Also write the vectors to FILE.npy, a row for each text.")] = None,
    model: ModelName = None,
    common: Common = COMMON,
) -> None:
    """Print one vector for each TEXT and, of several, how alike they are.

    Example:  glassformer embed "별이 빛난다" "A star is shining" --model e5-small
    """
    from ..embedding import embed as embedded
    from ..terminal.vectors import show_vectors

    for one in text:
        check_text(one, {})
    loaded = loaded_as(model, common, "text")
    found = embedded(loaded, text, prefix=prefix, pool=pool)
    if save is not None:
        _save(found.vectors, save, common.lang)
    if found.cut:
        which = ", ".join(map(str, found.cut))
        say("cut", common.lang, True, count=len(found.cut), of=len(text), longest=found.longest, which=which)
    if common.json:
        print_json({"vectors": found.vectors.tolist(), "tokens": found.lengths, "cut": found.cut})
        return
    show_vectors(found, text, loaded.name, console(), language(common.lang))


def _save(vectors, path: Path, lang: str) -> None:
    import numpy as np

    from ..files import replacing

    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors.float().cpu().numpy())
    count, width = vectors.shape
    say("vectors_saved", lang, aside=True, count=count, width=width, path=path, read=repr(str(path)))
