"""Korean messages and help: the table belongs to what the code says, and a message finds its text in it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import glassformer
from glassformer.data.text import text_files
from glassformer.errors import InputError, MemoryLimitError
from glassformer.terminal.complaint import complaint, with_options
from glassformer.terminal.korean import helped, table, translated

SOURCE = Path(glassformer.__file__).parent
MINE = (
    *("api.py", "cli.py", "data/display.py", "explain/sheet.py", "generate/decoding.py", "spec.py", "files.py"),
    *(f"formats/{name}.py" for name in ("g2p_en", "hama", "llama2c", "onnx")),
    *(f"mixers/{name}.py" for name in ("alignment", "cells", "recurrent")),
    *("classifier.py", "data/images.py", "data/picture.py", "train/classify.py"),
    *(f"train/{name}.py" for name in ("figure", "lock", "loop", "memory", "own", "prepare", "recipe", "run", "store")),
)
# A message that stands before or after others, or inside one.
PARTS = ("x1: x1", "x1: x1 is not allowed; x1x1", "prompt: x1", "a loss that is no number", "step x1")
# What the operating system and cyclopts say; test_cli meets the most frequent of these.
GIVEN = (
    "Not a directory",
    "Is a directory",
    "Permission denied",
    "No such file or directory",
    "No space left on device",
)
OTHERS = (
    "{message} ",
    "Unknown ",
    "Command {",
    "Parameter {",
    "Invalid value",
    "Display ",
    "{place}object missing ",
    "Commands",
    "Arguments",
    "Parameters",
)


@cache
def texts() -> str:
    """Every string that the code holds, the parts of a message joined, with ␀ for what varies."""
    shown = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            shown += [_skeleton(node)] if isinstance(node, ast.JoinedStr | ast.Constant) else []
    return "\n".join(" ".join(one.split()) for one in shown if one)


def _skeleton(node: ast.expr, gap: str = "␀") -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(part.value if isinstance(part, ast.Constant) else gap for part in node.values)


@pytest.mark.parametrize("english", table())
def test_every_entry_is_said_somewhere(english):
    """Each piece between its names stands in the code, so that a changed message cannot leave its Korean behind."""
    korean = table()[english]
    names = re.findall(r"\{(\w+)\}", english)
    assert set(re.findall(r"\{(\w+)\}", korean)) <= set(names) and len(set(names)) == len(names)
    assert re.search("[가-힣]", korean)
    assert not re.search(r"\}(은|는|이|가|을|를|과|와|으로|로)(?![가-힣])", korean), (
        "a particle that would have to change"
    )
    if english not in GIVEN and not english.startswith(OTHERS):
        for piece in re.split(r"\{\w+\}", english):
            found = [one.strip() for one in re.split(r"[:.;,()]", piece)]
            assert not [part for part in found if len(part) > 7 and part not in texts()]


def _raised(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = node.exc.args[0]
            if isinstance(message, ast.JoinedStr | ast.Constant):
                yield _skeleton(message, "x1")


@pytest.mark.parametrize("name", MINE)
def test_every_message_of_the_main_commands_has_its_korean(name):
    for message in _raised(SOURCE / name):
        if message in PARTS:
            continue
        if (name == "train/prepare.py" and message.startswith(("head: ", "blocks."))) or message.startswith("dim: "):
            message = f"model.{message}"  # it is raised under("model")
        if "axes" not in message and "rule:" not in message:  # of Python calls only
            assert re.search("[가-힣]", translated(message).replace("고양이가 생선을 먹었다", "")), message


def test_names_in_a_message_are_translated_too():
    assert translated("there is no layer 7; this model has 4 (0 to 3)").startswith("층 7: 없는 번호입니다.")
    assert translated("top: 0 is not allowed; use 1 or more") == (
        "top: 0 값은 사용할 수 없습니다. 사용할 수 있는 값: 1 이상"
    )
    assert translated("nobody wrote this") == "nobody wrote this"
    assert helped("Memory limit of the trace, in MiB.") == "트레이스의 메모리 제한(MiB)."


@pytest.mark.parametrize("given", ["nichts.txt", "sub/nichts.txt", "sub/t.tx", "t.tx", "none/x.txt"])
def test_what_is_not_there_is_not_said_to_be_found(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("t.txt", "sub/t.txt"):
        (tmp_path / name).write_text("a")
    with pytest.raises(InputError) as raised:
        text_files(Path(given))
    said = translated(str(raised.value))
    place = "sub 폴더" if given.startswith("sub") else "현재 폴더"
    assert said.startswith(f"{given}: 그런 파일이나 폴더가 없습니다. {place}에 있는 ") and "찾았" not in said
    assert re.search(r"(비슷한 이름|것): .*t\.txt|것: sub", said) and "혹시" not in said and ". ." not in said


def test_every_answer_is_a_sentence_or_a_list():
    """No Korean line of the table breaks off in a question that asks nothing."""
    assert not [line for line in table().values() if "혹시" in line]


def test_a_message_is_one_line_with_the_options_of_the_command_line():
    options = {"max_new_tokens": "-n", "top_p": "--top-p", "stop": "--stop"}
    assert with_options("stop: wrong; stop it", options) == "--stop: wrong; stop it"
    assert with_options("set max_new_tokens to 3", options) == "set -n to 3"
    error = MemoryLimitError("x needs 9,437,185 bytes and the limit is 1,048,576; raise the limit (--memory)")
    wanted = "glassformer: x needs 9.0 MiB and the limit is 1.0 MiB; raise the limit (--memory 10)"
    assert complaint(error, "en") == wanted
    rows = "token 'x': not in this text; its rows are: 0 ⟨start⟩, 1 a. Give one of them, or its number"
    assert ": 0 ⟨시작⟩, 1 a. " in complaint(ValueError(rows), "ko") and "⟨start⟩" in complaint(ValueError(rows), "en")
    assert complaint(ValueError("two\n lines"), "en", "and more") == "glassformer: two lines and more"
