"""What the page is given: one document for a run, from which every view finds its numbers by name.

The page asks for values by the names of the trace and gets the bytes of one safetensors file, the trace's own format.
A saved page carries the same documents and bytes. `ui/src/lib/protocol.ts` says the same in TypeScript and is written
from this file (`python dev/protocol.py`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..edit import Kind
from ..explain.explanation import Explanation, Said
from ..nn.pool import Scores


class PageCell(msgspec.Struct, frozen=True):
    """One cell of the text (data.display.Cell): what is shown, its tokens, where it begins and ends in the text, and a
    cell for each token where there are several. form: "NFD" where the text in it is decomposed."""

    label: str
    tokens: tuple[int, ...]
    start: int
    end: int
    special: bool
    form: str = ""
    parts: tuple[PageCell, ...] = ()


class PageCard(msgspec.Struct, frozen=True):
    """A card (tap.Card): symbol, formula, a sentence in both languages, the article's statements."""

    symbol: str
    formula: str
    said: Said
    statements: tuple[str, ...]


class PageValue(msgspec.Struct, frozen=True):
    """A value that can be asked for: its name, axis letters and sizes, and the key of its card."""

    name: str
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    card: str


class PageMixer(msgspec.Struct, frozen=True):
    """A token mixer: its tag, its name, what it has.

    softmax  whether it has the four steps (q, k, v, dots, scores, pattern, z)
    weights  the short name of its own weights over what it sees ("pattern", "weights"), "" where it has none
    axis     the letter of the axis along which these differ: "h" heads, "f" or "d" channels, "" all have the same
    heads    how many such heads or channels there are
    mask     a sentence about what a position may see by construction
    plain    whether that is everything, or with `causal` itself and all before it; else the explanation "sight" says it
    sink     whether a learned sink takes a share of every row
    """

    path: str
    kind: str
    called: Said
    softmax: bool
    weights: str
    axis: str
    heads: int
    groups: int
    causal: bool
    mask: Said
    sink: bool = False
    plain: bool = False


class PageBlock(msgspec.Struct, frozen=True):
    """One block: its path, its mixer, the mixer that reads the source, the path of its channel mixer ("" for none), and
    whether what these make is added to the vector (residual) or takes its place."""

    path: str
    index: int
    mixer: PageMixer
    cross: PageMixer | None
    channel: str
    residual: bool = True


class PagePicture(msgspec.Struct, frozen=True):
    """The picture that was read: bytes `c y x` in base64, 0 black, by which it is told from others. Its exact numbers
    are the value `name` (as the model scales them)."""

    channels: int
    pixels: str
    name: str


class PageStack(msgspec.Struct, frozen=True):
    """One stack: "" of a model of one, "encoder." and "decoder." of a pair.

    units    "tokens", "frames" of a sound, "patches" of an image, "maps" where layers work on pixels
    cells    the tokens grouped; by: their grouping ("token", "character", "word"); places of what is no text by name
    signals  the tags of the position signals that an edit of "positions" can move ("learned", "rope" …)
    position the name of what a position adds to the vectors that enter the blocks; "" where nothing
    blocks   none of a stack of maps
    """

    prefix: str
    units: str
    length: int
    labels: tuple[str, ...]
    cells: dict[str, tuple[PageCell, ...]]
    position: str
    blocks: tuple[PageBlock, ...]
    signals: tuple[str, ...] = ()


class PageEdit(msgspec.Struct, frozen=True):
    """One change of a value (edit.Edit) in the form of its JSON (edit_json.EditData), without slices and tensors: what
    another run gives is named by that run's text or token ids."""

    kind: Kind
    name: str
    where: dict[str, int | list[int]] = {}
    value: int | float | None = None
    seed: int = 0
    renormalise: bool = True
    run: str | list[int] | None = None
    there: dict[str, int | list[int]] = {}


