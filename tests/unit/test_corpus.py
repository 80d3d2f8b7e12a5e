"""The shipped model's corpus: the profanity match, what a review must be, the split, and that runs repeat exactly.

The data here are made up, so that the test needs no data folder.
"""

import gzip
import importlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "runs/shipped"


@pytest.fixture(scope="module")
def parts():
    """The recipe's modules, found as they are when the script runs: beside one another."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in ("profanity", "sources", "corpus")}
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("profanity", "sources", "corpus"):
            sys.modules.pop(name, None)


ADJECTIVES = ["따뜻한", "잔잔한", "유쾌한", "묵직한", "슬픈", "아련한", "독특한", "신선한", "웅장한", "소박한"]
NOUNS = ["음악이", "연기가", "대사가", "화면이", "결말이", "풍경이", "웃음이", "눈물이", "장면이", "목소리가"]


def title(film: int) -> str:
    """A film's name in Hangul, since copies are told by Hangul alone."""
    words = ["하늘", "바다", "구름", "나무", "노래", "기차", "편지", "시간", "거울", "마을"]
    return f"{('어느', '그런')[film // 100]} {words[film // 10 % 10]} {words[film % 10]}"


def review(film: int, number: int) -> str:
    """An ordinary review; that of another film or number differs in a word."""
    story = f"{ADJECTIVES[film % 10]} 이야기에 {ADJECTIVES[number % 10]} {NOUNS[film // 10 % 10]} 어우러져서"
    return f"{title(film)} 영화, {story} 보는 내내 마음이 편안하고 즐거웠던 영화였습니다."


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder with 200 films, and a few lines or more of every other source."""
    root = tmp_path_factory.mktemp("data")
    for name in ["nsmc", "react_docs_ko", "chatbot_ko", "udhr", "tatoeba_en_ko", "wikitext2", "tinyshakespeare"]:
        (root / name).mkdir()
    rows = ["id\tmovie_id\trating\tdocument"]
    rows += [f"{film * 10 + k}\t{film}\t9\t{review(film, k)}" for film in range(200) for k in range(5)]
    rows += [f"9\t3\t1\t시1발 {review(3, 7)}", "10\t4\t5\t짧다", f"11\t5\t9\t{review(5, 1)}!!"]
    (root / "nsmc/nsmc_raw.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode(), mtime=0))
    prose = [f"컴포넌트 {k}번은 상태를 받아 화면을 그립니다." for k in range(400)] + ["버튼의 을 누르면  열립니다."]
    (root / "react_docs_ko/react_ko.txt").write_text("\n".join(prose), "utf-8")
    pairs = [f"{k}시에 만날까?,{k}시에는 어렵습니다.,0" for k in range(400)]
    (root / "chatbot_ko/ChatbotData.csv").write_text("\n".join(["Q,A,label", *pairs]), "utf-8")
    (root / "udhr/udhr_kor.txt").write_text(
        "\n".join(f"제 {k} 조\n사람은 {k}가지 권리를 가진다." for k in range(30)), "utf-8"
    )
    (root / "udhr/udhr_eng.txt").write_text(
        "\n".join(f"Article {k}\nThe right number {k}." for k in range(30)), "utf-8"
    )
    rows = [f"Tom has {k} cats.\t톰은 고양이가 {k}마리 있다.\tCC-BY" for k in range(900)]
    (root / "tatoeba_en_ko/kor.txt").write_text("\n".join(rows), "utf-8")
    for part in ("valid", "test"):
        articles = [
            f" = {part} {k} = \n \n The town {k} of the {part} has 20 @,@ {k:03d} people ( or so ) . It has <unk> . "
            for k in range(40)
        ]
        (root / f"wikitext2/wiki.{part}.tokens.txt").write_text(" \n" + "\n".join(articles) + "\n", "utf-8")
    speeches = [f"JULIET:\nGood night for the {k}th time, my lord." for k in range(1500)]
    (root / "tinyshakespeare/input.txt").write_text("\n\n".join(speeches), "utf-8")
    return root


@pytest.mark.parametrize(
    "text",
    [
        "시1발",
        "시 발",
        "ㅅㅂ 뭐야",
        "ㅈㄹ하네",
        "병.신 같은 영화",
        "이런 개 새 끼",
        "씨x 재미없다",
        "병*신",
        "존~나 웃기다",
        "tlqkf",
        "fuck",
    ],
)
def test_profanity_is_seen_through_disguise(parts, text):
    assert parts["profanity"].is_profane(text)


@pytest.mark.parametrize(
    "text",
    [
        "고양이가 생선을 먹었다",
        "한 남자의 이야기",
        "ㅋㅋ 정말 재미있어요 ㅠㅠ",
        "봐야한다",
        "즐거운 소년이 10년이 지나",
        "전성기 시절",
        "여자지만",
        "편지~다시 봐도 좋다",
        "A classic passage about Scunthorpe, grapes and cocktails",
    ],
)
def test_innocent_words_pass(parts, text):
    assert not parts["profanity"].is_profane(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (review(1, 2), None),
        ("재미있다", "short"),
        (review(1, 2) + " 문의는 010-1234-5678", "signs or contacts"),
        (review(1, 2) + " ㅋㅋㅋㅋㅋㅋㅋㅋ", "spammy repeats"),
        (review(1, 2) + " The story was told so very well that I cried.", "hardly Korean"),
        (review(1, 2).replace("보는 내내 마음이 편안하고", "보는내내마음이편안하고참좋고"), "unspaced or repetitive"),
        (review(1, 2).replace("습니다.", " 그"), "no sentence"),
        (review(1, 2) + " 존나 좋다.", "profanity"),
    ],
)
def test_what_a_review_must_be(parts, text, fault):
    assert parts["sources"].fault_of_review(parts["sources"].tidy_review(text), text) == fault


def test_reviews_are_tidied(parts):
    tidy = parts["sources"].tidy_review
    assert tidy('  "정말......  좋다 !!!! ㅋㅋㅋㅋ &amp;quot;최고&amp;quot; ') == '정말... 좋다! ㅋㅋ "최고'


def test_wikitext_is_typed_again(parts):
    text = "The \" old \" town ( 24 in ) isn 't well @-@ known ; it had 20 @,@ 000 people 's homes , see Fig. 2 @.@ 5 ."
    typed = "The \"old\" town (24 in) isn't well-known; it had 20,000 people's homes, see Fig. 2.5."
    assert parts["sources"].detokenised(text) == typed
    assert parts["sources"].sentences('He left . " I stay , " she said . It rained ( in <unk> ) .') == [
        "He left .",
        '" I stay , " she said .',
        "It rained .",
    ]


def test_the_corpus_is_split_clean_and_the_same_again(parts, data, tmp_path):
    corpus, is_profane = parts["corpus"], parts["profanity"].is_profane
    record = corpus.build(data, tmp_path / "a")
    corpus.build(data, tmp_path / "b")
    text, again = (
        {
            path.relative_to(tmp_path / run).as_posix(): path.read_text("utf-8")
            for path in (tmp_path / run).rglob("*.txt")
        }
        for run in "ab"
    )
    assert text == again
    assert json.loads((tmp_path / "a/corpus.json").read_text("utf-8")) == record
    assert (tmp_path / "a/corpus.json").read_bytes() == (tmp_path / "b/corpus.json").read_bytes()

    assert record["dropped"]["nsmc: profanity"] == record["dropped"]["nsmc: short"] == 1
    assert record["dropped"]["nsmc: duplicate"] == 1, "the same letters with other signs are the same review"
    assert record["dropped"]["react_docs_ko: damaged or no Korean"] == 1
    assert record["dropped"]["wikitext2: sentence with an unknown word"] == 80
    assert not [name for name in text if name.startswith("train") and not name.startswith("train/")]
    documents = [content for name, content in text.items() if name.startswith("train/")]
    assert not any("\n\n" in content for content in documents if "JULIET" not in content), "a file is one document"
    times = Counter(line for content in documents for line in content.splitlines())
    train = sorted(times)
    assert {times[line] for line in train if line.startswith("Tom has")} == {3}
    assert {times[line] for line in train if line.startswith("톰은")} == {1}

    held = text["held_ko.txt"].splitlines() + text["held_en.txt"].splitlines()
    assert not set(held) & set(train) - {"", "JULIET:"}, "nothing is on both sides but form"
    assert not any(is_profane(line) for line in train + held)
    films = [{line.split(" 영화,")[0] for line in part if " 영화," in line} for part in (held, train)]
    assert films[0] and not films[0] & films[1], "no film is on both sides"
    assert len(films[0] | films[1]) == 200
    assert 0.005 < len(films[0]) / 200 < 0.08
    assert all(any("가" <= letter <= "힣" for letter in line) for line in text["held_ko.txt"].splitlines() if line)
    assert text["held_en.txt"].isascii()


def test_a_folder_of_others_is_left_alone(parts, data, tmp_path):
    own = tmp_path / "train" / "00001.txt"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(SystemExit, match="holds files that are no corpus of this program"):
        parts["corpus"].build(data, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [own] and own.read_text() == "mine"
    parts["corpus"].build(data, tmp_path / "new")
    assert parts["corpus"].build(data, tmp_path / "new")["files"], "its own it writes anew"
