"""The models that the page may choose: those in the package, runs on this machine, and what is fetched.

A name that a request gives is one of a list, an id of the hub, or a path below one of the folders that were named when
the server started; nothing else is ever looked at.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from .. import catalogue, hub, machine
from ..api import Loaded, load
from ..checkpoint import read_about, read_spec
from ..classifier import Classifier
from ..errors import GlassformerError, InputError, UnsupportedError, nearest
from ..explain.explanation import Said
from ..formats import reader_of
from ..formats.huggingface import is_huggingface, published_spec
from ..image import ImageModelSpec
from ..machine import check_dtype
from ..model import AnySpec, EncoderDecoderSpec, without_memory
from ..page.documents import PageModel
from ..pull import pull
from ..sources import FILES, SHIPPED, from_hub, shipped
from .work import Work, tell_blocks

MOST_MODELS = 6  # kept in memory
MOST_LISTED = 200
DEEPEST = 3  # folders below a given one in which models are looked for
LONGEST_NAME = 300
HUB_ID = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}(@[A-Za-z0-9][A-Za-z0-9._/-]{0,95})?"
)
SOUND = Said(
    "reads sound: in the terminal alone (transcribe)", "소리를 읽는 모델: 터미널에서만 쓸 수 있습니다(transcribe)"
)
WAIT_S = 0.05
BESIDE = 1.2  # of a model's weights: with what a run of it needs at least


class Models:
    """What can be chosen, and what was: each is loaded once and kept while there is room.

    folders     in which models of this machine are looked for, beside `out`, into which training writes
    named       models by a name given at the start, wherever they lie
    given       models that are in memory already, by name, before any other of that name; they stay
    """

    def __init__(
        self,
        folders: Sequence[Path] = (),
        named: dict[str, Path] | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        given: dict[str, Loaded | Classifier] | None = None,
    ) -> None:
        self.given = given or {}
        self.folders = [_whole(one) for one in (Path("out"), *folders)]
        self.named, self.device, self.dtype = named or {}, device, dtype
        self.dropped: Callable[[], None] = lambda: None  # told after a model was dropped
        self._kept: OrderedDict[str, Loaded | Classifier] = OrderedDict()
        self._coming: dict[str, int] = {}  # what is being loaded, and the bytes of its weights
        self._lock = threading.Lock()  # of both, held for no longer than a look at them
        self._loading = WeakValueDictionary[str, threading.Lock]()  # of each name, while it is loaded

    # ------------------------------------------------------------ what there is

    def listed(self) -> list[PageModel]:
        """All that can be chosen from a list: given, of the package, named at the start, of this machine, pulled,
        pullable."""
        found = [_in_memory(name, one) for name, one in self.given.items()]
        found += [_described(name, "shipped", SHIPPED / name) for name in shipped()]
        found += [_described(name, "run", place) for name, place in self.named.items()]
        for folder in self.folders:
            paths = islice(_below(folder, DEEPEST), MOST_LISTED)
            found += [_described(_called(path), "run", path) for path in paths]
        here = catalogue.pulled()
        for name, one in catalogue.CATALOGUE.items():
            if name in here:
                found.append(_described(name, "pulled", catalogue.folder_of(name)))
            else:
                said = Said(one.summary, one.summary_ko)
                family, reads = _of_catalogue(name)
                why = SOUND if reads == "sound" else None
                found.append(PageModel(name, "pullable", said, one.bytes, family, reads, why))
        return list({one.name: one for one in reversed(found)}.values())[::-1]

    def place(self, name: str) -> Path | None:
        """Where the model of that name lies; None: it is still to be fetched. Raises InputError for any other name."""
        if not (0 < len(name) <= LONGEST_NAME and name.isprintable()):
            raise InputError("that is no name of a model; choose one from the list, or give the id of a hub's model")
        if name in shipped():
            return SHIPPED / name
        if found := self.named.get(name) or self._given(name):
            return found
        if name in catalogue.CATALOGUE:
            return catalogue.folder_of(name) if name in catalogue.pulled() else None
        if HUB_ID.fullmatch(name) and ".." not in name:
            return None
        known = nearest(name[:100], [*shipped(), *self.named, *catalogue.CATALOGUE])
        raise InputError(
            f"no model {name!r} that may be opened here: a folder must lie below out or one that explore was given "
            f"(--models DIR); {known}"
        )

    def _given(self, name: str) -> Path | None:
        """The model at a path below one of the folders, both as it is written and where its links lead."""
        path = _whole(name)
        for folder in self.folders:
            if path.is_relative_to(folder) and _stays(path, folder) and _is_model(path):
                return path
        return None

    # ------------------------------------------------------------ what was chosen

    def open(self, name: str, work: Work, *, fetch: bool = False) -> Loaded | Classifier:
        """A model by name, loaded once. fetch: also one that is not on this machine yet.

        Raises InputError for a name that may not be opened and for a model for which there is no room.
        """
        if name in self.given:
            return self.given[name]
        place = self.place(name)
        found = self._found(name)
        if found is not None:
            return found
        check_shown(name, place)
        if place is None:
            place = self._fetched(name, work) if fetch else _on_this_machine(name)
        with self._lock:
            loading = self._loading.setdefault(name, threading.Lock())
        with work.holding(loading):
            found = self._found(name)
            if found is None:
                work.report("load")
                with self._room_for(name, _need_bytes(place, self.dtype), work):
                    found = self._loaded(place, name)
                    with self._lock:
                        self._kept[name] = found
        return found

    def _found(self, name: str) -> Loaded | Classifier | None:
        """A model that is loaded, which now is the one chosen last."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    @contextlib.contextmanager
    def _room_for(self, name: str, need_bytes: int, work: Work) -> Iterator[None]:
        """Inside there is room for a model, beside those that are being loaded too: it waits for these where all of
        them together may not fit, since they end in memory that can be had again. Raises InputError as _check_fits."""
        while not self._claimed(name, need_bytes):
            work.check()
            time.sleep(WAIT_S)
        try:
            yield
        finally:
            with self._lock:
                del self._coming[name]

    def _claimed(self, name: str, need_bytes: int) -> bool:
        """Whether room was made for a model, and noted as its own."""
        with self._lock:
            if self._coming and not self._fits(need_bytes + sum(self._coming.values())):
                return False
            self._make_room(name, need_bytes)
            self._coming[name] = need_bytes
            return True

    def _fetched(self, name: str, work: Work) -> Path:
        """Where a model lies that was fetched, if there is room for it."""
        size = check_dtype(self.dtype).itemsize
        if name in catalogue.CATALOGUE:
            self._check_fits(name, catalogue.CATALOGUE[name].written)
            return pull(name, work.report)

        def room(stored: int, numbers: int | None) -> None:
            self._check_fits(name, stored if numbers is None else size * numbers)

        return from_hub(name, work.report, room)

    def _loaded(self, place: Path, name: str) -> Loaded | Classifier:
        found = load(place, device=self.device, dtype=self.dtype)
        found.name = name
        if found.reads == "sound":  # what its files did not tell
            raise _refused(name)
        model = found.model
        tell_blocks([model.encoder, model.decoder] if hasattr(model, "decoder") else [model])
        return found

    def _make_room(self, name: str, need_bytes: int) -> None:
        """Drop the models chosen longest ago until another fits beside the rest. Raises InputError as _check_fits."""
        self._check_fits(name, need_bytes)
        while self._kept and len(self._kept) + len(self._coming) >= MOST_MODELS:
            self._kept.popitem(last=False)
            self.dropped()
        free, need_bytes = machine.free_bytes(self.device), need_bytes + sum(self._coming.values())
        while free is not None and BESIDE * need_bytes > free and self._kept:
            _, dropped = self._kept.popitem(last=False)
            free += _bytes_of(dropped)
            self.dropped()

    def _check_fits(self, name: str, need_bytes: int) -> None:
        """Raise InputError, with the sizes, for a model that does not fit even alone."""
        if not self._fits(need_bytes):
            free = self._could_be_free() or 0
            raise InputError(
                f"{name} needs {machine.sized(BESIDE * need_bytes)} of memory and "
                f"{machine.sized(free)} are free; close other programs, or choose a smaller model"
            )

    def _fits(self, need_bytes: int) -> bool:
        """Whether so much fits once all models are dropped, as far as the system says."""
        free = self._could_be_free()
        return free is None or BESIDE * need_bytes <= free

    def _could_be_free(self) -> int | None:
        free = machine.free_bytes(self.device)
        return None if free is None else free + sum(map(_bytes_of, [*self._kept.values()]))

    def is_kept(self, model: Any) -> bool:
        """Whether this model still is loaded."""
        return any(one is model for one in [*self.given.values(), *self._kept.values()])


