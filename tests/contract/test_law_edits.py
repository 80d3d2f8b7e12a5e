"""The laws of interventions: nothing edited is nothing changed, to the bit; all of another run is that run."""

import pytest
import torch

from contract.cases import CASES, assert_same, kept, relative_error, run, tokens_of
from contract.image_cases import CASES as IMAGES
from contract.image_cases import images_of
from contract.image_cases import kept as kept_image
from glassformer.edit import add, replace, resample, scale
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
    for edits_of in (lambda n, v: scale(n, 1.0), lambda n, v: add(n, 0.0), replace):
        found, probe = looked(model, given_of(2, 7), *(edits_of(n, v) for n, v in ran.values.items()))
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
