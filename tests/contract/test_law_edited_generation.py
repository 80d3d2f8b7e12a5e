"""The law of edits while a model writes: through the cache as by reading everything again before each token."""

import pytest
import torch
from quick import quick_share

from contract.cases import CASES, CAUSAL, ROUTED, assert_same, kept, relative_error, source_of, tokens_of
from glassformer.edit import add, cut, mean, noise, replace, resample, scale, zero
from glassformer.errors import InputError
from glassformer.generate import GenerateSpec, WithoutText, beam, generate
from glassformer.generate.edited import Again, Cached, Editing, goes_on
from glassformer.model import EncoderDecoder
from glassformer.tap import Probe
from glassformer.trace import Trace

PROMPT, NEW = 6, 3
TOKENS = tokens_of(1, PROMPT + NEW)
SPEC = GenerateSpec(max_new_tokens=NEW + 1, begin=tuple(TOKENS[0, :PROMPT].tolist()), chunk=4)
OFTEN_RING = ("window", "sinks", "globals", "segment", "random")


def written(editing, again=False):
    """Logits `t v` behind the prompt and each of the next tokens."""
    pair = isinstance(editing.model, EncoderDecoder)
    editing = Editing(editing.model, editing.edits, editing.cached and not again)
    found = []
    logits, state = editing.read((source_of(1)[0] if pair else TOKENS[:, :PROMPT])[0].tolist(), SPEC)
    assert isinstance(state, Again if again else Cached)
    for place in range(PROMPT, PROMPT + NEW):
        found.append(logits)
        logits, state = state.after(TOKENS[:, place : place + 1])
    return torch.cat([*found, logits])


def known(model):
    probe, pair = Probe(), isinstance(model, EncoderDecoder)
    with torch.no_grad():
        model(*([source_of(1)[0], TOKENS[:, :3]] if pair else [TOKENS[:, :3]]), probe=probe)
    return probe


def edits_of(probe):
    """A small change of every value, at places in the prompt and behind it."""
    for full, axes in probe.axes.items():
        letter = next((one for one in ("t", "s") if one in axes.split()), None)
        if letter is None:
            yield scale(full, 1.1)
        else:
            whole = full.startswith("encoder.") or (".cross." in full and letter == "s")
            yield scale(full, 1.1, **{letter: [1, 3] if whole else [2, 7, 30]})


@pytest.mark.parametrize("name", quick_share(CAUSAL, 4, 1))
def test_edits_through_the_cache_are_those_of_reading_everything_again(name):
    """Of all values at once that can be edited in passing: those of single tokens, and weights over all keys."""
    model = kept(name)
    probe = known(model)
    parts = dict(model.named_modules())
    some = [edit for edit in edits_of(probe) if goes_on(edit, probe, parts)]
    passing = {edit.name for edit in some}
    for full, axes in probe.axes.items():
        if len({"t", "s"} & set(axes.split())) == 1:
            assert full in passing, full
        elif full.endswith(("mixer.pattern", "mixer.scores")) and not any(one in name for one in OFTEN_RING):
            assert full in passing or name in ("mixed", "hybrid-long", "hybrid-short"), full
    editing = Editing.of(model, some)
    found, wanted = written(editing), written(editing, again=True)
    assert_same(found, wanted, 1e-4 if name in ROUTED else 3e-5)
    assert relative_error(found, written(Editing.of(model, ()))) > 1e-3


