"""The command line: what it prints, and one line with the way out for every mistake."""

import io
import json
import pathlib
import re
import shutil
import subprocess
import sys

import msgspec
import pytest
import torch
import wcwidth
from sheet_models import SPECS, loaded

from glassformer.api import load
from glassformer.checkpoint import save_model
from glassformer.cli import app, main
from glassformer.explain.sheet import Sheet
from glassformer.stored import StoredTrace

KOREAN = "고양이가 생선을 먹었다"
VERBS = ["trace", "generate", "train", "evaluate", "classify", "models"]


def write(folder, name="rope", method="bpe"):
    made = loaded(SPECS[name], method)
    save_model(made.model, folder, {"summary": "tiny"})
    made.tokenizer.save(folder / "tokenizer.json")
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def copy(folder, tmp_path):
    return pathlib.Path(shutil.copytree(folder, tmp_path / "copy"))


def run(capsys, *arguments):
    """(exit status, stdout, stderr)"""
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(autouse=True)
def english_locale(monkeypatch):
    for name in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")


def refused(capsys, *arguments, lang="en"):
    """The one line on stderr of a mistake."""
    status, out, err = run(capsys, *arguments, *(["--lang", lang] if "--lang" not in arguments else []))
    assert (status, out) == (2, ""), (status, out, err)
    assert err.startswith("glassformer: ") and err.count("\n") == 1 and "Traceback" not in err
    return err


# ---------------------------------------------------------------- what works


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


# ---------------------------------------------------------------- what a user may get wrong


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (["trace", ""], 'the text is empty; give a sentence, for example "고양이가'),
        (["trace", " \n\t "], "the text is empty"),
        (["trace", KOREAN, "--token", "강아지"], "its rows are: 0 ⟨start⟩, 1 고양이가, 2 생선을, 3 먹었다"),
        (["trace", KOREAN, "--token", ""], "its rows are:"),
        (["trace", KOREAN, "--token", "9"], "its rows are:"),
        (["trace", KOREAN, "--head", "4"], "there is no head 4; this model has 4 (0 to 3)"),
        (["trace", KOREAN, "--head", "-1"], "there is no head -1"),
        (["trace", KOREAN, "--layer", "2"], "there is no layer 2; this model has 2 (0 to 1)"),
        (["trace", KOREAN, "--head", "x"], "--head"),
        (["trace", KOREAN, "--by", "wort"], "--by"),
        (["trace", KOREAN, "--lang", "fr"], "--lang"),
        (["trace", KOREAN, "--tokn", "먹었다"], "--tokn"),
        (["trace"], "TEXT"),
        (["trace", "The", "cat", "ate"], "not expected here: cat ate; put a text of several words in quotes"),
        (["trace", KOREAN, "--haed", "1"], "(see glassformer trace --help)"),
        (["trace", KOREAN, "--memory", "0"], "--memory: 0 is not allowed; use 1 or more"),
        (["trace", KOREAN * 2000, "--memory", "1"], "the limit of 1.0 MiB cannot hold"),
        (["trace", KOREAN, "--top", "0"], "--top: 0 is not allowed; use 1 or more"),
        (["trace", KOREAN, "--top", "many"], "--top"),
        (["trace", KOREAN, "--dtype", "float23"], "dtype: 'float23' is not allowed; use float32, bfloat16, float64"),
        (["trace", KOREAN, "--dtype", "nn"], "dtype: 'nn' is not allowed"),
        (["trace", KOREAN, "--device", "tpu"], "device: 'tpu' is not known; use cpu, cuda"),
        (["trace", KOREAN, "--device", "cuda:x"], "device: 'cuda:x' is not known"),
        (["trace", KOREAN, "--device", "cuda:99"], "'cuda:99' is not available on this machine; there is: cpu"),
        (["trace", KOREAN, "--save", "run.html"], "run.html does not end in .safetensors"),
        (["trace", KOREAN, "--save", "run"], "does not end in .safetensors"),
        (["trace", "a\udcff"], "a lone surrogate (U+DCFF) is no character"),
        (["trace", KOREAN, "--token", "\udcff"], "its rows are:"),
        (["generate", "a\udcff"], "a lone surrogate"),
        (["generate", KOREAN, "--temperature", "-1"], "--temperature: -1.0 is not allowed; use 0 for greedy"),
        (["generate", KOREAN, "--top-p", "2"], "--top-p: 2.0 is not allowed"),
        (["generate", KOREAN, "-n", "0"], "-n: 0 is not allowed; use 1 or more"),
        (["generate", KOREAN, "-n", "999"], "set -n to at most 2"),
        (["generate", KOREAN * 99], "shorten it to at most 255"),
        (["generate", KOREAN, "--seed", "-1"], "--seed: -1 is not allowed"),
        (["generate", KOREAN, "--beams", "2", "--stop", "."], "--stop: beam search"),
        (["generate", KOREAN, "--beams", "2", "--top-k", "1"], "--top-k: beam search weighs"),
        (["generate", KOREAN, "--length-penalty", "2"], "--length-penalty: only beam search uses it; leave it out"),
        (["trace", KOREAN, "--device", "cpu:"], "device: 'cpu:' is not known; use cpu, cuda"),
        (["trace", KOREAN, "--device", "cpu:٠"], "device: 'cpu:٠' is not known"),
        (["trace", KOREAN, "--device", "cpu:1"], "device: 'cpu:1' is not available"),
        (["models", "--device", "xyz"], "device: 'xyz' is not known"),
        (["models", "--dtype", "nonsense"], "dtype: 'nonsense' is not allowed"),
        (["evaluate", "no-such-file.txt"], "there is no such file"),
        (["bogus"], "bogus"),
        (["--bogus"], "--bogus"),
    ],
    ids=lambda given: " ".join(given)[:40].encode("ascii", "replace").decode() if isinstance(given, list) else "",
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_way_out(capsys, folder, arguments, way_out):
    model = ["-m", folder] if arguments[0] in ("trace", "generate", "evaluate") and len(arguments) > 1 else []
    english = refused(capsys, *arguments, *model)
    assert way_out in english
    if "--lang" in arguments or arguments[0].startswith("-"):
        return
    korean = refused(capsys, *arguments, *model, lang="ko").removeprefix("glassformer: ")
    for given in sorted((*arguments, *KOREAN.split()), key=len, reverse=True):
        korean = korean.replace(given, "")
    assert re.search("(니다|십시오)", korean), korean
    assert not re.search(r"(?<![-./])\b[a-z]+ [a-z]+ [a-z]+\b", korean.replace("surrogateescape", "")), korean


