"""The sheet of a mixer of any family: no model is refused, and its numbers are those of the run."""

from __future__ import annotations

import json

import pytest
import torch
import wcwidth
from quick import quick_share

import glassformer as gf
from contract.cases import CASES, built
from glassformer.api import Loaded
from glassformer.cli import main
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.influence import influence
from glassformer.explain.mixing import MixerSheet
from glassformer.explain.sheet import Sheet
from glassformer.mixers.recurrent import GruSpec, StartSpec
from glassformer.model import BlockSpec, EncoderDecoder, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.terminal.mixing import lines

IDS = [3, 7, 1, 12, 5, 9]


def traced(name: str):
    loaded = Loaded(built(name).eval())
    return loaded.trace((IDS, IDS[:4]) if isinstance(loaded.model, EncoderDecoder) else IDS)


@pytest.mark.parametrize("name", quick_share(CASES, 4, 2))
def test_every_model_has_a_sheet(name):
    trace = traced(name)
    sheet = trace.sheet("#2")
    assert sheet.position == 2 and sheet.steps
    if isinstance(sheet, Sheet):
        return
    assert all(row.norm >= 0 for row in sheet.rows) and sum(row.share for row in sheet.rows) == pytest.approx(1)
    if trace.stacks[-1].model.causal:
        assert all(row.reason == "future" for row in sheet.rows[3:])
    for lang in ("en", "ko"):
        for columns in (40, 80, 140):
            shown = [line.plain for line in lines(sheet, lang, "x", False, columns)]
            assert all(wcwidth.wcswidth(line) <= columns for line in shown)
    if sheet.weights is not None:
        assert [row.weight for row in sheet.rows] == pytest.approx(
            weights_of(trace, sheet, 2).tolist(), rel=1e-5, abs=1e-6
        )


def weights_of(trace, sheet, t):
    """The mixer's weights at a position, of the sheet's head, or the length over the channels."""
    value, axes = trace[sheet.weights.name][0], trace.axes(sheet.weights.name).split()[1:]
    value = value.select(axes.index("t"), t)
    return value[sheet.head] if "h" in axes else value.norm(dim=0) if value.ndim == 2 else value


def test_the_rows_are_the_layers_own_jacobian():
    trace = traced("mixer-lstm" if "mixer-lstm" in CASES else next(name for name in CASES if "lstm" in name))
    sheet = trace.sheet("#3", layer=1)
    assert isinstance(sheet, MixerSheet) and sheet.kind == "lstm" and sheet.layer == 1
    mixer, stack = trace.model.blocks[1].mixer, trace.stacks[0]
    x = trace["blocks.1.mixer_norm.out"]
    found = torch.autograd.functional.jacobian(lambda x: mixer.parallel(x, stack.call)[0, 3], x)  # d 1 s d
    wanted = found[:, 0].square().sum((0, 2)).sqrt()
    assert [row.norm for row in sheet.rows] == pytest.approx(wanted.tolist(), rel=1e-4)


def test_a_words_tokens_share_what_the_word_has():
    """In both views: the rows of a word's tokens add up to the row of the word."""
    trace = gf.load("lstm").trace("고양이가 생선을 먹고 나서 창가에서 졸았다.")
    for table in (trace.sheet(by="word"), trace.moved(by="word")):
        opened = [row for row in table.rows if len(row.parts) > 1]
        assert opened and sum(row.share for row in table.rows) == pytest.approx(1)
        for row in opened:
            assert sum(part.share for part in row.parts) == pytest.approx(row.share)
            first, second = row.parts[:2]
            assert first.share * second.norm**2 == pytest.approx(second.share * first.norm**2)


def test_a_recurrent_layer_shows_its_gates_and_how_far_they_moved():
    trace = traced(next(name for name in CASES if "lstm" in name))
    sheet = trace.sheet("#3")
    by = {one.name.rpartition(".")[2]: (one, change) for one, change in zip(sheet.taps, sheet.changes, strict=True)}
    assert {"input", "forget", "candidate", "output", "cell", "hidden"} <= by.keys()
    cell = trace[f"{sheet.path}.cell.cell"][0]
    assert by["cell"][0].values == pytest.approx(cell[3].tolist())
    assert by["cell"][1] == pytest.approx(((cell[3] - cell[2]).norm() / cell[2].norm()).item(), rel=1e-5)
    assert trace.sheet("#0").changes == (None,) * len(sheet.taps)


def test_a_convolution_reads_its_places_and_no_other():
    loaded = gf.build("tcn", vocab=23, dim=16, blocks=1)
    trace = loaded.trace(list(range(1, 21)))
    sheet = trace.sheet("#19")
    read = [row.tokens[0] for row in sheet.rows if not row.reason]
    reach = trace.model.blocks[0].mixer.cost(20).reach
    assert read == list(range(19 - reach, 20)) and {row.reason for row in sheet.rows} == {"", "outside the window"}


def test_what_faded_to_nothing_is_not_said_to_be_unseen():
    loaded = gf.build("rnn", vocab=23, dim=16, blocks=1)
    with torch.no_grad():
        loaded.model.blocks[0].mixer.cell.recurrent.mul_(0.01)
    sheet = loaded.trace([1 + i % 20 for i in range(40)]).sheet("#39")
    assert sheet.rows[0].norm == 0 and {row.reason for row in sheet.rows} == {""}


