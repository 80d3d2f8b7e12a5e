"""What the sheet shows beside the numbers: why a row is dark, which head, what a layer has, what is refused."""

import msgspec
import numpy as np
import pytest
import torch
from by_hand import ENGLISH, KOREAN, flat, same
from sheet_models import ROPE, SPECS, loaded, model_of, of, pair, tokens_of

import glassformer as gf
from glassformer.data.display import Cell
from glassformer.edit import scale, zero
from glassformer.errors import InputError
from glassformer.explain.sheet import sheet
from glassformer.mask import pad_left
from glassformer.mixers.attention import AttentionSpec
from glassformer.nn.norm import RMSNormSpec
from glassformer.stored import StoredTrace
from glassformer.terminal.complaint import complaint
from glassformer.terminal.words import say
from glassformer.trace import Trace

# ---------------------------------------------------------------- masks


def test_why_a_row_is_dark():
    def reasons(spec, **given):
        return [row.reason for row in flat(loaded(spec, "char").trace("고양이가먹다").sheet(**given).rows)]

    assert reasons(SPECS["rope"], token=3, by="token") == [""] * 4 + ["future"] * 3
    assert reasons(SPECS["full"], token=3, by="token") == [""] * 7
    assert reasons(SPECS["window"], token=-1, by="token") == ["outside the window"] * 3 + [""] * 4
    assert reasons(SPECS["window-sinks"], token=5, by="token") == ["", *["outside the window"] * 2, *[""] * 3, "future"]
    assert reasons(SPECS["stride"], token=3, by="token") == ["", *["off the stride"] * 2, "", *["future"] * 3]
    assert reasons(SPECS["segment"], token=6, by="token") == [*["before the memory"] * 5, "", ""]
    assert sorted(reasons(SPECS["top-k"], token=6, by="token")) == [*[""] * 3, *["not among the largest"] * 4]
    assert reasons(SPECS["prefix"], token=1, by="token") == [""] * 4 + ["future"] * 3
    assert loaded(SPECS["prefix"]).trace(KOREAN).sheet().causal
    assert not loaded(SPECS["full"]).trace(KOREAN).sheet().causal


def numbered(ids):
    return [Cell(str(token), (i,), 0, 0, str(token)) for i, token in enumerate(ids)]


def test_padding_and_other_documents_are_named():
    model = model_of(SPECS["rope"])
    tokens, pos = pad_left([[3, 1, 4], [1, 5, 9, 2, 6]])
    run = Trace(model, tokens, pos=pos)
    groups = numbered(tokens[0].tolist())
    made = sheet(run, groups, 3)
    assert [row.reason for row in made.rows] == ["padding", "padding", "", "", "future"]
    assert same(made.weight_sum, 1) and made.rows[0].weight == 0
    alone = sheet(Trace(model, torch.tensor([[3, 1, 4]])), numbered([3, 1, 4]), 1, layer=made.layer, head=made.head)
    assert same(made.z.values, alone.z.values) and same(made.moves, alone.moves) and same(made.journey, alone.journey)
    with pytest.raises(InputError, match="place 1 is padding"):
        sheet(run, groups, 1)
    packed = Trace(model, tokens[1:], pos=torch.tensor([[0, 1, 2, 0, 1]]), segments=torch.tensor([[0, 0, 0, 1, 1]]))
    made = sheet(packed, numbered(tokens[1].tolist()), 4)
    assert [row.reason for row in made.rows] == ["other document"] * 3 + ["", ""]
    assert same([row.weight for row in made.rows[:3]], [0, 0, 0])
    made = sheet(packed, numbered(tokens[1].tolist()), 1)
    assert [row.reason for row in made.rows] == ["", "", "future", "other document", "other document"]


# ---------------------------------------------------------------- which head, which layer


def test_the_default_head_moves_the_token_most():
    run = loaded().trace(KOREAN)
    made = run.sheet("생선을")
    table = np.array(made.moves)
    assert table.shape == (2, 4) and (made.layer, made.head) == np.unravel_index(table.argmax(), table.shape)
    assert made.chosen == ()
    other = 1 - made.layer
    assert (run.sheet("생선을", layer=other).head, run.sheet("생선을", layer=other).layer) == (
        table[other].argmax(),
        other,
    )
    for head in range(4):
        chosen = run.sheet("생선을", head=head)
        assert (chosen.layer, chosen.head, chosen.chosen) == (table[:, head].argmax(), head, ("head",))
    both = run.sheet("생선을", layer=0, head=2)
    assert (both.layer, both.head, both.chosen, both.moves) == (0, 2, ("layer", "head"), made.moves)
    first = run.sheet(0)
    assert (first.layer, first.head, first.special) == (0, 0, True) and np.abs(first.moves).max() < 1e-6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layer": 2}, r"there is no layer 2; this model has 2 \(0 to 1\)"),
        ({"layer": -1}, "there is no layer -1"),
        ({"head": 4}, r"there is no head 4; this model has 4 \(0 to 3\)"),
        ({"token": "강아지"}, "not in this text; its rows are: 0 .*, 1 고양이가, 2 생선을, 3 먹었다"),
        ({"token": 4}, r"there is no row 4; this text has 4 \(0 to 3\)"),
        ({"by": "wrod"}, "did you mean word"),
    ],
)
def test_what_does_not_exist_is_listed(given, message):
    with pytest.raises(InputError, match=message):
        loaded().trace(KOREAN).sheet(**given)


