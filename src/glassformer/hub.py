"""Models by their id on the Hugging Face hub, "organisation/model" or with "@revision": the files that are read, and no
others, into the hub's own cache, where other programs find them too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import GlassformerError, InputError
from .files import read_object

Report = Callable[[str, int, int], None]
Accept = Callable[[dict[str, Any], dict[str, Any]], object]
Room = Callable[[int, int | None], object]
SETTINGS = ("config.json", "generation_config.json")
ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
WEIGHTS = (("safetensors", r"model(-\d+-of-\d+)?\.safetensors"), ("bin", r"pytorch_model(-\d+-of-\d+)?\.bin"))
# In the cache the library counts what was left out as missing, unless it is told what to look for.
HERE: dict[str, Any] = {"local_files_only": True, "allow_patterns": ["config.json"]}
BESIDE = frozenset(
    (
        *(*SETTINGS, "preprocessor_config.json", "processor_config.json", "modules.json"),
        *("sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
        *("chat_template.jinja", "chat_template.json", "vocab.json", "merges.txt", "vocab.txt", "encoder.json"),
        *("vocab.bpe", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm"),
        *("target.spm", "target_vocab.json", "normalizer.json"),
    )
)


def _nothing(*given: Any) -> None:
    """Accept any model."""


def is_id(name: str) -> bool:
    """Whether a name has the form of a model's id."""
    return ID.fullmatch(name) is not None


def cached(name: str) -> Path | None:
    """The folder in the hub's cache of a model that was fetched before, of which nobody is asked; None where there is
    none."""
    from huggingface_hub import snapshot_download

    id, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(id, revision=revision or None, **HERE))
    except Exception:  # of the library or of the disk: it is not there
        return None


def fetched(name: str, report: Report | None = None, accept: Accept = _nothing, room: Room = _nothing) -> Path:
    """The folder in the hub's cache with the files of a model, fetched where they are not there. report: told what is
    being fetched, and how much of it, in bytes. accept: given what SETTINGS hold before anything else is fetched; it
    raises where the model is not to be had. room: given the bytes of the weights and how many numbers they are (None:
    not known) before they are fetched; it raises where there is no room for them.

    Without a network, and with HF_HUB_OFFLINE=1 at once, what is in the cache is taken. Raises InputError for an id or
    a revision that the hub does not have, or not for this person, where it cannot be reached, and, with the sizes,
    where the disk has no room.
    """
    id, _, revision = name.partition("@")
    try:
        return Path(_fetch(id, revision or None, report, accept, room))
    except GlassformerError:
        raise
    except Exception as error:  # of the library, of what it fetches with, or of the disk: all are told as mistakes
        raise InputError(_told(name, error)) from None


def _fetch(id: str, revision: str | None, report: Report | None, accept: Accept, room: Room) -> str:
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return snapshot_download(id, revision=revision, **HERE)
    try:
        found = HfApi(library_name="glassformer").model_info(id, revision=revision, timeout=20, files_metadata=True)
    except HfHubHTTPError:
        raise
    except Exception as error:  # no network: what is here already will do
        try:
            return snapshot_download(id, revision=revision, **HERE)
        except Exception:
            raise error from None
    names = wanted([one.rfilename for one in found.siblings or ()], id)
    settings = {one: Path(hf_hub_download(id, one, revision=revision)) for one in SETTINGS if one in names}
    accept(*(read_object(settings[one]) if one in settings else {} for one in SETTINGS))
    sizes = {one.rfilename: one.size or 0 for one in found.siblings or () if one.rfilename in names}
    known = found.safetensors.total if found.safetensors is not None else None
    room(sum(size for one, size in sizes.items() if one.endswith((".safetensors", ".bin"))), known)
    _check_disk(id, sum(size for one, size in sizes.items() if not _is_here(id, one, found.sha)))
    return snapshot_download(
        id, revision=revision, allow_patterns=names, tqdm_class=_bars(id, report), library_name="glassformer"
    )


def _is_here(id: str, file: str, revision: str | None) -> bool:
    """Whether a file of that revision is in the cache."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(id, file, revision=revision), str)


def _check_disk(id: str, need: int) -> None:
    """Raise InputError where the disk of the cache has no room for so many bytes."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    free = shutil.disk_usage(next(one for one in (cache, *cache.absolute().parents) if one.is_dir())).free
    if need > free:
        raise InputError(
            f"{id}: fetching it needs {need / 1e9:.1f} GB on the disk of {cache}, and {free / 1e9:.1f} GB are free; "
            "free some space, or set HF_HOME to another disk"
        )


def wanted(names: Sequence[str], id: str) -> list[str]:
    """The files that are read: settings, tokenizer, and the weights in one form. Raises InputError where there is no
    model in a form that is read."""
    for ending, pattern in WEIGHTS:
        weights = [one for one in names if re.fullmatch(pattern, one) or re.fullmatch(rf".*{ending}\.index\.json", one)]
        if "config.json" in names and any(one.endswith(ending) for one in weights):
            return sorted({*weights, *BESIDE.intersection(names)})
    packed = any(one.endswith(".gguf") for one in names)
    hint = "download one of its .gguf files and give that" if packed else "name another"
    raise InputError(f"{id}: it holds no config.json with model.safetensors or pytorch_model.bin; {hint}")


def _bars(id: str, report: Report | None) -> type[Any]:
    """What the library tells its progress to: nobody, or `report`. Of its bars that count bytes the first is heard."""
    from tqdm.auto import tqdm

    heard: list[Any] = []

    class Told(tqdm):
        """A bar that is not drawn here."""

        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings | {"disable": True})
            self.done, self.total = settings.get("initial") or 0, settings.get("total") or 0
            if settings.get("unit") == "B" and not heard:
                heard.append(self)

        def update(self, n: float | None = 1) -> bool | None:
            """Tell how far it is."""
            self.done += int(n or 0)
            if report is not None and heard and heard[0] is self:
                report(id, self.done, int(self.total or 0))
            return None

    return Told


def _told(name: str, error: Exception) -> str:
    """Why a model could not be fetched, and what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        why = "its owner shares it only on request; accept the terms on its page, then log in (hf auth login)"
    elif isinstance(error, errors.RevisionNotFoundError):
        why = "the hub has no such revision of it; look at the branches and tags on its page"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = "the hub has no such model, or a private one; check the name, or log in (hf auth login)"
    elif isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        why = "it is not in the cache, and the hub may not be asked; unset HF_HUB_OFFLINE"
    elif isinstance(error, OSError) and getattr(error, "errno", None) and error.strerror:
        why = f"its files cannot be written ({error.strerror}); free some space, or set HF_HOME to another disk"
    else:
        shown = " ".join(str(error).split())[:200] or type(error).__name__
        why = f"the hub cannot be reached ({shown}); check the network and HF_ENDPOINT, and try again"
    return f"{name}: {why}"
