"""Classifiers: trained from a recipe, continued, shown an image, counted on a test set, in both languages."""

import json
import math
import struct
import zlib

import numpy as np
import pytest
import torch
from rich.cells import cell_len

import glassformer as gf
from glassformer.classifier import Classifier
from glassformer.cli import main
from glassformer.data.images import Labelled, ViewSpec, read_labelled
from glassformer.errors import InputError, SettingError
from glassformer.image import ImageModelSpec
from glassformer.model import build_model
from glassformer.nn.maps import DenseSpec
from glassformer.train import ImageRunSpec, read_run
from glassformer.train.classify import ImageTask, errors
from glassformer.train.store import STATE, read_facts

SIZE = 6
RECIPE = """
kind = "image-run"
data = "set.npz"
steps = 30
batch = 20
validation = 0.25
evaluate_every = 10
save_every = 10
snapshots = 0
[optimizer]
kind = "adamw"
rate = 0.02
[schedule]
warmup = 3
[model]
classes = 3
size = 6
labels = ["왼쪽", "middle", "right"]
[[model.blocks]]
kind = "conv2d"
maps = 4
kernel = 3
[[model.blocks]]
kind = "dense"
width = 8
"""


def stripes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images with a bright stripe at the left, in the middle or at the right, and which it is."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    images = rng.integers(0, 60, (count, SIZE, SIZE))
    for image, label in zip(images, labels, strict=True):
        image[:, 2 * label : 2 * label + 2] += 150
    return images.astype(np.uint8), labels.astype(np.uint8)


