"""The tokenizer in a folder as models are published: from a tokenizer.json, or from what came before those (GPT-2's
vocab and merges, BERT's list of words, SentencePiece models), with the settings that stand beside them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from ..errors import CheckpointError, UnsupportedError
from ..files import read_object
from .ids import begin_and_ends
from .layouts import LAYOUTS
from .marian import marian_files, pieces_of
from .panics import told
from .plain import add_tokens
from .published import ROLES, Published, Settings, read_library
from .sentencepiece import Rules, read_pieces

Config = Mapping[str, Any]

# The pattern by which Qwen's tokenizers cut a text into words.
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "encoder.json", *_MODELS, "source.spm")  # any: a tokenizer
_KINDS = {
    "gpt2": "GPT2", "roberta": "Roberta", "bart": "Bart", "qwen2": "Qwen2", "qwen3": "Qwen2", "whisper": "Whisper",
    "bert": "Bert", "distilbert": "DistilBert", "llama": "Llama", "mistral": "Llama", "gemma": "Gemma",
    "gemma2": "Gemma", "gemma3": "Gemma", "gemma3_text": "Gemma", "t5": "T5", "mt5": "T5", "umt5": "T5",
    "xlm-roberta": "XLMRoberta", "mbart": "MBart", "marian": "Marian",
}  # fmt: skip


def read_tokenizer(folder: Path | str, config: Config | None = None) -> Published:
    """The tokenizer of a published model, of an encoder-decoder's target. config: the content of config.json, read from
    the folder where it is not given.

    Raises CheckpointError for missing or broken files, UnsupportedError for a kind of tokenizer that is not read.
    """
    return read_tokenizers(folder, config)[0]


def read_tokenizers(folder: Path | str, config: Config | None = None) -> tuple[Published, Published | None]:
    """The same, and the tokenizer of the source where that is another (Marian's), else None."""
    folder = Path(folder)
    given = Given(folder, read_object(folder / "config.json") if config is None else config)
    with told(lambda why: CheckpointError(f"{folder}: the tokenizer's files are broken ({why}); fetch them again")):
        return _read(given)


def _read(given: Given) -> tuple[Published, Published | None]:
    folder = given.folder
    if (folder / "tokenizer.json").is_file():
        library = read_library(folder / "tokenizer.json")
        given.add_missing(library)
        given.add_ends(library)
        return Published(library, given.settings(library)), None
    files = marian_files(folder)
    if files:
        source, target = (_marian(given, side) for side in ("source", "target"))
        target.files = files
        return target, source
    for names in _WORDS:
        if all((folder / name).is_file() for name in names):
            return _made(given, _byte_level(given, *(folder / name for name in names))), None
    if (folder / "vocab.txt").is_file():
        return _made(given, _wordpiece(given, folder / "vocab.txt")), None
    for name in _MODELS:
        if (folder / name).is_file():
            return _of_pieces(given, folder / name), None
    raise CheckpointError(
        f"{folder} holds no tokenizer: no tokenizer.json, vocab.json with merges.txt, vocab.txt or SentencePiece model"
    )


def tokenizer_file(place: Path, name: str = FILES[0]) -> Path:
    """The file of a model's tokenizer, for messages; the place itself where no file in it tells."""
    return next((place / one for one in (name, *FILES) if (place / one).is_file()), place)


def lacking(place: Path | None, about: Mapping[str, Any]) -> str:
    """That a model has no tokenizer, and the file that it lacks: the beginning of a message. place: where it lies."""
    if place is None or not place.is_dir():
        return "this model has no tokenizer"
    if (place / "model.json").is_file():
        return f"{place} has no tokenizer.json"
    if about.get("format") == "CTranslate2":
        return f"{place} has no SentencePiece model (sentencepiece.bpe.model, or source.spm and target.spm)"
    return (
        f"{place} has no tokenizer.json, nor what may stand in its place (vocab.json with merges.txt, vocab.txt, or a "
        "SentencePiece model such as tokenizer.model)"
    )


class Given:
    """What the files of a folder say about its tokenizer."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.own = read_object(folder / "tokenizer_config.json")
        self.map = read_object(folder / "special_tokens_map.json")
        self.generation = read_object(folder / "generation_config.json")

    @property
    def kind(self) -> str:
        """The name of its class in transformers, without "Tokenizer" and "Fast"; empty where nothing names one."""
        named = re.sub(r"Tokenizer(Fast)?$", "", str(self.own.get("tokenizer_class") or ""))
        family = str(self.config.get("model_type") or "")
        return named if named not in ("", "PreTrained", "Auto", "TokenizersBackend") else _KINDS.get(family, family)

    def names(self) -> dict[str, str]:
        """The special tokens by role."""
        found = {}
        for role in ROLES:
            for source in (self.map, self.own):
                value = source.get(f"{role}_token")
                value = value.get("content") if isinstance(value, dict) else value
                if isinstance(value, str):
                    found[role] = value
        return found

    def add_missing(self, library: Library) -> None:
        """Add the tokens that stand beside the tokenizer.json only, where they get the ids that are written there."""
        listed = self.own.get("added_tokens_decoder") or {}
        wanted = {}
        for id, one in listed.items() if isinstance(listed, dict) else ():
            flags = {name: bool(one.get(name)) for name in ("lstrip", "rstrip", "single_word", "normalized", "special")}
            wanted[int(id)] = AddedToken(one["content"], **flags)
        for text, id in read_object(self.folder / "added_tokens.json").items():
            special = text in self.names().values() or text in self._additional()
            wanted.setdefault(operator.index(id), AddedToken(text, special=special, normalized=not special))
        known, size = library.get_added_tokens_decoder(), library.get_vocab_size(with_added_tokens=True)
        fresh = []
        for id, token in sorted(wanted.items()):
            held_id = library.token_to_id(token.content)
            if (id in known and known[id].content == token.content) or held_id not in (None, id):
                continue
            if held_id is None and id != size:
                continue
            size += held_id is None
            fresh.append(token)
        add_tokens(library, fresh)
        held = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
        marks = sorted({*self.names().values(), *self._additional()} - held)
        known = [
            AddedToken(one, special=True, normalized=False) for one in marks if library.token_to_id(one) is not None
        ]
        library.add_special_tokens(known)

    def _additional(self) -> list[str]:
        lists = [self.own.get("extra_special_tokens")]
        lists += [source.get("additional_special_tokens") for source in (self.own, self.map)]
        several = [one for some in lists for one in (some.values() if isinstance(some, dict) else some or [])]
        return [one["content"] if isinstance(one, dict) else str(one) for one in several]

    def add_ends(self, library: Library) -> None:
        """Where the settings say so, put the tokens that begin and end a text (or none of them) around every text."""
        begins, ends = (self.own.get(f"add_{role}_token") for role in ("bos", "eos"))
        if begins is None and ends is None:
            return
        names = self.names()
        around(library, [names.get("bos")] if begins else [], [names.get("eos")] if ends else [])

    def settings(self, library: Library, rules: Rules | None = None) -> Settings:
        """The settings of the tokenizer."""
        names = {role: text for role, text in self.names().items() if library.token_to_id(text) is not None}
        begin, ends = begin_and_ends(self.config, self.generation)
        longest = self.own.get("model_max_length")
        longest = int(longest) if isinstance(longest, int | float) and 0 < longest < 1 << 31 else None
        side = "left" if self.own.get("padding_side") == "left" else "right"
        return Settings(names, tuple(ends), tuple(begin), longest, side, self._template(), rules)

    def _template(self) -> str | None:
        """The template of a conversation; of several the one named default."""
        path = self.folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        found = self.own.get("chat_template")
        if found is None:
            found = read_object(self.folder / "chat_template.json").get("chat_template")
        if isinstance(found, list):
            found = next((one.get("template") for one in found if one.get("name") == "default"), None)
        return found if isinstance(found, str) else None


def around(
    library: Library, before: Sequence[str | None], behind: Sequence[str | None], second: Sequence[str] = ()
) -> None:
    """Put special tokens before and behind every text. second: what follows the first text of a pair; left out: the
    second one as it is alone. Raises CheckpointError for a token that the vocabulary lacks."""
    marks = [*before, *behind]
    ids = {mark: None if mark is None else library.token_to_id(mark) for mark in marks}
    for mark, id in ids.items():
        if id is None:
            raise CheckpointError(f"the special token {mark!r} is not in the tokenizer's vocabulary")
    inner = [*before, "$A", *behind]
    second = second or [f"{one}:1" for one in (*before, "$B", *behind)]
    library.post_processor = processors.TemplateProcessing(
        single=inner, pair=[*inner, *second], special_tokens=list(ids.items())
    )


def _made(given: Given, library: Library) -> Published:
    """A tokenizer that has no tokenizer.json: its special tokens are known by their names."""
    given.add_missing(library)
    if given.kind not in ("Roberta", "Bart"):
        given.add_ends(library)
    return Published(library, given.settings(library))


def _byte_level(given: Given, vocab: Path, merges: Path) -> Library:
    """GPT-2's two files, the pairs of bytes that are merged in the order of the second."""
    ids = read_object(vocab)
    with told(lambda why: CheckpointError(f"{merges} is broken or truncated ({why}); restore it from a copy")):
        lines = merges.read_text(encoding="utf-8").split("\n")
        pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        library = Library(models.BPE(ids, pairs))
    library.decoder = decoders.ByteLevel()
    blank = bool(given.own.get("add_prefix_space", False))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=blank)
    names = {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}
    if given.kind in ("Roberta", "Bart"):
        names = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>"}
        _special(given, library, names | {"mask": "<mask>"})
        first, last = (given.names().get(role, names[role]) for role in ("cls", "sep"))
        pairs = [(one, library.token_to_id(one)) for one in (last, first)]
        library.post_processor = processors.RobertaProcessing(*pairs, add_prefix_space=blank)
        return library
    if given.kind == "Qwen2":
        library.normalizer = normalizers.NFC()
        cut = pre_tokenizers.Split(Regex(QWEN), "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(False, use_regex=False)])
        names = {"eos": "<|endoftext|>"}
    elif given.kind not in ("GPT2", "Whisper", ""):
        raise UnsupportedError(_unread(given, vocab))
    _special(given, library, names)
    if given.kind == "Whisper":
        around(library, ["<|startoftranscript|>", "<|notimestamps|>"], ["<|endoftext|>"])
    return library


def _unread(given: Given, path: Path) -> str:
    return f"{path}: a tokenizer of class {given.kind or 'that is not named'} is read from a tokenizer.json only"


def _special(given: Given, library: Library, names: dict[str, str]) -> None:
    """Make the class's special tokens special, where the folder names no others, and only those that exist."""
    for role, text in names.items():
        if given.names().get(role) is None and library.token_to_id(text) is not None:
            given.own[f"{role}_token"] = text
    given.add_missing(library)


def _wordpiece(given: Given, path: Path) -> Library:
    """BERT's list of words and of ends of words, one a line."""
    if given.kind not in ("Bert", "DistilBert", ""):
        raise UnsupportedError(_unread(given, path))
    words = path.read_text(encoding="utf-8").split("\n")
    ids = {word.rstrip("\r"): id for id, word in enumerate(words) if word or id < len(words) - 1}
    library = Library(models.WordPiece(ids, unk_token=given.names().get("unk", "[UNK]"), max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(given.own.get("tokenize_chinese_chars", True)),
        strip_accents=given.own.get("strip_accents"),
        lowercase=bool(given.own.get("do_lower_case", True)),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    _special(given, library, {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"})
    names = given.names()
    around(library, [names.get("cls")], [names.get("sep")], ["$B:1", f"{names.get('sep')}:1"])
    return library


def _of_pieces(given: Given, path: Path) -> Published:
    """A SentencePiece model under the ids, and with the special tokens, of the class that the folder names."""
    read, layout = read_pieces(path), LAYOUTS.get(given.kind)
    if layout is None:
        raise UnsupportedError(_unread(given, path))
    pieces = layout.arranged(read, given.own)
    library = pieces.library()
    _special(given, library, layout.names)
    names, own = given.names(), given.own
    begins, ends = (own.get(f"add_{role}_token", role in layout.optional) for role in ("bos", "eos"))
    source = str(own.get("src_lang") or "en_XX")
    marks = {"bos": names.get("bos"), "eos": names.get("eos"), "source": source}
    before, behind = ([marks[one] for one in side] for side in (layout.before, layout.behind))
    if layout.optional:
        before, behind = [marks["bos"]] if begins else [], [marks["eos"]] if ends else []
    twice = [*behind, "$B", *behind] if given.kind == "XLMRoberta" else []
    around(library, before, behind, twice)
    return Published(library, given.settings(library, pieces.rules))


def _marian(given: Given, side: str) -> Published:
    """One side of a Marian model: its own SentencePiece model, and its list of ids, which the other may share."""
    listed = pieces_of(given.folder, side)
    pieces = read_pieces(given.folder / f"{side}.spm").listed(listed)
    library = pieces.library()
    _special(given, library, {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"})
    around(library, [], [given.names().get("eos")])
    return Published(library, replace(given.settings(library, pieces.rules), size=len(listed)))
