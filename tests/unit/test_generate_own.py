"""What a published model says of its own generation: how a target begins, what ends it, what it may not write."""

import json

import pytest
import torch
from test_generate import PAIR as TIED
from test_generate import TOKENIZER, lively, scripted, spec_of, tokens

import glassformer as gf
from glassformer.api import Loaded
from glassformer.cli import main
from glassformer.errors import InputError, SettingError
from glassformer.generate import GenerateSpec, WithoutText, beam, generate
from glassformer.nn.head import HeadSpec

# Untied, since a tied head makes a random model repeat the last token.
PAIR = TIED.changed(decoder=TIED.decoder.changed(head=HeadSpec(tied=False)))
SOURCE = list(b"some source")
BEGIN = (7, 256, 9)


def ids(model, prompt, beams=1, tokenizer=TOKENIZER, **settings) -> list[int]:
    spec = GenerateSpec(**{"max_new_tokens": 24, "beams": beams} | settings)
    return tokens(generate(model, tokenizer, [prompt], spec))[0]


@torch.no_grad()
def by_hand(model, source, begin, count, banned=lambda written: ()) -> list[int]:
    """Greedy decoding from the whole target each time. banned: the tokens ruled out behind those written."""
    written = list(begin)
    for _ in range(count):
        logits = model(torch.tensor([source]), torch.tensor([written]))[0, -1]
        logits[[*banned(written)]] = -torch.inf
        written.append(int(logits.argmax()))
    return written[len(begin) :]


def test_a_target_begins_with_the_given_tokens_and_needs_no_tokenizer():
    model = lively(PAIR, seed=3)
    expected = by_hand(model, SOURCE, BEGIN, 12)
    bare = WithoutText(257)
    found = ids(model, SOURCE, tokenizer=bare, max_new_tokens=12, begin=BEGIN)
    assert found == expected != ids(model, SOURCE, max_new_tokens=12)
    assert ids(model, SOURCE, tokenizer=bare, max_new_tokens=12, begin=BEGIN, chunk=2) == expected
    greedy = beam(model, SOURCE, GenerateSpec(max_new_tokens=12, begin=BEGIN))[0]
    assert list(greedy.ids) == expected and greedy.end is None
    with pytest.raises(InputError, match="starts its target with the end token"):
        ids(model, SOURCE, tokenizer=bare)


@pytest.mark.parametrize("beams", [1, 3])
def test_forced_tokens_come_first_whatever_the_model_says(beams):
    model = lively(PAIR, seed=3)
    found = ids(model, SOURCE, beams, max_new_tokens=8, forced=(5, 6), begin=(7,))
    assert found[:2] == [5, 6]
    assert found[2:] == ids(model, SOURCE, beams, max_new_tokens=6, begin=(7, 5, 6), length_penalty=1.0)
    best = beam(model, SOURCE, GenerateSpec(max_new_tokens=8, beams=3, forced=(5, 6), begin=(7,)))
    assert all(b.ids[:2] == (5, 6) and b.log_probabilities[:2] == (0.0, 0.0) for b in best) and len(best) == 3
    shorter = beam(model, SOURCE, GenerateSpec(max_new_tokens=6, beams=3, begin=(7, 5, 6)))
    assert [b.score for b in best] == pytest.approx([b.score * 6 / 8 for b in shorter])


@pytest.mark.parametrize("beams", [1, 3])
def test_suppressed_tokens_are_never_chosen(beams):
    model = lively(PAIR, seed=5)
    plain = ids(model, SOURCE, beams)
    never = ids(model, SOURCE, beams, suppressed=(plain[0], plain[3]))
    assert not {plain[0], plain[3]} & set(never)
    first = ids(model, SOURCE, beams, suppressed_first=(plain[0],))
    assert first[0] != plain[0]
    # Behind a forced token the first that is free is meant.
    later = ids(model, SOURCE, beams, forced=(plain[0],), suppressed_first=(plain[1],))
    assert later[0] == plain[0] and later[1] != plain[1]
    if beams == 1:
        banned = {plain[0], plain[3]}
        assert never == by_hand(model, SOURCE, [256], len(never), lambda written: banned)
        assert first == by_hand(model, SOURCE, [256], 24, lambda written: plain[:1] if len(written) == 1 else ())


@pytest.mark.parametrize("beams", [1, 3])
def test_no_end_comes_before_the_least_number_of_tokens(beams):
    model = scripted("ab")
    assert ids(model, [1], beams) == [*b"ab", 256]
    longer = ids(model, [1], beams, min_new_tokens=5)
    assert len(longer) == 6 and longer[-1] == 256 and 256 not in longer[:-1]


