"""What a generation refuses, and in which words."""

import numpy as np
import pytest
import torch
from sheet_models import loaded
from test_generate import FAMILIES, PAIR, TOKENIZER, lively, spec_of
from torch import nn

import glassformer as gf
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.generate import GenerateSpec, generate
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import build_model
from glassformer.spec import from_data
from glassformer.terminal.korean import translated


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, r"max_new_tokens: 0 is not allowed; use 1 or more"),
        ({"temperature": -1.0}, r"temperature: -1.0 .* 0 for greedy"),
        ({"temperature": float("nan")}, "temperature: nan"),
        ({"top_k": 0}, "top_k: 0 .* 1 or more"),
        ({"top_p": 0.0}, "top_p: 0.0 .* above 0 to 1"),
        ({"top_p": 1.5}, "top_p: 1.5"),
        ({"min_p": -0.1}, "min_p: -0.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: 0.0"),
        ({"stop": [""]}, "stop: .* none of them empty"),
        ({"seed": -1}, "seed: -1"),
        ({"beams": 0}, "beams: 0"),
        ({"beams": 2, "temperature": 1.0}, "temperature: beam search .* leave it out, or use 1 beam"),
        ({"beams": 2, "top_k": 1}, "top_k: beam search"),
        ({"beams": 2, "top_p": 1.0}, "top_p: beam search"),
        ({"beams": 2, "min_p": 0.0}, "min_p: beam search"),
        ({"beams": 2, "repetition_penalty": 1.1}, "repetition_penalty: beam search"),
        ({"beams": 2, "stop": ["."]}, "stop: beam search"),
        ({"length_penalty": 400.0}, "^length_penalty: 400.0 is not allowed; use a number from -10 to 10$"),
        ({"length_penalty": float("nan")}, "length_penalty: nan"),
        ({"chunk": 0}, "chunk: 0"),
        ({"temprature": 1.0}, r"temprature: unknown setting; did you mean temperature\?"),
        ({"top_k": "many"}, "top_k: "),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(SettingError, match=message):
        from_data(settings, GenerateSpec)


def test_a_setting_of_beam_search_needs_beams():
    with pytest.raises(SettingError, match="length_penalty: only beam search uses it; leave it out, or set beams"):
        generate(build_model(spec_of()), TOKENIZER, ["a"], GenerateSpec(length_penalty=0.5))


def test_a_single_stop_text_is_not_taken_for_a_list():
    with pytest.raises(SettingError, match="stop: 'end' is not allowed; use a list"):
        GenerateSpec(stop="end")


@pytest.mark.parametrize(
    ("prompts", "new", "message"),
    [
        ([], 4, "no prompts were given"),
        ([[1, 2], [3, 257]], 4, r"prompt 1: token id 257 is outside the vocabulary \(0 to 256\)"),
        ([[-1]], 4, "prompt 0: token id -1"),
        (
            [[1] * 100],
            29,
            "100 tokens and 29 new ones are 129, beyond the model's context of 128; .* at most 28, or",
        ),
        (["", [1] * 128], 1, "prompt 1 has 128 tokens .* no room for new ones; .* at most 127"),
        ([1, 2], 4, "put a single prompt into a list"),
        (np.array([1, 2]), 4, "put a single prompt into a list"),
        (torch.tensor([1, 2]), 4, "put a single prompt into a list"),
        (3, 4, "prompts are a list of texts or of lists of token ids"),
        (None, 4, "prompts are a list"),
        (b"bytes", 4, "prompts are a list"),
        ([[1.5]], 4, "prompts are a list"),
        ([None], 4, "prompts are a list"),
    ],
)
def test_prompts_that_do_not_fit_are_refused_at_once(prompts, new, message):
    with pytest.raises(InputError, match=message):  # at the call, not at the first event
        generate(build_model(spec_of()), TOKENIZER, prompts, GenerateSpec(max_new_tokens=new))


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple, lambda ids: [np.array(row) for row in ids]])
def test_ids_may_be_numbers_of_any_library(make):
    model, spec = lively(FAMILIES["learned, previous"]), GenerateSpec(max_new_tokens=3)
    rows = [[1, 2, 3], [4, 5, 6]]
    assert list(generate(model, TOKENIZER, make(rows), spec)) == list(generate(model, TOKENIZER, rows, spec))