def test_how_far_a_layer_moves_the_token_is_measured_behind_the_norm_of_what_it_gives():
    trace = traced("width")  # its last block is a sandwich
    added, x = trace["blocks.2.mixer_out_norm.out"][0, 3], trace["blocks.2.resid_in"][0, 3]
    sheet = trace.sheet("#3", layer=2)
    assert sheet.moves[2] == pytest.approx((added.norm() / x.norm()).item(), rel=1e-5)
    assert "blocks.2.mixer_out_norm.out" in [step.name for step in sheet.steps]


def test_a_hybrid_has_the_sheet_of_each_layers_kind():
    name = next(name for name in CASES if "hybrid" in name)
    trace = traced(name)
    for i, block in enumerate(trace.model.blocks):
        sheet = trace.sheet(layer=i)
        assert sheet.layer == i and sheet.layers == len(trace.model.blocks)
        assert isinstance(sheet, Sheet) == (block.spec.mixer.__struct_config__.tag == "attention")
    with pytest.raises(InputError, match=r"there is no layer 9"):
        trace.sheet(layer=9)


# ---------------------------------------------------------------- pairs


def test_an_alignment_is_the_pattern_of_the_last_layer_that_looks():
    model = gf.build("transformer-base", vocab=23, dim=16, blocks=2, heads=2)
    trace = model.trace(([3, 4, 5, 6], [1, 2, 3]))
    pattern = trace["decoder.blocks.1.cross.pattern"][0].double()
    found = trace.alignment()
    assert found.layer == 1 and found.head is None and found.target == ("2", "3") and len(found.source) == 4
    assert torch.tensor(found.weights).sub(pattern.mean(0)[:2]).abs().max() < 1e-6
    first = trace.alignment(layer=0, head=1)
    assert torch.tensor(first.weights).sub(trace["decoder.blocks.0.cross.pattern"][0, 1, :2]).abs().max() < 1e-6
    sheet = trace.sheet("#2", of="source", by="token", layer=1, head=0)
    assert sheet.kind == "cross-attention" and [row.weight for row in sheet.rows] == pytest.approx(
        pattern[0, 1].tolist()
    )
    values = trace["decoder.blocks.1.cross.v"][0, :, 0].double().norm(dim=-1)
    assert [row.norm for row in sheet.rows] == pytest.approx((values * pattern[0, 1]).tolist(), rel=1e-5)
    with pytest.raises(InputError, match=r"there is no head 2; this model has 2"):
        trace.alignment(head=2)


def test_an_alignment_by_influence_is_of_no_run_with_edits():
    """What stands for weights is measured on the model as it is, which an edited run is not."""
    reader, writer = (BlockSpec(mixer=GruSpec(start=start)) for start in (None, StartSpec()))
    plain = ModelSpec(vocab=32, dim=16, context=16, blocks=(reader,), head=None)
    writes = ModelSpec(vocab=32, dim=16, context=16, blocks=(writer,))
    model = Loaded(build_model(EncoderDecoderSpec(encoder=plain, decoder=writes)).eval(), name="x")
    pair = ([3, 4, 5], [1, 2, 6])
    wanted = influence(model.model, tuple(torch.tensor([ids]) for ids in pair), rows=[0, 1], of="source").norms
    found = model.trace(pair).alignment()
    assert found.card is None
    assert torch.allclose(torch.tensor(found.weights).float(), (wanted / wanted.sum(1, keepdim=True)).float())
    for edit in (gf.zero("encoder.embed.out", t=0), gf.scale("decoder.blocks.0.mixer.out", 0.5)):
        with pytest.raises(UnsupportedError, match="is of a run without edits; leave them out"):
            model.trace(pair, edits=edit).alignment()


def test_a_single_text_has_no_alignment():
    trace = gf.build("gru", vocab=9, dim=8, blocks=1).trace([1, 2])
    with pytest.raises(UnsupportedError, match=r"only an encoder-decoder has a source and an alignment"):
        trace.alignment()
    with pytest.raises(UnsupportedError, match=r"only an encoder-decoder has a source"):
        trace.sheet(of="source")


def test_the_korean_g2p_model_writes_aligns_and_explains(capsys):
    assert main(["generate", "고양이가 생선을 먹었다", "-m", "korean-g2p"]) == 0
    assert capsys.readouterr().out == "고양이가 생선을 먹었다 → gojaŋiga seŋsʌnɯl mʌgʌdt͈a\n"
    assert main(["trace", "고양이가 생선을", "-m", "korean-g2p", "--lang", "en", "--token", "ʌ"]) == 0
    out = capsys.readouterr().out
    assert "고양이가 → gojaŋiga\n" in out and "생선을 → seŋsʌnɯl\n" in out
    grid = out[out.index("생선을 →") :].splitlines()
    assert next(line for line in grid if line.strip().startswith("ㅅ ㅐ")).split() == list("ㅅㅐㅇㅅㅓㄴㅇㅡㄹ")
    row = next(line for line in grid if line.startswith("  ʌ "))
    assert row.split()[1:6] == ["··"] * 4 + ["██"] and row.endswith("ㅓ 0.98")
    assert "The token predicted in the place of ‘ʌ’" in out
    assert main(["trace", "고양이가 생선을", "-m", "korean-g2p", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["written"] for one in found["alignments"]] == ["gojaŋiga", "seŋsʌnɯl"]
    assert found["sheet"]["of"] == "source" and found["sheet"]["token"] == "l"
