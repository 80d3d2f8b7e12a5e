"""The laws of interventions: nothing edited is nothing changed, to the bit; all of another run is that run."""

import pytest
import torch

from contract.cases import (
    CASES,
    CAUSAL,
    ONE_STACK,
    assert_same,
    built,
    kept,
    relative_error,
    run,
    source_of,
    tokens_of,
)
from contract.image_cases import CASES as IMAGES
from contract.image_cases import images_of
from contract.image_cases import kept as kept_image
from glassformer.call import Call
from glassformer.edit import add, cut, replace, resample, scale
from glassformer.model import EncoderDecoder
from glassformer.tap import Probe


def looked(model, given, *edits):
    """The run in which everything is looked at: what it ended in, and every value."""
    probe = Probe(edits=edits)
    with torch.no_grad():
        return (run(model, given, probe=probe) if given.dtype == torch.long else model(given, probe=probe)), probe


def assert_equal_values(found, wanted):
    assert found.values.keys() == wanted.values.keys()
    for full, value in wanted.values.items():
        assert torch.equal(found.values[full], value), full


def models():
    return [pytest.param(kept, name, tokens_of, id=name) for name in CASES] + [
        pytest.param(kept_image, name, lambda b, t, seed=0, name=name: images_of(name, b, seed), id=f"image-{name}")
        for name in IMAGES
    ]


@pytest.mark.parametrize(("kept", "name", "given_of"), models())
def test_nothing_edited_is_nothing_changed_and_everything_of_another_run_is_that_run(kept, name, given_of):
    model = kept(name)
    (a, ran), (b, other) = (looked(model, given_of(2, 7, seed)) for seed in (0, 1))
    assert relative_error(a, b) > 1e-3
    kinds = (lambda n, v: scale(n, 1.0), lambda n, v: add(n, 0.0), replace)
    found, probe = looked(model, given_of(2, 7), *(kinds[i % 3](n, v) for i, (n, v) in enumerate(ran.values.items())))
    assert torch.equal(found, a)
    assert_equal_values(probe, ran)
    found, probe = looked(model, given_of(2, 7), *(replace(n, v) for n, v in other.values.items()))
    assert torch.equal(found, b)
    assert_equal_values(probe, other)


@pytest.mark.parametrize("name", CASES)
def test_the_embedding_of_another_run_is_that_run_on_the_fast_path(name):
    """And so is what leaves its last block; with no edit at all a probe changes nothing."""
    model, first, second = kept(name), tokens_of(2, 7), tokens_of(2, 7, seed=1)
    if isinstance(model, EncoderDecoder):
        starts = ("decoder.embed.out",)  # both read the same source
        last = f"decoder.blocks.{len(model.decoder.blocks) - 1}.resid_out"
    else:
        starts, last = ("embed.out",), f"blocks.{len(model.blocks) - 1}.resid_out"
    kept_values = Probe(lambda full: full in (*starts, last))
    with torch.no_grad():
        wanted = run(model, second, probe=kept_values)
        assert torch.equal(wanted, run(model, second))
        for names in (starts, (last,)):
            edits = tuple(replace(full, kept_values.values[full]) for full in names)
            assert torch.equal(run(model, first, probe=Probe(lambda full: False, edits)), wanted)


RESAMPLED = [
    *("mixer-plain", "mixer-gru", "mixer-lstm-both", "mixer-rmt", "mixer-linear", "mixer-mamba", "mixer-conv-centred"),
    *("cross-plain", "align-gru"),
]


