"""JSON files of others: nested deeper than Python reads, they are broken files as any other."""

import pytest

import glassformer as gf
from glassformer.certificate.kept import last
from glassformer.checkpoint import read_about
from glassformer.data.packed import Packed
from glassformer.errors import CheckpointError, GlassformerError
from glassformer.files import read_json, read_object
from glassformer.model import ModelSpec
from glassformer.spec import from_json

DEEP = "[" * 200_000


@pytest.mark.parametrize("content", [DEEP, '{"a": ' * 200_000, "{", "\udcff", "ÿ"])
@pytest.mark.parametrize("read", [read_json, read_object])
def test_what_is_no_json_is_a_broken_file(content, read, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content.encode("latin-1" if content == "ÿ" else "utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"x\.json is broken or truncated \(.+\); restore it from a copy"):
        read(path)


def test_a_file_that_may_be_missing_is_empty_and_holds_an_object(tmp_path):
    assert read_object(tmp_path / "x.json") == {}
    with pytest.raises(CheckpointError, match="is missing"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[1]")
    assert read_json(tmp_path / "x.json") == [1]
    with pytest.raises(CheckpointError, match=r"x\.json must be a JSON object, not \[1\]; restore it"):
        read_object(tmp_path / "x.json")


@pytest.mark.parametrize("name", ["config.json", "modules.json", "model.json"])
def test_a_model_folder_with_deeply_nested_json_is_refused(name, tmp_path):
    (tmp_path / name).write_text(DEEP)
    with pytest.raises(CheckpointError, match=rf"{name} is broken"):
        gf.load(str(tmp_path))


def test_our_own_files_are_no_exception(tmp_path):
    for name in ("about.json", "index.json", "certificate.json"):
        (tmp_path / name).write_text(DEEP)
    for read in (read_about, Packed.open):
        with pytest.raises(CheckpointError):
            read(tmp_path)
    assert last(tmp_path) is None
    with pytest.raises(GlassformerError, match="not valid JSON"):
        from_json(DEEP, ModelSpec)
