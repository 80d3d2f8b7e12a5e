"""What a run refuses before it begins: numbers, recipes, sizes; and what a text without a recipe gets."""

import json
import resource
from pathlib import Path

import pytest
import torch

from glassformer.api import load
from glassformer.cli import main
from glassformer.data.tokenizer import TokenizerSpec
from glassformer.errors import GlassformerError, InputError, SettingError, WriteError
from glassformer.machine import free_bytes
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, ModelSpec
from glassformer.named import preset
from glassformer.train import AdamWSpec, MuonSpec, RunSpec, fit, memory, read_run
from glassformer.train.memory import check_memory, parameter_count
from glassformer.train.prepare import fresh_model
from glassformer.train.recipe import fitting_vocab
from glassformer.train.store import STATE, read_facts

BLOCK = BlockSpec(mixer=AttentionSpec(heads=2))
RUN = RunSpec(data="my.txt", model=ModelSpec(vocab=50, dim=8, blocks=(BLOCK,) * 3), steps=2, batch=2, block=16)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("the cat saw a dog and the dog ran to a tree. " * 60, encoding="utf-8")
    return path


# ------------------------------------------------------------ presets


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_preset_is_trained_in_the_size_of_the_model_it_replaces(text, tmp_path, name):
    plain = read_run(text).model
    wanted = preset(name, dim=plain.dim, blocks=len(plain.blocks), heads=4, context=plain.context)
    assert read_run(text, {"model": name}).model == wanted.changed(vocab=0) != plain
    small = {"model": name, "model.layers": "1", "model.dim": "32", "model.blocks.*.mixer.heads": "2"}
    settings = small | {"steps": "2", "batch": "2", "block": "16", "snapshots": "0", "sample_tokens": "0"}
    run = read_run(text, settings)
    made = preset(name, dim=32, blocks=1, heads=2, context=plain.context)
    assert run.model == made.changed(vocab=0)
    reports = list(fit(run, tmp_path / "out"))
    assert reports[-1].step == 2 and load(tmp_path / "out").spec == made.changed(vocab=257)
    assert read_run(text, settings, tmp_path / "out") == run, "given again it is the same run"
    assert read_run(text, {}, tmp_path / "out") == run


def test_a_preset_changes_the_model_of_a_recipe(text, tmp_path):
    recipe = tmp_path / "run.toml"
    recipe.write_text(
        'data = "my.txt"\nsteps = 2\nblock = 16\n[model]\ndim = 24\nlayers = 2\n'
        '[model.block]\nmixer = { kind = "attention", heads = 2 }\n'
    )
    wanted = preset("llama", dim=24, blocks=2, heads=2, context=16).changed(vocab=0)
    assert read_run(recipe, {"model": "llama"}).model == wanted


def test_the_depth_of_a_preset_whose_blocks_differ_can_be_chosen(text):
    wanted = read_run(text).model
    for layers in ("2", "6"):
        model = read_run(text, {"model": "tcn", "model.layers": layers}).model
        assert [block.mixer.dilation for block in model.blocks] == [2**i for i in range(int(layers))]
        assert model.dim == wanted.dim
    with pytest.raises(SettingError, match=r"^model\.layers: '0' is not allowed"):
        read_run(text, {"model": "tcn", "model.layers": "0"})


PAIRS, BOTH_WAYS = (
    ("reads one text and writes another", "다른 텍스트를 쓰는"),
    ("reads in both directions", "양방향으로 읽는"),
)
WRITES_NOT = {
    "t5": PAIRS,
    "transformer-base": PAIRS,
    "bert": BOTH_WAYS,
    "mlp-mixer": BOTH_WAYS,
    "vit": ("reads images, not a text", "이미지를 읽는"),
    "lama": ("there is no preset 'lama'; did you mean llama", "llama"),
}


@pytest.mark.parametrize("name", WRITES_NOT)
def test_what_does_not_write_from_left_to_right_is_no_model_to_train(text, tmp_path, name, capsys):
    english, korean = WRITES_NOT[name]
    with pytest.raises(SettingError, match=rf"^model: .*{english}"):
        read_run(text, {"model": name})
    assert main(["train", str(text), "--set", f"model={name}", "--out", str(tmp_path / "o"), "--lang", "ko"]) == 2
    said = capsys.readouterr().err
    assert name in said and korean in said
    assert not (tmp_path / "o").exists()


