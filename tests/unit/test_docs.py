"""README and docs: what they show runs, both languages show the same, and every link leads somewhere."""

import importlib.util
import inspect
import io
import re
import shutil
import tokenize
import tomllib
from pathlib import Path

import pytest
import torch

from contract.cases import ALIGNMENTS, DIM
from contract.cases import MIXERS as cases_of_mixers
from glassformer import sources
from glassformer.checkpoint import save_model
from glassformer.data.tokenizer import TokenizerSpec, train_tokenizer
from glassformer.explain.explained import EXPLANATIONS
from glassformer.mask import Mask
from glassformer.mixers import MIXERS
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, Model, ModelSpec
from glassformer.nn.maps import LAYERS
from glassformer.nn.position import RopeSpec
from glassformer.serve import edits as limits
from glassformer.serve import guard, runs
from glassformer.serve.models import MOST_MODELS
from glassformer.serve.work import AT_ONCE, MOST_WAITING
from glassformer.serve.writing import MOST_TOKENS
from glassformer.verbs.explore import explore

ROOT = sources.SHIPPED.parents[2]
_spec = importlib.util.spec_from_file_location("pages", ROOT / "dev" / "pages.py")
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)

PAIRS = pages.pages()
ALL = [page for pair in PAIRS.items() for page in pair]
FAMILIES = ("families.md", "memory.md", "images.md")
SPECS = (*MIXERS, *LAYERS)
LANG = re.compile(r" --lang (en|ko)\b")


def name(page) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """The folder of shipped models; an untrained model of the same shape stands in where there is none yet."""
    if (sources.SHIPPED / sources.DEFAULT_MODEL / "model.json").is_file():
        return sources.SHIPPED
    folder = tmp_path_factory.mktemp("shipped")
    tokenizer = train_tokenizer(TokenizerSpec(vocab=1024), ROOT / "docs")
    block = BlockSpec(mixer=AttentionSpec(heads=8, position=RopeSpec()))
    spec = ModelSpec(vocab=tokenizer.vocab_size, dim=64, blocks=(block,) * 4, context=512)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_model(Model(spec), folder / sources.DEFAULT_MODEL, {})
    tokenizer.save(folder / sources.DEFAULT_MODEL / "tokenizer.json")
    return folder


@pytest.fixture
def desk(shipped, tmp_path, monkeypatch):
    """A working folder as a reader would have it, and the shipped model."""
    monkeypatch.setattr(sources, "SHIPPED", shipped)
    monkeypatch.setenv("GLASSFORMER_DATA", str(pages.DATA))
    pages.desk(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The explorer's saves whole pages, which takes its time.
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page), marks=[pytest.mark.slow] * (page.stem == "explorer")) for page in PAIRS]
)
def test_what_a_page_shows_runs(page, desk):
    names: dict = {"__name__": "page"}
    for block in filter(pages.is_run, pages.blocks(page)):
        place = f"{name(page)}, line {block.line}"
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
        elif block.language == "toml" and block.info:
            (desk / block.info).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            for arguments in pages.commands(block):
                status, _, complaint = pages.printed(arguments)
                assert status == (2 if block.info == "mistake" else 0), f"{place}: {arguments}: {complaint}"


def test_what_the_readme_says_runs_in_a_clone():
    """Its commands name no file that only its reader could have, but in the block that is about one's own text."""
    shown = [block for block in pages.blocks(ROOT / "README.md") if block.language == "sh" and block.info != "no-run"]
    named = [one for block in shown for command in pages.commands(block) for one in command if "." in one[:-1]]
    files = [one for one in named if " " not in one]
    assert "README.md" in files and all((ROOT / one).is_file() for one in files), files


@pytest.mark.parametrize("page", PAIRS, ids=name)
def test_both_languages_show_the_same(page):
    def shown(one):
        kept = [block for block in pages.blocks(one) if block.language in ("python", "sh", "toml")]
        return [(block.language, block.info, _without_comments(block)) for block in kept]

    english, korean = shown(page), shown(PAIRS[page])
    assert english == korean
    assert _headings(page) == _headings(PAIRS[page])


@pytest.mark.parametrize("page", ALL, ids=name)
def test_links_lead_somewhere(page):
    text = pages.FENCE.sub("", page.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links or page.name == "CHANGELOG.md"
    for link in links:
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        if anchor:
            assert anchor in _anchors(target), f"{name(page)}: {link}"


@pytest.mark.parametrize("page", ALL, ids=name)
def test_quoted_outputs_are_what_the_commands_print(page, desk, shipped):
    """Words and numbers; see dev/pages.py on the last digit and on what is drawn at random."""
    if not shipped.is_relative_to(ROOT):
        pytest.skip("no shipped model in this checkout")
    assert pages.stale(page.read_text(encoding="utf-8")) == []


FIGURES = [(*figure, name(page)) for page in ALL for figure in pages.figures(page)]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "file"), [figure[:2] for figure in FIGURES], ids=[figure[2] for figure in FIGURES])
def test_figures_are_what_the_commands_draw(command, file, shipped, tmp_path):
    if not shipped.is_relative_to(ROOT):
        pytest.skip("no shipped model in this checkout")
    mine = Path(shutil.copy(file, tmp_path))
    assert pages.drawn_as(command, mine)
    changed = mine.read_text(encoding="utf-8").replace("0% (", "5% (")
    mine.write_text(changed, encoding="utf-8")
    assert not pages.same_numbers(mine, mine.with_suffix(".new.svg"))


