"""`glassformer check`: its exit status, its table in both languages, and its JSON."""

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from cli_runs import refused, run, write

import glassformer as gf
from glassformer import certificate
from glassformer.catalogue import folder_of
from glassformer.certificate import CHECKS
from glassformer.data.display import width
from glassformer.mixers.multihead import SoftmaxAttention
from glassformer.terminal.certificate import lines
from glassformer.terminal.korean import translated
from glassformer.terminal.words import WORDS

SOURCE = Path(certificate.__file__).parent


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "my")


def spoil(monkeypatch):
    """Let every fast path differ from the traced one."""
    gather = SoftmaxAttention.gather
    monkeypatch.setattr(
        SoftmaxAttention,
        "gather",
        lambda self, z, call: gather(self, z * 1.01 if call.wants(self, "pattern") else z, call),
    )


def test_a_model_that_passes_gives_status_0_and_one_that_fails_1(capsys, monkeypatch, folder):
    status, out, err = run(capsys, "check", folder, "--quick", "--lang", "en")
    assert (status, err) == (0, "") and out.startswith("Certificate of my: passed   float32 on cpu")
    assert re.search(r"  passed  with the cache, against without +\d\.\de-0[678] +1e-05\n", out)
    assert "certificates/" in out and "--again" not in out
    assert "--again measures anew" in " ".join(run(capsys, "check", folder, "--quick", "--lang", "en")[1].split())
    spoil(monkeypatch)
    status, out, err = run(capsys, "check", folder, "--quick", "--again", "--lang", "en")
    assert status == 1 and err == "" and out.startswith("Certificate of my: FAILED")
    assert re.search(r"  FAILED  fast path, against the one traced +\S+ +1e-05\n", out)
    assert "most in output" in out and "the largest by block: output" in out


@pytest.fixture
def fetched(monkeypatch, folder):
    """pull, which finds a model here."""

    def copied(name, report):
        if not folder_of(name).is_dir():
            gf.load(folder).save(folder_of(name))
        return folder_of(name)

    monkeypatch.setattr("glassformer.pull.pull", copied)


def test_what_is_fetched_gets_the_quick_half(capsys, monkeypatch, fetched):
    status, out, _ = run(capsys, "pull", "minilm-l6", "--lang", "en")
    assert status == 0 and "Its certificate passed, the quick half; all of it: glassformer check minilm-l6" in out
    made = json.loads((folder_of("minilm-l6") / "certificate.json").read_text(encoding="utf-8"))
    assert made["quick"] and made["passed"]
    assert re.search(r"minilm-l6 .* certificate passed\n", run(capsys, "models", "--lang", "en")[1])
    assert re.search(r"minilm-l6 .* 검증 통과\n", run(capsys, "models", "--lang", "ko")[1])


def test_what_is_fetched_and_fails_says_so(capsys, monkeypatch, fetched):
    spoil(monkeypatch)
    status, out, _ = run(capsys, "pull", "minilm-l6", "--lang", "en")
    assert status == 1 and "Certificate of minilm-l6: FAILED" in out
    assert re.search(r"minilm-l6 .* certificate FAILED\n", run(capsys, "models", "--lang", "en")[1])
    status, out, err = run(capsys, "pull", "minilm-l6", "--json", "--lang", "en")
    found = json.loads(out)
    assert status == 1 and found["certificate"]["passed"] is False and "minilm-l6 lies in" in err


def test_mistakes_give_status_2(capsys, folder):
    assert "no model 'nowhere'" in refused(capsys, "check", "nowhere")
    assert "dtype: 'float8'" in refused(capsys, "check", folder, "--dtype", "float8")
    assert "not expected here" in refused(capsys, "check", folder, "again")


def test_the_json_form(capsys, folder):
    status, out, _ = run(capsys, "check", folder, "--quick", "--json")
    found = json.loads(out)
    assert status == 0 and (found["format"], found["passed"], found["quick"]) == (1, True, True)
    assert [line["name"] for line in found["lines"]] == [one.name for one in CHECKS if not one.slow]
    assert set(found["lines"][0]) == {"name", "status", "value", "bound", "unit", "reason", "detail"}
    assert found["versions"]["torch"] == torch.__version__ and len(found["digest"]) == 64
    beside = json.loads((Path(folder) / "certificate.json").read_text(encoding="utf-8"))
    assert beside["lines"] == found["lines"] and found["kept"][-1] == str(Path(folder) / "certificate.json")


def test_korean(capsys):
    out = run(capsys, "check", "lenet", "--lang", "ko")[1]
    assert out.startswith("lenet 검증서: 통과") and "이미지는 한 번에 통째로 읽습니다." in out
    assert not re.search("[a-z]{3,} [a-z]{2,} [a-z]{2,}", out), out


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("columns", [40, 60, 100, 200])
def test_no_line_is_wider_than_the_terminal(lang, columns):
    made = gf.check("vit", quick=True)
    shown = list(lines(made, [certificate.numbers(line) for line in made.lines], lang, columns))
    assert max(width(line.plain) for line in shown if "certificates" not in line.plain) <= columns
    cells = [line.plain for line in shown if re.search(r"\de-0\d\)?$", line.plain)]
    assert len(cells) >= 2 and len({width(line) for line in cells}) == 1, "the columns are aligned"


def test_every_check_has_its_words():
    assert {f"check_{one.name}" for one in CHECKS} <= WORDS.keys()
    assert len({one.name for one in CHECKS}) == len(CHECKS)


def reasons():
    """The texts with which a line says why, from the code."""
    for path in SOURCE.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") in ("without", "failed", "judged"):
                for given in [*call.args[1:], *(one.value for one in call.keywords)]:
                    yield from texts(given, named)
        yield from (text for name, value in named.items() if name.isupper() for text in texts(value, {}))


def texts(node, named):
    match node:
        case ast.Constant(value=str(text)) if " " in text:
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(part.value if isinstance(part, ast.Constant) else "1,048" for part in parts)
        case ast.IfExp():
            yield from (*texts(node.body, named), *texts(node.orelse, named))
        case ast.Name(id=name) if name in named:
            yield from texts(named[name], {})


def test_every_reason_has_its_korean():
    found = set(reasons())
    assert len(found) >= 8, "the search finds them"
    for text in found:
        assert re.search("[가-힣]", translated(text)), text
