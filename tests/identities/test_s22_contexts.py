"""S22: parameters stay, weights and vectors change with the context; on the shipped model and on the shapes of Llama
and GPT-2. `python -m glassformer.bench.contexts` prints the numbers."""

import pytest
import torch

from glassformer.bench import contexts
from glassformer.bench.contexts import NAMES, broken, hashed, subject


@pytest.mark.parametrize("name", NAMES)
def test_s22_a_word_enters_two_sentences_alike_and_leaves_each_layer_otherwise(name):
    loaded, texts = subject(name)
    word = {int(text[0, place]) for text, place in texts}
    assert len(word) == 1 and not torch.equal(texts[0][0], texts[1][0])
    one = contexts.contexts(loaded, texts)
    assert broken(one) == [], one
    assert (one.placed == 0) == (name != "gpt2")  # a learned row is added there, and the places are different ones
    assert len(one.layers) == len(one.weights) == len(loaded.model.blocks)


def test_what_does_not_hold_is_told(monkeypatch, capsys):
    loaded, [(one, place), (other, elsewhere)] = subject("gpt2")
    alike = contexts.contexts(loaded, [(one, place), (one, place)])
    assert broken(alike) == ["behind a layer both are the same", "the attention weights are the same"]
    word = contexts.contexts(loaded, [(one, place), (other, elsewhere - 1)])
    assert broken(word) == ["the word's row of the table is not the same"]

    before, norm = hashed(loaded.model), loaded.model.norm
    for kept in (norm.gain.data, loaded.model.blocks[1].mixer.k.weight.data):  # one number of many, by its least bit
        first = kept.view(-1)[0].clone()
        kept.view(-1)[0] = torch.nextafter(first, torch.tensor(torch.inf))
        assert hashed(loaded.model) != before
        kept.view(-1)[0] = first
        assert hashed(loaded.model) == before
    monkeypatch.setattr(contexts, "contexts", lambda *which: alike)
    assert contexts.main(["--only", "gpt2"]) == 1
    assert "gpt2: behind a layer both are the same" in capsys.readouterr().out
