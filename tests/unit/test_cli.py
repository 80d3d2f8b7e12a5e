"""The command line: what it prints of a trace, a generation and an evaluation."""

import json
import re

import msgspec
import pytest
from cli_runs import KOREAN, refused, run, write

from glassformer.api import load
from glassformer.explain.sheet import Sheet
from glassformer.stored import StoredTrace

pytestmark = pytest.mark.usefixtures("english_locale")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tiny"))


def test_the_sheet_is_printed_in_the_language_of_the_text(capsys, folder):
    status, out, err = run(capsys, "trace", KOREAN, "--token", "먹었다", "-m", folder)
    assert (status, err) == (0, "") and out.startswith(f"{KOREAN}\n‘먹었다’의 문맥 벡터가 계산되는 과정\n")
    assert "\x1b" not in out and "\ufffd" not in out and "  = |z|" not in out
    status, out, _ = run(capsys, "trace", "the cat", "--model", folder)
    assert status == 0 and "How the context vector of ‘cat’ is computed" in out
    assert "‘cat’의 문맥" in run(capsys, "trace", "the cat", "-m", folder, "--lang", "ko")[1]


def test_json_is_the_sheet(capsys, folder):
    status, out, _ = run(capsys, "trace", KOREAN, "--token", "생선을", "-m", folder, "--json")
    wanted = load(folder).trace(KOREAN).sheet("생선을")
    assert status == 0 and msgspec.json.decode(out, type=Sheet) == wanted
    assert json.loads(out, parse_constant=lambda found: pytest.fail(found))["rows"][0]["special"] is True
    sheets = json.loads(run(capsys, "trace", KOREAN, "-m", folder, "--json", "--all-heads", "--layer", "1")[1])
    assert [(one["layer"], one["head"]) for one in sheets] == [(1, head) for head in range(4)]


def test_choices_reach_the_sheet(capsys, folder):
    def sheet(*more):
        return json.loads(run(capsys, "trace", KOREAN, "-m", folder, "--json", *more)[1])

    assert [sheet("--layer", "1", "--head", "2")[key] for key in ("layer", "head", "chosen")] == [
        1,
        2,
        ["layer", "head"],
    ]
    assert len(sheet("--top", "3")["next"]) == 3
    assert len(sheet("--by", "token")["rows"]) == sheet()["length"]
    assert sheet("--no-start")["length"] == sheet()["length"] - 1
    assert sheet("--dtype", "float64")["dtype"] == "float64" and sheet("--dtype", "bfloat16")["dtype"] == "bfloat16"
    assert sheet("--token", "2")["token"] == "생선을"
    assert sheet("--memory", "1")["rows"] == sheet()["rows"]


def test_more_candidates_than_the_vocabulary_has(capsys, folder):
    vocab = load(folder).spec.vocab
    asked = ["trace", KOREAN, "-m", folder, "--top"]
    status, out, err = run(capsys, *asked, str(vocab + 1))
    assert status == 0 and err == f"어휘의 토큰은 {vocab:,}개이며 모두 보여 주었습니다.\n"
    assert out.count(" logit ") == vocab
    assert run(capsys, *asked, str(vocab + 1), "--lang", "en")[2] == (
        f"The vocabulary has {vocab:,} tokens; all of them are shown.\n"
    )
    assert run(capsys, *asked, str(vocab))[1:] == (out, "")


def test_all_heads_and_closed(capsys, folder):
    out = run(capsys, "trace", KOREAN, "-m", folder, "--all-heads")[1]
    assert "헤드 3" in out and "층 1" in out
    opened = run(capsys, "trace", KOREAN, "-m", folder)[1].splitlines()
    closed = run(capsys, "trace", KOREAN, "-m", folder, "--closed")[1].splitlines()
    rows = [[line.split()[:4] for line in lines if "토큰 3개" in line] for lines in (opened, closed)]
    assert len(closed) == len(opened) - 9 and rows[0] == rows[1] and len(rows[0]) == 3


def test_a_repeated_word_is_said_to_be_so(capsys, folder):
    status, _, err = run(capsys, "trace", "별 볼 별", "--token", "별", "-m", folder)
    assert status == 0 and err == (
        "별: 2번 나옵니다(행 1, 3). 지금은 3번 행을 보여 줍니다. --token '#1'처럼 고를 수 있습니다.\n"
    )
    assert run(capsys, "trace", "별 볼 별", "--token", "1", "-m", folder)[2] == ""
    assert run(capsys, "trace", "별 볼 달", "--token", "별", "-m", folder)[2] == ""
    assert "occurs 2 times" in run(capsys, "trace", "a b a", "--token", "a", "-m", folder)[2]
    nfd = "\u1107\u1167\u11af"
    assert run(capsys, "trace", f"{nfd} 볼 {nfd}", "--token", "별", "-m", folder)[0] == 0