@pytest.mark.parametrize(
    ("printed", "quoted", "wanted"),
    [
        ("z 0.566 away", "z 0.566 away", True),
        ("z 0.566 away", "z 0.567 away", True),  # one in the last digit
        ("z 0.566 away", "z 0.568 away", False),
        ("z −0.566 away", "z 0.566 away", False),
        ("z 0.566 away", "z 0.5660 away", False),
        ("z 0.566 away", "v 0.566 away", False),
        ("  고  █████▉   29.59%", "  고  ██████   29.60%", True),
        ("  고  █████▉   29.59%", "  고  █████▉   29.62%", False),
        ("units above zero: 49%", "units above zero: 50%", True),
        ("token 8 of 0–8", "token 7 of 0–8", False),
        ("1,234 tokens", "1,235 tokens", False),
        ("at most 1.7e-07", "at most 2.9e-07", True),
        ("at most 1.7e-07", "at most 1.7e-05", False),
        ("differ 0 1e-05", "differ 1.7e-07 1e-05", True),  # another processor rounds otherwise
        ("differ 0 1e-05", "differ 1.7e-04 1e-05", False),
        ("0.1458  0.1165", "0.1458", False),
    ],
)
def test_a_wrong_number_in_a_quotation_is_found(printed, quoted, wanted):
    assert pages.same(printed, quoted) is wanted and pages.same(quoted, printed) is wanted


def test_what_needs_a_fetched_model_counts_where_it_was_fetched(monkeypatch):
    block = pages.Block("sh", "pulled", "glassformer trace hello -m smollm2-135m\n", 1)
    assert not pages.is_run(block) and not pages._can_be_run(block.text)
    monkeypatch.setattr("glassformer.catalogue.pulled", lambda: ["smollm2-135m"])
    assert pages.is_run(block) and pages._can_be_run(block.text)


def test_the_statements_page_names_tests_that_exist():
    text = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (S\d+) \|(.*)\|$", text, re.M))
    assert list(rows) == [f"S{i}" for i in range(1, 33)]
    for number, row in rows.items():
        for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row):
            source = ROOT / path
            assert source.is_file() and f"def {test}(" in source.read_text(encoding="utf-8"), (
                f"{number}: {path}::{test}"
            )


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__struct_config__.tag)
@pytest.mark.parametrize("folder", ["docs", "docs/ko"])
def test_every_setting_and_value_of_a_family_is_in_its_section(spec, folder):
    """One section of the pages about families names its kind and all that can be set and looked at."""
    tag = spec.__struct_config__.tag
    pieces = [piece for page in FAMILIES for piece in _sections(ROOT / folder / page) if f'`kind = "{tag}"`' in piece]
    pieces += [piece for piece in _sections(ROOT / folder / "model.md") if tag == "attention"]
    text = re.sub(r"`mask\.", "`", "\n".join(pieces))
    settings = [field for field in spec.__struct_fields__ if field not in ("mask", "position")]
    if tag == "attention":
        settings += Mask.__struct_fields__
    missing = [one for one in (*settings, *_values(spec)) if f"`{one}`" not in text and f"`{one} = " not in text]
    assert pieces and not missing, f"{folder}: {tag}: {missing}"


VIEW = re.compile(r'\{ id: "(\w+)", title: \{ en: "([^"]+)", ko: "([^"]+)" \}')


@pytest.mark.parametrize(("folder", "lang"), [("docs", 1), ("docs/ko", 2)])
def test_every_view_of_the_explorer_has_its_section(folder, lang):
    views = VIEW.findall((ROOT / "ui" / "src" / "views" / "index.ts").read_text(encoding="utf-8"))
    text = (ROOT / folder / "explorer.md").read_text(encoding="utf-8")
    assert len(views) >= 11 and sorted(re.findall(r"^### (.+)$", text, re.M)) == sorted(view[lang] for view in views)
    assert [view for view, _, _ in views if f"`{view}`" not in text] == []
    options = [one.removeprefix("--no-").removeprefix("--") for one in re.findall(r"--[a-z-]+", text)]
    assert set(inspect.signature(explore).parameters) - {"text", "common"} <= set(options)


