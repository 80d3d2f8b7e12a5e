"""Models by their id on the Hugging Face hub, "organisation/model" or with "@revision": the files that are read, and no
others, into the hub's own cache, where other programs find them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import GlassformerError, InputError
from .files import read_object

Report = Callable[[str, int, int], None]
Accept = Callable[[dict[str, Any], dict[str, Any]], object]
SETTINGS = ("config.json", "generation_config.json")
ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
WEIGHTS = (("safetensors", r"model(-\d+-of-\d+)?\.safetensors"), ("bin", r"pytorch_model(-\d+-of-\d+)?\.bin"))
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


def _nothing(config: Any, said: Any) -> None:
    """Accept any model."""


def is_id(name: str) -> bool:
    """Whether a name has the form of a model's id."""
    return ID.fullmatch(name) is not None


def fetched(name: str, report: Report | None = None, accept: Accept = _nothing) -> Path:
    """The folder in the hub's cache with the files of a model, fetched where they are not there. report: told what is
    being fetched, and how much of it, in bytes. accept: given what SETTINGS hold before anything else is fetched; it
    raises where the model is not to be had.

    Without a network, and with HF_HUB_OFFLINE=1 at once, what is in the cache is taken. Raises InputError for an id or
    a revision that the hub does not have, or not for this person, and where it cannot be reached.
    """
    id, _, revision = name.partition("@")
    try:
        return Path(_fetch(id, revision or None, report, accept))
    except GlassformerError:
        raise
    except Exception as error:  # of the library, of what it fetches with, or of the disk: all are told as mistakes
        raise InputError(_told(name, error)) from None


def _fetch(id: str, revision: str | None, report: Report | None, accept: Accept) -> str:
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # In the cache the library counts what was left out as missing, unless it is told what to look for.
    here = {"revision": revision, "local_files_only": True, "allow_patterns": ["config.json"]}
    if constants.HF_HUB_OFFLINE:
        return snapshot_download(id, **here)
    try:
        found = HfApi(library_name="glassformer").model_info(id, revision=revision, timeout=20)
    except HfHubHTTPError:
        raise
    except Exception as error:  # no network: what is here already will do
        try:
            return snapshot_download(id, **here)
        except Exception:
            raise error from None
    names = wanted([one.rfilename for one in found.siblings or ()], id)
    settings = {one: Path(hf_hub_download(id, one, revision=revision)) for one in SETTINGS if one in names}
    accept(*(read_object(settings[one]) if one in settings else {} for one in SETTINGS))
    return snapshot_download(
        id, revision=revision, allow_patterns=names, tqdm_class=_bars(id, report), library_name="glassformer"
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