def test_several_words_are_said_to_be_so(capsys, folder):
    asked = ["trace", KOREAN, "--token", "생선을 먹었다", "-m", folder]
    assert run(capsys, *asked)[2] == (
        "생선을 먹었다: 여러 행에 걸쳐 있습니다(행 2, 3). 지금은 3번 행(먹었다)을 보여 줍니다. "
        "--token '#2'처럼 고를 수 있습니다.\n"
    )
    assert "covers rows 2, 3; shown is 3, 먹었다. Choose with --token '#2'" in run(capsys, *asked, "--lang", "en")[2]


def test_a_trace_is_saved(capsys, folder, tmp_path):
    path = tmp_path / "deep" / "run.safetensors"
    status, _, err = run(capsys, "trace", KOREAN, "-m", folder, "--save", str(path), "--lang", "en")
    back = StoredTrace(path)
    assert status == 0 and err.startswith(f"Wrote {len(back.names())} values (") and str(path) in err
    again = re.search(r"glassformer\.stored\.(StoredTrace\(.+\))$", err.strip())[1]
    assert eval(again).names() == back.names()
    assert "".join(back.labels("t")[1:]).startswith("고")
    assert [file.name for file in path.parent.iterdir()] == ["run.safetensors"]


def test_odd_texts_are_shown(capsys, folder):
    for text in ("a\0b", "\x1b[2J", "  두 칸 ", "줄\n바꿈", "👩🏽‍💻", "\u202eabc"):
        status, out, _ = run(capsys, "trace", text, "-m", folder)
        assert status == 0 and not {"\0", "\x1b", "\u202e", "\ufffd"} & set(out)


def test_generate_and_evaluate(capsys, folder, tmp_path):
    status, out, _ = run(capsys, "generate", "고양이", "-m", folder, "-n", "5", "--seed", "3")
    assert (
        status == 0
        and out.startswith("고양이")
        and out == run(capsys, "generate", "고양이", "-m", folder, "-n", "5", "--seed", "3")[1]
    )
    events = [
        json.loads(line)
        for line in run(capsys, "generate", "고양이", "-m", folder, "-n", "5", "--json")[1].splitlines()
    ]
    assert 1 <= len(events) <= 5 and set(events[0]) >= {"token", "text", "probability"}
    (tmp_path / "text.txt").write_text(KOREAN * 20, encoding="utf-8")
    status, out, _ = run(capsys, "evaluate", str(tmp_path / "text.txt"), "-m", folder, "--lang", "ko")
    score = json.loads(run(capsys, "evaluate", str(tmp_path / "text.txt"), "-m", folder, "--json")[1])
    assert (
        status == 0
        and f"바이트당 {score['bits_per_byte']:.4f}비트" in out
        and score["bytes"] == len((KOREAN * 20).encode())
    )


def test_a_generation_fills_the_context_and_says_so(capsys, folder):
    """Without -n; the tiny model knows 256 tokens."""
    prompt = "고" * 240
    room = load(folder).room(prompt)
    assert 0 < room < 64
    again = [capsys, "generate", prompt, "-m", folder, "--seed", "1"]
    status, _, err = run(*again)
    events = [json.loads(one) for one in run(*again, "--json")[1].splitlines()]
    assert status == 0 and len(events) == room and events[-1]["finished"] == "length"
    assert err.startswith(f"새 토큰 {room}개에서 멈췄습니다. 모델의 문맥 길이인 토큰 256개가 모두 찼습니다.")
    assert err.count("\n") == 1
    assert run(capsys, "generate", prompt, "-n", "2", "-m", folder)[2] == ""
    assert run(capsys, "generate", "고", "-m", folder, "--seed", "1")[2] == ""


def test_a_place_can_be_forced_where_the_word_is_itself_a_number(capsys, folder):
    shown = {
        token: json.loads(run(capsys, "trace", "1 2 1 2", "--token", token, "-m", folder, "--json")[1])["tokens"]
        for token in ("#1", "#3", "1")
    }
    assert shown["1"] == shown["#3"] and shown["#1"] < shown["#3"]
    assert "there is no row 99" in refused(capsys, "trace", "1 2", "--token", "#99", "-m", folder)


def test_the_last_word_is_no_blank(capsys, folder):
    assert json.loads(run(capsys, "trace", "고양이 먹 ", "-m", folder, "--json")[1])["token"].strip() == "먹"


def test_generate_searches_with_beams(capsys, folder):
    first = run(capsys, "generate", "고양이", "-n", "4", "--beams", "3", "-m", folder)
    assert first[0] == 0 and first == run(capsys, "generate", "고양이", "-n", "4", "--beams", "3", "-m", folder)
    assert "--temperature: beam search" in refused(
        capsys, "generate", "a", "--beams", "2", "--temperature", "1", "-m", folder
    )