def test_memory_is_counted_in_mib_with_the_option_that_suffices(capsys, folder):
    text = "고양이 " * 2000
    message = refused(capsys, "trace", text, "--memory", "1", "-m", folder)
    assert "bytes" not in message and " MiB" in message
    option, value = re.search(r"--memory (\d+)", message)[0].split()
    assert option == "--memory" and int(value) > 1
    load(folder).trace(text, limit_bytes=int(value) << 20)


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


def test_a_file_is_no_model(capsys, folder, tmp_path):
    (tmp_path / "my.txt").write_text("a", encoding="utf-8")
    message = refused(capsys, "trace", "a", "-m", str(tmp_path / "my.txt"))
    assert "my.txt is a file, and a model is a folder with a model.json; give the folder" in message


def test_the_language_follows_the_arguments_and_the_locale(capsys, folder, monkeypatch):
    def korean(*arguments):
        return "니다" in "".join(run(capsys, *arguments)[1:])

    assert korean("trace", "고양이", "--token", "강아지") and not korean("trace", "cat", "--token", "dog")
    assert not korean("trace", "고양이", "--token", "강아지", "--lang=en")
    assert korean("trace", "--help", "--lang", "ko") and not korean("trace", "--help")
    monkeypatch.setenv("LANG", "ko_KR.UTF-8")
    assert korean("trace", "cat", "-m", folder) and korean("bogus") and korean("--help")
    assert not korean("trace", "cat", "-m", folder, "--lang", "en")
    monkeypatch.setenv("LC_ALL", "C")
    assert not korean("--help")


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_the_help_is_korean_where_asked(capsys, verb):
    status, out, _ = run(capsys, *([verb] if verb else []), "--help", "--lang", "ko")
    english = re.sub(r"예:.*|사용법:.*|/[\w.]+", "", out)
    assert status == 0 and "사용법: glassformer" in out and "InlineText" not in out
    assert not re.search(r"\b[a-z]+ [a-z]+ [a-z]+\b", english), english