@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_gives_each_token_what_another_of_its_document_has(name):
    """In company of other documents and of padding as alone."""
    model, tokens = kept(name), tokens_of(2, 8)
    pos = torch.tensor([[-1, 0, 1, 2, 3, 4, 5, 6], [0, 1, 2, -1, 3, 4, -1, -1]])
    full = "decoder.embed.out" if isinstance(model, EncoderDecoder) else "embed.out"
    with torch.no_grad():
        run(model, tokens, pos=pos, probe=(plain := Probe()))
        found = run(model, tokens, pos=pos, probe=(edited := Probe(edits=(resample(full, seed=3),))))
    before, after = plain.values[full], edited.values[full]
    for i, there in enumerate(pos >= 0):
        same = (after[i, there][:, None] == before[i, there][None]).all(-1)  # t s
        assert same.sum() >= there.sum() and (same.sum(0) > 0).all()  # every token is somewhere, none where it was
        assert torch.equal(after[i, ~there], before[i, ~there])
        probe = Probe(edits=(resample(full, seed=3),))
        with torch.no_grad():
            assert_same(found[i, there], run(model, tokens[i, there][None], row=i, probe=probe)[0])
    for other in [one for one in plain.values if one.startswith(full.removesuffix("embed.out") + "blocks.")]:
        if {"t", "s"} & set(plain.axes[other].split()) and other.rpartition(".")[2] not in ("scores", "dots"):
            probe = Probe(edits=(resample(other, seed=1),))
            with torch.no_grad():
                run(model, tokens, pos=pos, probe=probe)
            assert probe.edited == {other}


# ---------------------------------------------------------------- cuts


PACKED = {
    "pos": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3], [-1, -1, 0, 1, 2, 3, 4, 5, -1]]),
    "segments": torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1, 1, 1]]),
}
MIXING = [name for name in CASES if not name.startswith(("channel-", "embed-", "norm-", "head-"))]  # else one mixer
SMEARED = [name for name in CASES if "smear" in name or name.endswith("biases-qv") or name in ("mixed", "mixer-stride")]


def reader(block):
    """The name of what a block's mixer reads."""
    bare = block.mixer_norm is None or block.spec.wiring == "post"
    return f"{block.path}.resid_in" if bare else f"{block.mixer_norm.path}.out"


def called(model, **places):
    """What the layers of the last stack know of a run over two rows, without the places that are left out."""
    if not isinstance(model, EncoderDecoder):
        return Call(**places)
    ends, (source, pos) = [], source_of(2)
    return Call(memory=model.encoder(source, pos=pos, ends=ends), memory_pos=pos, handed=tuple(ends), **places)


@pytest.mark.parametrize("name", [name for name in MIXING if name not in SMEARED])
@torch.no_grad()
def test_a_query_cut_off_from_tokens_gets_what_its_mixer_makes_of_the_others(name):
    """In every mixer: as a text in which these tokens never stood, the others at their positions. Rows that nothing was
    cut from stay as they were, to the bit."""
    model, tokens = kept(name), tokens_of(2, 9)
    block = (model.decoder if isinstance(model, EncoderDecoder) else model).blocks[0]
    path, out, cut_off = block.mixer.path, f"{block.mixer.path}.out", [1, 3]
    for places in ({}, PACKED) if name in ONE_STACK else ({},):
        queries = [2, 4] if places else [2, 6]
        run(model, tokens, **places, probe=(plain := Probe()))
        run(model, tokens, **places, probe=(probe := Probe(edits=(cut(path, t=queries, s=cut_off),))))
        kept_rows = [i for i in range(9) if i not in queries]
        assert torch.equal(probe.values[out][:, kept_rows], plain.values[out][:, kept_rows])
        others = [i for i in range(9) if i not in cut_off]
        pos = places.get("pos", torch.arange(9).expand(2, -1))[:, others]
        segments = {"segments": places["segments"][:, others]} if places else {}
        call = called(model, pos=pos, **segments)
        wanted = block.mixer.parallel(plain.values[reader(block)][:, others], call)
        for query in queries:
            rows = pos[:, others.index(query)] >= 0
            assert_same(probe.values[out][rows, query], wanted[rows, others.index(query)])