@pytest.fixture
def recipe(tmp_path):
    """A recipe beside its labelled images."""
    train, test = stripes(400, 0), stripes(60, 1)
    np.savez(tmp_path / "set.npz", x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
    (tmp_path / "stripes.toml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "stripes.toml"


def weights(folder):
    return dict(gf.load(folder).model.named_parameters())


def test_a_recipe_trains_a_classifier_that_is_right(recipe, tmp_path):
    reports = list(gf.fit(recipe, tmp_path / "out"))
    assert [r.step for r in reports if r.validation is not None] == [10, 20, 30]
    last = reports[-1]
    assert last.tokens == 600 and last.error < 0.05 and last.bits_per_byte is None and last.saved
    about = json.loads((tmp_path / "out" / "about.json").read_text(encoding="utf-8"))
    assert about["training_images"] == 300 and about["validation_images"] == 100
    assert about["validation_error"] == last.error and about["run"]["kind"] == "image-run"
    assert "loss (nats per image)" in (tmp_path / "out" / "train" / "loss.svg").read_text()
    model = gf.load(tmp_path / "out")
    found = model.evaluate(tmp_path / "set.npz")
    assert found.images == 60 and found.error == 1 - np.trace(found.confusion) / 60 < 0.1
    image = stripes(1, 5)
    best = model.classify(image[0][0])[0]
    assert (best.number, best.label) == (image[1][0], ["왼쪽", "middle", "right"][image[1][0]])
    assert best.probability > 0.8 and sum(g.probability for g in model.classify(image[0][0])) == pytest.approx(1)
    trace = model.trace(image[0])
    assert trace["blocks.0.out"].shape == (1, 4, 4, 4) and trace.labels("k") == ["왼쪽", "middle", "right"]
    assert torch.equal(trace.logits, model(image[0]))


def test_stopping_and_going_on_gives_the_same_weights_bit_for_bit(recipe, tmp_path):
    list(gf.fit(recipe, tmp_path / "whole"))
    reports = gf.fit(recipe, tmp_path / "parts")
    for report in reports:
        if report.step == 13:
            break
    reports.close()
    assert read_facts(tmp_path / "parts" / STATE).step == 13
    told = []
    list(gf.fit(recipe, tmp_path / "parts", progress=lambda *given: told.append(given)))
    assert told == [("resume", 13, 30)]
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert [r.step for r in gf.fit(recipe, tmp_path / "parts")] == [30]


def test_a_run_goes_on_only_with_the_same_settings_images_and_kind(recipe, tmp_path):
    list(gf.fit(read_run(recipe, {"steps": "2"}), tmp_path / "out"))
    with pytest.raises(SettingError, match=r"^view\.permute: .* holds a run at step 2 with None, and 3 was given"):
        gf.fit(read_run(recipe, {"view.permute": "3"}), tmp_path / "out")
    (tmp_path / "a.txt").write_text("some text " * 100)
    with pytest.raises(SettingError, match=r"^kind: .* holds a run of kind image-run, and one of kind run was given"):
        gf.fit(read_run(tmp_path / "a.txt", {"steps": "1"}), tmp_path / "out")
    other = stripes(400, 9)
    np.savez(tmp_path / "set.npz", x_train=other[0], y_train=other[1])
    with pytest.raises(SettingError, match=r"^data: .* holds a run at step 2 on other images"):
        gf.fit(recipe, tmp_path / "out")
    list(gf.fit(read_run(recipe, {"steps": "1"}), tmp_path / "out", fresh=True))
    assert read_facts(tmp_path / "out" / STATE).step == 1


def test_a_classifier_takes_the_place_of_a_language_model_whole_and_only_when_asked(recipe, tmp_path):
    (tmp_path / "a.txt").write_text("some text " * 200)
    small = {"steps": "1", "model.layers": "1", "block": "16", "batch": "2", "sample_tokens": "0", "snapshots": "0"}
    list(gf.fit(read_run(tmp_path / "a.txt", small), tmp_path / "out"))
    list(gf.fit(read_run(recipe, {"steps": "1"}), tmp_path / "out", fresh=True))
    assert not (tmp_path / "out" / "tokenizer.json").exists() and not (tmp_path / "out" / "train" / "tokens").exists()
    assert isinstance(gf.load(tmp_path / "out"), Classifier)
    (tmp_path / "mine" / "train").mkdir(parents=True)
    (tmp_path / "mine" / "train" / "notes.txt").write_text("keep")
    with pytest.raises(InputError, match=r"no training wrote train/notes\.txt"):
        gf.fit(recipe, tmp_path / "mine")
    assert (tmp_path / "mine" / "train" / "notes.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model.classes": "2", "model.labels": "[]"}, InputError, r"label 2 does not fit a model of 2 classes"),
        ({"model.size": "8"}, InputError, r"images of shape \(1, 6, 6\) do not fit a model of \(1, 8, 8\)"),
        ({"validation": "0.999"}, InputError, "400 images leave none to train on"),
        ({"model.blocks.0.kernel": "9"}, SettingError, r"^model\.blocks\.0\.kernel: 9 is larger than the input"),
        ({"view.shift": "[1]"}, SettingError, r"^view\.shift: "),
        ({"batch": "0"}, SettingError, r"^batch: 0 is not allowed"),
        ({"batch": "1000000000000"}, SettingError, "in passes of 1000000000000 images needs more than"),
        ({"block": "3"}, SettingError, r"^block: unknown setting"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_changes(recipe, tmp_path, settings, error, message):
    with pytest.raises(error, match=message):
        gf.fit(read_run(recipe, settings), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_recipe_of_another_kind_is_refused_with_the_kinds_there_are(recipe):
    recipe.write_text(RECIPE.replace("image-run", "pictures"), encoding="utf-8")
    with pytest.raises(SettingError, match=r"kind: .*'pictures' is not allowed; use run, image-run"):
        read_run(recipe)


def test_layers_stand_for_blocks_in_a_recipe_of_images(recipe):
    text = RECIPE[: RECIPE.index("[[model.blocks]]")].replace(
        "size = 6", 'size = 6\nlayers = 3\nembed = {kind = "patches", patch = 2, dim = 8}'
    )
    mixer = '{ kind = "attention", heads = 2, mask = { causal = false } }'
    recipe.write_text(f"{text}\n[model.block]\nmixer = {mixer}\n", encoding="utf-8")
    run = read_run(recipe, {"model.layers": "2", "model.blocks.*.dropout": "0.5"})
    assert isinstance(run, ImageRunSpec) and len(run.model.blocks) == 2 and run.model.blocks[1].dropout == 0.5


def test_every_epoch_takes_every_image_once_in_another_order(recipe, tmp_path):
    task = ImageTask(read_run(recipe, {"batch": "60", "validation": "0"}), tmp_path / "out", False, None, "cpu")
    assert not task.watches and len(task.train) == 400 and task.per_update == 60
    firsts = [tuple(image.flatten().tolist()) for step in range(20) for image in task.batch(step)[0]]
    first, second = firsts[:400], firsts[400:800]
    known = [tuple((image.flatten() / np.float32(255)).tolist()) for image in task.train.images.astype(np.float32)]
    assert sorted(first) == sorted(second) == sorted(known) and first != second
    images, labels = task.batch(0)
    for image, label in zip(images, labels, strict=True):
        assert image[0].mean(0).view(3, 2).mean(1).argmax() == label  # each keeps its own label


def test_the_loss_and_the_confusion_are_what_the_logits_say():
    model = build_model(ImageModelSpec(classes=3, size=2, blocks=(DenseSpec(width=4),))).eval()
    images = np.random.default_rng(0).integers(0, 256, (7, 1, 2, 2), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2, 2])
    with torch.no_grad():
        shares = model(torch.from_numpy(images).float() / 255).double().softmax(1)
    wanted = np.zeros((3, 3), int)
    for row, label in zip(shares.argmax(1).tolist(), labels, strict=True):
        wanted[label, row] += 1
    found = errors(model, Labelled(images, labels), batch=3)
    assert found.confusion == wanted.tolist() and found.images == 7
    assert found.error == pytest.approx(1 - np.trace(wanted) / 7)
    assert found.loss == pytest.approx(-sum(math.log(shares[i, labels[i]]) for i in range(7)) / 7)
    with torch.no_grad():
        model.head.linear.bias.fill_(math.nan)
    with pytest.raises(InputError, match="the model's loss on these images is not finite"):
        errors(model, Labelled(images, labels))


def test_evaluation_sees_the_images_as_training_did(recipe, tmp_path):
    list(gf.fit(read_run(recipe, {"view.permute": "5"}), tmp_path / "out"))
    model = gf.load(tmp_path / "out")
    assert model.view == ViewSpec(permute=5)
    own, plain = model.evaluate(tmp_path / "set.npz"), model.evaluate(tmp_path / "set.npz", view=ViewSpec())
    assert own.error < 0.1 < plain.error
    given = read_labelled(tmp_path / "set.npz", "test")
    guesses = [model.classify(image)[0].number for image in given.images]
    assert np.mean(np.array(guesses) != given.labels) == pytest.approx(own.error), "a single image is seen so too"
    assert gf.build("lenet").view == ViewSpec()


# ---------------------------------------------------------------- the command line


@pytest.fixture
def trained(recipe, tmp_path, capsys):
    assert main(["train", str(recipe), "--out", str(tmp_path / "out")]) == 0
    return tmp_path / "out", capsys.readouterr()


def test_training_is_shown_in_its_own_words(trained):
    _, said = trained
    assert "Training on set.npz, 30 steps" in said.out and "images/s" in said.out
    assert "of the held-out images wrong, loss" in said.out and "glassformer classify IMAGE -m" in said.out


def test_classify_and_evaluate_print_in_both_languages(trained, tmp_path, capsys):
    folder, _ = trained
    image, label = stripes(1, 3)
    path = tmp_path / "사진.npy"
    np.save(path, image[0])
    assert main(["classify", str(path), "-m", str(folder), "--lang", "en"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["왼쪽", "middle", "right"]
    assert lines[0] == "What out sees in 사진.npy" and len(lines) == 4
    assert lines[1].startswith(names[label[0]]) and "%" in lines[1] and "█" in lines[1]
    assert main(["classify", str(path), "-m", str(folder), "--top", "1"]) == 0  # Korean, for the name of the file
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "out 모델이 분류한 이미지: 사진.npy" and len(lines) == 2
    assert main(["classify", str(path), "-m", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown[0]["label"] == names[label[0]] and {"number", "probability"} < shown[0].keys()
    assert main(["evaluate", str(tmp_path / "set.npz"), "-m", str(folder), "--lang", "ko"]) == 0
    assert "이미지 60장의 오류율" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "set.npz"), "-m", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 60


def png(path, image):
    """Gray bytes `y x` as a PNG file."""
    head = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in image.astype(np.uint8)))
    parts = ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    data = b"".join(struct.pack(">I4s", len(one), name) + one + bytes(4) for name, one in parts)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def test_a_folder_is_shown_image_by_image_and_what_is_broken_is_said(trained, tmp_path, capsys):
    folder, _ = trained
    images, labels = stripes(3, 4)
    names = ["왼쪽", "middle", "right"]
    mine = tmp_path / "mine"
    mine.mkdir()
    for number, image in zip((2, 9, 10), images, strict=True):
        png(mine / f"{number}.png", image)
    (mine / "b.jpg").write_bytes(b"\xff\xd8\xff")
    png(mine / "c.png", np.zeros((30, 20)))
    assert main(["classify", str(mine), "-m", str(folder)]) == 2
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "What out sees in mine" and [line.split()[0] for line in lines[1:]] == [
        "2.png",
        "9.png",
        "10.png",
    ]
    assert [line.split()[1] for line in lines[1:]] == [names[label] for label in labels]
    wrong = said.err.splitlines()
    assert len(wrong) == 2 and "b.jpg: images are read from" in wrong[0] and "c.png: nothing is drawn" in wrong[1]
    assert main(["classify", str(mine / "9.png"), str(mine / "no.png"), str(mine / "2.png"), "-m", str(folder)]) == 2
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["What", "9.png", "2.png"]
    assert "in 3 files" in said.out and "no.png: there is no such file" in said.err
    assert main(["classify", str(mine), "-m", str(folder), "--json"]) == 2
    shown = json.loads(capsys.readouterr().out)
    failed = {one["image"]: one["error"] for one in shown if "guesses" not in one}
    assert failed.keys() == {"b.jpg", "c.png"} and "nothing is drawn" in failed["c.png"] and len(shown) == 5
    (mine / "b.jpg").unlink(), (mine / "c.png").unlink()
    assert main(["classify", str(mine), "-m", str(folder), "--json", "--top", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["image"] for one in shown] == ["2.png", "9.png", "10.png"]
    assert [len(one["guesses"]) for one in shown] == [2, 2, 2]
    assert [one["guesses"][0]["number"] for one in shown] == labels.tolist()


def test_a_file_of_several_images_is_numbered(trained, tmp_path, capsys):
    folder, _ = trained
    images, labels = stripes(300, 6)  # more than are classified at once
    data = bytes([0, 0, 8, 3]) + struct.pack(">3I", *images.shape) + images.tobytes()
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(data)
    assert main(["classify", str(tmp_path / "t10k-images-idx3-ubyte"), "-m", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown[299]["image"] == "t10k-images-idx3-ubyte #299"
    right = [one["guesses"][0]["number"] == label for one, label in zip(shown, labels, strict=True)]
    model = gf.load(folder)
    assert np.mean(right) == np.mean(model(images).argmax(1).numpy() == labels) > 0.9
    assert [seen.guesses[0].number for seen in model.see(images.tolist())] == [
        one["guesses"][0]["number"] for one in shown
    ]


def test_an_image_of_another_size_is_fitted_and_that_is_said(trained, tmp_path, capsys):
    folder, _ = trained
    canvas = np.full((90, 70), 250)
    canvas[20:70, 30:40] = 10
    png(tmp_path / "pen.png", canvas)
    asked = ["classify", str(tmp_path / "pen.png"), "-m", str(folder), "--lang"]
    assert main([*asked, "en"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].startswith("middle")  # it is put into the middle
    assert said.err.startswith("pen.png: what is drawn was cut out, made light on dark")
    assert main([*asked, "ko"]) == 0
    assert "그려진 부분만 잘라" in capsys.readouterr().err
    assert main([*asked, "en", "--fit", "whole"]) == 0
    assert capsys.readouterr().err == "pen.png: the whole image was scaled to 6 × 6 pixels\n"
    assert main([*asked, "en", "--fit", "none"]) == 2
    assert "pen.png: this model reads images of 1 × 6 × 6" in capsys.readouterr().err
    png(tmp_path / "pen.png", 255 - stripes(1, 3)[0][0])
    assert main([*asked, "en"]) == 0
    assert "pen.png: dark on light, and read as it is" in capsys.readouterr().err


def test_a_model_of_the_wrong_kind_is_named(trained, tmp_path, capsys):
    folder, _ = trained
    np.save(tmp_path / "a.npy", stripes(1, 3)[0][0])
    for command in (["trace", "hello"], ["generate", "hello"]):
        assert main([*command, "-m", str(folder)]) == 2
        assert capsys.readouterr().err == "glassformer: out: this model reads images, not text; name another with -m\n"
    assert main(["classify", str(tmp_path / "a.npy"), "-m", "small", "--lang", "ko"]) == 2
    assert capsys.readouterr().err == "glassformer: small: 글을 분류하는 모델이 아닙니다. 다른 모델을 지정하십시오.\n"
    assert main(["classify", str(tmp_path / "a.npy"), "-m", str(folder), "--top", "0"]) == 2
    assert "--top: 0 is not allowed" in capsys.readouterr().err


def test_classifiers_in_python():
    model = gf.build("mlp-image", size=4, classes=3, hidden=5)
    assert repr(model).startswith("<classifier without a name: <ImageModel of 1 blocks over 1 × 4 × 4 pixels: ")
    assert gf.parameters(model)[0] == ("blocks.0.linear.weight", (5, 16), 80)
    batch = np.zeros((2, 4, 4), np.uint8)
    assert model(batch).shape == (2, 3)
    with pytest.raises(InputError, match="there are 2 images; classify one at a time"):
        model.classify(batch)
    assert gf.cost(model.spec, 2).flops == 2 * 2 * (16 * 5 + 5 * 3)


def test_the_influence_of_pixels_is_that_of_the_image_as_the_model_sees_it():
    model = gf.load("lenet")
    image = np.zeros((28, 28), np.uint8)
    image[8:20, 13:16] = 255
    found = model.influence(image, rows=1)
    seen = model.inputs(image).requires_grad_()
    (back,) = torch.autograd.grad(model.model(seen)[0, 1], seen)
    assert torch.allclose(found.norms[0].float(), back.abs().flatten(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_classes_fit_the_terminal(columns, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    np.save(tmp_path / "one.npy", np.zeros((28, 28), np.uint8))
    assert main(["classify", str(tmp_path / "one.npy")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= columns and any("█" in line for line in lines)
