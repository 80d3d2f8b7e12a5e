"""ViT and DeiT against transformers: published configurations, shrunk in width and depth alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from published import Pair, check_export, check_same, lively, pair, transformers, written

import glassformer as gf
from glassformer.classifier import Classifier
from glassformer.cli import main
from glassformer.errors import SettingError, UnsupportedError
from glassformer.hf import FAMILIES, export, pictures, read_model
from glassformer.model import without_memory
from glassformer.nn.classes import PoolerSpec
from glassformer.nn.resize import ResizeSpec

SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80}
B16 = {**SMALL, "image_size": 48, "patch_size": 16}
KOREAN = {"id2label": {0: "고양이", 1: "개", 2: "별"}, "label2id": {"고양이": 0, "개": 1, "별": 2}}
STANDARD = {"vit": ([0.5] * 3, [0.5] * 3), "deit": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])}

# name -> (class of transformers, the fields of the published configuration, what it gives)
CASES: dict[str, tuple[str, dict, str]] = {
    "vit-base-patch16-224": ("ViTForImageClassification", {**B16, "num_labels": 7}, "logits"),
    "vit-large-patch32-384": (
        "ViTForImageClassification",
        {**SMALL, **KOREAN, "image_size": 64, "patch_size": 32, "layer_norm_eps": 1e-6, "qkv_bias": False},
        "logits",
    ),
    "vit-tiny-gray": (
        "ViTForImageClassification",
        {**B16, "num_channels": 1, "hidden_act": "gelu_new", "num_labels": 3},
        "logits",
    ),
    "vit-base-patch16-224-in21k": ("ViTModel", B16, "pooler_output"),
    "vit-pooler-of-another-size": (
        "ViTModel",
        {**B16, "pooler_output_size": 20, "pooler_act": "relu"},
        "pooler_output",
    ),
    "dino-vits8": ("ViTModel", {**SMALL, "image_size": 32, "patch_size": 8}, "last_hidden_state"),
    "deit-tiny-patch16-224": ("DeiTForImageClassification", {**B16, "num_labels": 5}, "logits"),
    "deit-base-distilled-patch16-224": (
        "DeiTForImageClassificationWithTeacher",
        {**B16, **KOREAN, "layer_norm_eps": 1e-12},
        "logits",
    ),
    "deit-without-classes": ("DeiTModel", B16, "pooler_output"),
}


def images(channels: int, size: int, batch: int = 2):
    return torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(3))


def made(name: str) -> Pair:
    """The pair of a case; what has no pooler in its checkpoint has none here either."""
    kind, fields, gives = CASES[name]
    config = (transformers.DeiTConfig if kind.startswith("DeiT") else transformers.ViTConfig)(**fields)
    pixels = images(config.num_channels, config.image_size)
    mean, deviation = (torch.tensor(one)[: config.num_channels, None, None] for one in STANDARD[config.model_type])
    found = pair(
        *(config, kind),
        lambda model: getattr(model((pixels - mean) / deviation), gives),
        lambda model: model(pixels),
    )
    if gives == "last_hidden_state":
        tensors = {name: x for name, x in found.theirs.state_dict().items() if not name.startswith("pooler")}
        found.theirs.pooler = None
        found.ours = read_model(found.config, tensors, "memory")
    return found


@pytest.mark.parametrize("name", CASES)
def test_logits_and_gradients_are_those_of_transformers(name):
    check_same(made(name))


@pytest.mark.parametrize("name", CASES)
def test_transformers_loads_what_is_exported(name, tmp_path):
    both = made(name)
    if CASES[name][2] == "last_hidden_state":
        config, tensors = export(both.ours)
        assert config["architectures"] == ["ViTModel"] and not any("pooler" in one for one in tensors)
        assert FAMILIES["vit"].without(config)[1] == both.ours.spec
        return
    check_export(both, tmp_path)


def test_published_names_are_written_and_both_forms_are_read():
    both = made("deit-base-distilled-patch16-224")
    config, tensors = export(both.ours)
    assert "deit.encoder.layer.1.attention.attention.query.weight" in tensors
    assert tensors["deit.embeddings.patch_embeddings.projection.weight"].shape == (48, 3, 16, 16)
    back = read_model(config, tensors | {"deit.embeddings.mask_token": torch.zeros(1, 1, 48)}, "memory")
    assert torch.equal(back(images(3, 48)), both.ours(images(3, 48)))
    assert both.ours.spec.labels == ("고양이", "개", "별") and config["id2label"]["2"] == "별"


def test_labels_that_nobody_gave_are_numbers():
    assert made("vit-base-patch16-224").ours.spec.labels == ()
    assert made("vit-base-patch16-224-in21k").ours.spec.head == PoolerSpec(width=48)


PROCESSORS = [
    ("ViTImageProcessor", {"size": {"height": 48, "width": 48}}),
    ("ViTImageProcessor", {"size": {"height": 48, "width": 48}, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}),
    ("DeiTImageProcessor", {"size": {"height": 56, "width": 56}, "crop_size": {"height": 48, "width": 48}}),
    ("CLIPImageProcessor", {"size": {"shortest_edge": 50}, "crop_size": {"height": 48, "width": 48}}),
    ("ViTImageProcessor", {"size": {"height": 48, "width": 48}, "do_normalize": False}),
    ("ViTImageProcessor", {"size": {"height": 48, "width": 48}, "rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3}),
]


@pytest.mark.parametrize(("kind", "fields"), PROCESSORS)
def test_a_picture_of_any_size_is_prepared_as_published(kind, fields):
    """Logits of a picture through transformers' own processor and model, and through ours."""
    pytest.importorskip("PIL.Image", reason="transformers prepares pictures with Pillow")
    theirs = made("vit-base-patch16-224")
    processor = getattr(transformers, f"{kind}Pil")(**fields)
    said = json.loads(processor.to_json_string())
    ours = Classifier(read_model(theirs.config | said, theirs.theirs.state_dict(), "memory"))
    image = np.random.default_rng(0).integers(0, 256, (3, 90, 61), np.uint8)
    pixels = torch.as_tensor(np.stack(processor(image, input_data_format="channels_first")["pixel_values"]))
    with torch.no_grad():
        wanted = theirs.theirs(pixels).logits.softmax(-1)[0]
    found = {guess.number: guess.probability for guess in ours.classify(image)}
    assert max(abs(found[i] - wanted[i].item()) for i in range(7)) < 1e-5
    config, _ = export(ours.model)
    again = FAMILIES["vit"].spec(config)
    assert again.resize == ours.spec.resize and again.embed == ours.spec.embed
    fresh = getattr(transformers, f"{config['image_processor_type']}Pil")(**{n: config[n] for n in said if n in config})
    pixels_again = np.stack(fresh(image, input_data_format="channels_first")["pixel_values"])
    assert np.abs(pixels_again - pixels.numpy()).max() < 1e-6


