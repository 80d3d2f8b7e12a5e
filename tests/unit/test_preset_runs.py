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


@pytest.mark.parametrize(
    ("name", "told"),
    {
        "mamab": "did you mean mamba",
        "bret": "did you mean bert",
        "맘바": "writes from left to right",
        "bahdanau": "reads one text and writes another",
        "transformer-base": "reads one text and writes another",
        "t5": "reads one text and writes another",
        "longformer": "both directions",
        "bert": "both directions",
        "mlp-mixer": "both directions",
        "lenet": "runs/lenet.toml",
        "vit": "runs/vit.toml",
        "s4d": "--set model.blocks.*.mixer.kind=s4d",
        "conv": "--set model.blocks.*.mixer.kind=conv",
    }.items(),
)
def test_a_preset_that_train_does_not_take_is_told_what_it_is(name, told, tmp_path, capsys):
    text = tmp_path / "my.txt"
    text.write_text("the cat saw a dog. " * 60, encoding="utf-8")
    assert main(["train", str(text), "--set", f"model={name}", "--out", str(tmp_path / "out"), "--lang", "en"]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1, said


WITHOUT_PRESET = {
    "conv": {},
    "conv, gated": {"gate": True},
    "bag": {},
    "s4d": {"state": 8},
    "delta": {"decay": True, "heads": 2},
    "attention, window": {"mask.window": 4},
    "attention, strided": {"mask.window": 4, "mask.stride": 4},
    "attention, top-k": {"top_k": 2},
}


@pytest.mark.parametrize("name", WITHOUT_PRESET)
def test_a_mixer_without_a_preset_is_trained_in_the_place_of_another(name, tmp_path):
    """As docs/families.md says: gpt2 with `--set model.blocks.*.mixer.kind=…`."""
    text = tmp_path / "my.txt"
    text.write_text("the cat saw a dog and the dog ran to a tree. " * 60, encoding="utf-8")
    settings = {"model": "gpt2", "model.layers": 2, "model.dim": 16, "model.blocks.*.mixer.heads": 2, "steps": 1}
    settings |= {"batch": 2, "block": 16, "snapshots": 0, "sample_tokens": 0}
    kind = name.split(",")[0]
    if kind != "attention":
        settings.pop("model.blocks.*.mixer.heads")
        settings["model.blocks.*.mixer.kind"] = kind
    settings |= {f"model.blocks.*.mixer.{key}": value for key, value in WITHOUT_PRESET[name].items()}
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={str(value).lower()}")]
    assert main(["train", str(text), *given, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert gf.load(tmp_path / "out").spec.blocks[0].mixer.__struct_config__.tag == kind
