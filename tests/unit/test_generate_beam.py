"""Beam search: exact where it can be exhaustive, greedy at width one."""

import itertools

import pytest
import torch
from test_generate import PAIR, TOKENIZER, lively, spec_of

from glassformer.errors import InputError
from glassformer.generate import GenerateSpec, beam, generate
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec

TINY = ModelSpec(vocab=4, dim=8, blocks=(BlockSpec(mixer=AttentionSpec(heads=2)),), context=16)
ENDING = 3


def every_sequence(model, prompt, length, alpha):
    """All complete sequences of at most `length` new tokens with their scores, best first, without any cache."""
    found = []
    for n in range(1, length + 1):
        for ids in itertools.product(range(4), repeat=n):
            ended = ids[-1] == ENDING
            if ENDING in ids[:-1] or (not ended and n < length):
                continue
            with torch.no_grad():
                logs = model(torch.tensor([prompt + list(ids)]))[0].log_softmax(-1)
            each = [float(logs[len(prompt) - 1 + i, token]) for i, token in enumerate(ids)]
            found.append((sum(each) / n**alpha, ids[:-1] if ended else ids, ended))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_there_are_sequences_finds_the_best_of_all(alpha, seed):
    model, prompt = lively(TINY, seed), [1, 0, 2]
    expected = every_sequence(model, prompt, 3, alpha)
    spec = GenerateSpec(max_new_tokens=3, beams=4**3, length_penalty=alpha)
    found = beam(model, prompt, spec, ENDING)
    assert [(b.ids, b.ended) for b in found] == [(ids, ended) for _, ids, ended in expected]
    assert [b.score for b in found] == pytest.approx([score for score, _, _ in expected], rel=1e-9)
    assert {b.ended for b in found} == {True, False}


def slow_beam(model, prompt, spec):
    """The documented rule with plain lists and no cache: (score, ids, ended), best first; early_stopping is set."""
    live, done = [((), 0.0)], []
    for length in range(1, spec.max_new_tokens + 1):
        extended = []
        for ids, total in live:
            with torch.no_grad():
                logs = model(torch.tensor([[*prompt, *ids]]))[0, -1].log_softmax(-1).tolist()
            extended += [((*ids, token), total + log) for token, log in enumerate(logs)]
        extended.sort(key=lambda pair: -pair[1])
        score = length**spec.length_penalty
        best, last = extended[: spec.beams], length == spec.max_new_tokens
        done += [(total / score, ids[:-1], True) for ids, total in best if ids[-1] == ENDING]
        done += [(total / score, ids, False) for ids, total in best if ids[-1] != ENDING and last]
        live = [pair for pair in extended if pair[0][-1] != ENDING][: spec.beams]
        if len(done) >= spec.beams:
            break
    return sorted(done, reverse=True)[: spec.beams]


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_narrow_beam_follows_the_rule(width, seed):
    spec = GenerateSpec(max_new_tokens=6, beams=width, length_penalty=0.8, early_stopping=True)
    model = lively(TINY, seed)
    expected = slow_beam(model, [1, 2], spec)
    found = beam(model, [1, 2], spec, ENDING)
    assert [(b.ids, b.ended) for b in found] == [(ids, ended) for _, ids, ended in expected]
    assert [b.score for b in found] == pytest.approx([score for score, _, _ in expected], rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_width_one_is_greedy(seed):
    model = lively(spec_of(), seed)
    with torch.no_grad():
        model.head.weight[TOKENIZER.end_id] *= 1.0 + seed
    for prompt in ([5, 6, 7], [256]):
        spec = GenerateSpec(max_new_tokens=16, chunk=2)
        events = list(generate(model, TOKENIZER, [prompt], spec))
        (only,) = beam(model, prompt, spec, TOKENIZER.end_id)
        written = [event.token for event in events]
        assert [*only.ids, *[TOKENIZER.end_id] * only.ended] == written
        assert only.ended == (events[-1].finished == "end")
        probabilities = [event.probability for event in events]
        assert torch.tensor(only.log_probabilities).exp().tolist() == pytest.approx(probabilities, rel=1e-5)


def test_the_n_best_are_ordered_different_and_scored_as_documented():
    model, prompt = lively(spec_of(), 2), [1, 2, 3]
    narrow = beam(model, prompt, GenerateSpec(max_new_tokens=8, beams=1), 256)
    found = beam(model, prompt, GenerateSpec(max_new_tokens=8, beams=6, length_penalty=0.6), 256)
    assert len(found) == 6 == len({(b.ids, b.ended) for b in found})
    assert [b.score for b in found] == sorted((b.score for b in found), reverse=True)
    for one in found:
        written = [*one.ids, *[256] * one.ended]
        with torch.no_grad():
            logs = model(torch.tensor([prompt + written]))[0, 2:-1].log_softmax(-1)
        total = float(logs.gather(1, torch.tensor(written)[:, None]).sum())
        assert one.log_probability == pytest.approx(total, rel=1e-9)
        assert one.score == pytest.approx(total / len(written) ** 0.6, rel=1e-9)
    assert max(b.log_probability for b in found) > narrow[0].log_probability


def test_the_end_token_decides_nothing_where_none_is_known():
    found = beam(lively(TINY), [1], GenerateSpec(max_new_tokens=4, beams=3))
    assert all(len(b.ids) == 4 and not b.ended for b in found)


def test_an_encoder_decoder_searches_and_ids_beyond_the_tokenizer_are_left_out():
    model, source = lively(PAIR, 3), [9, 8, 7, 6]
    (greedy, *_) = beam(model, source, GenerateSpec(max_new_tokens=10), 256)
    found = beam(model, source, GenerateSpec(max_new_tokens=10, beams=4, length_penalty=0.0), 256)
    assert found[0].log_probability >= greedy.log_probability - 1e-9
    assert all(max(b.ids) < 50 for b in beam(model, source, GenerateSpec(max_new_tokens=10, beams=4), 256, 50))
    with pytest.raises(InputError, match="end token"):
        beam(model, source, GenerateSpec(beams=2))


def test_generate_gives_the_best_hypothesis_of_each_prompt():
    model, spec = lively(spec_of(), 1), GenerateSpec(max_new_tokens=10, beams=3)
    events = list(generate(model, TOKENIZER, [[1, 2], [3]], spec))
    for row, prompt in enumerate([[1, 2], [3]]):
        best = beam(model, prompt, spec, 256, 257)[0]
        mine = [event for event in events if event.row == row]
        assert [event.token for event in mine] == [*best.ids, *[256] * best.ended]
        assert "".join(event.text for event in mine) == TOKENIZER.decode(best.ids)
        assert mine[-1].finished == ("end" if best.ended else "length")