def test_older_forms_of_the_preparation_are_read():
    both = made("vit-base-patch16-224")
    old = {
        "feature_extractor_type": "ViTFeatureExtractor",
        "_valid_processor_keys": ["images", "size"],
        "size": 48,
        "resample": 2,
        "do_resize": True,
    }
    assert FAMILIES["vit"].spec(both.config | old).resize == ResizeSpec(side=48)
    deit = made("deit-tiny-patch16-224").config
    for own, scaled in ((224, 256), (384, 438)):
        made_of = FAMILIES["deit"].spec(deit | {"image_size": own})
        assert made_of.resize == ResizeSpec(side=scaled, filter="bicubic")
    assert FAMILIES["deit"].spec(deit | {"size": 64, "crop_size": 48}).resize.side == 64


@pytest.mark.parametrize("kind", pictures.CLASSES)
@pytest.mark.parametrize("end", ["ImageProcessor", "ImageProcessorFast", "FeatureExtractor"])
def test_what_a_file_leaves_out_is_what_its_class_means(kind, end):
    pytest.importorskip("PIL.Image", reason="transformers prepares pictures with Pillow")
    theirs = json.loads(getattr(transformers, f"{kind}ImageProcessorPil")().to_json_string())
    named = {"image_processor_type": f"{kind}{end}", "feature_extractor_type": f"{kind}{end}"}
    key = "feature_extractor_type" if end == "FeatureExtractor" else "image_processor_type"
    for family in ("vit", "deit"):
        config = {"image_size": 224, key: named[key]}
        whole = {name: value for name, value in theirs.items() if name in pictures.DEFAULTS}
        found, wanted = (FAMILIES[family].spec(one) for one in (config, config | whole))
        assert (found.resize, found.embed) == (wanted.resize, wanted.embed)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_processor_type": "BlipImageProcessor"}, "^image_processor_type: 'BlipImageProcessor' is not known"),
        ({"problem_type": "multi_label_classification"}, "^problem_type: 'multi_label_classification' is not supp"),
        ({"image_size": [48, 32]}, r"size: \[48, 32\] is no square"),
        ({"size": {"height": 40, "width": 40}}, "does not fit a model of 48 × 48 pixels without do_center_crop"),
        ({"do_center_crop": True, "crop_size": 40}, "^crop_size: 40 does not fit a model of 48 × 48 pixels"),
        ({"resample": 9}, "^resample: 9 is not known; known are 0 to 5"),
        ({"size": {"shortest_edge": 40, "longest_edge": 50}}, "is not known here; give shortest_edge alone"),
        ({"id2label": {"0": "a", "2": "b"}}, "^id2label: the numbers of the classes leave some out"),
        ({"do_pad": True}, "^do_pad: True is not supported in a vit model"),
        ({"hidden_act": "mish"}, "^hidden_act: 'mish' is not known here"),
        ({"image_mean": [0.5, 0.5]}, r"image_mean=\[0\.5, 0\.5\]: this is not what such a field holds"),
        ({"image_size": -16}, "^image_size=-16: this is not what such a field holds"),
        ({"image_mean": "grey"}, "this is not what such a field holds"),
        ({"mask_ratio": 0.7}, "^mask_ratio: this field of a vit configuration"),
    ],
)
def test_what_a_model_of_images_cannot_be_is_refused_by_name(fields, message):
    with pytest.raises((UnsupportedError, SettingError), match=message):
        FAMILIES["vit"].spec(made("vit-base-patch16-224").config | fields)


