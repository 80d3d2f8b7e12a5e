"""What the code promises about itself: small files and functions, a word on everything public, nothing printed."""

import ast
import importlib
import re
import sys
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import glassformer

SOURCE = Path(glassformer.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
PRINTING = ("cli.py", "verbs", "terminal", "bench")  # only these write to a terminal; bench holds programs


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path):
    return path.relative_to(SOURCE).as_posix()


def each_file(check):
    """One test of all files, which names each one that is wrong."""

    def check_all():
        wrong = []
        for path in FILES:
            try:
                check(path)
            except AssertionError as error:
                wrong.append(f"{name_of(path)}: {error}")
        assert not wrong, "\n".join(wrong)

    assert FILES
    return check_all


@each_file
def test_files_and_functions_are_small(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 400
    assert max((len(line) for line in lines), default=0) <= 120
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            lines = node.end_lineno - body[0].lineno + 1  # what it does; a command line's options are its signature
            assert lines <= 40, f"{node.name} has {lines} lines"


@each_file
def test_everything_public_has_a_docstring(path):
    """Modules, classes, functions and methods; not what begins with _, nor what overrides a documented method."""
    assert ast.get_docstring(tree(path)), "the file says what it is about"
    pending = [(tree(path), "")]
    while pending:
        parent, place = pending.pop()
        for node in parent.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            wordless = ("forward", "on_broken_pipe")  # what is meant is said by the class, or by the library
            assert ast.get_docstring(node) or node.name in wordless, f"{place}{node.name} has no docstring"
            if isinstance(node, ast.ClassDef):
                pending.append((node, f"{place}{node.name}."))


def specs():
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Spec") for base in node.bases):
                yield pytest.param(path, node, id=node.name)


@pytest.mark.parametrize(("path", "node"), list(specs()))
def test_every_setting_is_explained(path, node):
    """In the docstring of its class, by name, or in a comment on its line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    words = set(re.findall(r"\w+", ast.get_docstring(node) or ""))
    for field in node.body:
        if isinstance(field, ast.AnnAssign):
            name = field.target.id
            assert name in words or "#" in lines[field.lineno - 1], f"{node.name}.{name} is not explained"


@each_file
def test_nothing_prints_but_the_command_line(path):
    if name_of(path).startswith(PRINTING):
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called != "print" and not re.fullmatch(r"sys\.(stdout|stderr)\.write", called), f"line {node.lineno}"


@each_file
def test_no_file_holds_a_replacement_character_or_a_path_of_some_machine(path):
    text = path.read_text(encoding="utf-8")
    assert "\ufffd" not in text
    assert not re.search(r"/(home|root|work|Users)/", text)


def test_public_names_exist():
    for name in glassformer.__all__:
        assert getattr(glassformer, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        glassformer.nothing


def test_no_two_test_files_have_one_name():
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert len(names) == len(set(names)), "pytest imports them by their name alone"


def imported(node):
    """The packages that an import names; none of this package's own."""
    names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
    names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"glassformer"}


def test_every_package_that_is_imported_is_one_that_the_package_names():
    """What another package happens to bring may be gone, or another version, with its next one."""
    settings = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*settings["dependencies"], *(one for extra in settings["optional-dependencies"].values() for one in extra)]
    named = {re.split(r"[^\w-]", one)[0].lower().replace("-", "_") for one in named}
    found = {name.lower() for path in FILES for node in ast.walk(tree(path)) for name in imported(node)}
    assert {"anyio", "torch", "starlette"} <= found and found <= named, sorted(found - named)


def test_what_is_imported_late_is_there():
    """An import within a function is seen by no linter, and fails only when somebody comes by."""
    wrong = []
    for path in FILES:
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            module = importlib.import_module("." * node.level + (node.module or ""), package)
            for one in (one.name for one in node.names if not hasattr(module, one.name)):
                if not hasattr(module, "__path__") or find_spec(f"{module.__name__}.{one}") is None:
                    wrong.append(f"{name_of(path)}:{node.lineno}: {module.__name__} has no {one}")
    assert not wrong, "\n".join(wrong)
