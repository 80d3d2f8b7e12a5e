"""Every preset that writes text, from its name on the command line to what it has learnt: trained, loaded, asked."""

import pytest
import torch

import glassformer as gf
from glassformer.cli import main
from glassformer.named import preset, presets
from glassformer.train.recipe import _writer

SIZE = {"dim": 32, "blocks": 2, "context": 64, "heads": 2}
WRITERS = [name for name in presets() if _writer(name, SIZE)]


def test_the_presets_that_write():
    assert set(presets()) - set(WRITERS) == {
        *("transformer-base", "bert", "t5", "longformer", "mlp-mixer", "bahdanau", "lenet", "mlp-image", "vit")
    }


@pytest.mark.parametrize("name", WRITERS)
def test_a_preset_is_trained_loaded_and_asked(name, tmp_path, capsys):
    text, out = tmp_path / "my.txt", tmp_path / "out"
    text.write_text("the cat saw a dog and the dog ran to a tree. " * 60, encoding="utf-8")
    settings = {"model": name, "model.layers": 2, "model.dim": 32, "steps": 2, "batch": 2, "block": 16}
    settings |= {"snapshots": 0, "sample_tokens": 0}
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    assert main(["train", str(text), *given, "--out", str(out), "--json"]) == 0, capsys.readouterr().err
    loaded = gf.load(out)
    assert len(loaded.spec.blocks) == len(preset(name, blocks=2).blocks) and loaded.spec.dim == 32
    parameters = dict(loaded.model.named_parameters())
    assert all(torch.isfinite(value).all() for value in parameters.values())
    assert len(list(loaded.generate("the", max_new_tokens=5))) == 5
    found = loaded.trace("the dog").influence()
    assert torch.isfinite(found.norms).all() and found.norms.diagonal().min() > 0
    assert found.norms.triu(1).max() == 0
    for verb in ("generate", "trace", "influence"):
        capsys.readouterr()
        status, said = main([verb, "the dog", "-m", str(out), "--json"]), capsys.readouterr()
        assert status == 0 and said.out.strip(), (verb, said.err)