class PageSetting(msgspec.Struct, frozen=True):
    """A setting of an explanation, as the page offers it.

    kind      "choice" of one of the choices (value and what it is called), "whole", "number", "text", "lines" of text
    usual     what it is where nothing is given; None where that is of its own kind ("all", "the first that has one")
    least, most   of a number, where they are known
    above     of a number that must be larger than this
    places    of a place in the text how many there are: by the grouping of tokens, for each stack that can be chosen
    """

    name: str
    title: Said
    kind: Literal["choice", "whole", "number", "text", "lines"]
    usual: str | int | float | None
    choices: tuple[tuple[str, Said], ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    places: dict[str, tuple[int, ...]] = {}


class PageRun(msgspec.Struct, frozen=True):
    """One run of one model over one text, pair, image or sound, without its numbers.

    id          by which its values are asked for; nobody else can guess it
    shape       "decoder", "encoder", "pair", "image"
    python      the lines that make the same trace: import, model, trace
    live        the command line that opens the page with the same; "" where there is none
    changes     every edit as a line of Python; edits: those of them that a page can ask for
    dtype       the number format of its vectors; context: how many tokens the model is meant to read, 0: no such limit
    next        whether the head gives a distribution over a vocabulary at each token
    classes     what the classes are called, for a model with classes
    scores      what the numbers of tokens or classes are (nn.pool.Scores); None of a model that ends in vectors
    picture     what an image model has read
    explains    the names and titles of the explanations that exist for this run
    parts       the words of the text, of a model that reads one at a time, and the number of this one
    """

    id: str
    model: str
    shape: Literal["decoder", "encoder", "pair", "image"]
    text: str
    source: str
    python: tuple[str, ...]
    live: str
    stacks: tuple[PageStack, ...]
    values: tuple[PageValue, ...]
    cards: dict[str, PageCard]
    changes: tuple[str, ...]
    edits: tuple[PageEdit, ...]
    dtype: str
    context: int
    parameters: int
    next: bool
    classes: tuple[str, ...]
    scores: Scores | None
    explains: tuple[tuple[str, Said], ...]
    picture: PagePicture | None = None
    parts: tuple[str, ...] = ()
    part: int = 0


class PageModel(msgspec.Struct, frozen=True):
    """A model that can be chosen. kind: in the package, of a folder on this machine, pulled, or to be pulled (bytes:
    what is fetched); reads: "text", "pair", "image", "sound", "" where only its weights tell; why: why the page cannot
    show it, None where it can."""

    name: str
    kind: Literal["shipped", "run", "pulled", "pullable"]
    summary: Said
    bytes: int
    family: str = ""
    reads: str = "text"
    why: Said | None = None


class PageCandidate(msgspec.Struct, frozen=True):
    """A candidate for the next token (explain.rest.Next)."""

    token: int
    label: str
    probability: float


class PageToken(msgspec.Struct, frozen=True):
    """One new token of a generation (generate.Event).

    label, special   as in explain.rest.Next; text: the characters that it completed
    probability      in the model's own distribution, before temperature and filters, as those of the candidates
    candidates       the most probable tokens that it was chosen among; none in beam search
    length           how many tokens stand before it, of an encoder-decoder in the target
    state_bytes      what the model keeps of these to go on
    seconds          since the token before
    """

    token: int
    label: str
    text: str
    special: bool
    probability: float
    candidates: tuple[PageCandidate, ...]
    length: int
    state_bytes: int
    seconds: float
    finished: Literal["end", "length", "stop"] | None = None


class PageWritten(msgspec.Struct, frozen=True):
    """What a generation ended in: its text, and the Python lines and the command line that write the same. command: ""
    where there is none."""

    text: str
    python: tuple[str, ...]
    command: str = ""


class AskedWriting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a generation is asked for with. settings: those of GenerateSpec that are not as usual; top: candidates;
    edits: what is changed in every run of it."""

    model: str
    text: str = ""
    top: int = 8
    settings: dict[str, Any] = {}
    edits: tuple[PageEdit, ...] = ()


class AskedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that is to be opened, and fetched where it is not on this machine."""

    name: str


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run is asked for with. text: of a pair the source; target: of a pair, None where the model writes it.
    image: the bytes of a picture's file (PNG, PGM, PPM) in base64; called: that file's name, for messages. ids:
    instead of a text, token ids. part: which of the words, of a model that reads one at a time."""

    model: str
    text: str = ""
    target: str | None = None
    image: str | None = None
    ids: list[int] | None = None
    start: bool = True
    edits: tuple[PageEdit, ...] = ()
    part: int = 0
    called: str = ""


class AskedValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a run that is asked for with others; where: places by axis letter."""

    name: str
    where: dict[str, int | list[int]] = {}


class PageWriting(msgspec.Struct, frozen=True):
    """A generation that was watched: what was asked for, its tokens, and what it ended in (None: stopped)."""

    asked: AskedWriting
    tokens: tuple[PageToken, ...]
    written: PageWritten | None = None


class SeenRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run that a person has looked at, of which the saved page is to hold what was seen: explanations by their
    request, as they were given, and the names of values."""

    id: str
    explanations: dict[str, Explanation] = {}
    values: tuple[str, ...] = ()


class AskedPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a saved page is asked for with. seen: of the page's own run, and of others beside it; left: what was seen
    and is too much for one request; place: where in it the person was, as behind # in an address."""

    lang: Literal["en", "ko"] = "en"
    seen: tuple[SeenRun, ...] = ()
    writings: tuple[PageWriting, ...] = ()
    left: tuple[str, ...] = ()
    place: str = ""


class SavedRun(msgspec.Struct, frozen=True):
    """One run of a saved page, its explanations by their request ("flow?layer=2"), and other documents by theirs. Its
    values stand in the file under "KEY/NAME", those of the page's own run, whose key is "", under their names."""

    key: str
    run: PageRun
    explanations: dict[str, Explanation]
    documents: dict[str, Any]


class Saved(msgspec.Struct, frozen=True):
    """What a saved page carries beside the bytes of its values: its own run and those beside it, and what was written.
    usual: the settings of each explanation, left out of a request where they are as usual; left: what had no room;
    place: where it opens, as behind # in an address, which may name another."""

    runs: tuple[SavedRun, ...]
    usual: dict[str, dict[str, Any]] = {}
    writings: tuple[PageWriting, ...] = ()
    left: tuple[str, ...] = ()
    place: str = ""