@pytest.mark.parametrize("name", [name for name in MIXING if name in CAUSAL])
@torch.no_grad()
def test_what_comes_later_cannot_be_cut_off(name):
    model, tokens = kept(name), tokens_of(2, 7)
    path = (model.decoder if isinstance(model, EncoderDecoder) else model).blocks[0].mixer.path
    assert_same(run(model, tokens, probe=Probe(lambda _: False, (cut(path, t=3, s=5),))), run(model, tokens), 1e-5)


ATTENTION = [
    *("plain", "window", "prefix", "full", "alibi", "relative", "kv-2", "softcap", "sink", "smear", "globals", "rope"),
    *("random-full", "xl-segment"),
]


@pytest.mark.parametrize("name", [*(f"mixer-{one}" for one in ATTENTION), "cross-kv-1", "cross-sink", "align-gru"])
@torch.no_grad()
def test_a_cut_weight_moves_the_sum_by_its_law(name):
    """o' − o = a/(1−a)·(o − u) where the rest is normalised anew, −a·u where it stays; of the chosen heads alone."""
    model, tokens = built(name).double(), tokens_of(1, 7)
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    part = stack.blocks[0].cross if name.startswith("cross") else stack.blocks[0].mixer
    part = part.cross if name.startswith("align") else part
    read = "context" if name.startswith("align") else "z"
    run(model, tokens, probe=(plain := Probe()))
    row = plain.values[f"{part.path}.pattern"][0, 0 if read == "context" else 1, i := 5]
    j = int(row.where(row < 0.9, 0).argmax())
    for renormalise in (True, False):
        heads = {} if read == "context" else {"h": 1}
        edit = cut(part.path, t=i, s=j, renormalise=renormalise, **heads)
        run(model, tokens, probe=(probe := Probe(edits=(edit,))))
        a = plain.values[f"{part.path}.pattern"][0, heads.get("h", 0), i, j]
        assert 0.01 < a < 0.9
        place = (0, i, 1) if heads else (0, i)
        o, new = plain.values[f"{part.path}.{read}"][place], probe.values[f"{part.path}.{read}"][place]
        if heads:
            v = plain.values[f"{part.path}.v"]
            u = v[0, j, part.groups * 1 // part.heads]
        else:
            u = called(model, pos=torch.arange(7)[None]).memory[0, j]
        moved = a / (1 - a) * (o - u) if renormalise else -a * u
        assert_same(new - o, moved, 1e-9)
        if heads:
            others = [h for h in range(part.heads) if h != 1]
            full = f"{part.path}.pattern"
            assert torch.equal(probe.values[full][:, others], plain.values[full][:, others])


@pytest.mark.parametrize("name", ["mixer-linear-decay", "mixer-mamba", "mixer-delta", "mixer-bag", "mixer-fourier"])
@torch.no_grad()
def test_a_cut_that_leaves_the_other_weights_takes_one_summand_away(name):
    """Of mixers that are no attention: their effective weights."""
    model, tokens = built(name).double(), tokens_of(1, 7)
    path = "blocks.0.mixer"
    run(model, tokens, probe=(plain := Probe()))
    run(model, tokens, probe=(probe := Probe(edits=(cut(path, t=5, s=2, renormalise=False),))))
    before, after = (one.values[f"{path}.weights"] for one in (plain, probe))
    gone = before.clone()
    gone[..., 5, 2] = 0
    assert torch.equal(after, gone) and (before[..., 5, 2].abs() > 1e-6).any()
    out, changed = (one.values[f"{path}.out"] for one in (plain, probe))
    assert relative_error(changed[:, 5], out[:, 5]) > 1e-6
    assert_same(changed[:, [0, 1, 2, 3, 4, 6]], out[:, [0, 1, 2, 3, 4, 6]], 1e-9)
    if name == "mixer-bag":
        x = plain.values[reader(model.blocks[0])]
        assert_same(changed[:, 5], out[:, 5] - x[:, 2] / 6, 1e-12)
