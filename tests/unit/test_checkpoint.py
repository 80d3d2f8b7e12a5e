"""Model folders: what is broken is named, and writing is all or nothing."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from contract.cases import built, stack
from glassformer.checkpoint import load_model, read_about, read_spec, save_model, unique_tensors
from glassformer.errors import CheckpointError, InputError
from glassformer.files import replacing, write_json
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.position import RelativeBiasSpec


@pytest.fixture
def folder(tmp_path):
    save_model(built("mixer-plain"), tmp_path, {"steps": 3})
    return tmp_path


def changed_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_files_of_a_folder(folder):
    assert sorted(p.name for p in folder.iterdir()) == ["about.json", "model.json", "model.safetensors"]
    data = json.loads((folder / "model.json").read_text())
    assert data["format"] == 1 and data["spec"]["kind"] == "model"
    assert read_about(folder) == {"steps": 3} and read_spec(folder) == built("mixer-plain").spec
    assert "blocks.0.mixer.q.weight" in load_file(folder / "model.safetensors")


def test_a_tied_tensor_is_stored_once_under_its_first_name(folder):
    names = list(load_file(folder / "model.safetensors"))
    assert "embed.token.weight" in names and "head.weight" not in names
    relative = AttentionSpec(position=RelativeBiasSpec(buckets=8, max_distance=8, shared=True))
    model = build_model(stack(*[BlockSpec(mixer=relative)] * 3))
    assert [name for name in unique_tensors(model) if "table" in name] == ["blocks.0.mixer.relative.table"]


def test_dtypes(folder, tmp_path):
    save_model(built("mixer-alibi"), tmp_path / "half", dtype=torch.bfloat16)
    assert {v.dtype for v in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.bfloat16}
    assert {p.dtype for p in load_model(tmp_path / "half").parameters()} == {torch.float32}
    kept = load_model(tmp_path / "half", dtype=None)
    assert {p.dtype for p in kept.parameters()} == {torch.bfloat16}
    assert torch.equal(kept.blocks[0].mixer.slopes, built("mixer-alibi").blocks[0].mixer.slopes)
    assert kept(torch.tensor([[1, 2]])).dtype == torch.bfloat16


def test_missing_weights_are_named(folder):
    changed_weights(folder, lambda t: t.update({"blocks.0.mixer.qq.weight": t.pop("blocks.0.mixer.q.weight")}))
    with pytest.raises(CheckpointError, match=r"lack 'blocks\.0\.mixer\.q\.weight'.* mean blocks\.0\.mixer\.qq\.w"):
        load_model(folder)


def test_of_missing_weights_only_a_name_that_is_almost_the_same_is_offered(folder):
    changed_weights(folder, lambda t: t.pop("embed.token.weight"))
    with pytest.raises(CheckpointError, match=r"lack 'embed\.token\.weight' \(there are \d+ others\); restore"):
        load_model(folder)


def test_unexpected_weights_are_named_with_the_nearest(folder):
    changed_weights(folder, lambda t: t.update({"blocks.0.mixer.kk.weight": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match=r"hold 'blocks\.0\.mixer\.kk\.weight'.*mean blocks\.0\.mixer\.k\.weight"):
        load_model(folder)


def test_misshaped_weights_are_named_with_both_shapes(folder):
    changed_weights(folder, lambda t: t.update({"norm.weight": torch.zeros(3)}))
    with pytest.raises(CheckpointError, match=r"'norm\.weight' has shape \(3,\), expected \(16,\)"):
        load_model(folder)


def test_sizes_beyond_what_can_be_written_down_are_named(folder):
    whole = json.loads((folder / "model.json").read_text())
    for name, size in (("dim", 10**18), ("dim", 2**40), ("vocab", 10**30)):  # at once, whatever the size
        data = json.loads(json.dumps(whole))
        data["spec"][name] = size
        (folder / "model.json").write_text(json.dumps(data))
        with pytest.raises(CheckpointError, match="too large to be built|has shape"):
            load_model(folder)


def test_a_device_is_not_the_fault_of_the_file(folder):
    with pytest.raises(RuntimeError) as raised:
        load_model(folder, "nowhere")
    assert not isinstance(raised.value, CheckpointError)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_named(folder, wrong):
    changed_weights(folder, lambda t: t["blocks.1.mixer.q.weight"][3].fill_(wrong))
    with pytest.raises(CheckpointError, match=r"'blocks\.1\.mixer\.q\.weight' holds NaN or infinity; restore it or"):
        load_model(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, -1])
def test_truncated_weights_are_said_to_be(folder, keep):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is broken or truncated"):
        load_model(folder)


def test_a_missing_weight_file(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing; the folder holds a spec but no weights"):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', "\x00"])
def test_a_broken_spec_file(folder, text):
    (folder / "model.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"model\.json is broken"):
        load_model(folder)
    (folder / "model.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"model\.json is broken"):
        load_model(folder)


def test_another_format_and_settings_that_do_not_exist(folder):
    data = json.loads((folder / "model.json").read_text())
    write_json(folder / "model.json", data | {"format": 2})
    with pytest.raises(CheckpointError, match="has format 2, this version reads 1; update glassformer"):
        load_model(folder)
    data["spec"]["blocks"][1]["mixer"]["hedas"] = 3
    write_json(folder / "model.json", data)
    with pytest.raises(CheckpointError, match=r"model\.json: blocks\.1\.mixer\.hedas: unknown setting; did you mean"):
        load_model(folder)
    del data["spec"]["blocks"][1]["mixer"]["hedas"]
    data["spec"]["blocks"][1]["mixer"]["heads"] = 5
    write_json(folder / "model.json", data)
    with pytest.raises(CheckpointError, match=r"model\.json: blocks\.1\.mixer\.heads: 5 does not divide d=16"):
        load_model(folder)


def test_what_is_not_a_model_folder_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"is not a model folder: it has no model\.json"):
        load_model(tmp_path)
    with pytest.raises(InputError, match="nowhere does not exist"):
        load_model(tmp_path / "nowhere")


def test_about_is_optional_but_not_broken(folder):
    (folder / "about.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"about\.json is broken"):
        read_about(folder)
    (folder / "about.json").unlink()
    assert read_about(folder) == {} and load_model(folder)


def test_a_crash_while_writing_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"말": "고양이"})
    assert "고양이" in path.read_text(encoding="utf-8")

    def crash():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert json.loads(path.read_text(encoding="utf-8")) == {"말": "고양이"}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_who_may_read_a_file_is_what_the_user_has_set(tmp_path, umask, mode):
    model = built("mixer-plain")
    before = os.umask(umask)
    try:
        save_model(model, tmp_path, {"made": "here"})
        save_model(model, tmp_path, {"made": "anew"})
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert found == dict.fromkeys(("about.json", "model.json", "model.safetensors"), mode)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_weights_of_a_type_that_is_no_weight_are_named(folder, dtype):
    changed_weights(folder, lambda t: t.update({"norm.weight": t["norm.weight"].to(dtype)}))
    with pytest.raises(CheckpointError, match=rf"'norm\.weight' holds {dtype}, which is no weight; restore it"):
        load_model(folder)


def test_mixed_types_are_made_one_or_named(folder):
    name = "blocks.0.mixer.q.weight"
    changed_weights(folder, lambda t: t.update({name: t[name].double()}))
    assert {p.dtype for p in load_model(folder).parameters()} == {torch.float32}
    with pytest.raises(CheckpointError, match=rf"'{name}' is of torch.float64, others are not; load with a dtype"):
        load_model(folder, dtype=None)


@pytest.mark.parametrize("size", [2**62, 10**30])
@pytest.mark.parametrize("setting", ["dim", "context", "vocab", "head_dim"])
def test_sizes_beyond_any_memory_are_named(tmp_path, setting, size):
    save_model(built("embed-learned"), tmp_path)
    data = json.loads((tmp_path / "model.json").read_text())
    (data["spec"]["blocks"][0]["mixer"] if setting == "head_dim" else data["spec"])[setting] = size
    write_json(tmp_path / "model.json", data)
    with pytest.raises(CheckpointError, match=r"model\.json: "):
        load_model(tmp_path)


@pytest.mark.parametrize("last", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("other", ["mixer-rope", "mixer-head-dim"])
def test_a_crash_between_two_files_mixes_no_models(folder, monkeypatch, last, other):
    """The process dies as one of the files is about to take its place."""
    whole, old = Path.replace, load_model(folder)

    def dies(self, target):
        if Path(target).name == last:
            raise KeyboardInterrupt
        return whole(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        save_model(built(other, seed=1), folder)
    if last == "model.json":  # nothing has been replaced
        assert load_model(folder).spec == old.spec
        assert torch.equal(load_model(folder).norm.weight, old.norm.weight)
    else:
        with pytest.raises(CheckpointError, match=r"belongs to another model\.json, .* restore both|has shape"):
            load_model(folder)


def test_a_folder_of_before_is_read(folder):
    changed_weights(folder, lambda t: None)  # rewritten without the digest
    assert load_model(folder).spec == built("mixer-plain").spec


def test_the_layout_of_model_json_does_not_matter(folder):
    data = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(dict(reversed(data.items()))))
    assert load_model(folder).spec == built("mixer-plain").spec
