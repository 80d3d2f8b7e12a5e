"""The terminal's view of a training run."""

import functools
import io

import pytest
import wcwidth
from rich.console import Console

from glassformer.cli import main
from glassformer.data.display import visible
from glassformer.data.tokenizer import TokenizerSpec
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.terminal.stopping import Stopping
from glassformer.terminal.training import clock, sample_lines, show, size
from glassformer.train import Report, RunSpec

MODEL = ModelSpec(vocab=0, dim=8, blocks=(BlockSpec(mixer=AttentionSpec(heads=2)),))
RUN = RunSpec(data="somewhere/my.txt", model=MODEL, steps=3, tokenizer=TokenizerSpec(method="bpe", vocab=300))
SAMPLE = "the [bold] cat\x1b[31m\r\nsat\x07"


def reports(progress, steps, closed, events=(), best=None):
    for event in events:
        progress(*event)

    def inner():
        try:
            for step in range(1, steps + 1):
                due = step == 2
                yield Report(
                    step, steps, 3.0 / step, 1e-3, 1.0, step * 64, 1234.5, step, steps - step,
                    2.5 if due or best else None, 1.8 if due else None, SAMPLE if due else None, False, *(best or ()),
                )  # fmt: skip
        except GeneratorExit:
            closed.append(step)
            raise

    return inner()


def drawn(lang, steps=3, terminal=True, **more):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)
    start = functools.partial(reports, steps=steps, closed=[], **more)
    last = show(start, RUN, "out/[my]", console, Stopping(), lang)
    return last, console.file.getvalue()


@pytest.mark.parametrize(
    ("lang", "words"), [("en", "loss 1.000 · 1,234 tokens/s"), ("ko", "손실 1.000 · 초당 토큰 1,234개")]
)
def test_bar_losses_and_samples(lang, words):
    last, text = drawn(lang)
    assert last.step == 3 and words in text and "2.5000" in text and "1.800" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_sample_is_text_without_power_over_the_terminal(terminal):
    _, text = drawn("en", terminal=terminal)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "the [bold] cat" in line)
    assert "⟨ESC⟩[31m⟨CR⟩" in lines[at] and lines[at + 1].startswith("  sat⟨BEL⟩"), "its lines stay lines"
    assert "\x1b[31m" not in text and "\x07" not in text and "out/[my]" in text


ODD = "고양이가" * 9 + "\x1b[2J " + "👩🏽‍💻" * 9 + "\u1100\u1161\u11a8" * 30 + "e\u0301" * 30 + "⟨E3⟩\ta\u202eb\n\n끝 "


@pytest.mark.parametrize("columns", [3, 17, 38])
def test_a_sample_is_folded_by_what_a_terminal_shows(columns):
    """Never inside a character, and never wider than the terminal; nothing is lost."""
    lines = sample_lines(ODD, columns)
    shown = [visible(line) for line in ODD.strip().split("\n")]
    assert "".join(lines) == "".join(shown) and lines[-2:] == ["", "끝"]
    assert max(map(wcwidth.wcswidth, lines)) <= columns
    assert min(map(wcwidth.wcswidth, lines[: len(lines) // 2])) >= columns - 1
    whole = {cluster for line in shown for cluster in wcwidth.iter_graphemes(line)}
    assert {cluster for line in lines for cluster in wcwidth.iter_graphemes(line)} == whole
    assert sample_lines(ODD, None) == shown


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        (
            "en",
            [
                "Reading my.txt",
                "Learning a bpe tokenizer",
                "Turning 20.5 kB",
                "Going on from step 1",
                "Training on my.txt, 3 steps",
            ],
        ),
        (
            "ko",
            [
                "텍스트를 읽습니다: my.txt",
                "bpe 토크나이저를 학습",
                "토큰으로 바꿉니다: 20.5 kB",
                "1단계에서 이어서",
                "학습 텍스트: my.txt · 3단계",
            ],
        ),
    ],
)
def test_it_says_at_once_what_it_does_in_plain_lines(lang, words):
    events = [("tokenizer", 0, 0), ("text", 0, 20_480), ("text", 20_480, 20_480), ("resume", 1, 3)]
    _, text = drawn(lang, terminal=False, events=events)
    lines = text.splitlines()
    assert [word in line for word, line in zip(words, lines, strict=False)] == [True] * 5
    assert "\r" not in text and "\x1b" not in text
    assert sum("/3 · " in line for line in lines) == 3, "without a bar a line now and then says how it goes"
    assert "2.5000" in text


@pytest.mark.parametrize("text", [b"", "고양이".encode("cp949"), b"hi"])
def test_a_text_that_is_refused_is_never_said_to_be_trained_on(tmp_path, capsys, text):
    (tmp_path / "my.txt").write_bytes(text)
    assert main(["train", str(tmp_path / "my.txt"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "Reading my.txt …" and said.err.count("\n") == 1
    assert "Training on" not in said.out


def test_sizes():
    assert [size(n) for n in (0, 999, 1000, 20_480, 999_949, 999_950, 2_000_000)] == [
        "0 bytes", "999 bytes", "1.0 kB", "20.5 kB", "999.9 kB", "1.0 MB", "2.0 MB"
    ]  # fmt: skip


def test_a_complete_run_says_how_to_go_on():
    _, text = drawn("en", terminal=False, events=[("resume", 3, 3)])
    assert "complete at step 3" in text and "Training on" not in text and "--set steps=N" in text and "--fresh" in text


@pytest.mark.parametrize(("lang", "word"), [("en", "by heart"), ("ko", "과적합")])
def test_overfitting_is_named_with_what_to_do(lang, word):
    _, text = drawn(lang, best=(2.5, 1, 2.3))
    assert word in text and "--set steps=1)" in text and "2.300" in text and "dropout" in text
    assert word not in drawn(lang, best=(2.5, 1, 2.49))[1], "what lies within the noise is no overfitting"
    assert word not in drawn(lang, best=(2.5, 3, 2.5))[1]
    assert word not in drawn(lang, best=(2.3, 1, 2.3))[1], "the whole split is harder than the windows on the way"


def test_times():
    assert [clock(7), clock(754), clock(3723)] == ["0:07", "12:34", "1:02:03"]