def test_layers_of_different_width():
    run = loaded(SPECS["mixed"]).trace(KOREAN)
    assert [len(row) for row in run.sheet().moves] == [2, 8]
    assert run.sheet(head=7).layer == 1
    with pytest.raises(InputError, match=r"there is no head 7; this model has 2 \(0 to 1\)"):
        run.sheet(layer=0, head=7)
    with pytest.raises(InputError, match=r"there is no head 8; this model has 8 \(0 to 7\)"):
        run.sheet(head=8)


# ---------------------------------------------------------------- the rest


def test_formulas_and_symbols_are_those_of_the_layer():
    def shown(spec):
        made = loaded(spec).trace(KOREAN).sheet()
        return [q.formula for q in made.quantities], [step.symbol for step in made.steps]

    formulas, symbols = shown(SPECS["qk-norm"])
    assert formulas == ["x/rms(x) · w", "R_i norm(x_i W_Q)", "R_j norm(x_j W_K)", "x_j W_V"]
    assert symbols[0] == "x" and symbols[-1] == "x + FFN"
    assert shown(SPECS["biases"])[0] == ["(x−μ)/σ · w + b", "x_i W_Q + b", "x_j W_K + b", "x_j W_V + b"]
    assert shown(SPECS["smear"])[0][2] == "R_j smear(x_j W_K)"
    assert shown(SPECS["post"])[1][3:] == ["norm(x + MultiHead)", "σ(xW₁+b₁)", "FFN(x)", "norm(x + FFN)"]
    assert shown(SPECS["parallel"])[1][-1] == "x + MultiHead + FFN"
    assert shown(SPECS["no-channel"])[1] == ["x", "z_i W_O", "MultiHead", "x + MultiHead"]
    assert shown(SPECS["no-residual"])[1][3] == "MultiHead" and shown(SPECS["no-residual"])[1][-1] == "FFN"
    assert "σ(xW_g)⊙xW₁" in shown(SPECS["gated"])[1] and "σ(xW₁)" in shown(SPECS["relu2"])[1]


def test_widths_and_experts():
    relu2 = loaded(SPECS["relu2"]).trace(KOREAN).sheet()
    hidden = next(step for step in relu2.steps if step.name.endswith("hidden"))
    assert relu2.widths == (16, 24, 16) and len(hidden.values) == 24
    assert relu2.active == np.mean(np.array(hidden.values) > 0) and 0 < relu2.active < 1
    made = loaded(SPECS["experts"]).trace(KOREAN).sheet()
    assert len(made.experts) == 3 and sum(w > 0 for w in made.experts) == 2 and same(sum(made.experts), 1)
    assert made.widths == (16, 48, 16) and made.active is None
    bare = loaded(SPECS["no-channel"]).trace(KOREAN).sheet()
    assert bare.widths == () and bare.active is None and bare.experts == []


def test_a_pair_shows_the_decoder():
    run = loaded(pair()).trace((ENGLISH, KOREAN))
    made = run.sheet("먹었다")
    assert made.path.startswith("decoder.blocks.") and made.text == KOREAN and run.text == KOREAN
    names = [step.name.rpartition(made.path.removesuffix("mixer"))[2] for step in made.steps]
    assert names[3:6] == ["resid_mid", "cross.out", "resid_cross"]
    assert same(made.weight_sum, 1) and len(made.next) == 8 and made.difference < 2e-6
    logits = run.model(run.stacks[0].tokens, run.stacks[1].tokens)[0, made.position]
    assert made.next[0].token == logits.argmax().item()


def test_an_edit_shows_in_the_sheet():
    model = loaded()
    made = model.trace(KOREAN, edits=[zero("blocks.0.mixer.z", h=1)]).sheet(layer=0, head=1)
    assert made.z.norm == 0 and made.next != model.trace(KOREAN).sheet(layer=0, head=1).next


def test_numbers_that_are_none_are_refused():
    model = loaded()
    with torch.no_grad():
        model.model.blocks[1].channel.up.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite from block 1 on: the model is broken or its training diverged"):
        model.trace(KOREAN).sheet()