# ------------------------------------------------------------ numbers

NUMBERS = [
    ("seed", "-3", "a number from 0 to 4294967295"),
    ("seed", "4294967296", "a number from 0 to 4294967295"),
    ("threads", "1000000", "a number from 1 to 1024"),
    ("threads", "0", "a number from 1 to 1024"),
    ("validation", "1", "0 to below 1"),
    ("validation", "-0.1", "0 to below 1"),
    ("validation", "NaN", "a finite number"),
    ("clip", "-1", "more than 0"),
    ("clip", "Infinity", "a finite number"),
    ("steps", "0", "1 or more"),
    ("evaluate_every", "0", "1 or more"),
    ("snapshots", "-1", "0 or more"),
    ("optimizer.rate", "-1", "0 or more"),
    ("optimizer.rate", "1e999", "a finite number"),
    ("optimizer.decay", "-0.1", "0 or more"),
    ("optimizer.momentum", "1", "0 to below 1"),
    ("optimizer.others.betas", "[0.9, 1]", "0 to below 1"),
    ("optimizer.others.betas", "[-0.1, 0.9]", "0 to below 1"),
    ("optimizer.others.eps", "0", "more than 0"),
    ("optimizer.others.rate", "-1", "0 or more"),
    ("schedule.warmup", "-1", "0 or more"),
    ("schedule.final", "2", "a number from 0 to 1"),
    ("schedule.cooldown", "0", "more than 0"),
    ("model.layers", "0", "a number from 1 to 4096"),
    ("model.layers", "1000000000", "a number from 1 to 4096"),
]


@pytest.mark.parametrize(("path", "value", "allowed"), NUMBERS)
def test_a_number_that_cannot_be_used_is_named_with_what_can(text, path, value, allowed):
    with pytest.raises(SettingError, match=rf"^{path}(\.\d)?: .* is not allowed; use {allowed}(, or null)?$"):
        read_run(text, {path: value})


def test_the_ends_of_the_ranges_can_be_used(text):
    ends = {"seed": "4294967295", "threads": "1024", "validation": "0", "optimizer.rate": "0", "schedule.warmup": "0"}
    assert read_run(text, ends).seed == 2**32 - 1
    assert RUN.changed(optimizer=AdamWSpec(betas=(0.0, 0.0))).optimizer.betas == (0.0, 0.0)
    for wrong in (float("nan"), float("inf")):
        for make in (lambda x: AdamWSpec(rate=x), lambda x: MuonSpec(decay=x), lambda x: AdamWSpec(eps=x)):
            with pytest.raises(SettingError, match="is not allowed"):
                make(wrong)


# ------------------------------------------------------------ recipes