@pytest.mark.parametrize("columns", ["0", "1", "40", "57"])
def test_a_terminal_of_any_width_gets_all_of_it(capsys, folder, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (["trace", KOREAN, "-m", folder], ["--help"], ["trace", "--help", "--lang", "ko"]):
        status, out, _ = run(capsys, *arguments)
        widths = [wcwidth.wcswidth(line) for line in out.splitlines() if "예:" not in line and "Example" not in line]
        assert status == 0 and len(widths) > 8 and max(widths) <= max(40, int(columns))


def test_a_model_that_does_not_compute_numbers_is_refused(capsys, tmp_path):
    """A weight of 1e38 is a number; what comes of it is none."""
    made = loaded(SPECS["rope"], "byte")
    with torch.no_grad():
        made.model.head.weight.fill_(1e38)
    save_model(made.model, tmp_path, {})
    made.tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "text.txt").write_text("a text", encoding="utf-8")
    for arguments in (["trace", "a"], ["generate", "a"], ["evaluate", str(tmp_path / "text.txt")]):
        assert re.search("not finite|not numbers", refused(capsys, *arguments, "-m", str(tmp_path)))


@pytest.mark.parametrize("set", ["steps", "nothing=1"])
def test_mistakes_in_training_settings(capsys, tmp_path, set):
    (tmp_path / "text.txt").write_text(KOREAN, encoding="utf-8")
    assert set.split("=")[0] in refused(
        capsys, "train", str(tmp_path / "text.txt"), "--set", set, "--out", str(tmp_path / "o")
    )
    assert "no-such" in refused(capsys, "train", str(tmp_path / "no-such.txt"))
    assert "'tpu'" in refused(capsys, "train", str(tmp_path / "text.txt"), "--device", "tpu")


def test_a_model_that_is_not_there(capsys, tmp_path):
    assert "no model 'nothing-here'" in refused(capsys, "trace", KOREAN, "-m", "nothing-here")
    assert "it has no model.json" in refused(capsys, "trace", KOREAN, "-m", str(tmp_path))
    assert "no model '\\udcff'" in refused(capsys, "trace", KOREAN, "-m", "\udcff")


