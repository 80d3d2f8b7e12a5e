"""The tokenizer in a GGUF file's metadata: byte-level BPE with the name of its pre-tokenizer, or SentencePiece pieces
with their scores.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from ..data.folder import QWEN, around
from ..data.panics import told
from ..data.published import Published, Settings
from ..data.sentencepiece import CONTROL, UNKNOWN, USER, Pieces, Rules
from ..errors import CheckpointError, UnsupportedError
from .gguf import GGUF

# What cuts a text before its bytes are merged: GPT-2's pattern; that after every digit was set apart; those of Llama 3
# and Qwen 2, which keep three digits or one together.
_GPT2 = ("gpt-2", "gpt2", "olmo", "mpt", "phi-2", "gpt-neox", "jina-v2-en", "roberta-bpe")
_DIGITS = ("smollm", "starcoder", "refact", "codeshell")
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_QWEN2 = ("qwen2", "deepseek-r1-qwen")
_ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "seperator": "sep", "padding": "pad", "mask": "mask"}
_ENDS = ("eos", "eot", "eom")


def read_tokenizer(file: GGUF) -> Published:
    """The tokenizer of a file.

    Raises UnsupportedError for a kind or a pre-tokenizer that is not known, CheckpointError for lists that do not fit
    each other.
    """
    said = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in file.metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    pieces, kind = said.get("tokens"), said.get("model")
    kinds = said.get("token_type") or [1] * len(pieces or ())
    if not isinstance(pieces, list) or not pieces or len(kinds) != len(pieces) or len(set(pieces)) != len(pieces):
        raise CheckpointError(f"{file.path}: its tokenizer's lists do not fit each other; fetch it again")
    if kind == "gpt2":
        library, rules = _byte_level(file, said, pieces, kinds), None
    elif kind == "llama":
        library, rules = _sentencepiece(file, said, pieces, kinds)
    else:
        raise UnsupportedError(f"{file.path}: a tokenizer of the kind {kind!r} is not read; there are gpt2 and llama")
    names = {role: _piece(file, said, f"{key}_token_id", pieces) for key, role in _ROLES.items()}
    names = {role: text for role, text in names.items() if text is not None}
    begins = said.get("add_bos_token", kind == "llama" or said.get("pre") in _LLAMA3)
    ends = said.get("add_eos_token", False)
    around(
        library,
        [names["bos"]] if begins and "bos" in names else [],
        [names["eos"]] if ends and "eos" in names else [],
    )
    for one in _ENDS:
        _piece(file, said, f"{one}_token_id", pieces)
    stops = {said[f"{one}_token_id"] for one in _ENDS if said.get(f"{one}_token_id") is not None}
    template = file.metadata.get("tokenizer.chat_template")
    longest = file.metadata.get(f"{file.metadata.get('general.architecture')}.context_length")
    known = {"longest": longest, "template": template, "rules": rules, "size": len(pieces)}
    return Published(library, Settings(names, tuple(sorted(stops)), **known))


def _piece(file: GGUF, said: dict[str, Any], key: str, pieces: list[str]) -> str | None:
    """The special token that an entry names by its number."""
    number = said.get(key)
    if number is None:
        return None
    if not isinstance(number, int) or not 0 <= number < len(pieces):
        raise CheckpointError(f"{file.path}: {key} is {number!r}, and there are {len(pieces)} tokens; fetch it again")
    return pieces[number]


def _byte_level(file: GGUF, said: dict[str, Any], pieces: list[str], kinds: list[int]) -> Library:
    """Bytes merged in the order of a list of pairs."""
    pre = said.get("pre", "gpt-2" if file.metadata.get("general.architecture") in ("gpt2", "gptneox") else None)
    merges = [tuple(one.split(" ", 1)) for one in said.get("merges") or ()]
    ids = {piece: id for id, piece in enumerate(pieces)}
    with told(lambda why: CheckpointError(f"{file.path}: its tokenizer is broken ({why}); fetch it again")):
        library = Library(models.BPE(ids, merges, ignore_merges=pre in _LLAMA3))
    library.pre_tokenizer = _cut(file, pre)
    library.normalizer = normalizers.NFC() if pre in _QWEN2 else None
    library.decoder = decoders.ByteLevel()
    _add(library, pieces, kinds)
    return library


def _cut(file: GGUF, pre: str | None) -> pre_tokenizers.PreTokenizer:
    """What a text is cut by before bytes are merged."""
    if pre in _GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in _DIGITS:
        cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        return pre_tokenizers.Sequence(cuts)
    if pre in _LLAMA3 or pre in _QWEN2:
        pattern = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|") if pre in _LLAMA3 else QWEN
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        return pre_tokenizers.Sequence(cuts)
    known = ", ".join((*_GPT2, *_DIGITS, *_LLAMA3, *_QWEN2))
    raise UnsupportedError(f"{file.path}: the pre-tokenizer {pre!r} is not known; known are {known}")


def _sentencepiece(file: GGUF, said: dict[str, Any], pieces: list[str], kinds: list[int]) -> tuple[Library, Rules]:
    """Pieces merged in the order of their scores."""
    scores = said.get("scores")
    if not isinstance(scores, list) or len(scores) != len(pieces):
        raise CheckpointError(f"{file.path}: its tokenizer's lists do not fit each other; fetch it again")
    whole = tuple(piece for piece, kind in zip(pieces, kinds, strict=True) if kind == USER)
    prefix, collapsed = said.get("add_space_prefix", True), said.get("remove_extra_whitespaces", False)
    rules = Rules(prefix=bool(prefix), collapsed=bool(collapsed), whole=whole)
    held = Pieces(tuple(zip(pieces, scores, kinds, strict=True)), bpe=True, byte_fallback=True, rules=rules)
    return held.library(), rules


def _add(library: Library, pieces: list[str], kinds: list[int]) -> None:
    """Make special what is so, in the order of the ids."""
    for piece, kind in zip(pieces, kinds, strict=True):
        if kind in (CONTROL, UNKNOWN):
            library.add_special_tokens([AddedToken(piece, special=True, normalized=False)])
        elif kind == USER:
            library.add_tokens([AddedToken(piece, special=False, normalized=False)])
