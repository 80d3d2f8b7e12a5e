"""Text from files, streamed: a corpus larger than memory is read piece by piece, and not a character of it changes.

A source is a file, or a folder whose text files (see SUFFIXES) are read in the order of their names. A piece ends,
where it can, after a line whose successor begins with something visible. The splitting rule of the tokenizers never
reaches across such a place, so tokens of the pieces are the tokens of the whole text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, nearest
from ..files import given_path

SUFFIXES = (".txt", ".text", ".md", ".markdown", ".rst", ".csv", ".tsv", ".tokens")
_READ_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 16


def text_files(source: Path | str) -> list[Path]:
    """The files that `source` (a file, or a folder searched with its subfolders) consists of, sorted by path.

    A single file may have any suffix; in a folder only SUFFIXES count, and names that begin with a dot do not.
    Raises InputError for a path that does not exist and for a folder without text files.
    """
    source = given_path(source)
    if source.is_file():
        return [source]
    if not source.exists():
        raise InputError(_missing(source))
    if not source.is_dir():
        raise InputError(f"{source}: neither a file nor a folder; give a text file or a folder of them")
    found = [
        path
        for path in source.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(source).parts)
    ]
    if not found:
        raise InputError(f"{source}: no text files in this folder; a text file ends in {', '.join(SUFFIXES)}")
    return sorted(found, key=lambda path: path.relative_to(source).parts)


def documents(source: Path | str, block: int = 1 << 16, most: int | None = None) -> Iterator[str]:
    """The text of `source` in pieces of about `block` characters; for one file, joined, they are its exact text.

    most: the first so many characters of all files only; None: everything.
    Raises InputError as `text_files` and `pieces` do, and where all files together hold no text.
    """
    assert block > 0
    done = 0
    for path in text_files(source):
        for piece in pieces(path, block):
            if most is not None and done + len(piece) >= most:
                yield piece[: most - done]
                return
            done += len(piece)
            yield piece
    if not done:
        raise InputError(f"{source}: empty; there is no text in it")


def training_part(characters: int, share: float) -> int:
    """How many of so many characters, from the first, are trained on where a `share` at the end is held out."""
    return int((1 - share) * characters) if share else characters


def pieces(path: Path, block: int = 1 << 16) -> Iterator[str]:
    """One file in pieces of at most `block` characters. Line ends stay as they are; only a UTF-8 BOM is left out.

    Raises InputError for a file that cannot be read or is not UTF-8, with the byte's offset and the way out.
    """
    held: list[str] = []
    held_chars = 0
    for text in _decoded(path):
        held.append(text)
        held_chars += len(text)
        if held_chars <= block:
            continue
        rest, start = "".join(held), 0
        while len(rest) - start > block:  # one character more than a block, so that what follows the cut is known
            end = _cut(rest, start, start + block)
            yield rest[start:end]
            start = end
        held, held_chars = [rest[start:]], len(rest) - start
    if held_chars:
        yield "".join(held)


def _cut(text: str, start: int, end: int) -> int:
    """The best place in (start, end] to cut: between lines, else before a space, else between any two characters."""
    place = text.rfind("\n", start, end)
    last_line = place
    while place >= 0 and text[place + 1].isspace():
        place = text.rfind("\n", start, place)
    if place < 0:
        place = last_line
    if place >= 0:
        return place + 1
    place = text.rfind(" ", start + 1, end)
    while place > 0 and text[place - 1].isspace():
        place = text.rfind(" ", start + 1, place)
    return place if place > start else end


def _decoded(path: Path) -> Iterator[str]:
    """The decoded text of one file, block of bytes by block of bytes."""
    try:
        with path.open("rb") as file:
            done = 0  # bytes of the file that precede `waiting`
            waiting = b""
            while True:
                read = file.read(_READ_BYTES)
                if done == 0 and not waiting and read.startswith(codecs.BOM_UTF8):
                    done, read = 3, read[3:]
                data = waiting + read
                try:
                    text, used = codecs.utf_8_decode(data, "strict", not read)
                except UnicodeDecodeError as error:
                    raise InputError(_not_utf8(path, done + error.start)) from None
                if text:
                    yield text
                done, waiting = done + used, data[used:]
                if not read:
                    return
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _not_utf8(path: Path, offset: int) -> str:
    """What a file that is not UTF-8 probably is, and how to convert it."""
    start = f"{path}: not UTF-8 (first wrong byte at offset {offset})"
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(max(0, offset - 64))
        sample = file.read(_SAMPLE_BYTES)
    convert = "convert it with `iconv -f {} -t utf-8 " + path.name + " > utf8.txt`"
    if head in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        return f"{start}; it begins with the mark of UTF-32: {convert.format('utf-32')}"
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return f"{start}; it begins with the mark of UTF-16: {convert.format('utf-16')}"
    if b"\0" in sample:
        return f"{start}; it holds zero bytes, so it is probably not a text file; give a text file saved as UTF-8"
    if _hangul_share(sample) > 0.5:
        return f"{start}; it reads as Korean in CP949 (EUC-KR): {convert.format('cp949')}"
    return f"{start}; save it as UTF-8, or {convert.format('ENCODING')} with the encoding it was written in"


def _hangul_share(sample: bytes) -> float:
    """How much of what is not ASCII in the sample is Hangul when read as CP949; 0 where it cannot be read so."""
    share = 0.0
    for skip in (0, 1):  # the sample may begin in the middle of a two-byte character
        try:
            text = codecs.getincrementaldecoder("cp949")("strict").decode(sample[skip:])
        except UnicodeDecodeError:
            continue
        foreign = [c for c in text if c > "\x7f"]
        if foreign:
            share = max(share, sum("가" <= c <= "힣" for c in foreign) / len(foreign))
    return share


def _missing(source: Path) -> str:
    """The message for a path that does not exist, with the names nearest to it in the deepest folder that does."""
    folder = source.parent
    wanted = source.name
    while not folder.is_dir() and folder != folder.parent:
        folder, wanted = folder.parent, folder.name
    try:
        names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        names = []
    hint = f"; in {folder}: {nearest(wanted, names)}" if names else f"; the folder {folder} is empty"
    return f"{source}: there is no such file or folder{hint}"