@pytest.mark.parametrize("beams", [1, 2])
def test_each_of_several_tokens_ends_a_text(beams):
    model = scripted("abcdefgh")
    events = list(generate(model, TOKENIZER, [[1]], GenerateSpec(ends=(ord("z"), ord("d")), beams=beams)))
    assert [event.token for event in events] == list(b"abcd")
    assert events[-1].finished == "end" and "".join(event.text for event in events) == "abc"
    if beams > 1:
        best = beam(model, [1], GenerateSpec(ends=(ord("z"), ord("d")), beams=2))[0]
        assert best.end == ord("d") and best.ids == tuple(b"abc") and best.ended


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_row_of_tokens_occurs_twice(n):
    model = lively(spec_of(vocab=12), seed=2)
    plain, prompt = WithoutText(12), [1, 2, 3, 1]

    def rows(found):
        return [tuple(found[i : i + n]) for i in range(len(found) - n + 1)]

    free = ids(model, prompt, tokenizer=plain, max_new_tokens=20 if n > 1 else 8)
    assert len(set(rows(prompt + free))) < len(rows(prompt + free))
    for beams in (1, 3):
        given = {"max_new_tokens": 20 if n > 1 else 8, "no_repeat": n}
        found = prompt + ids(model, prompt, beams, tokenizer=plain, **given)
        assert len(set(rows(found)) - set(rows(prompt))) == len(rows(found)) - len(rows(prompt))


def test_what_cannot_be_is_refused():
    model = lively(PAIR, seed=3)
    for name in ("begin", "forced", "ends", "suppressed", "suppressed_first"):
        for wrong in (257, -1):
            with pytest.raises(InputError, match=rf"^{name}: token id {wrong} is outside the vocabulary \(0 to 256\)"):
                ids(model, SOURCE, **{name: (wrong,)})
    for beams in (1, 2):
        with pytest.raises(InputError, match="no token is left to choose"):
            ids(model, SOURCE, beams, suppressed=tuple(range(257)))
    for name in ("min_new_tokens", "no_repeat"):
        with pytest.raises(SettingError, match=f"^{name}: -1 is not allowed"):
            GenerateSpec(**{name: -1})
    with pytest.raises(InputError, match="beyond the model's context of 30"):
        ids(model, SOURCE, begin=(1, 2, 3), max_new_tokens=28)


def test_a_models_own_settings_are_kept_beside_it_and_can_be_overruled(tmp_path):
    own = {"begin": BEGIN, "forced": (5,), "suppressed": (9,)}
    loaded = Loaded(lively(PAIR, seed=3), TOKENIZER, about={"generation": {k: list(v) for k, v in own.items()}})
    loaded.save(tmp_path / "kept", dtype="float64")
    again = gf.load(tmp_path / "kept", dtype="float64")
    for one in (loaded, again):
        found = [event.token for event in one.generate([SOURCE], max_new_tokens=6)]
        assert found == ids(one.model, SOURCE, max_new_tokens=6, **own)
        other = [event.token for event in one.generate([SOURCE], max_new_tokens=6, forced=[])]
        assert other == ids(one.model, SOURCE, max_new_tokens=6, **own | {"forced": ()})
    trace = again.trace((SOURCE, "xy"))
    assert trace.stacks[-1].tokens[0].tolist() == [*BEGIN, 5, *b"xy"]
    assert again.written(SOURCE)[:4] == [*BEGIN, 5] and len(again.written(SOURCE)) <= 30
    about = json.loads((tmp_path / "kept" / "about.json").read_text())
    (tmp_path / "kept" / "about.json").write_text(json.dumps(about | {"generation": {"begins": [1]}}))
    assert main(["generate", "a", "-m", str(tmp_path / "kept")]) == 2


def test_a_published_penalty_of_repetitions_holds_but_in_beam_search():
    model = lively(PAIR, seed=3)
    plain, own = Loaded(model, TOKENIZER), Loaded(model, TOKENIZER, about={"generation": {"repetition_penalty": 3.0}})

    def written(loaded, **settings):
        return [event.token for event in loaded.generate([SOURCE], max_new_tokens=24, **settings)]

    assert written(own) == written(plain, repetition_penalty=3.0) != written(plain)
    assert written(own, repetition_penalty=1.0) == written(plain)
    assert written(own, beams=2) == written(plain, beams=2)
    with pytest.raises(SettingError, match="repetition_penalty: beam search"):
        written(own, beams=2, repetition_penalty=3.0)
