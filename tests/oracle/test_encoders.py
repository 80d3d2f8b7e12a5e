"""Every encoder family against transformers: published configurations, shrunk in width and depth alone."""

from __future__ import annotations

import pytest
import torch
from published import Pair, check_export, check_same, lively, pair, tokens, transformers, written

from glassformer.errors import CheckpointError, UnsupportedError
from glassformer.hf import FAMILIES, export, read_model
from glassformer.tap import Probe

VOCAB, PAD, LENGTH = 96, 1, 24
SHRUNK = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2}
BERT = {**SHRUNK, "num_attention_heads": 12, "max_position_embeddings": 32, "pad_token_id": PAD}
ROBERTA = {**BERT, "max_position_embeddings": 34, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTIL = {"vocab_size": VOCAB, "dim": 48, "hidden_dim": 72, "n_layers": 2, "n_heads": 12, "pad_token_id": PAD}
MODERN = {
    **{**SHRUNK, "num_hidden_layers": 5},
    **{"num_attention_heads": 4, "local_attention": 8, "pad_token_id": PAD},
    **{"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3},
}
THREE = {"id2label": {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}}

# name -> (model_type, class, the fields of the published configuration)
CASES: dict[str, tuple[str, str, dict]] = {
    "bert-base-uncased": ("bert", "BertForMaskedLM", BERT),
    "bert-relu": ("bert", "BertForMaskedLM", BERT | {"hidden_act": "relu", "type_vocab_size": 3}),
    "minilm-l6": ("bert", "BertModel", BERT),
    "bert-nli": ("bert", "BertForSequenceClassification", BERT | THREE),
    "cross-encoder": ("bert", "BertForSequenceClassification", BERT | {"num_labels": 1}),
    "roberta-base": ("roberta", "RobertaForMaskedLM", ROBERTA),
    "roberta-pooler": ("roberta", "RobertaModel", ROBERTA),
    "roberta-large-mnli": ("roberta", "RobertaForSequenceClassification", ROBERTA | THREE),
    "xlm-roberta-base": ("xlm-roberta", "XLMRobertaForMaskedLM", ROBERTA),
    "multilingual-e5-large": ("xlm-roberta", "XLMRobertaModel", ROBERTA),
    "xlm-roberta-classes": ("xlm-roberta", "XLMRobertaForSequenceClassification", ROBERTA | {"num_labels": 5}),
    "distilbert-base": ("distilbert", "DistilBertForMaskedLM", DISTIL),
    "distilbert": ("distilbert", "DistilBertModel", DISTIL | {"sinusoidal_pos_embds": True}),
    "distilbert-sst-2": (
        "distilbert",
        "DistilBertForSequenceClassification",
        DISTIL | {"id2label": {0: "NEGATIVE", 1: "POSITIVE"}},
    ),
    "modernbert-base": ("modernbert", "ModernBertForMaskedLM", MODERN),
    "modernbert": ("modernbert", "ModernBertModel", MODERN | {"norm_bias": True, "norm_eps": 1e-6}),
    "modernbert-biased": (
        "modernbert",
        "ModernBertForMaskedLM",
        MODERN
        | {"attention_bias": True, "mlp_bias": True, "decoder_bias": False, "classifier_bias": True}
        | {"layer_types": ["sliding_attention", *["full_attention"] * 3, "sliding_attention"]}
        | {"classifier_activation": "silu"},
    ),
    "modernbert-classes": ("modernbert", "ModernBertForSequenceClassification", MODERN | THREE),
    "modernbert-mean": (
        "modernbert",
        "ModernBertForSequenceClassification",
        MODERN | THREE | {"classifier_pooling": "mean"},
    ),
}
each = pytest.mark.parametrize("name", CASES)


def of(name: str, ids: torch.Tensor, there: torch.Tensor | None = None) -> Pair:
    """The two models, asked for all that they give of the ids; there `b t`: which places hold a token."""
    family, kind, fields = CASES[name]
    config = transformers.CONFIG_MAPPING[family](**fields)
    places = {} if there is None else {"attention_mask": there.long()}
    pos = None if there is None else torch.where(there, there.long().cumsum(1) - 1, -1)
    if there is not None and family in ("bert", "distilbert", "modernbert") and kind != "DistilBertModel":
        places["position_ids"] = pos.clamp(min=0)
    if family == "distilbert" and there is not None:
        places.pop("position_ids", None)

    def ask(model):
        found = model(input_ids=ids, **places)
        parts = [found[key] for key in ("logits", "last_hidden_state", "pooler_output") if key in found]
        return together(parts, there)

    def answer(model):
        probe, last = Probe(), f"blocks.{len(model.blocks) - 1}.resid_out"
        out = model(ids, pos=pos, probe=probe)
        vectors = probe.values.get("norm.out", probe.values[last])
        parts = [out] if kind.endswith(("LM", "Classification")) or model.head is None else [vectors, out]
        return together(parts, there)

    return pair(config, kind, ask, answer)


def together(parts: list[torch.Tensor], there: torch.Tensor | None) -> torch.Tensor:
    """Values of each token and of each text as one row a text, 0 where no token is."""
    kept = [part if part.ndim == 2 or there is None else part * there[..., None] for part in parts]
    return torch.cat([part.flatten(1) for part in kept], 1)


def ids_of(batch: int = 2) -> torch.Tensor:
    """Ids without the padding's."""
    return tokens(VOCAB - 4, LENGTH, batch) + 4


@each
def test_the_numbers_and_gradients_are_those_of_transformers(name):
    check_same(of(name, ids_of()))


@each
@torch.no_grad()
def test_padding_on_the_right_changes_nothing(name):
    there = torch.arange(LENGTH) < torch.tensor([[LENGTH], [13]])
    both = of(name, torch.where(there, ids_of(), PAD), there)
    assert (both.ask(both.theirs) - both.answer(both.ours)).abs().max() <= 5e-5


# On the left transformers reads the padding as the first token of a text, and DistilBERT counts it as positions.
LEFT = [
    name for name, (family, kind, _) in CASES.items() if (kind.endswith("LM") or "mean" in name) and family[0] != "d"
]


@pytest.mark.parametrize("name", LEFT)
@torch.no_grad()
def test_padding_on_the_left_changes_nothing(name):
    there = torch.arange(LENGTH) >= torch.tensor([[0], [11]])
    both = of(name, torch.where(there, ids_of(), PAD), there)
    assert (both.ask(both.theirs) - both.answer(both.ours)).abs().max() <= 5e-5


@each
def test_what_is_exported_loads_there_with_the_same_numbers(name, tmp_path):
    check_export(of(name, ids_of()), tmp_path)


@torch.no_grad()
def test_segments_are_those_of_transformers():
    both, ids = of("minilm-l6", ids_of()), ids_of()
    types = torch.arange(LENGTH).expand_as(ids) // 13
    wanted = both.theirs(input_ids=ids, token_type_ids=types).pooler_output
    assert (wanted - both.ours(ids, types=types)).abs().max() <= 5e-5
    assert (wanted - both.ours(ids)).abs().max() > 1e-2


@torch.no_grad()
def test_an_encoder_without_its_pooler_ends_in_the_vectors_of_its_tokens():
    model = lively(transformers.BertModel(transformers.BertConfig(**BERT), add_pooling_layer=False))
    ours = read_model(written(model), model.state_dict(), "memory")
    assert ours.head is None
    assert (ours(ids_of()) - model(ids_of()).last_hidden_state).abs().max() <= 5e-5
    config, tensors = export(ours)
    assert config["architectures"] == ["BertModel"] and not any("pooler" in name for name in tensors)


@torch.no_grad()
def test_the_file_of_bert_base_has_more_than_its_class_and_older_names():
    """A pooler, the sentence head of the pre-training, the table a second time, position ids, and gamma and beta."""
    model = lively(transformers.BertForPreTraining(transformers.BertConfig(**BERT)))
    model.tie_weights()
    stored = {}
    for name, value in model.state_dict().items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        stored[old] = value
    stored["bert.embeddings.position_ids"] = torch.arange(32)[None]
    ours = read_model(written(model) | {"architectures": ["BertForMaskedLM"]}, stored, "memory")
    assert (ours(ids_of()) - model(ids_of()).prediction_logits).abs().max() <= 5e-5
    stored["bert.encoder.layer.7.output.dense.weight"] = torch.zeros(3)
    with pytest.raises(CheckpointError, match=r"hold 'bert.encoder.layer.7.output.dense.weight', which has no place"):
        read_model(written(model) | {"architectures": ["BertForMaskedLM"]}, stored, "memory")


def test_the_published_configuration_of_modernbert_is_read():
    """As it is published, with a period in the place of a list, and two bases."""
    fields = {
        "num_hidden_layers": 7,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "num_attention_heads": 12,
    }
    more = {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0, "layer_norm_eps": 1e-5}
    spec = FAMILIES["modernbert"].spec(fields | more | {"position_embedding_type": "absolute"})
    assert [block.mixer.mask.window for block in spec.blocks] == [None, 65, 65, None, 65, 65, None]
    assert [block.mixer.position.base for block in spec.blocks] == [160e3, 10e3, 10e3, 160e3, 10e3, 10e3, 160e3]
    assert [block.first_norm for block in spec.blocks] == [False] + [True] * 6
    config = FAMILIES["modernbert"].config(spec)
    assert config["global_attn_every_n_layers"] == 3 and config["layer_types"][1] == "sliding_attention"


REFUSED = {
    "bert": ({"is_decoder": True}, {"position_embedding_type": "relative_key"}, {"tie_word_embeddings": False}),
    "roberta": ({"add_cross_attention": True}, {"architectures": ["RobertaForTokenClassification"]}),
    "distilbert": ({"pruned_heads": {"0": [1]}},),
    "modernbert": ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"layer_types": ["chunked"] * 22}),
}


@pytest.mark.parametrize(
    ("family", "fields"), [(family, one) for family, several in REFUSED.items() for one in several]
)
def test_what_the_rules_do_not_cover_is_refused_by_name(family, fields):
    with pytest.raises(UnsupportedError, match=rf"^{next(iter(fields))}: "):
        FAMILIES[family].spec(fields)


def test_what_no_encoder_family_can_say_is_refused_by_its_path():
    ours = of("minilm-l6", ids_of()).ours
    spec = ours.spec.changed(head={"kind": "pooled", "pool": "mean", "unit": True})
    with pytest.raises(UnsupportedError, match=r"head"):
        FAMILIES["bert"].config(spec)
    bare = [block.changed(wiring="pre") for block in ours.spec.blocks]
    with pytest.raises(UnsupportedError, match=r"blocks\.0\.wiring"):
        FAMILIES["bert"].config(ours.spec.changed(blocks=bare))