def _bytes_of(model: Loaded | Classifier) -> int:
    """The memory that a model's weights take."""
    return sum(p.nbytes for p in model.model.parameters())


def _on_this_machine(name: str) -> Path:
    """Where a model of the hub lies that was fetched before. Raises InputError, with the way to fetch it, for any
    other: a link that somebody opened fetches nothing."""
    if name in catalogue.CATALOGUE:
        raise InputError(f"{name} is not on this machine yet; fetch it first: glassformer pull {name}")
    place = hub.cached(name)
    if place is None or not _is_model(place):
        raise InputError(
            f"{name} is not on this machine yet; fetch it first: give this name in the list of models, or run "
            f"glassformer pull {name}"
        )
    return place


# ---------------------------------------------------------------- what lies in a folder


def _whole(path: Path | str) -> Path:
    """A path from the root on, without .. in it, and without a look at the disk, which would follow its links."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _below(folder: Path, deep: int) -> Iterator[Path]:
    """The models in a folder and in the folders below it."""
    if _is_model(folder):
        yield folder
        return
    if deep < 0 or not folder.is_dir() or folder.name.startswith("."):
        return
    inside: list[Path] = []
    with contextlib.suppress(OSError):  # a folder that this person may not read
        inside = sorted(folder.iterdir())
    for one in inside:
        if _stays(one, folder):
            yield from _below(one, deep - 1) if one.is_dir() else [one] if one.suffix == ".gguf" else []


def _stays(path: Path, folder: Path) -> bool:
    """Whether a path leads to something in the folder, through whatever links."""
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle, or to nothing
        return False


def _is_model(path: Path) -> bool:
    """Whether a path looks like a model that `load` reads; what is removed meanwhile does not."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            weights = (any(path.glob(one)) for one in ("*.safetensors", "pytorch_model*.bin"))
            return (path / "model.json").is_file() or ((path / "config.json").is_file() and any(weights))
        return path.is_file() and path.suffix in FILES
    return False


