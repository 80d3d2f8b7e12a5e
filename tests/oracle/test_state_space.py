"""Mamba and Mamba-2 against transformers' own PyTorch path: published configurations, shrunk in width and depth."""

from __future__ import annotations

import pytest
import torch
from published import check_export, check_greedy, check_same, pair, tokens, transformers

from glassformer.errors import UnsupportedError
from glassformer.hf import FAMILIES, read_model
from glassformer.model import without_memory

VOCAB, LENGTH = 64, 21
SMALL = {"hidden_size": 48, "num_hidden_layers": 3, "vocab_size": VOCAB}
TWO = {**SMALL, "state_size": 16, "head_dim": 8, "num_heads": 12, "chunk_size": 8}

# name -> (model_type, the fields of the published configuration)
CASES: dict[str, tuple[str, dict]] = {
    "mamba-130m": ("mamba", {**SMALL, "state_size": 16, "use_mambapy": False}),
    "mamba-biased": (
        "mamba",
        {**SMALL, "state_size": 5, "use_bias": True, "use_conv_bias": False, "time_step_rank": 7, "conv_kernel": 3},
    ),
    "mamba-untied": ("mamba", {**SMALL, "expand": 1, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3}),
    "mamba2-130m": ("mamba2", {**TWO, "n_groups": 1, "tie_word_embeddings": True}),
    "mamba2-codestral-7b": ("mamba2", {**TWO, "n_groups": 4}),
    "mamba2-limits": (
        "mamba2",
        {**TWO, "n_groups": 2, "use_bias": True, "use_conv_bias": False, "layer_norm_epsilon": 1e-2}
        | {"time_step_limit": (0.2, 0.8)},
    ),
}


def made(name: str):
    """The pair of a case, with steps of a size at which all parts of the state matter."""
    model_type, fields = CASES[name]
    config = transformers.AutoConfig.for_model(model_type, **fields, pad_token_id=None)
    kind = transformers.AutoModelForCausalLM._model_mapping[type(config)]
    ids = tokens(VOCAB, LENGTH)
    return pair(config, kind, lambda model: model(ids, use_cache=False).logits, lambda model: model(ids))


@pytest.mark.parametrize("name", CASES)
def test_logits_and_gradients_are_those_of_transformers(name):
    check_same(made(name))


@pytest.mark.parametrize("name", [name for name in CASES if name != "mamba2-limits"])  # it forgets them at each step
def test_greedy_text_is_that_of_transformers(name):
    check_greedy(made(name), tokens(VOCAB, 5), LENGTH)


@pytest.mark.parametrize("name", CASES)
def test_transformers_loads_what_is_exported(name, tmp_path):
    check_export(made(name), tmp_path)


@pytest.mark.parametrize("kind", ["MambaModel", "Mamba2Model"])
def test_without_a_head_the_vectors_are_the_same(kind, tmp_path):
    config = transformers.MambaConfig(**SMALL) if kind == "MambaModel" else transformers.Mamba2Config(**TWO, n_groups=3)
    ids = tokens(VOCAB, LENGTH)
    both = pair(config, kind, lambda model: model(ids).last_hidden_state, lambda model: model(ids))
    check_same(both)
    check_export(both, tmp_path)


def test_what_the_published_files_say_besides_is_known():
    """Fields of state-spaces/mamba-130m-hf and of mamba2-130m-hf that transformers itself never reads."""
    more = {"d_inner": 96, "d_model": 48, "n_layer": 3, "fused_add_norm": True, "pad_vocab_size_multiple": 8}
    more |= {"rms_norm": True, "ssm_cfg": {}, "intermediate_size": 96, "time_step_rank": "auto"}
    both = made("mamba-130m")
    assert FAMILIES["mamba"].spec(both.config | more).blocks[0].mixer.rank is None
    two = made("mamba2-130m").config
    assert FAMILIES["mamba2"].spec(two | {"norm_before_gate": True, "rms_norm": True}) == FAMILIES["mamba2"].spec(two)
    old = {name.replace("embeddings.", "embedding."): x for name, x in both.theirs.state_dict().items()}
    assert torch.equal(read_model(both.config, old, "memory")(tokens(VOCAB, 4)), both.ours(tokens(VOCAB, 4)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_dim": 9}, r"^head_dim: 12 heads of 9 numbers are not expand·hidden_size=96"),
        ({"rms_norm": False}, "^rms_norm: False is not supported in a mamba2 model; only True"),
        ({"hidden_act": "gelu"}, "^hidden_act: 'gelu' is not supported"),
        ({"time_step_limit": [0.5]}, "this is not what such a field holds"),
    ],
)
def test_what_is_no_mamba_2_is_refused_by_name(fields, message):
    with pytest.raises(UnsupportedError if "time" not in str(fields) else Exception, match=message):
        FAMILIES["mamba2"].spec(made("mamba2-130m").config | fields)


@pytest.mark.parametrize(
    ("name", "fields", "count"),
    [
        ("mamba", {"num_hidden_layers": 24}, 129_135_360),  # state-spaces/mamba-130m-hf
        (
            "mamba2",
            {"num_hidden_layers": 24, "hidden_size": 768, "vocab_size": 50_288, "num_heads": 24, "n_groups": 1}
            | {"tie_word_embeddings": True},
            128_989_632,  # mamba2-130m
        ),
        ("mamba2", {}, 7_285_403_648),  # Mamba-Codestral-7B, whose fields are the defaults
    ],
)
def test_the_published_models_have_as_many_parameters(name, fields, count):
    model = without_memory(FAMILIES[name].spec(fields))
    assert sum(p.numel() for p in model.parameters()) == count
