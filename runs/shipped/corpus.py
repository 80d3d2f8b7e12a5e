"""Build the text of the shipped model: training text, held-out text, and a record of what was kept and dropped.

    python runs/shipped/corpus.py --data $GLASSFORMER_DATA --out out/shipped

Writes, the same byte for byte at every run:
    train/            the training text, a file a document, in random order, so that the end-of-document token stands
                      between two; small English sources occur several times (a repeated document is trained on more
                      often; English would drown otherwise)
    held_ko/, held_en/                   documents never trained on, per language, a file a document
    held_ko.txt, held_en.txt, held.txt   the same as texts
    corpus.json       counts, bytes, licences, what was filtered
"""

import argparse
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

from sources import SOURCES, Document

MARK = "corpus.json"  # where it lies, this program may write anew


def order(key: str, salt: str) -> float:
    """A number in [0, 1) that depends on nothing but the key, so that no run, machine or neighbour changes it."""
    return int.from_bytes(hashlib.blake2b(f"{salt}:{key}".encode(), digest_size=8).digest(), "big") / 2**64


def size(document: Document) -> int:
    """UTF-8 bytes of the document as it is written, with the empty line after it."""
    return len("\n".join(document.lines).encode()) + 2


def read_all(data: Path, dropped: Counter) -> dict[str, list[Document]]:
    """Every source's documents."""
    return {s.name: [document for document in s.read(data, dropped) if any(document.lines)] for s in SOURCES}


def without_training_lines(held: list[Document], train: list[Document], dropped: Counter) -> list[Document]:
    """The held-out documents without lines that the training text holds, whatever their source.

    A short line ("JULIET:") may occur on both sides: it is form, not content, and a play cannot be read without it.
    """
    known = {_bare(line) for document in train for line in document.lines}
    result = []
    for document in held:
        form = 12 if document.language == "en" else 0
        lines = [line for line in document.lines if len(_bare(line)) <= form or _bare(line) not in known]
        dropped["held-out line also in the training text"] += len(document.lines) - len(lines)
        if any(lines):
            result.append(document._replace(lines=lines))
    return result


def _bare(line: str) -> str:
    """Letters and digits only, lower case: what makes two lines the same."""
    return re.sub(r"[\W_]+", "", line).lower()


def text_of(documents: list[Document]) -> str:
    """Documents with an empty line between two and a line end at the end."""
    return "\n\n".join("\n".join(document.lines).strip("\n") for document in documents) + "\n"


def repeated(train: dict[str, list[Document]]) -> list[Document]:
    """The training documents in random order, each English one as often as its source says, far apart."""
    copies = []
    for source in SOURCES:
        for document in train[source.name]:
            times = source.english_repeats if document.language == "en" else 1
            copies += [(order(document.key, f"copy {time} {document.language}"), document) for time in range(times)]
    return [document for _, document in sorted(copies, key=lambda pair: pair[0])]


def build(data: Path, out: Path) -> dict:
    """Write the corpus into the folder `out` and return the record that corpus.json holds."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()) and not (out / MARK).is_file():
        raise SystemExit(f"{out} holds files that are no corpus of this program; empty it, or give another --out")
    (out / MARK).touch()
    dropped: Counter = Counter()
    found = read_all(data, dropped)
    train, held = {}, {}
    for source in SOURCES:
        share, documents = source.held_share, found[source.name]
        train[source.name] = [document for document in documents if order(document.key, "held") >= share]
        held[source.name] = [document for document in documents if order(document.key, "held") < share]
    everything = [document for documents in train.values() for document in documents]
    held = {name: without_training_lines(documents, everything, dropped) for name, documents in held.items()}
    held_out = [document for documents in held.values() for document in documents]
    texts = {}
    for language in ("ko", "en"):
        texts[f"held_{language}.txt"] = text_of([d for d in held_out if d.language == language])
    texts["held.txt"] = texts["held_ko.txt"] + "\n" + texts["held_en.txt"]
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")
    texts["train"] = write_documents(out / "train", repeated(train))
    for language in ("ko", "en"):
        write_documents(out / f"held_{language}", [d for d in held_out if d.language == language])
    record = {"files": {name: described(text) for name, text in texts.items()}}
    record["sources"] = [about(source, train[source.name], held[source.name]) for source in SOURCES]
    record["dropped"] = dict(sorted(dropped.items()))
    record["weights_licence"] = "CC BY-SA 4.0, since wikitext2 is share-alike (CC BY-SA 3.0 allows its later version)"
    (out / MARK).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return record


def write_documents(folder: Path, documents: list[Document]) -> str:
    """Write one file a document, in this order, into a folder of its own; returns all of it as one text."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for i, document in enumerate(documents):
        (folder / f"{i:05d}.txt").write_text(text_of([document]), encoding="utf-8", newline="\n")
    return text_of(documents)


def described(text: str) -> dict:
    """Size and fingerprint of one written file."""
    data = text.encode()
    return {"bytes": len(data), "lines": text.count("\n"), "sha256": hashlib.sha256(data).hexdigest()}


def about(source, train: list[Document], held: list[Document]) -> dict:
    """A source's entry in corpus.json: licence, credit, and bytes per language on either side."""
    row = {"name": source.name, "licence": source.licence, "credit": source.credit}
    row |= {"english_repeats": source.english_repeats, "held_share": source.held_share}
    for side, documents in (("train", train), ("held", held)):
        for language in ("ko", "en"):
            own = [document for document in documents if document.language == language]
            row[f"{side}_{language}"] = {"documents": len(own), "bytes": sum(map(size, own))}
    return row


def main() -> None:
    """Read the command line, build, and print the sizes."""
    beside = Path(__file__).resolve().parents[3] / "shared/data"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GLASSFORMER_DATA", beside)))
    parser.add_argument("--out", type=Path, default=Path("out/shipped"))
    options = parser.parse_args()
    record = build(options.data, options.out)
    for name, entry in record["files"].items():
        print(f"{name:18s} {entry['bytes']:11,d} bytes {entry['lines']:8,d} lines")


if __name__ == "__main__":
    main()
