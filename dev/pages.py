"""The pages as data: their code blocks, and the outputs they quote.

    python dev/pages.py          write the quoted outputs of README and docs anew, from the commands beside them
    python dev/pages.py --check  say which are no longer what the command prints

A ```python block is run as it stands; the blocks of a page share their names. Every line of a ```sh block that begins
with `glassformer` is run too, and must succeed; "```sh mistake" must end with status 2, "```sh no-run" is not run. A
"```toml NAME" block is written to that file. "```sh data", "```python data" and quotations of commands that name
$GLASSFORMER_DATA count only where that folder is; "```sh pulled" and quotations that name a model which `glassformer
pull` fetches, only where that was fetched; "```sh page" and "```python page" only where the explorer's page was built.
A quoted output is a ```text block below a line such as

    <!-- prints: glassformer trace "The cat ate the fish" --token ate | 3-4 -->

which names the command and, where not all is quoted, the paragraphs (from 1, parted by blank lines). A quotation is
stale where a word differs, or a number by more than one in its last digit: so far apart are the roundings of two
processors. What is drawn at random is not compared, since there such a difference may decide. A figure has a line such
as `<!-- draws: glassformer influence … --save figures/families.svg -->`, whose path starts at the page; it is stale
where its tooltips are.
"""

import argparse
import contextlib
import functools
import io
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)?[ ]*([\w.-]*)\n(.*?)^```$", re.M | re.S)
QUOTE = re.compile(r"^<!-- prints: (.+?)(?: \| (\d+)(?:-(\d+))?)? -->\n```text\n(.*?)^```$", re.M | re.S)
TOOLTIP = re.compile(r"<title[^>]*>([^<]*)</title>")
FIGURE = re.compile(r"^<!-- draws: (glassformer .+) --save (\S+\.svg) -->$", re.M)
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
BAR = re.compile(r"[ ▏▎▍▌▋▊▉█]+")
EXPLORER = ROOT / "src" / "glassformer" / "serve" / "page" / "index.html"
DATA = Path(os.environ.get("GLASSFORMER_DATA", ROOT.parent / "shared" / "data"))
# The terminal that the pages show.
READER = {"GLASSFORMER_DATA": str(DATA), "COLUMNS": "100", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


class Block(NamedTuple):
    """A fenced block: its language, the word after it, its content, and the line of the page it begins at."""

    language: str
    info: str
    text: str
    line: int


def pages() -> dict[Path, Path]:
    """Every English page and its Korean counterpart."""
    docs = ROOT / "docs"
    pairs = {ROOT / "README.md": ROOT / "README.ko.md"}
    return pairs | {page: docs / "ko" / page.name for page in sorted(docs.glob("*.md"))}


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1] or "", found[2] or "", found[3], text.count("\n", 0, found.start()) + 2)
        for found in FENCE.finditer(text)
    ]


def desk(folder: Path) -> None:
    """Put into a folder what the pages take for granted: a text, my.txt, and what a clone holds."""
    text = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    (folder / "my.txt").write_text(text[:8000], encoding="utf-8")
    shutil.copy(ROOT / "README.md", folder)


def commands(block: Block) -> list[list[str]]:
    """The arguments of each glassformer command in a shell block."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [arguments(line) for line in lines if line.startswith("glassformer ")]


def arguments(line: str) -> list[str]:
    """The arguments of one command."""
    return [one.replace("$GLASSFORMER_DATA", str(DATA)) for one in shlex.split(line, comments=True)[1:]]


def is_run(block: Block) -> bool:
    """Whether a block is one that runs here."""
    there = {"data": DATA.is_dir, "pulled": lambda: _is_pulled(block.text), "no-run": lambda: False}
    there |= {"page": EXPLORER.is_file}
    return there.get(block.info, lambda: True)()


def printed(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process: (exit status, what it printed, what it complained)."""
    from glassformer.cli import main

    out, complaints = io.StringIO(), io.StringIO()
    before = {name: os.environ.get(name) for name in READER}
    os.environ.update(READER)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints):
            status = main(arguments)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return status, out.getvalue(), complaints.getvalue()


@functools.cache
def _output(command: str) -> str:
    """What a command prints, or its complaint where it has one."""
    status, out, complaint = printed(arguments(command))
    return "\n".join(line.rstrip() for line in (complaint if status else out).strip("\n").splitlines())


def quoted(command: str, first: str | None, last: str | None) -> str:
    """What a page quotes of a command's output: all, or the paragraphs first to last."""
    text = _output(command)
    if first is not None:
        text = "\n\n".join(text.split("\n\n")[int(first) - 1 : int(last or first)])
    return text + "\n"


def refreshed(text: str) -> str:
    """A page's text with every stale quotation as the command prints it now."""

    def anew(found: re.Match[str]) -> str:
        if not _can_be_run(found[1]):
            return found[0]
        body = quoted(found[1], found[2], found[3])
        body = found[4] if same(found[4], body) else body
        return found[0][: found.start(4) - found.start()] + body + "```"

    return QUOTE.sub(anew, text)


