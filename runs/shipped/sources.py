"""One reader per data source: raw files to documents (lists of lines), cleaned and stripped of what must not be learnt.

A document is the unit of the held-out split, so it is drawn as wide as the data allow: all reviews of one film, one
encyclopedia article, one passage of a play. Then neither a film nor an article is on both sides.
"""

import csv
import gzip
import html
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from profanity import is_profane


class Document(NamedTuple):
    """Lines that belong together. `key` names the document in the split; `language` is "ko" or "en"."""

    key: str
    language: str
    lines: list[str]


class Source(NamedTuple):
    """A data set that may be used, with what its licence asks for."""

    name: str
    licence: str
    credit: str
    read: Callable[[Path, Counter], Iterator[Document]]
    english_repeats: int  # how often an English document stands in the training text
    held_share: float  # of the documents; more where a source is small, or its held-out part would be a few sentences


KOREAN = re.compile(r"[가-힣]")
REVIEW_SIGNS = re.compile(r"[가-힣a-zA-Z0-9ㅋㅎㅠㅜ .,!?~^'\"()\-:;%&/+]+")
CONTACT = re.compile(r"https?:|www\.|@|\.com|\.kr|\d{2,4}-\d{3,4}-\d{4}|01[016789]\d{7,8}")
SENTENCE_END = re.compile(r"(?:[.!?~^)]|[다요음네함임죠듯지까군]|ㅋㅋ|ㅎㅎ|ㅠㅠ|ㅜㅜ)$")
# A tag that the React pages' export lost leaves its particle alone: "이 에 대한 노드" was "이 <div> 에 대한 노드".
ORPHAN = re.compile(r"(?:^|\s)(?:은|는|을|를|의|에|와|과|로|으로|처럼|에서|에게)(?=\s)|  ")


def tidy_review(text: str) -> str:
    """A review with entities decoded and with runs of signs and laughter shortened to what prose would use."""
    text = html.unescape(html.unescape(text)).replace("…", "...").replace("’", "'").replace("‘", "'")
    text = re.sub(r"\s+", " ", re.sub(r"[“”``´]", '"', text)).strip(" \"'")
    text = re.sub(r"\.{2,}", "...", re.sub(r"([!?~^,;])[!?~^,;]*\1", r"\1", text))
    text = re.sub(r"([ㅋㅎㅠㅜ])\1{2,}", r"\1\1", text)
    return re.sub(r"\s+([.,!?~])", r"\1", text)


def fault_of_review(text: str, raw: str) -> str | None:
    """Why a review is left out, or None. Only whole, spaced, ordinary sentences stay; there are more than enough."""
    words = text.split()
    if not 35 <= len(text) <= 200 or len(words) < 8:
        return "short"
    if not REVIEW_SIGNS.fullmatch(text) or CONTACT.search(text):
        return "signs or contacts"
    if re.search(r"(.)\1{5,}", raw) or re.search(r"([가-힣a-zA-Z])\1\1|(.{2,6}?)\2\2|OO", text):
        return "spammy repeats"
    letters = len(KOREAN.findall(text))
    if letters < 0.78 * (len(text) - len(words) + 1) or re.search(r"[a-zA-Z]{12}", text):
        return "hardly Korean"
    if letters / len(words) > 4.5 or max(map(len, words)) > 13 or len(set(words)) < 0.8 * len(words):
        return "unspaced or repetitive"
    if len(re.findall(r"[.,!?~^ㅋㅎㅠㅜ;:]", text)) > 0.12 * len(text) or not SENTENCE_END.search(text):
        return "no sentence"
    return "profanity" if is_profane(raw) or is_profane(text) else None