def test_the_whole_context_can_be_used():
    model = lively(FAMILIES["learned, previous"])
    with torch.no_grad():
        model.head.weight[TOKENIZER.end_id] = 0.0
    events = list(generate(model, TOKENIZER, [[1] * 100], GenerateSpec(max_new_tokens=28)))
    assert len(events) == 28 and events[-1].finished == "length"


def test_the_contexts_of_an_encoder_decoder():
    model = build_model(PAIR)
    with pytest.raises(
        InputError, match="prompt 0 has 41 tokens and the encoder's context is 40; shorten it to at most 40"
    ):
        generate(model, TOKENIZER, [[1] * 41])
    with pytest.raises(
        InputError, match=r"1 tokens and 30 new ones are 31, beyond the model's context of 30; .* at most 29"
    ):
        generate(model, TOKENIZER, [[1] * 40], GenerateSpec(max_new_tokens=30))


def test_models_that_cannot_continue_text_are_refused_by_name():
    seeing = build_model(spec_of(AttentionSpec(mask=Mask(causal=False))))
    with pytest.raises(UnsupportedError, match=r"blocks\.0\.mixer: this attention sees later tokens"):
        generate(seeing, TOKENIZER, ["a"])
    with pytest.raises(UnsupportedError, match="no head"):
        generate(build_model(PAIR.encoder), TOKENIZER, ["a"])
    with pytest.raises(UnsupportedError, match="a Linear does not write tokens"):
        generate(nn.Linear(2, 2), TOKENIZER, ["a"])


def test_broken_weights_are_named():
    model = build_model(spec_of())
    with torch.no_grad():
        model.head.weight.fill_(torch.nan)
    for temperature in (0.0, 1.0):
        with pytest.raises(InputError, match="NaN"):
            list(generate(model, TOKENIZER, ["a"], GenerateSpec(temperature=temperature)))


def test_an_edit_that_makes_the_numbers_too_large_is_named():
    model, edits = build_model(spec_of()), [gf.scale("blocks.0.mixer.z", 1e39)]
    with pytest.raises(InputError, match=r"NaN\): an edit may .*: gf\.scale\('blocks\.0\.mixer\.z', 1e\+39\)$"):
        list(generate(model, TOKENIZER, ["a"], edits=edits))


def test_an_encoder_decoder_without_a_tokenizer_is_refused_at_once():
    made = gf.build("t5", vocab=50, dim=16, blocks=1, heads=2, context=16)
    for prompt in ([[1, 2, 3]], [[]]):
        with pytest.raises(
            InputError, match="starts its target with the end token, and without a tokenizer none is known"
        ):
            made.generate(prompt, max_new_tokens=2)


def test_one_stop_text_needs_no_list():
    made = loaded(method="byte")
    one, several = (
        "".join(event.text for event in made.generate("a", max_new_tokens=40, seed=5, stop=stop))
        for stop in ("e", ["e"])
    )
    assert one == several and "e" not in one


def test_settings_written_in_python_are_checked():
    made = loaded(method="byte")
    with pytest.raises(SettingError, match=r"^top_k: 2\.5 is not allowed"):
        generate(made.model, made.tokenizer, "a", GenerateSpec(top_k=2.5))


def test_a_word_that_does_not_fit_is_named_by_its_prompt_and_itself():
    with pytest.raises(InputError, match=r"^고{20}: prompt 1 has \d+ tokens and the encoder's context") as raised:
        gf.load("korean-g2p").generate(["고양이가", "생선을 " + "고" * 200])
    assert ": 1번 프롬프트의 길이는" in translated(str(raised.value))