@pytest.mark.parametrize("folder", ["docs", "docs/ko"])
def test_the_limits_of_the_explorer_are_those_of_the_code(folder):
    text = " ".join((ROOT / folder / "explorer.md").read_text(encoding="utf-8").split())
    text = re.sub(r" ?\([^()]*\)", "", text)
    million, mib = runs.MOST_PIXELS // 1_000_000, guard.BODY_BYTES >> 20
    length, new = f"{limits.LONGEST_TEXT:,}", f"{MOST_TOKENS:,}"
    said = {
        "docs": (
            "{run} runs, {long} long answers and {quick} short ones, and opens or fetches {fetch} models",
            f"up to {length} characters, {limits.MOST_EDITS} edits, a picture of {million} million pixels, a request",
            f"request of {mib} MiB, {new} written tokens",
            f"four kinds above {MOST_WAITING} requests may wait",
            f"Up to {('no', 'one', 'two', 'three', 'four', 'five', 'six')[MOST_MODELS]} models stay in memory",
            "more than 4.5 kB",
        ),
        "docs/ko": (
            "실행 {run}개, 오래 걸리는 답 {long}개, 짧은 답 {quick}개를 계산하고, 모델 {fetch}개를",
            f"{length}자까지의 텍스트, 바꾸기 {limits.MOST_EDITS}개, {million}00만 픽셀의 그림, {mib}MiB의 요청",
            f"이어 쓰는 토큰 {new}개까지",
            f"네 가지마다 {MOST_WAITING}개까지",
            f"모델은 {('영', '한', '두', '세', '네', '다섯', '여섯')[MOST_MODELS]} 개까지 메모리에",
            "4.5kB보다 큰",
        ),
    }[folder]
    assert [one for one in said if one.format(**AT_ONCE) not in text] == []
    assert "image.length < 6000" in (ROOT / "ui/src/views/Image.svelte").read_text(encoding="utf-8")  # base64 of 4.5 kB


@pytest.mark.parametrize("folder", ["docs", "docs/ko"])
def test_a_view_names_the_statements_that_name_it(folder):
    """Explorer and statements say the same about which view shows which statement."""
    place = ROOT / folder
    pieces = re.split(r"^### ", (place / "explorer.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    shown = {_slug(piece.partition("\n")[0]): _numbers_of(piece) for piece in pieces}
    rows = re.findall(r"^\| S(\d+) \|(.*)\|$", (place / "statements.md").read_text(encoding="utf-8"), re.M)
    named = {view: {int(number) for number, row in rows if f"(explorer.md#{view})" in row} for view in shown}
    assert sum(map(len, named.values())) > 30 and shown == named


def _numbers_of(piece) -> set[int]:
    """The statements that a piece links: "S3 to S5, S8", "S3부터 S5까지"."""
    ranges = re.findall(r"S(\d+)(?:(?: to |부터 )S(\d+))?", " ".join(re.findall(r"\[(S\d[^\]]*)\]", piece)))
    return {number for first, last in ranges for number in range(int(first), int(last or first) + 1)}


@pytest.mark.parametrize("folder", ["docs", "docs/ko"])
def test_every_explanation_is_listed_with_its_settings(folder):
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (ROOT / folder / "explain.md").read_text(encoding="utf-8"), re.M)
    listed = {name: cells.split(" | ") for name, cells in rows}
    for name, one in EXPLANATIONS.items():
        _, settings, _ = listed[name]
        assert set(re.findall(r"`(\w+)`", settings)) == set(one.settings.__struct_fields__), name


def _values(spec) -> set[str]:
    """What a trace can show of a mixer, with any of the settings that the laws are checked with."""
    if spec in LAYERS:
        return set(LAYERS[spec].cards)
    cases = [one for one in (*cases_of_mixers.values(), *ALIGNMENTS.values()) if type(one) is spec]
    with torch.device("meta"):
        return {name for one in cases for name in MIXERS[spec](one, DIM).cards}


def _sections(page) -> list[str]:
    return re.split(r"^## ", pages.FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.M)[1:]


def _without_comments(block) -> str | dict:
    if block.language == "toml":
        return tomllib.loads(block.text)
    if block.language == "sh":
        return LANG.sub("", re.sub(r"(^|\s+)#.*$", "", block.text, flags=re.M))
    tokens = tokenize.generate_tokens(io.StringIO(block.text).readline)
    return " ".join(token.string for token in tokens if token.type not in (tokenize.COMMENT, tokenize.NL))


def _headings(page) -> list[int]:
    text = pages.FENCE.sub("", page.read_text(encoding="utf-8"))
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]


def _anchors(page) -> set[str]:
    """The anchors that GitHub gives to the headings, and explicit ones."""
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.+)$", pages.FENCE.sub("", text), re.M)
    slugs = set(map(_slug, heads))
    return slugs | set(re.findall(r'<a id="([\w-]+)">', text))


def _slug(head) -> str:
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
