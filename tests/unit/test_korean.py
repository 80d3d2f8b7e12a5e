"""Korean messages and help: the table belongs to what the code says, and a message finds its text in it."""

import ast
import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest

import glassformer
from glassformer import errors
from glassformer.data.text import text_files
from glassformer.errors import InputError, MemoryLimitError
from glassformer.terminal.complaint import complaint, with_options
from glassformer.terminal.korean import helped, table, translated

SOURCE = Path(glassformer.__file__).parent
GAP = "1,048,576"  # a number, so that what is in bytes is seen to be so
# What the operating system and cyclopts say; test_cli_mistakes meets the most frequent of these.
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


def _skeleton(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(part.value if isinstance(part, ast.Constant) else "␀" for part in node.values)


def test_every_entry_is_said_somewhere():
    """Each piece between its names stands in the code, so that a changed message cannot leave its Korean behind."""
    assert len(table()) > 500
    for english, korean in table().items():
        names = re.findall(r"\{(\w+)\}", english)
        assert set(re.findall(r"\{(\w+)\}", korean)) <= set(names) and len(set(names)) == len(names), english
        assert re.search("[가-힣]", korean), english
        # a particle that would have to change
        assert not re.search(r"\}(은|는|이|가|을|를|과|와|으로|로)(?![가-힣])", korean), korean
        if english not in GIVEN and not english.startswith(OTHERS):
            for piece in re.split(r"\{\w+\}", english):
                found = [one.strip() for one in re.split(r"[:.;,()]", piece)]
                assert not [part for part in found if len(part) > 7 and part not in texts()], english


class Messages:
    """What the raise statements of a file can say, as texts in which GAP stands for what varies."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        near = ast.walk(ast.parse((SOURCE / "errors.py").read_text(encoding="utf-8")))
        named = [one for one in (*near, *ast.walk(self.tree)) if isinstance(one, ast.FunctionDef)]
        self.functions = {one.name: one for one in named}

    def __iter__(self):
        for function in [self.tree, *(one for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef))]:
            for node in _own(function):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                    kind = getattr(node.exc.func, "id", "Error")
                    if issubclass(getattr(errors, kind, Exception), errors.GlassformerError):
                        for message in set(self.texts(node.exc.args[0], function)):
                            yield kind, message, ast.unparse(node.exc.args[0])

    def texts(self, node: ast.AST, function: ast.AST) -> list[str]:
        """The texts that an expression can be: of a choice both, of a name what it was given, of a call its returns."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                return self.joined([self.texts(part, function) for part in parts])
            case ast.FormattedValue(value=value, format_spec=None, conversion=-1):
                return self.texts(value, function)
            case ast.IfExp():
                return self.texts(node.body, function) + self.texts(node.orelse, function)
            case ast.BinOp(op=ast.Add()):
                return self.joined([self.texts(node.left, function), self.texts(node.right, function)])
            case ast.Name(id=name):
                given = [one.value for one in _own(function) if isinstance(one, ast.Assign) and _to(one, name)]
                given = [one for one in given if name not in _names(one)]  # not what is made of itself
                return [text for one in given for text in self.texts(one, function)] or [GAP]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in self.functions:
                made = self.functions[name]
                returned = [one.value for one in _own(made) if isinstance(one, ast.Return) and one.value]
                return [text for one in returned for text in self.texts(one, made)] or [GAP]
        return [GAP]

    def joined(self, parts: list[list[str]]) -> list[str]:
        return ["".join(one) for one in product(*(list(dict.fromkeys(part)) for part in parts))]


def _own(function: ast.AST):
    """The nodes of a function but for those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _own(node)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _to(assigned: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in assigned.targets)


FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("bench/")])  # those print English only
def test_every_message_has_its_korean(name):
    """Of every raise statement in the package, whether the command line reaches it or not."""
    for kind, message, said in Messages(SOURCE / name):
        if re.fullmatch(rf"({GAP}|prompt|[:. ])*", message):  # the message of another error, or one made elsewhere
            assert "error" in said or said.startswith("with_options("), said
            continue
        error = getattr(errors, kind, errors.InputError)(message)
        shown = complaint(error, "ko").replace("고양이가 생선을 먹었다", "")
        assert re.search("[가-힣]", shown), message
        english = re.sub(rf"`[^`]*`|\([^)]*\)|--?[\w.=-]+|{GAP}", "", shown)
        assert not re.search(r"[a-z]{2,} [a-z]+ [a-z]+", english), shown


def test_the_messages_of_a_file_are_found(tmp_path):
    """Those of a choice, of a name, of a function, and joined ones; not those of Python's own errors."""
    (tmp_path / "code.py").write_text(
        "def why(x):\n    return f'{x} is bad' if x else 'none'\n"
        "def check(x):\n    hint = 'A' if x else 'B'\n"
        "    raise InputError(f'{x}: {hint}')\n"
        "    raise InputError(why(x) + '!')\n"
        "    raise ValueError('own')\n"
    )
    assert sorted(message for _, message, _ in Messages(tmp_path / "code.py")) == sorted(
        [f"{GAP}: A", f"{GAP}: B", f"{GAP} is bad!", "none!"]
    )


def test_a_blank_line_stands_between_entries_and_one_word_is_used_for_one_thing():
    text = (SOURCE / "terminal" / "korean.txt").read_text(encoding="utf-8")
    for block in text.rstrip("\n").split("\n\n"):
        lines = block.split("\n")
        assert len(lines) == (1 if block.startswith("# ") else 2) and all(lines), block
    assert not re.findall("되살리|깨[졌진]|망가", text), "복구하다, 손상되다"


def test_a_term_is_written_in_one_way_wherever_it_is_read():
    root = Path(__file__).parents[2]
    files = [*root.glob("docs/ko/*.md"), *root.glob("README*.md"), *(root / "ui" / "src").rglob("*.svelte")]
    files += [one for kind in ("*.py", "*.txt") for one in SOURCE.rglob(kind)]
    assert len(files) > 200
    for file in files:
        assert not re.findall("소프트맥스|시그모이드", file.read_text(encoding="utf-8")), (
            f"{file.name}: softmax, sigmoid"
        )


def test_a_way_between_tokens_is_a_path_and_what_is_learnt_a_parameter():
    """길이 is a length too, and 파라미터 the same as 매개변수; each thing has one word wherever it is read."""
    root = Path(__file__).parents[2]
    files = [*root.glob("docs/ko/*.md"), root / "README.ko.md", *SOURCE.rglob("*.py"), *SOURCE.rglob("*.txt")]
    files += [one for kind in ("*.svelte", "*.ts") for one in (root / "ui" / "src").rglob(kind)]
    wrong = "파라미터|길 없음|길이 (있음|없습니다|없으면)|섞기 끄기|의 섞기|말했을|손으로 바꾼|눈을 위한|모니터가"
    found = {one.name: re.search(wrong, one.read_text(encoding="utf-8")) for one in files}
    assert len(files) > 200 and {name: one[0] for name, one in found.items() if one} == {}


@pytest.mark.parametrize(
    ("what", "shown"), [("entries", "항목"), ("tensors", "텐서"), ("texts", "텍스트"), ("numbers", "수")]
)
def test_what_a_broken_gguf_file_announces_is_korean_too(what, shown):
    said = translated(f"x.gguf is broken: it cannot hold 7 {what}; fetch it again")
    assert f"({shown} 7개)" in said and what not in said


def test_of_two_texts_that_fit_the_closer_one_is_taken():
    """The reason of a file that cannot be written is not the reason of one that cannot be opened."""
    assert translated("x: cannot be written (Permission denied); check the path and its permissions") == (
        "x: 쓸 수 없습니다(권한이 없습니다). 경로와 권한을 확인하십시오."
    )
    assert translated("x: cannot be written (No space left on device); free some space") == (
        "x: 쓸 수 없습니다(디스크에 남은 공간이 없습니다). 저장 공간을 확보하십시오."
    )
    assert translated("x: Permission denied; check the path and its permissions") == (
        "x: 권한이 없습니다. 경로와 권한을 확인하십시오."
    )


def test_a_message_behind_a_place_is_found():
    assert translated("out/my: model.dim: the model is too large to be built; use a smaller width or vocabulary") == (
        "out/my: model.dim: 모델이 너무 커서 만들 수 없습니다. 너비나 어휘를 줄이십시오."
    )
    assert translated("nobody: wrote this") == "nobody: wrote this"


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


@pytest.mark.parametrize("given", ["int", "float", "bool", "Parameters", "Commands", "Arguments", "start", "0 or more"])
@pytest.mark.parametrize("verb", ["evaluate", "train", "trace -m"])
def test_what_a_user_named_is_not_translated(given, verb, capsys, tmp_path, monkeypatch):
    from glassformer.cli import main

    monkeypatch.chdir(tmp_path)
    arguments = ["trace", "a", "-m", given] if verb == "trace -m" else [verb, given]
    assert main([*arguments, "--lang", "ko"]) == 2
    assert given in capsys.readouterr().err