def test_where_an_edit_made_them_so_large_it_is_named():
    large = loaded().trace(KOREAN, edits=[scale("blocks.0.mixer.z", 1e39)])
    for asked in (large.sheet, lambda: gf.explain("effect", large)):
        with pytest.raises(
            InputError, match=r"not finite .*: an edit may .*: gf\.scale\('blocks\.0\.mixer\.z', 1e\+39\)$"
        ):
            asked()


def test_json_has_all_digits_and_no_nan():
    for name in ("rope", "sink", "window", "experts", "no-head"):
        made = loaded(SPECS[name], "byte").trace(KOREAN).sheet(-2)
        assert msgspec.json.decode(msgspec.json.encode(made), type=type(made)) == made  # NaN and inf would be null


def test_start_and_typed_end_tokens_are_told_apart():
    run = loaded().trace("a <|end|> b")
    made = run.sheet()
    assert [row.special for row in made.rows] == [True] + [False] * (len(made.rows) - 1)
    assert "<|end|>" in [row.label for row in made.rows[1:]]
    assert not any(row.special for row in loaded().trace("a b", start=False).sheet().rows)


def test_the_start_and_the_end_have_one_name_wherever_a_label_is_read(tmp_path):
    for method in ("byte", "bpe", "unigram", "char"):
        model = loaded(method=method)
        run, end = model.trace("고양이가 먹었다"), model.tokenizer.end_id
        made = run.sheet(top=model.tokenizer.vocab_size)
        run.save(tmp_path / "run.safetensors", ["norm.out"])
        back = StoredTrace(tmp_path / "run.safetensors")
        first = [run.labels("t")[0], run.labels("s", "blocks.0.mixer.pattern")[0], back.labels("t")[0]]
        first += [made.rows[0].label, run.cells("token")[0].text, run.sheet("⟨start⟩").token]
        assert set(first) == {"⟨start⟩"} and say("start", "en") == "⟨start⟩"
        (last,) = (one for one in made.next if one.special)
        assert (last.token, last.label, last.text) == (end, "⟨end⟩", "") and say("end", "en") == "⟨end⟩"
        ended = model.trace([end, *model.encode("가", start=False), end])
        assert (ended.labels("t")[0], ended.labels("t")[-1]) == ("⟨start⟩", "⟨end⟩")
        with pytest.raises(InputError, match=r"its rows are: 0 ⟨start⟩, 1 가, 2 ⟨end⟩\. ") as refused:
            ended.sheet("나")
        assert ": 0 ⟨시작⟩, 1 가, 2 ⟨끝⟩." in complaint(refused.value, "ko")


def test_a_model_without_a_tokenizer_shows_numbers():
    model = loaded()
    model.tokenizer = None
    made = model.trace([5, 7, 9]).sheet(1)
    assert [row.label for row in made.rows] == ["5", "7", "9"] and not made.special
    assert [one.label for one in made.next] == [str(one.token) for one in made.next]


def test_the_first_row_of_a_batch_is_shown():
    model = model_of(of(ROPE))
    tokens = tokens_of(3, 6)
    both = sheet(Trace(model, tokens), numbered(tokens[0].tolist()), 4)
    one = sheet(Trace(model, tokens[:1]), numbered(tokens[0].tolist()), 4)
    assert same(both.z.values, one.z.values) and same(both.moves, one.moves)


def test_attention_alone_can_be_shown():
    made = loaded(of(AttentionSpec(heads=1), norm=RMSNormSpec())).trace("a").sheet()
    assert made.length == 2 and len(made.rows) == 2


def test_candidates_and_rows_hold_their_exact_text():
    """The piece ' cat' begins a word and 'cat' does not; a view must be able to tell."""
    made = loaded(method="bpe")
    sheet = made.trace(KOREAN).sheet(top=made.tokenizer.vocab_size)
    for one in sheet.next:
        assert one.special or one.text == made.tokenizer.decode([one.token])
        assert one.special or one.label.startswith("␠") == one.text.startswith(" ")
    assert any(one.text.startswith(" ") and one.text.strip() for one in sheet.next)
    assert len({one.label for one in sheet.next}) == len(sheet.next)
    assert "".join(row.text for row in sheet.rows) == KOREAN
    assert [row.label for row in sheet.rows[1:]] == KOREAN.split()
    assert (sheet.row, sheet.rows[sheet.row].label) == (3, "먹었다")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_candidates_that_are_no_numbers_are_refused(wrong):
    made = loaded(method="byte")
    with torch.no_grad():
        made.model.head.weight[3, 1] = wrong
    with pytest.raises(InputError, match="not finite after the last block"):
        made.trace(KOREAN).sheet()