@pytest.mark.parametrize("name", ["mixer-plain", "mixer-rope", "mixer-gru", "mixer-mamba", "cross-plain", "align-gru"])
def test_each_kind_of_edit_while_writing(name):
    """As a trace of all that was read so far ends, for edits that go through the cache and for those that cannot."""
    model = kept(name)
    pair, prefix = isinstance(model, EncoderDecoder), "decoder." if isinstance(model, EncoderDecoder) else ""
    out, mixer = f"{prefix}blocks.0.resid_out", f"{prefix}blocks.0.mixer"
    vector = torch.linspace(-1, 1, 16)
    passing = [
        *(add(out, vector, t=7), replace(out, torch.stack([vector, -vector]), t=[3, 8]), noise(out, 0.5, 3, t=[2, 7])),
        *(zero(out, t=slice(8, None)), scale(out, 0.5, d=3), replace(out, vector.expand(1, 4, 16))),
    ]
    others = [mean(out), resample(out, seed=1), noise(out, 0.2), scale(out, 0.5, t=-1), cut(mixer, t=[5, 8], s=[1, 7])]
    others += [zero(f"{prefix}positions")] if name in ("mixer-rope", "cross-plain") else []
    if name in ("mixer-plain", "mixer-rope", "cross-plain"):
        passing.append(others.pop(4))
    plain = written(Editing.of(model, ()))
    for edits, cached in ((passing, True), (others, False)):
        for edit in edits:
            editing = Editing.of(model, edit)
            assert editing.cached == cached, edit.line
            found = written(editing, again=not cached)
            assert relative_error(found, plain) > 1e-4, edit.line
            for n in range(PROMPT, PROMPT + NEW + 1):
                there = (edit.where or {}).get("t")
                now = edit
                if isinstance(there, list):
                    kept_places = [i for i, place in enumerate(there) if place < n]
                    value = edit.value[kept_places] if getattr(edit.value, "ndim", 0) == 2 else edit.value
                    now = type(edit)(edit.name, edit.kind, edit.where | {"t": [there[i] for i in kept_places]}, value)
                    if edit.kind in ("noise", "cut"):  # one draw for all places; sources that are not there either
                        continue
                elif isinstance(there, int | slice) and (there.start if isinstance(there, slice) else there) >= n:
                    now = None
                elif edit.value is not None and getattr(edit.value, "ndim", 0) == 3:
                    now = replace(out, vector, t=[0, 1, 2, 3])
                given = (source_of(1)[0], TOKENS[:, :n]) if pair else TOKENS[:, :n]
                wanted = Trace(model, given, edits=() if now is None else now).logits[:, -1]
                assert_same(found[n - PROMPT : n - PROMPT + 1], wanted, 3e-5)


def test_what_is_written_with_edits_in_events_rows_and_beams():
    """Prompts one after another, each as alone; greedy is a beam of one; nothing edited writes the same."""
    model, reader = kept("mixer-rope"), WithoutText(23)
    prompts = [TOKENS[0, :4].tolist(), TOKENS[0, 3:9].tolist()]
    spec = GenerateSpec(max_new_tokens=5, temperature=1.0, seed=3)
    edit = scale("blocks.0.mixer.out", -2.0, t=[3, 6])

    def said(given, edits, **how):
        return [(e.row, e.token) for e in generate(model, reader, given, spec.changed(**how), edits=edits)]

    both = said(prompts, edit)
    assert [row for row, _ in both] == [0] * 5 + [1] * 5
    assert both[:5] == said(prompts[:1], edit)
    assert both[5:] == [(1, token) for _, token in said(prompts[1:], edit, seed=4)]
    assert sorted(both) != sorted(said(prompts, ()))
    assert sorted(said(prompts, scale("blocks.0.mixer.out", 1.0))) == sorted(said(prompts, ()))
    for one in (edit, mean("blocks.0.mixer.out"), noise("blocks.0.mixer.out", 0.5, t=[3, 5])):
        greedy = [token for _, token in said(prompts[:1], one, temperature=0.0)]
        search = GenerateSpec(max_new_tokens=5, beams=3)
        best = beam(model, prompts[0], search, editing=Editing.of(model, one))[0]
        first = beam(model, prompts[0], search.changed(beams=1), editing=Editing.of(model, one))[0]
        assert list(first.ids) == greedy
        assert best.log_probability >= first.log_probability - 1e-5
        logits = Trace(model, torch.tensor([prompts[0] + list(best.ids)[:-1]]), edits=()).logits  # of the plain model
        text = torch.tensor([prompts[0] + list(best.ids)])
        summed = 0.0
        for at in range(4, 9):
            editing = Editing(model, Editing.of(model, one).edits, False)
            behind, _ = editing.read(text[0, :at].tolist(), spec)
            summed += behind.log_softmax(-1)[0, text[0, at]].item()
        assert abs(summed - best.log_probability) < 1e-3 and logits.shape[1] == 8


def test_mistakes_are_told_before_the_first_token():
    model, reader = kept("mixer-plain"), WithoutText(23)
    for edit, message in (
        (zero("blocks.0.mixer.zz"), r"no value named 'blocks.0.mixer.zz' in this model; did you mean"),
        (zero("blocks.0.mixer.z", h=9), "axis 'h' has no index 9"),
        (zero("blocks.0.mixer.z", f=0), "has no axis 'f'"),
        (zero("blocks.0.mixer.z", b=0), "each is written by itself; leave b out"),
        (cut("blocks.0", s=1), "only what tokens reach through a mixer can be cut"),
    ):
        with pytest.raises(InputError, match=message):
            generate(model, reader, [[1, 2, 3]], GenerateSpec(max_new_tokens=3), edits=edit)
    assert len(CASES) > 100