def test_a_broken_model(capsys, copy):
    def message():
        return refused(capsys, "trace", KOREAN, "-m", str(copy))

    weights, spec, tokenizer = copy / "model.safetensors", copy / "model.json", copy / "tokenizer.json"
    whole, text = weights.read_bytes(), spec.read_text()
    for wrong in (whole[: len(whole) // 2], whole[:5], b""):
        weights.write_bytes(wrong)
        assert "model.safetensors is broken or truncated" in message()
    weights.unlink()
    assert "model.safetensors is missing" in message()
    weights.write_bytes(whole)
    for wrong in ("{", "", "[]", "3", '"text"', text.replace('"format": 1', '"format": "one"')):
        spec.write_text(wrong)
        assert "model.json" in message()
    spec.write_text(text.replace('"dim"', '"dimm"'))
    assert "dimm: unknown setting; did you mean dim" in message()
    spec.write_text(text.replace('"heads": 4', '"heads": 5'))
    assert "heads: 5 does not divide d=16" in message()
    spec.write_text(text.replace('"hidden": null', '"hidden": 24'))
    assert "has shape" in message()
    spec.write_bytes(b"\xff\xfe\x00")
    assert "model.json" in message()
    spec.write_text(text)
    tokenizer.write_text("{}")
    assert "tokenizer.json" in message()
    tokenizer.unlink()
    assert "no tokenizer" in message()


def test_a_tokenizer_of_another_model(capsys, copy):
    spec = json.loads((copy / "model.json").read_text())
    other = write(copy.parent / "byte", method="byte")
    shutil.copy(copy / "tokenizer.json", pathlib.Path(other) / "tokenizer.json")
    assert f"has {spec['spec']['vocab']} tokens and the model knows 257" in refused(
        capsys, "trace", KOREAN, "-m", other
    )


def test_a_text_longer_than_learned_positions(capsys, tmp_path):
    learned = write(tmp_path / "learned", "learned", "byte")
    assert "give at most 256 tokens" in refused(capsys, "trace", KOREAN * 20, "-m", learned)


def test_a_path_that_cannot_be_written(capsys, folder, tmp_path):
    (tmp_path / "file").write_text("")
    assert "check the path" in refused(
        capsys, "trace", KOREAN, "-m", folder, "--save", str(tmp_path / "file" / "x.safetensors")
    )
    (tmp_path / "dir.safetensors").mkdir()
    assert "check the path" in refused(
        capsys, "trace", KOREAN, "-m", folder, "--save", str(tmp_path / "dir.safetensors")
    )


def test_a_model_without_attention_or_head_is_named(capsys, tmp_path):
    no_head = write(tmp_path / "bare", "no-head")
    assert run(capsys, "trace", KOREAN, "-m", no_head)[0] == 0
    assert "no head" in refused(capsys, "generate", KOREAN, "-m", no_head)
    (tmp_path / "text.txt").write_text(KOREAN, encoding="utf-8")
    assert "from left to right" in refused(capsys, "evaluate", str(tmp_path / "text.txt"), "-m", no_head)
    full = write(tmp_path / "full", "full")
    assert "sees later tokens" in refused(capsys, "evaluate", str(tmp_path / "text.txt"), "-m", full)
    assert run(capsys, "trace", KOREAN, "-m", full)[0] == 0


# ---------------------------------------------------------------- help, and the process itself


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_and_the_common_options(capsys, verb):
    status, out, _ = run(capsys, verb, "--help")
    assert status == 0 and f"Example:  glassformer {verb}" in out
    assert all(option in out for option in ("--json", "--lang", "--device", "--dtype", "--seed"))


def test_the_verbs_are_these(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0 and "Example:  glassformer trace" in out and all(f" {verb} " in out for verb in VERBS)
    assert {name for name in app if not name.startswith("-")} == set(VERBS)
    assert run(capsys, "--version")[1].strip()


def process(*arguments, code=None, **more):
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "glassformer", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, **more)


def test_help_and_import_are_light():
    """torch stays outside; nothing is printed and no global setting touched."""
    code = """
import sys, time
start = time.perf_counter()
import glassformer
seconds = time.perf_counter() - start
assert "torch" not in sys.modules and "numpy" not in sys.modules, "a light import"
from glassformer.cli import main
main(["--help"]); main(["trace", "--help"])
assert "torch" not in sys.modules and "rich.console" in sys.modules
print("seconds", seconds, file=sys.stderr)
"""
    found = process(code=code)
    assert found.returncode == 0, found.stderr.decode()
    assert float(found.stderr.split()[-1]) < 0.3
    assert process(code="import glassformer").stdout == b""


def test_importing_everything_changes_no_global_setting():
    code = """
import torch, warnings
before = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), torch.initial_seed(),
          torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(), list(warnings.filters))
import glassformer.api, glassformer.train, glassformer.terminal.sheet, glassformer.cli
after = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), torch.initial_seed(),
         torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled(), list(warnings.filters))
assert before[:-1] == after[:-1], (before, after)
"""
    found = process(code=code)
    assert found.returncode == 0 and found.stdout == b"" and found.stderr == b"", found.stderr.decode()


def test_a_reader_that_leaves_is_no_mistake(folder):
    command = f"{sys.executable} -m glassformer trace '{KOREAN}' -m {folder} | head -1; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120)
    assert found.stdout.decode().splitlines() == [KOREAN, "0"] and found.stderr == b""


def test_a_terminal_that_is_not_utf8_gets_no_traceback(monkeypatch, folder):
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["trace", KOREAN, "-m", folder]) == 0
    assert b"\\u" in out.buffer.getvalue()


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