def test_a_published_folder_classifies_a_picture_file(tmp_path, capsys):
    """As its own processor and model do, by the Korean names of its classes, at the command line."""
    Image = pytest.importorskip("PIL.Image", reason="transformers prepares pictures with Pillow")
    kind = transformers.DeiTForImageClassificationWithTeacher
    model = lively(kind(transformers.DeiTConfig(**B16, **KOREAN)))
    size = {"size": {"height": 56, "width": 56}, "crop_size": {"height": 48, "width": 48}}
    processor = transformers.DeiTImageProcessorPil(**size)
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    pixels = np.random.default_rng(0).integers(0, 256, (70, 101, 3), np.uint8)
    picture = Image.fromarray(pixels)
    for name in ("a.png", "a.ppm"):
        picture.save(tmp_path / name)
        assert main(["classify", "-m", str(tmp_path / "model"), str(tmp_path / name), "--json"]) == 0
        guesses = json.loads(capsys.readouterr().out)
        with torch.no_grad():
            wanted = model(torch.as_tensor(processor(picture, return_tensors="pt")["pixel_values"])).logits.softmax(-1)
        found = {guess["label"]: guess["probability"] for guess in guesses}
        assert list(found) == [KOREAN["id2label"][int(i)] for i in wanted[0].argsort(descending=True)]
        assert max(abs(found[label] - wanted[0, i].item()) for i, label in KOREAN["id2label"].items()) < 1e-5
    assert main(["classify", "-m", str(tmp_path / "model"), str(tmp_path / "a.png"), "--lang", "ko"]) == 0
    shown = capsys.readouterr()
    assert "고양이" in shown.out and "48 × 48 픽셀" in shown.err


def test_of_an_encoder_without_classes_the_vectors_are_had_and_nothing_is_classified(tmp_path):
    model = lively(transformers.ViTModel(transformers.ViTConfig(**B16)))
    model.save_pretrained(tmp_path / "model")
    loaded = gf.load(tmp_path / "model")
    with torch.no_grad():
        wanted = model((images(3, 48) - 0.5) / 0.5)
    assert (loaded(images(3, 48)) - wanted.pooler_output).abs().max() < 5e-5
    trace = loaded.trace(images(3, 48))
    assert (trace["norm.out"] - wanted.last_hidden_state).abs().max() < 5e-5
    with pytest.raises(UnsupportedError, match="this model encodes images and knows no classes"):
        loaded.classify(images(3, 48)[0])


@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
@torch.no_grad()
def test_half_precision_is_as_exact_as_in_transformers(kind):
    """The error of bf16 against fp64, on bright pixels: they are rounded after they were brought to scale."""
    config = getattr(transformers, f"{kind}Config")(**B16 | {"num_hidden_layers": 6}, num_labels=9)
    exact = lively(getattr(transformers, f"{kind}ForImageClassification")(config)).bfloat16()
    mean, deviation = (torch.tensor(one)[:, None, None] for one in STANDARD[config.model_type])
    bytes_ = torch.randint(150, 256, (16, 3, 48, 48), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    ours = Classifier(read_model(written(exact), exact.state_dict(), "memory", dtype=torch.bfloat16))
    wanted = read_model(written(exact), exact.state_dict(), "memory").double()(bytes_.double() / 255)
    theirs = exact((bytes_.float() / 255 - mean) / deviation).logits
    error, limit = ((one.double() - wanted).square().mean() for one in (ours(bytes_), theirs))
    assert 0 < error <= 1.3 * limit


THOUSAND = {"id2label": {str(i): f"class {i}" for i in range(1000)}}
TINY = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}


@pytest.mark.parametrize(
    ("kind", "fields", "count"),
    [
        ("ViTForImageClassification", {}, 86_567_656),  # google/vit-base-patch16-224
        ("DeiTForImageClassification", TINY, 5_717_416 + 2 * 192),  # with the second token and its place
        ("DeiTForImageClassificationWithTeacher", {}, 87_338_192),  # facebook/deit-base-distilled-patch16-224
    ],
)
def test_the_published_models_have_as_many_parameters(kind, fields, count):
    family = FAMILIES["deit" if kind.startswith("DeiT") else "vit"]
    model = without_memory(family.spec({**fields, **THOUSAND, "architectures": [kind]}))
    assert sum(p.numel() for p in model.parameters()) == count
