"""What people call: models without a tokenizer, folders with an empty file, a start that is no repetition."""

import pytest

import glassformer as gf
from glassformer.api import Loaded
from glassformer.data.tokenizer import TokenizerSpec, train_tokenizer
from glassformer.errors import InputError
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec


@pytest.fixture(scope="module")
def bytes_model(tmp_path_factory) -> Loaded:
    source = tmp_path_factory.mktemp("text") / "a.txt"
    source.write_text("고양이가 생선을 먹었다\n", encoding="utf-8")
    tokenizer = train_tokenizer(TokenizerSpec(method="byte", vocab=257), source)
    block = BlockSpec(mixer=AttentionSpec(heads=2))
    loaded = gf.build(ModelSpec(vocab=257, dim=16, context=32, blocks=(block,) * 2))
    loaded.tokenizer = tokenizer
    return loaded


def test_a_model_without_a_tokenizer_continues_token_ids():
    loaded = gf.build("gpt2", vocab=65, dim=32, heads=2, blocks=1, context=16)
    tokens = [event.token for event in loaded.generate([[1, 2]], max_new_tokens=4)]
    for place, token in enumerate(tokens):
        assert token == int(loaded([1, 2, *tokens[:place]])[0, -1].argmax())
    with pytest.raises(InputError, match="give token ids"):
        loaded.generate("a text")


def test_an_empty_file_of_a_folder_is_no_document(bytes_model, tmp_path):
    (tmp_path / "a.txt").write_text("고양이", encoding="utf-8")
    alone = bytes_model.evaluate(tmp_path)
    (tmp_path / "b.txt").write_text("")
    assert bytes_model.evaluate(tmp_path) == alone
    with pytest.raises(InputError):
        bytes_model.evaluate(tmp_path / "b.txt")


def test_the_start_token_does_not_count_as_repeated(bytes_model):
    """With a penalty the end token would otherwise be held back from the first step on."""
    end = bytes_model.tokenizer.end_id
    settings = {"max_new_tokens": 1, "repetition_penalty": 1e9}
    plain = bytes_model([end])[0, -1]
    (event,) = bytes_model.generate([[end]], **settings)
    assert event.token == int(plain.argmax())
    with_end = gf.build(bytes_model.spec)
    with_end.tokenizer = bytes_model.tokenizer
    with_end.model.head.weight.data[end] += 10 * with_end.model.norm(with_end.model.embed.token.weight[end]).sign()
    (event,) = with_end.generate([[end]], **settings)
    assert event.token == end and event.finished == "end"