RECIPES = {
    "no UTF-8": ("run.toml", "# 고양이".encode("cp949"), r"run\.toml: not UTF-8 \(first wrong byte at offset 2\)"),
    "no UTF-8 JSON": ("run.json", b'{"data": "\xff"}', r"run\.json: not UTF-8"),
    "a list": (
        "run.json",
        b"[1, 2]",
        r"run\.json: a recipe is a table of settings such as data and steps, not \[1, 2\]",
    ),
    "a number": ("run.json", b"3", r"run\.json: a recipe is a table"),
    "empty": ("run.json", b"", r"run\.json: not valid JSON"),
    "too deep": ("run.json", b"[" * 100_000, r"run\.json: not valid JSON"),
    "a list as model": (
        "run.toml",
        b'data = "x"\nsteps = 1\nmodel = [1]',
        r"run\.toml: model: \[1\] is not allowed; use a table of settings$",
    ),
    "no settings": ("run.toml", b"", r"run\.toml: object missing required field"),
    "layers": (
        "run.toml",
        b'data = "x"\nsteps = 1\n[model]\ndim = 8\nlayers = 1000000000\n[model.block]\nmixer = { kind = "attention" }',
        r"model\.layers: layers must be a number from 1 to 4096",
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_no_recipe_is_refused_in_one_line(tmp_path, capsys, name):
    file, data, message = RECIPES[name]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(GlassformerError, match=message):
        read_run(tmp_path / file)
    assert main(["train", str(tmp_path / file), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said and not (tmp_path / "out").exists()


def test_a_folder_is_no_recipe(tmp_path):
    (tmp_path / "runs.toml").mkdir()
    with pytest.raises(InputError, match=r"runs\.toml: this is a folder; give the recipe file itself"):
        read_run(tmp_path / "runs.toml")
    with pytest.raises(InputError, match=r"no text files in this folder"):
        read_run(tmp_path / "runs.toml" / "..")


def test_a_recipe_whose_data_is_elsewhere_says_how_to_name_it(text, monkeypatch):
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    recipe = Path(__file__).parents[2] / "runs" / "shakespeare.toml"
    way_out = (
        r"the folder that holds tinyshakespeare/input\.txt \(export GLASSFORMER_DATA=FOLDER\), or .*--set data=PATH"
    )
    with pytest.raises(SettingError, match=way_out):
        read_run(recipe)
    assert read_run(recipe, {"data": str(text)}).data == str(text)


# ------------------------------------------------------------ the kinds of parts


def test_another_optimizer_needs_only_its_kind(text):
    assert read_run(text, {"optimizer.kind": "adamw"}).optimizer.betas == (0.9, 0.95)
    run = read_run(text, {"optimizer.rate": "0.5", "optimizer.kind": "adamw"})
    assert run.optimizer.rate == 0.5 and isinstance(run.optimizer, AdamWSpec)
    with pytest.raises(SettingError, match=r"^optimizer\.kind: 'adam' is not allowed; use adamw, muon$"):
        read_run(text, {"optimizer.kind": "adam"})
    with pytest.raises(
        SettingError, match=r"^schedule\.shape: 'line' is not allowed; use cosine, linear, trapezoid, co"
    ):
        read_run(text, {"schedule.shape": "line"})


# ------------------------------------------------------------ a text without a recipe


@pytest.mark.parametrize("method", ["bpe", "unigram", "char", "byte"])
def test_every_tokenizer_gets_a_vocabulary_that_fits(tmp_path, method):
    text = Path(__file__).parents[2] / "docs" / "train.md"
    run = read_run(text, {"tokenizer.method": method, "steps": "1", "batch": "2", "block": "16", "sample_tokens": "0"})
    assert run.tokenizer == TokenizerSpec(method=method, vocab=fitting_vocab(method, text.stat().st_size))
    list(fit(run, tmp_path / "out"))
    library = json.loads((tmp_path / "out" / "tokenizer.json").read_text())["model"]["vocab"]
    pieces = [piece if isinstance(piece, str) else piece[0] for piece in library]
    words = [piece for piece in pieces if len(piece.strip("▁Ġ ")) > 2 and piece.strip("▁Ġ ").isalpha()]
    assert len(words) > 50 if method in ("bpe", "unigram") else not words
    assert read_run(text, {"tokenizer.method": method, "tokenizer.vocab": "400"}).tokenizer.vocab == 400


def test_vocabularies_grow_with_the_text():
    sizes = (100, 50_000, 1_999_999, 4_100_000, 10**9)
    assert [fitting_vocab("bpe", size) for size in sizes] == [512, 512, 512, 2048, 16_384]
    assert fitting_vocab("byte", 10**9) == 257


def test_the_method_of_a_recipe_can_be_changed_alone(text, tmp_path):
    recipe = tmp_path / "run.json"
    data = {"data": str(text), "steps": 1, "block": 16, "tokenizer": {"method": "byte", "vocab": 257}}
    model = {"dim": 8, "layers": 1, "block": {"mixer": {"kind": "attention", "heads": 2}}}
    recipe.write_text(json.dumps(data | {"model": model}), encoding="utf-8")
    assert read_run(recipe, {"tokenizer.method": "bpe"}).tokenizer.vocab == 512
    assert read_run(recipe).tokenizer.vocab == 257


def test_the_context_has_room_to_generate_and_for_a_longer_window(text):
    run = read_run(text)
    assert run.model.context >= 256 >= run.block
    assert read_run(text, {"block": "32"}).model.context == run.model.context
    assert read_run(text, {"block": "512"}).model.context == 512
    assert read_run(text, {"block": "100", "model.context": "128"}).model.context == 128
    with pytest.raises(SettingError, match="block: 512 is longer than model.context=128"):
        read_run(text, {"block": "512", "model.context": "128"})


# ------------------------------------------------------------ memory and disk


def test_parameters_are_counted_without_building_the_model():
    blocks = (BLOCK, BLOCK.changed(channel=None), BLOCK)
    run = RUN.changed(model=RUN.model.changed(blocks=blocks))
    model = fresh_model(run, None)
    assert parameter_count(run, 50) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {"model.dim": "1048576"},
        {"model.dim": str(1 << 40)},
        {"model.dim": str(1 << 80)},
        {"model.vocab": str(1 << 50)},
        {"batch": str(1 << 40)},
        {"accumulate": str(1 << 40)},
        {"block": "100000000"},
        {"model.blocks.*.channel.hidden": str(1 << 45)},
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_allocated(text, tmp_path, capsys, settings):
    pairs = [part for path, value in settings.items() for part in ("--set", f"{path}={value}")]
    assert main(["train", str(text), "--out", str(tmp_path / "out"), *pairs]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and ("GiB are free; use a smaller" in said or "too large to be built" in said)
    assert not (tmp_path / "out").exists()


def test_the_estimate_is_a_lower_bound_of_a_sensible_size(monkeypatch):
    count = parameter_count(RUN, 50)
    least = 16 * count + 2 * 16 * (24 + 8 * 50 + 4 * 8 * 3)  # AdamW: weight, gradient and two means of each
    monkeypatch.setattr(memory, "free_bytes", lambda device: least)
    check_memory(RUN, 50, "cpu")
    monkeypatch.setattr(memory, "free_bytes", lambda device: least - 1)
    with pytest.raises(
        SettingError, match=rf"^model: training {count:,} parameters or more in passes of 2 × 16 tokens"
    ):
        check_memory(RUN, 50, "cpu")
    monkeypatch.undo()
    assert 1 << 20 < free_bytes("cpu") < 1 << 50


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("x"), RuntimeError("can't allocate memory: y")]
)
def test_memory_that_runs_out_in_a_step_is_one_line(text, tmp_path, monkeypatch, error):
    run = RUN.changed(
        data=str(text), model=RUN.model.changed(vocab=257), tokenizer=TokenizerSpec(method="byte"), batch=4
    )

    def failing(self, *given):
        raise error

    monkeypatch.setattr("glassformer.train.loop.Trainer.backward", failing)
    with pytest.raises(
        GlassformerError, match=r"step 1: the memory does not suffice .*--set batch=2 --set accumulate=2"
    ):
        list(fit(run, tmp_path / "out"))


def test_a_full_disk_ends_in_one_line_and_keeps_the_checkpoint(text, tmp_path, capsys):
    settings = {"steps": "2", "batch": "2", "block": "16", "sample_tokens": "0", "model.layers": "1", "snapshots": "0"}
    list(fit(read_run(text, settings), tmp_path / "out"))
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # no file may grow beyond it, as on a full disk
        with pytest.raises(
            WriteError, match=r"state\.safetensors: cannot be written .* free some space. What was there"
        ):
            list(fit(read_run(text, {"steps": "3"}, tmp_path / "out"), tmp_path / "out"))
        assert main(["train", str(text), "--out", str(tmp_path / "out"), "--set", "steps=3"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cannot be written" in said
    after = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    record = {path for path in after if path.name in ("reports.jsonl", "loss.svg")}  # a step ahead; going on drops it
    assert after.keys() == before.keys() and all(after[path] == before[path] for path in after.keys() - record)
    assert read_facts(tmp_path / "out" / STATE).step == 2


def test_a_run_folder_that_is_a_file_is_named(text, tmp_path):
    with pytest.raises(WriteError, match="cannot be made a run folder"):
        fit(RUN.changed(data=str(text)), text)


@pytest.mark.parametrize(
    ("text", "said", "korean"),
    [
        (
            "a" * 5,
            "tokens to train on: 5, too few for a window of block=8; give more text, or --set block=4",
            "block=4",
        ),
        ("a", "tokens to train on: 0, too few for a window of block=8; give more text", "텍스트를 늘리십시오."),
    ],
)
def test_too_short_a_text_is_given_only_a_way_out_that_is_one(tmp_path, capsys, text, said, korean):
    (tmp_path / "tiny.txt").write_text(text)
    command = ["train", str(tmp_path / "tiny.txt"), "--out", str(tmp_path / "out"), "--set", "block=8"]
    assert main(command) == 2 and capsys.readouterr().err.strip().endswith(said)
    assert main([*command, "--lang", "ko"]) == 2 and korean in capsys.readouterr().err