def _called(path: Path) -> str:
    """What a model at a path is called: as it would be named from the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _described(name: str, kind: str, path: Path) -> PageModel:
    """A model as the list has it; one whose settings cannot be read is listed too, and says why when it is opened."""
    about: dict[str, Any] = {}
    family, reads = "", "text" if path.suffix == ".gguf" else ""
    with contextlib.suppress(GlassformerError, OSError):
        if (path / "model.json").is_file():
            about = read_about(path)
        spec = _spec_of(path)
        if spec is not None:
            family, reads = _family(spec), _reads(spec)
    reads = "sound" if _sounds(name, path) else reads
    english = str(about.get("summary", ""))
    said = Said(english, str(about.get("summary_ko", english)))
    return PageModel(name, kind, said, _size(path), family, reads, SOUND if reads == "sound" else None)


def _spec_of(path: Path) -> AnySpec | None:
    """The spec of a model, as its settings tell it; None where only its weights do."""
    if (path / "model.json").is_file():
        return read_spec(path)
    folder = is_huggingface(path)
    return None if folder is None else published_spec(folder)


def _sounds(name: str, path: Path | None) -> bool:
    """Whether a model reads sound, as far as that can be told without loading it."""
    if path is None:
        return name in catalogue.CATALOGUE and _of_catalogue(name)[1] == "sound"
    with contextlib.suppress(GlassformerError, OSError, ValueError, AttributeError):
        if (path / "model.json").is_file():
            return _reads(read_spec(path)) == "sound"
        return json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type") == "whisper"
    return False


def check_shown(name: str, place: Path | None) -> None:
    """Raise UnsupportedError for a model of which its files, or the catalogue, tell that the page cannot show it."""
    if _sounds(name, place):
        raise _refused(name)


def _refused(name: str) -> UnsupportedError:
    """Why a model of sound is not opened."""
    return UnsupportedError(
        f"{name} reads sound, which the page does not show; choose a model of texts or images, or use it in the "
        "terminal (glassformer transcribe)"
    )


def _in_memory(name: str, model: Loaded | Classifier) -> PageModel:
    """A model that is there already, as the list has it. bytes: of its weights."""
    said = Said("the model that is in use here", "지금 쓰고 있는 모델")
    return PageModel(name, "run", said, _bytes_of(model), _family(model.spec), _reads(model.spec))


def _family(spec: AnySpec) -> str:
    """The tag of the first mixer: what kind of network it is."""
    stack = spec.decoder if isinstance(spec, EncoderDecoderSpec) else spec
    block = stack.blocks[0] if getattr(stack, "blocks", ()) else None
    mixer = getattr(block, "mixer", block)
    return "" if mixer is None else str(mixer.__struct_config__.tag)


def _reads(spec: AnySpec) -> str:
    if isinstance(spec, ImageModelSpec):
        return "image"
    if isinstance(spec, EncoderDecoderSpec):
        return "sound" if spec.encoder.reads_sound else "pair"
    return "text"


def _of_catalogue(name: str) -> tuple[str, str]:
    """(family, what it reads) of a model that is not here yet."""
    return "attention", "sound" if name.startswith("whisper") else "text"


def _size(path: Path) -> int:
    """The bytes of a model's files."""
    size = 0
    with contextlib.suppress(OSError):  # the folder is gone
        for one in [path] if path.is_file() else path.iterdir():
            with contextlib.suppress(OSError):  # or a file of it, as where a training writes one and renames it
                size += one.stat().st_size if one.is_file() else 0
    return size


def _need_bytes(place: Path, dtype: str) -> int:
    """The memory that a model's weights take once they are loaded; 0 where nothing can be read, and `load` says why."""
    if (place / "model.json").is_file():
        counts = [p.numel() for p in without_memory(read_spec(place)).parameters()]
    else:
        read = reader_of(place)
        found = None if read is None else read()
        stored = getattr(found, "weights", {}) or getattr(found, "tensors", {})
        counts = [math.prod(one.shape) for one in getattr(stored, "stored", stored).values()]
    return check_dtype(dtype).itemsize * sum(counts)
