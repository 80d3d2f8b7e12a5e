"""Decoding: the cache, batches, streaming, stop strings, and what a generation leaves behind."""

import copy
import gc
import weakref
from collections import defaultdict

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import quick_share
from tokenizers import models, pre_tokenizers

from glassformer.data.tokenizer import END, Tokenizer, byte_of_symbol
from glassformer.errors import InputError
from glassformer.generate import GenerateSpec, generate, longest
from glassformer.generate.sampling import StopStrings
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.mixers.linear import LinearSpec
from glassformer.mixers.mamba import MambaSpec
from glassformer.mixers.recurrent import RnnSpec
from glassformer.model import BlockSpec, EncoderDecoderSpec, Model, ModelSpec, ModelState, build_model
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.position import AlibiSpec, LearnedSpec, RelativeBiasSpec, RopeSpec, SinusoidalSpec

ROPE = AttentionSpec(heads=4, kv_heads=2, position=RopeSpec())


def byte_tokenizer() -> Tokenizer:
    """256 bytes and the end token, 256."""
    library = tokenizers.Tokenizer(models.BPE(vocab=byte_of_symbol(), merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.add_special_tokens([END])
    return Tokenizer(library)


TOKENIZER = byte_tokenizer()


def spec_of(mixer=ROPE, embed=None, vocab=257, context=128, **block) -> ModelSpec:
    blocks = (BlockSpec(mixer=mixer, **block),) * 2
    # Untied, since a tied head makes a random model repeat the last token.
    head = HeadSpec(tied=False)
    return ModelSpec(vocab=vocab, dim=16, context=context, embed=embed or EmbedSpec(), blocks=blocks, head=head)


def lively(spec, seed=0, kind=build_model):
    """A model in fp64 whose weights are large enough that what it writes depends on all that it read."""
    torch.manual_seed(seed)
    model = kind(spec).double().eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.5)
    return model


def texts(events) -> dict[int, str]:
    joined = defaultdict(str)
    for event in events:
        joined[event.row] += event.text
    return dict(joined)


def tokens(events) -> dict[int, list[int]]:
    found = defaultdict(list)
    for event in events:
        found[event.row].append(event.token)
    return dict(found)


class Scripted(Model):
    """A model that writes the bytes of `script`, wherever it starts, then the end token."""

    script: bytes = b""
    start = 1  # the position of the first token that it writes

    def step(self, tokens, state, **given):
        logits, state = super().step(tokens, state, **given)
        for row, place in enumerate(state.next_pos.tolist()):
            at = place - self.start
            logits[row, -1, self.script[at] if at < len(self.script) else TOKENIZER.end_id] += 1e4
        return logits, state


def scripted(text: str) -> Scripted:
    model = lively(spec_of(), kind=Scripted)
    model.script = text.encode()
    return model


# ---------------------------------------------------------------- the cache

FAMILIES = {
    "rope": spec_of(),
    "learned, previous": spec_of(AttentionSpec(heads=2), EmbedSpec(position=LearnedSpec(), previous=True)),
    "sinusoidal, smeared": spec_of(AttentionSpec(heads=2, smear=True), EmbedSpec(position=SinusoidalSpec())),
    "alibi, window": spec_of(AttentionSpec(position=AlibiSpec(), mask=Mask(window=5, sinks=1))),
    "relative, softcap, sink": spec_of(AttentionSpec(position=RelativeBiasSpec(), softcap=5.0, sink=True)),
    "post": spec_of(wiring="post"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_with_a_cache_equals_recomputing_everything(name):
    model, ids = lively(FAMILIES[name]), list(b"some prompt of a few bytes")
    given = GenerateSpec(max_new_tokens=24, chunk=7)
    events = list(generate(model, TOKENIZER, [ids], given))
    expected = list(ids)
    with torch.no_grad():
        for event in events:
            probability = model(torch.tensor([expected]))[0, -1].softmax(-1)
            assert event.token == int(probability.argmax())
            assert event.probability == pytest.approx(float(probability[event.token]), rel=1e-6)
            expected.append(event.token)
    assert len({round(event.probability, 9) for event in events}) > 20  # what was read matters


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_batch_of_prompts_of_different_length_equals_single_runs(name, temperature):
    model = lively(FAMILIES[name], seed=1)
    texts = ["a", "고양이가 생선을", "b", "the quick brown fox"]
    prompts = [TOKENIZER.encode(text).ids for text in texts]
    spec = GenerateSpec(max_new_tokens=24, chunk=4, temperature=temperature, repetition_penalty=1.2, seed=5)
    # The end token is one that the rows reach at times as different as possible, so that the batch is cut down.
    written = tokens(generate(model, TOKENIZER, prompts, spec))
    ending = copy.copy(TOKENIZER)
    candidates = sorted({token for row in written.values() for token in row[2:-6]})
    end = max(candidates, key=lambda end: len({row.index(end) for row in written.values() if end in row}))
    ending.ends = frozenset([end])
    together = tokens(generate(model, ending, prompts, spec))
    assert min(map(len, together.values())) <= 18 and len({len(row) for row in together.values()}) > 1
    for row, prompt in enumerate(prompts):
        alone = tokens(generate(model, ending, [prompt], spec.changed(seed=5 + row)))
        assert together[row] == alone[0]


@pytest.mark.parametrize("name", quick_share(FAMILIES, 3, 1))
@pytest.mark.parametrize("filters", [{}, {"top_k": 40, "min_p": 0.001}, {"top_p": 0.95}])
def test_a_batch_that_draws_in_float32_writes_what_single_runs_with_its_seeds_write(name, filters):
    """A batch rounds otherwise than a single run, so it must be the drawing that does not care."""
    model = lively(FAMILIES[name], seed=1).float()
    prompts = [list(text.encode()) for text in ("a", "고양이가 생선을", "b", "the quick brown fox", "먹었다")]
    spec = GenerateSpec(max_new_tokens=40, chunk=4, temperature=1.0, seed=11, **filters)
    together = list(generate(model, TOKENIZER, prompts, spec))
    alone = [
        list(generate(model, TOKENIZER, [prompt], spec.changed(seed=11 + row))) for row, prompt in enumerate(prompts)
    ]
    assert tokens(together) == {row: tokens(events)[0] for row, events in enumerate(alone)}
    chances = [[event.probability for event in together if event.row == row] for row in range(len(prompts))]
    singles = [[event.probability for event in events] for events in alone]
    assert chances != singles  # else nothing was rounded otherwise, and nothing was tested
    assert all(one == pytest.approx(other, rel=1e-3) for one, other in zip(chances, singles, strict=True))
    assert len({tuple(row) for row in tokens(together).values()}) == len(prompts)


def test_rows_that_finished_leave_the_batch():
    model, sizes = lively(spec_of()), []
    step = model.step

    def counting(tokens, state, **given):
        sizes.append(tokens.shape[0])
        return step(tokens, state, **given)

    model.step = counting
    with torch.no_grad():
        model.head.weight[TOKENIZER.end_id] *= 5.0
    events = list(generate(model, TOKENIZER, ["a", "b", "c", "d"], GenerateSpec(max_new_tokens=40, temperature=1.0)))
    assert {event.finished for event in events} - {None} >= {"end"}
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 4 and sizes[-1] < 4
    # The first step reads the prompts and gives a first token to all; each further one a token to those that are left.
    assert len(events) == sum(sizes)


def test_the_penalty_counts_what_was_read_and_what_was_written():
    model, prompts = lively(spec_of()), [list(b"abcdefgh"), list(b"xyz")]
    plain = tokens(generate(model, TOKENIZER, prompts, GenerateSpec(max_new_tokens=60)))
    assert all(len(set(row)) < len(row) for row in plain.values())
    # So strong that a token which was seen is taken only when no other has a positive logit.
    found = tokens(generate(model, TOKENIZER, prompts, GenerateSpec(max_new_tokens=60, repetition_penalty=1e6)))
    for prompt, row in zip(prompts, found.values(), strict=True):
        assert len({*prompt, *row}) == len(prompt) + len(row)


def test_the_probability_is_the_models_own_whatever_is_filtered():
    model, ids = lively(spec_of()), list(b"abc")
    spec = GenerateSpec(max_new_tokens=9, temperature=2.0, top_k=5, top_p=0.7, min_p=0.1, repetition_penalty=1.5)
    for event in generate(model, TOKENIZER, [ids], spec):
        with torch.no_grad():
            expected = model(torch.tensor([ids]))[0, -1].softmax(-1)[event.token]
        assert event.probability == pytest.approx(float(expected), rel=1e-6)
        ids.append(event.token)


def test_seeds_reproduce_and_differ():
    model = lively(spec_of())

    def run(seed):
        return tokens(
            generate(model, TOKENIZER, ["가나"], GenerateSpec(temperature=1.0, max_new_tokens=30, seed=seed))
        )[0]

    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert run(3) == run(3) and run(3) != run(4)
    assert torch.equal(before, torch.get_rng_state())  # the global random state is nobody's


def test_ids_beyond_the_tokenizer_are_never_written():
    model = lively(spec_of(vocab=300))
    with torch.no_grad():
        model.head.weight[257:] *= 5.0
        assert int(model(torch.tensor([[256]]))[0, -1].argmax()) >= 257
    for temperature in (0.0, 1.5):
        spec = GenerateSpec(max_new_tokens=40, temperature=temperature, repetition_penalty=1.1)
        assert max(tokens(generate(model, TOKENIZER, ["x"], spec))[0]) <= 256


def test_a_text_starts_behind_the_end_token_and_ids_stay_as_given():
    model, spec = lively(spec_of()), GenerateSpec(max_new_tokens=8)

    def run(prompt, **changed):
        return tokens(generate(model, TOKENIZER, [prompt], spec.changed(**changed)))[0]

    assert run("ab") == run([256, 97, 98]) != run([97, 98])
    assert run("ab", start=False) == run([97, 98])
    assert run("") == run("", start=False) == run([]) == run([256])


# ---------------------------------------------------------------- encoder-decoder

PAIR = EncoderDecoderSpec(
    encoder=ModelSpec(
        vocab=257,
        dim=16,
        context=40,
        head=None,
        embed=EmbedSpec(position=SinusoidalSpec()),
        blocks=(BlockSpec(mixer=AttentionSpec(mask=Mask(causal=False))),),
    ),
    decoder=ModelSpec(
        vocab=257,
        dim=16,
        context=30,
        embed=EmbedSpec(position=SinusoidalSpec()),
        blocks=(BlockSpec(mixer=AttentionSpec(), cross=CrossSpec()),) * 2,
    ),
)


def test_an_encoder_decoder_writes_the_target_of_each_source():
    model, sources = lively(PAIR), ["one", "넷이서 다섯", "a longer source than that"]
    spec = GenerateSpec(max_new_tokens=12, repetition_penalty=1.3)
    together = tokens(generate(model, TOKENIZER, sources, spec))
    for row, source in enumerate(sources):
        assert tokens(generate(model, TOKENIZER, [source], spec))[0] == together[row]
    target, read = [256], torch.tensor([TOKENIZER.encode(sources[1], start=True).ids])
    for event in generate(model, TOKENIZER, [sources[1]], GenerateSpec(max_new_tokens=12)):
        with torch.no_grad():
            assert event.token == int(model(read, torch.tensor([target]))[0, -1].argmax())
        target.append(event.token)


# ---------------------------------------------------------------- text


@pytest.mark.parametrize("seed", range(6))
def test_the_streamed_texts_are_the_decoding_and_never_half_a_character(seed):
    torch.manual_seed(seed)
    model = build_model(spec_of())  # freshly initialised: nearly uniform over all bytes
    events = list(generate(model, TOKENIZER, ["시작"], GenerateSpec(max_new_tokens=100, temperature=1.5, seed=seed)))
    written = [event.token for event in events]
    assert "".join(event.text for event in events) == TOKENIZER.decode(written)
    assert any(token >= 128 for token in written)
    for event in events:
        assert "�" not in event.text
        event.text.encode()  # no lone surrogate


def test_a_character_of_several_tokens_is_shown_once_it_is_whole():
    events = list(generate(scripted("가a각"), TOKENIZER, [""], GenerateSpec()))
    assert [event.text for event in events] == ["", "", "가", "a", "", "", "각", ""]
    assert [event.finished for event in events] == [None] * 7 + ["end"]
    assert events[-1].token == TOKENIZER.end_id
    cut = list(generate(scripted("가각"), TOKENIZER, [""], GenerateSpec(max_new_tokens=5)))
    assert [event.text for event in cut] == ["", "", "가", "", "⟨EA⟩⟨B0⟩"] and cut[-1].finished == "length"


def test_stop_strings_are_found_across_tokens_and_not_shown():
    model = scripted("옛날에 살았다. 끝! 그리고")
    events = list(generate(model, TOKENIZER, [""], GenerateSpec(stop=("다. 끝", "그리고"))))
    assert "".join(event.text for event in events) == "옛날에 살았" and events[-1].finished == "stop"
    assert len(events) == len("옛날에 살았다. 끝".encode())
    # "다." is held back until it is clear that no stop string follows.
    shown = [event.text for event in generate(model, TOKENIZER, [""], GenerateSpec(stop=("다. 그",)))]
    assert "".join(shown) == "옛날에 살았다. 끝! 그리고" and "다. 끝" in shown
    # What was held back at the end is shown then.
    cut = list(generate(scripted("살았다"), TOKENIZER, [""], GenerateSpec(stop=("다. 끝",))))
    assert cut[-1].text == "다" and cut[-1].finished == "end"
    # The prompt is not searched.
    assert texts(generate(scripted("b"), TOKENIZER, [[97]], GenerateSpec(stop=("ab",))))[0] == "b"


@settings(max_examples=200)
@given(
    st.lists(st.text("abc", max_size=4), max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_stop_strings_do_not_depend_on_where_the_pieces_end(pieces, stops):
    whole = "".join(pieces)
    # Read letter by letter: the first prefix that ends with a stop string, cut before the longest such.
    ends = [n for n in range(len(whole) + 1) if any(whole[:n].endswith(stop) for stop in stops)]
    expected = whole if not ends else whole[: ends[0] - max(len(s) for s in stops if whole[: ends[0]].endswith(s))]
    reader, shown = StopStrings(tuple(stops)), ""
    for piece in pieces:
        shown += reader.push(piece)
        assert expected.startswith(shown)
        if reader.found:
            break
    assert reader.found == bool(ends) and shown + reader.rest() == expected


# ---------------------------------------------------------------- nothing is left behind


def test_closing_early_leaves_nothing_behind(monkeypatch):
    model, made = build_model(spec_of(dropout=0.1)), []
    assert model.training
    born = ModelState.__init__

    def noted(self, *args, **kwargs):
        born(self, *args, **kwargs)
        made.append(weakref.ref(self))

    monkeypatch.setattr(ModelState, "__init__", noted)
    events = generate(model, TOKENIZER, ["abc", "d"], GenerateSpec(temperature=1.0))
    assert not made  # nothing is run before the first event is asked for
    for _ in range(5):
        next(events)
        # Between two events the caller is where it was: gradients on, no inference mode, the model in training.
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert all(module.training for module in model.modules())
    assert made and any(one() is not None for one in made)
    events.close()
    del events
    gc.collect()
    assert all(one() is None for one in made)
    model(torch.tensor([[1, 2, 3]])).sum().backward()
    assert all(value.grad is not None for value in model.parameters())


def test_a_model_in_training_writes_without_dropout():
    model = lively(spec_of(dropout=0.5)).train()
    model.blocks[0].eval()
    spec = GenerateSpec(max_new_tokens=20, temperature=1.0)
    first = tokens(generate(model, TOKENIZER, ["abc"], spec))
    assert model.training and not model.blocks[0].training and model.blocks[1].training
    assert first == tokens(generate(model.eval(), TOKENIZER, ["abc"], spec))


def test_two_generations_on_one_model_do_not_disturb_each_other():
    model = lively(spec_of())
    one = GenerateSpec(max_new_tokens=20, temperature=1.0, seed=1)
    two = GenerateSpec(max_new_tokens=20, temperature=0.7, seed=2, repetition_penalty=1.2)
    alone = list(generate(model, TOKENIZER, ["abc"], one)), list(generate(model, TOKENIZER, ["xy"], two))
    pairs = zip(generate(model, TOKENIZER, ["abc"], one), generate(model, TOKENIZER, ["xy"], two), strict=True)
    assert tuple(map(list, zip(*pairs, strict=True))) == alone


ENDLESS = {
    "rnn": RnnSpec(),
    "mamba": MambaSpec(state=4),
    "window": AttentionSpec(mask=Mask(window=8), position=RopeSpec()),
    "linear": LinearSpec(),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_keeps_no_more_of_a_longer_text_writes_beyond_its_context(name):
    model = build_model(spec_of(ENDLESS[name], context=8)).eval()
    assert longest(model) is None
    written = [event.token for event in generate(model, TOKENIZER, [[65, 66]], GenerateSpec(max_new_tokens=40))]
    assert len(written) == 40
    with torch.no_grad():
        logits = model(torch.tensor([[65, 66, *written]]))[0, 1:-1]
    assert (logits.amax(1) - logits.gather(1, torch.tensor(written)[:, None])[:, 0]).max() < 1e-4


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(context=8),
        spec_of(RnnSpec(), EmbedSpec(position=LearnedSpec()), context=8),
    ],
)
def test_what_grows_or_has_places_of_its_own_does_not(spec):
    model = build_model(spec)
    assert longest(model) == 8
    with pytest.raises(InputError, match=r"beyond the model's context of 8; set max_new_tokens to at most 6"):
        generate(model, TOKENIZER, [[65, 66]], GenerateSpec(max_new_tokens=7))