def stale(text: str) -> list[str]:
    """The commands whose quotation in a page's text is not what they print, but for what they draw at random."""
    found = [match for match in QUOTE.finditer(text) if _can_be_run(match[1]) and not _is_drawn(match[1])]
    return [match[1] for match in found if not same(match[4], quoted(match[1], match[2], match[3]))]


def figures(page: Path) -> list[tuple[str, Path]]:
    """The figures of a page: the command that draws one, and its file."""
    return [(found[1], page.parent / found[2]) for found in FIGURE.finditer(page.read_text(encoding="utf-8"))]


def drawn_as(command: str, file: Path) -> bool:
    """Whether a figure's file shows the numbers that its command draws now; it writes the new one beside it."""
    new = file.with_suffix(".new.svg")
    status, _, complaint = printed([*arguments(command), "--save", str(new)])
    if status:
        raise SystemExit(complaint)
    return file.is_file() and same_numbers(file, new)


def same_numbers(one: Path, other: Path) -> bool:
    """Whether two figures say the same when they are pointed at."""
    return same(*("\n".join(TOOLTIP.findall(file.read_text("utf-8"))) for file in (one, other)))


def _can_be_run(command: str) -> bool:
    return ("$GLASSFORMER_DATA" not in command or DATA.is_dir()) and _is_pulled(command)


def _is_pulled(text: str) -> bool:
    """Whether every model of the catalogue that a text names is on this machine."""
    from glassformer.catalogue import CATALOGUE, pulled

    return {name for name in CATALOGUE if name in text} <= set(pulled())


def _is_drawn(command: str) -> bool:
    return command.startswith("glassformer generate ") and "--temperature 0 " not in command


def same(one: str, other: str) -> bool:
    """Whether two outputs have the same words, and numbers that are at most one in their last digit apart."""
    words = [BAR.sub(" ", NUMBER.sub("0", text)) for text in (one, other)]
    return words[0] == words[1] and all(map(_near, NUMBER.findall(one), NUMBER.findall(other)))


def _near(one: str, other: str) -> bool:
    """Counts are equal; numbers with a point and percentages within one in the last digit; of a rounding error (1e-07)
    only the size is told, and on another processor there may be none."""
    if "e" in one or "e" in other:
        small, large = sorted(map(abs, (_value(one), _value(other))))
        return large <= 10 * small or (small == 0 and large < 1e-5)
    if not any("." in text or "%" in text for text in (one, other)):
        return one == other
    places = [len(text.rstrip("%").partition(".")[2]) for text in (one, other)]
    return places[0] == places[1] and abs(_value(one) - _value(other)) < 1.5 * 10 ** -places[0]


def _value(text: str) -> float:
    return float(text.replace("−", "-").replace(",", "").rstrip("%"))


def main() -> None:
    """Refresh, or check, all pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for page in [page for pair in pages().items() for page in pair]:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            desk(Path(folder))
            new = refreshed(text)
        for command, file in figures(page):
            if not drawn_as(command, file):
                stale.append(str(file.relative_to(ROOT)))
                file.parent.mkdir(exist_ok=True)
                file.with_suffix(".new.svg").replace(file) if not check else None
            file.with_suffix(".new.svg").unlink(missing_ok=True)
        if new == text:
            continue
        stale.append(str(page.relative_to(ROOT)))
        if not check:
            page.write_text(new, encoding="utf-8")
    print("nothing to do" if not stale else f"{'stale' if check else 'written anew'}: {', '.join(stale)}")
    raise SystemExit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