def reviews(root: Path, dropped: Counter) -> Iterator[Document]:
    """NSMC: film reviews; a document is all reviews of one film that pass."""
    films: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    with gzip.open(root / "nsmc/nsmc_raw.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        next(file)
        for row in file:
            _, film, _, raw = row.rstrip("\r\n").split("\t", 3)
            text = tidy_review(raw)
            fault = fault_of_review(text, raw)
            # Copies of one review differ in signs and spaces, so the letters alone decide what is a copy.
            letters = "".join(KOREAN.findall(text))
            if fault is None and letters in seen:
                fault = "duplicate"
            if fault is None:
                seen.add(letters)
                films[film].append(text)
            else:
                dropped[f"nsmc: {fault}"] += 1
    for film, lines in films.items():
        yield Document(f"nsmc/{film}", "ko", lines)


def clean(lines: list[str], name: str, dropped: Counter, seen: set[str] | None = None) -> list[str]:
    """The lines without profane ones and, given the set `seen`, without those that it holds already."""
    kept = []
    for line in lines:
        if is_profane(line):
            dropped[f"{name}: profanity"] += 1
        elif seen is not None and line in seen:
            dropped[f"{name}: duplicate"] += 1
        else:
            kept.append(line)
            if seen is not None:
                seen.add(line)
    return kept


def react(root: Path, dropped: Counter) -> Iterator[Document]:
    """The Korean React pages. The export has no page boundaries, so a document is 25 lines that followed each other."""
    raw = (root / "react_docs_ko/react_ko.txt").read_text("utf-8").splitlines()
    lines = [line.strip() for line in raw]
    seen: set[str] = set()
    for first in range(0, len(lines), 25):
        block = [line for line in lines[first : first + 25] if KOREAN.search(line) and not ORPHAN.search(line)]
        dropped["react_docs_ko: damaged or no Korean"] += len(lines[first : first + 25]) - len(block)
        yield Document(f"react/{first}", "ko", clean(block, "react_docs_ko", dropped, seen))


def chatbot(root: Path, dropped: Counter) -> Iterator[Document]:
    """Question and answer on two lines; neighbours rephrase one another, so a document is 40 pairs."""
    with (root / "chatbot_ko/ChatbotData.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["Q"].strip(), row["A"].strip()) for row in csv.DictReader(file)]
    seen: set[str] = set()
    for first in range(0, len(rows), 40):
        lines: list[str] = []
        for question, answer in rows[first : first + 40]:
            if len(clean([question, answer], "chatbot_ko", dropped)) == 2 and question not in seen:
                lines += [question, answer]
                seen.add(question)
        yield Document(f"chatbot/{first}", "ko", lines)


def tatoeba(root: Path, dropped: Counter) -> Iterator[Document]:
    """Sentence pairs, taken apart by language; the file is sorted by length, and a document is 10 neighbours."""
    rows = [line.split("\t") for line in (root / "tatoeba_en_ko/kor.txt").read_text("utf-8").splitlines()]
    for column, language in ((0, "en"), (1, "ko")):
        seen: set[str] = set()
        for first in range(0, len(rows), 10):  # the key is the same for both, so that translations are not divided
            lines = [row[column].strip() for row in rows[first : first + 10]]
            yield Document(f"tatoeba/{first}", language, clean(lines, "tatoeba_en_ko", dropped, seen))


def declaration(root: Path, dropped: Counter) -> Iterator[Document]:
    """The Universal Declaration of Human Rights; a document is one article, in Korean or in English."""
    for language, name in (("ko", "kor"), ("en", "eng")):
        lines = [line.strip() for line in (root / f"udhr/udhr_{name}.txt").read_text("utf-8").splitlines()]
        articles = re.split(r"\n(?=제 \d+ 조|Article \d+)", "\n".join(line for line in lines if line))
        for number, article in enumerate(articles):
            yield Document(f"udhr/{number}", language, clean(article.split("\n"), "udhr", dropped))


def shakespeare(root: Path, dropped: Counter) -> Iterator[Document]:
    """The plays; a document is 30 speeches that followed each other, with an empty line after each speech."""
    speeches = (root / "tinyshakespeare/input.txt").read_text("utf-8").strip().split("\n\n")
    for first in range(0, len(speeches), 30):
        kept = clean(speeches[first : first + 30], "tinyshakespeare", dropped)
        yield Document(f"shakespeare/{first}", "en", "\n\n".join(kept).split("\n"))


def detokenised(text: str) -> str:
    """A WikiText sentence as it was typed: "20 @,@ 000 ( half )" becomes "20,000 (half)"."""
    text = re.sub(r" @(.)@ ", r"\1", text)
    text = re.sub(r'" (.*?) "', r'"\1"', text)
    text = re.sub(r" ([.,;:!?%)\]])", r"\1", re.sub(r"([(\[$£€]) ", r"\1", text))
    text = re.sub(r" (n't|'t|'s|'re|'ve|'ll|'d|'m|')(?= |$|[.,;:!?)])", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def sentences(paragraph: str) -> list[str]:
    """The sentences of a WikiText paragraph; full stops stand alone there, so "St." does not split."""
    paragraph = re.sub(r" \([^()]*<unk>[^()]*\)", "", paragraph)  # a remark with a lost word goes, its sentence stays
    found, words, quoted = [], [], False
    for word, following in zip(tokens := paragraph.split(), [*tokens[1:], ""], strict=True):
        quoted ^= word == '"'  # WikiText does not tell opening from closing marks; every second one closes
        words.append(word)
        ends = word in (".", "!", "?") or (word == '"' and len(words) > 1 and words[-2] in (".", "!", "?"))
        if ends and not quoted and (following[:1].isupper() or following in ('"', "")):
            found.append(" ".join(words))
            words = []
    return found + ([" ".join(words)] if words else [])


def wikitext(root: Path, dropped: Counter) -> Iterator[Document]:
    """WikiText-2, validation and test part; a document is one article, one line a run of sentences without <unk>."""
    for part in ("valid", "test"):
        text = (root / f"wikitext2/wiki.{part}.tokens.txt").read_text("utf-8")
        for number, article in enumerate(re.split(r"\n(?= = [^=\n]+ = \n)", text)):
            lines = []
            for paragraph in article.split("\n"):
                if paragraph.startswith(" =") or not paragraph.strip():
                    continue
                whole = [s for s in sentences(paragraph) if "<unk>" not in s and s.count('"') % 2 == 0 and len(s) > 25]
                dropped["wikitext2: sentence with an unknown word"] += len(sentences(paragraph)) - len(whole)
                whole = clean([detokenised(sentence) for sentence in whole], "wikitext2", dropped)
                lines += [" ".join(whole)] if whole else []
            yield Document(f"wikitext/{part}/{number}", "en", lines)


SOURCES = [
    Source("nsmc", "CC0 1.0", "Naver sentiment movie corpus, Lucy Park (e9t)", reviews, 1, 0.025),
    Source("react_docs_ko", "CC BY 4.0", "React Korean documentation, Meta Platforms and translators", react, 1, 0.03),
    Source("chatbot_ko", "MIT", "Chatbot data for Korean, Youngsook Song (songys)", chatbot, 1, 0.03),
    Source("udhr", "public domain", "United Nations", declaration, 3, 0.04),
    Source("tatoeba_en_ko", "CC BY 2.0 FR", "Tatoeba contributors, by way of manythings.org", tatoeba, 3, 0.04),
    Source("wikitext2", "CC BY-SA 3.0", "Wikipedia contributors; WikiText-2 by Merity et al.", wikitext, 3, 0.06),
    Source("tinyshakespeare", "public domain", "William Shakespeare", shakespeare, 1, 0.04),
]
