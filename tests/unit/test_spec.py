"""Settings: strict, with the full path in every message."""

import pytest

from glassformer.errors import SettingError, nearest
from glassformer.generate import GenerateSpec
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import AnySpec, BlockSpec, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.channel import ExpertsSpec, GatedSpec, MlpSpec
from glassformer.nn.head import HeadSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.position import NtkScaling, RelativeBiasSpec, RopeSpec
from glassformer.spec import (
    Spec,
    check_between,
    check_finite,
    check_least,
    check_positive,
    check_share,
    from_data,
    from_json,
    to_data,
    to_json,
    with_settings,
)

SPEC = ModelSpec(vocab=11, dim=64, blocks=(BlockSpec(mixer=AttentionSpec()), BlockSpec(mixer=AttentionSpec(heads=8))))


def refused(match: str):
    return pytest.raises(SettingError, match=match)


def test_data_is_tagged_and_plain():
    data = to_data(SPEC)
    assert data["kind"] == "model" and data["blocks"][1]["mixer"]["kind"] == "attention"
    assert isinstance(data["blocks"], list) and data["blocks"][1]["mixer"]["heads"] == 8
    assert '"causal": true' in to_json(SPEC)


def test_json_that_is_broken_is_said_to_be():
    with refused("^not valid JSON: "):
        from_json("{", ModelSpec)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("blocks.0.mixer.heads", "5.5", r"^blocks\.0\.mixer\.heads: 5\.5 is not allowed; use a whole number$"),
        ("blocks.*.mixer.heads", '"many"', r"^blocks\.0\.mixer\.heads: 'many' is not allowed; use a whole number$"),
        ("blocks", "7", r"^blocks: 7 is not allowed; use a list$"),
        ("blocks.0.mixer", "[1, null]", r"^blocks\.0\.mixer: \[1, null\] is not allowed; use a table of settings$"),
        ("blocks.0.dropout", "null", r"^blocks\.0\.dropout: null is not allowed; use a number$"),
        ("blocks.0.mixer.mask.causal", "1", r"^blocks\.0\.mixer\.mask\.causal: 1 is not allowed; use true or false$"),
        (
            "blocks.0.mixer.mask.window",
            "wide",
            r"^blocks\.0\.mixer\.mask\.window: 'wide' .*; use a whole number, or null$",
        ),
        ("blocks.0.wiring", "[1]", r"^blocks\.0\.wiring: \[1\] is not allowed; use pre, post, .*, sandwich$"),
        ("blocks.0.mixer.mask.window", "0", r"^blocks\.0\.mixer\.mask\.window: 0 is not allowed; use 1 or more"),
        ("blocks.1.dropout", "1", r"^blocks\.1\.dropout: 1\.0 is not allowed; use 0 to below 1$"),
        ("blocks.1.wiring", "sideways", r"^blocks\.1\.wiring: 'sideways' is not allowed; use pre, post, .*, sandwich$"),
        ("blocks.1.wiring", "parallel", None),
        ("blocks.0.mixr", "1", r"^blocks\.0\.mixr: unknown setting 'mixr'; did you mean mixer\?$"),
        ("blocks.0.mixer.hedas", "1", r"^blocks\.0\.mixer\.hedas: unknown setting 'hedas'; did you mean heads"),
        ("blocks.2.mixer.heads", "1", r"^blocks\.2\.mixer\.heads: there is no element '2'; use 0 to 1, or \* for all$"),
        ("vocab.size", "1", r"^vocab\.size: 'size' cannot be set, since what precedes it is 11"),
        ("vocab", "-1", r"^vocab: -1 is not allowed; use 0 or more$"),
        ("dim", "-3", r"^dim: -3 is not allowed; use 1 or more$"),
        ("context", "0", r"^context: 0 is not allowed; use 1 or more$"),
        ("head.softcap", "0", r"^head\.softcap: 0\.0 is not allowed; use more than 0, or null$"),
        ("blocks.0.mixer.softcap", "-1", r"^blocks\.0\.mixer\.softcap: -1\.0 is not allowed"),
        ("blocks.0.mixer.head_dim", "0", r"^blocks\.0\.mixer\.head_dim: 0 is not allowed; use 1 or more"),
        (
            "blocks.0.channel.kind",
            "mlpp",
            r"^blocks\.0\.channel\.kind: 'mlpp' is not allowed; use mlp, gated, experts$",
        ),
        ("blocks.0.mixer.position.base", "5", r"position is null; set blocks\.0\.mixer\.position\.kind too, to .*rope"),
        ("dim.kind", "x", r"^dim\.kind: 'kind' cannot be set, since what precedes it is 64"),
        ("blocks.0.dropout", "NaN", r"^blocks\.0\.dropout: nan is not allowed; use a finite number$"),
        ("embed.scale", "1e999", r"^embed\.scale: inf is not allowed; use a finite number$"),
        ("blocks.0.channel.hidden", "0", r"^blocks\.0\.channel\.hidden: 0 is not allowed; use 1 or more"),
    ],
)
def test_set_checks_paths_and_values(path, value, message):
    if message is None:
        assert with_settings(SPEC, {path: value}).blocks[1].wiring == "parallel"
        return
    with refused(message):
        with_settings(SPEC, {path: value})


def test_set_reads_json_and_plain_words_and_stars():
    spec = with_settings(SPEC, {"blocks.*.mixer.heads": "2", "blocks.0.wiring": "post", "blocks.1.channel": "null"})
    assert [block.mixer.heads for block in spec.blocks] == [2, 2]
    assert spec.blocks[0].wiring == "post" and spec.blocks[1].channel is None
    assert SPEC.blocks[1].mixer.heads == 8


def test_a_part_of_another_kind_keeps_what_was_chosen_and_fits():
    plain = with_settings(SPEC, {"blocks.0.channel.kind": "gated"})
    assert plain.blocks[0].channel == GatedSpec()
    spec = SPEC.changed(blocks=(BlockSpec(mixer=AttentionSpec(), channel=MlpSpec(hidden=96, bias=False)),))
    chosen = {"blocks.0.channel.activation": "relu2", "blocks.*.channel.kind": "gated"}  # given in any order
    assert with_settings(spec, chosen).blocks[0].channel == GatedSpec(hidden=96, activation="relu2")
    found = with_settings(spec, {"blocks.0.channel.kind": "gated"}).blocks[0].channel
    assert found.hidden == 96 and found.activation == GatedSpec().activation
    assert with_settings(spec, {"blocks.0.channel.kind": "mlp"}) == spec
    rope = with_settings(SPEC, {"blocks.*.mixer.position.base": "500", "blocks.*.mixer.position.kind": "rope"})
    assert [block.mixer.position for block in rope.blocks] == [RopeSpec(base=500.0)] * 2
    with refused(r"^blocks\.0\.mixer\.position\.scaling: object missing required field `factor`"):
        with_settings(rope, {"blocks.0.mixer.position.scaling.kind": "ntk"})
    scaled = {"blocks.0.mixer.position.scaling.factor": "2", "blocks.0.mixer.position.scaling.kind": "ntk"}
    assert with_settings(rope, scaled).blocks[0].mixer.position.scaling == NtkScaling(factor=2.0)


class Near(Spec, frozen=True, tag="linear"):
    reach: int = 1


class Far(Spec, frozen=True, tag="linear"):
    distance: int = 1


class Both(Spec, frozen=True, tag="both"):
    near: Near | None = None
    far: tuple[Far, ...] = (Far(),)


def test_two_kinds_of_one_tag_are_told_apart_by_their_place():
    with refused(r"^near\.reech: unknown setting; did you mean reach\?$"):
        from_data({"kind": "both", "near": {"kind": "linear", "reech": 2}}, Both)
    with refused(r"^far\.0\.distanc: unknown setting; did you mean distance\?$"):
        from_data({"kind": "both", "far": [{"kind": "linear", "distanc": 2}]}, Both | Near)
    assert with_settings(Both(), {"near.kind": "linear"}) == Both(near=Near())
    with refused(r"^far\.0\.reach: unknown setting 'reach'; allowed: distance$"):
        with_settings(Both(), {"far.0.reach": "2"})


class Numbers(Spec, frozen=True, tag="numbers"):
    value: float | None = 0.5
    limit: float | None = None
    pair: tuple[float, float] = (0.1, 0.2)


@pytest.mark.parametrize("wrong", [-1.0, 1.5, float("nan"), float("inf"), -float("inf")])
def test_checks_of_numbers(wrong):
    checks = {
        check_least: lambda x: check_least(x, 2.0, "value"),
        check_between: lambda x: check_between(x, 0, 1, "value"),
        check_share: lambda x: check_share(x, "value"),
    }
    for check in checks.values():
        with refused(r"^value: (-1\.0|1\.5|nan|-?inf) is not allowed; use "):
            check(Numbers(value=wrong))
        check(Numbers(value=None))
    if wrong != 1.5:
        with refused("^limit: .* is not allowed; use more than 0, or null$"):
            check_positive(Numbers(limit=wrong), "value", "limit")
    with refused(r"^pair: .* is not allowed; use 0 to below 1$"):
        check_share(Numbers(pair=(0.1, wrong)), "pair")
    for value in (-1.0, 1.5):
        check_finite(Numbers(value=value), "value", "pair", "limit")
    check_least(Numbers(value=10**400), 1, "value")


def test_unknown_and_missing_fields_in_a_file():
    data = to_data(SPEC)
    data["blocks"][1]["mixer"]["maks"] = 3
    with refused(r"^blocks\.1\.mixer\.maks: unknown setting; did you mean mask"):
        from_data(data, AnySpec)
    data = to_data(SPEC)
    del data["vocab"]
    with refused("^object missing required field `vocab`"):
        from_data(data, AnySpec)
    data = to_data(SPEC)
    data["blocks"][0]["mixer"]["kind"] = "atention"
    with refused(r"^blocks\.0\.mixer\.kind: 'atention' is not allowed; use attention"):
        from_data(data, AnySpec)


def test_changed_is_as_strict_as_writing_anew():
    assert AttentionSpec().changed(heads=2) == AttentionSpec(heads=2)
    assert SPEC.changed(norm=None).norm is None
    with refused("^heads: 'two' is not allowed; use a whole number"):
        AttentionSpec().changed(heads="two")
    with refused(r"^window: 0 is not allowed"):
        Mask().changed(window=0)
    with refused("^window: 'wide' is not allowed; use a whole number, or null"):
        Mask().changed(window="wide")
    with refused("^hedas: unknown setting; did you mean heads"):
        AttentionSpec().changed(hedas=2)


BAD_MODELS = {
    "heads": (AttentionSpec(heads=5), r"^blocks\.0\.mixer\.heads: 5 does not divide d=64; use 1, 2, 4, 8, 16, 32, 64"),
    "no heads": (AttentionSpec(heads=0), r"^blocks\.0\.mixer\.heads: 0 "),
    "kv_heads": (
        AttentionSpec(heads=4, kv_heads=3),
        r"^blocks\.0\.mixer\.kv_heads: 3 does not divide heads=4; use 1, 2, 4",
    ),
    "odd width": (
        AttentionSpec(head_dim=5, position=RopeSpec()),
        r"^blocks\.0\.mixer\.position\.share: 1\.0 of a head of 5 is 5; it must be even and not 0",
    ),
    "ntk": (
        AttentionSpec(head_dim=2, position=RopeSpec(scaling=NtkScaling(factor=2.0))),
        r"^blocks\.0\.mixer\.position\.scaling: ntk needs a turned width above 2",
    ),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_settings_that_do_not_fit_together_carry_the_full_path(name):
    mixer, message = BAD_MODELS[name]
    with refused(message):
        build_model(SPEC.changed(blocks=(BlockSpec(mixer=mixer),)))
    reader = SPEC.changed(head=None)
    writer = SPEC.changed(blocks=(BlockSpec(mixer=mixer, cross=CrossSpec()),))
    with refused(message.replace("^", r"^decoder\.")):
        build_model(EncoderDecoderSpec(encoder=reader, decoder=writer))


def test_a_vocabulary_that_is_not_known_yet_builds_no_model():
    with refused("^vocab: 0 builds no model"):
        build_model(SPEC.changed(vocab=0))
    with refused(r"^decoder\.vocab: 0 builds no model"):
        writer = BlockSpec(mixer=AttentionSpec(), cross=CrossSpec())
        decoder = SPEC.changed(vocab=0, blocks=(writer,))
        build_model(EncoderDecoderSpec(encoder=SPEC.changed(head=None), decoder=decoder))


def test_settings_that_contradict_one_another_are_refused():
    with refused("^sinks: "):
        Mask(sinks=2)
    with refused("^sinks: -1"):
        Mask(sinks=-1, window=3)
    with refused("^prefix: "):
        Mask(causal=False, prefix=2)
    with refused("^active: 3 is not allowed; use 1 to experts=2"):
        ExpertsSpec(experts=2, active=3)
    with refused("^wiring: parallel"):
        BlockSpec(mixer=AttentionSpec(), channel=None, wiring="parallel")
    with refused("^buckets: 3 is not allowed; use an even number from 4"):
        RelativeBiasSpec(buckets=3)
    with refused("^max_distance: 16 is not allowed; use more than buckets/2=16"):
        RelativeBiasSpec(buckets=32, max_distance=16)


def test_encoder_decoders_must_fit_together():
    writer = BlockSpec(mixer=AttentionSpec(), cross=CrossSpec())
    reader, decoder = SPEC.changed(head=None), SPEC.changed(blocks=(writer,))
    with refused(r"^encoder\.head: "):
        EncoderDecoderSpec(encoder=SPEC, decoder=decoder)
    with refused("^decoder: it needs a head and at least one block that reads the encoder"):
        EncoderDecoderSpec(encoder=reader, decoder=SPEC)
    with refused("^share: "):
        EncoderDecoderSpec(encoder=reader.changed(vocab=12), decoder=decoder, share=True)
    with refused(r"^decoder\.blocks\.0\.cross\.memory_dim: 64 is not the encoder's width; use 32$"):
        EncoderDecoderSpec(encoder=reader.changed(dim=32), decoder=decoder)


class Words(Spec, frozen=True, tag="words"):
    """Texts, and what may be a text."""

    text: str = ""
    share: float | str = 0.5
    most: int | str | None = None


def test_a_text_is_taken_as_it_was_typed():
    for typed in ("2024", "2024.5", "true", "null", "[1]", "{", "-0", "1e999", "고양이", ""):
        assert with_settings(Words(), {"text": typed}).text == typed
    assert with_settings(Words(), {"text": r'"two\nlines"'}).text == "two\nlines", "JSON's own texts are read"
    assert with_settings(Words(), {"share": "0.25"}).share == 0.25
    assert with_settings(Words(), {"share": "true"}).share == "true"
    assert with_settings(Words(), {"most": "null"}).most is None and with_settings(Words(), {"most": "3"}).most == 3
    assert with_settings(Words(), {"most": "[" * 100_000}).most == "[" * 100_000


@pytest.mark.parametrize("place", ["²", "٣", "2", "-1", "x", "9" * 5000])
def test_a_place_that_is_no_element_is_refused(place):
    with refused(r"there is no element .*; use 0 to 1, or \* for all"):
        with_settings(SPEC, {f"blocks.{place}.dropout": "0.1"})


@pytest.mark.parametrize("value", ["2", "[1]", "null", '{"a": 1}'])
def test_a_kind_is_a_word(value):
    with refused(r"^blocks\.0\.mixer\.kind: .* is not allowed; use attention"):
        with_settings(SPEC, {"blocks.0.mixer.kind": value})


def test_a_part_without_a_kind_is_of_the_default_one():
    """A field of one kind needs no word for it, and a recipe of that time stays readable when there are more kinds."""
    plain = {"vocab": 5, "dim": 8, "blocks": [{"mixer": {"kind": "attention"}, "norm": {"eps": 1e-3}}]}
    spec = from_data({**plain, "head": {"tied": False}}, ModelSpec)
    assert spec.head == HeadSpec(tied=False) and spec.blocks[0].norm == LayerNormSpec(eps=1e-3)
    with refused(r"^head: object contains unknown field `classes`|^head\.classes: unknown setting"):
        from_data({**plain, "head": {"classes": 3}}, ModelSpec)
    with refused(r"^blocks\.0\.cross"):
        from_data({**plain, "blocks": [{"mixer": {"kind": "attention"}, "cross": {"heads": "x"}}]}, ModelSpec)


def test_a_setting_of_truths_and_words_names_both():
    with pytest.raises(SettingError, match=r"^early_stopping: 'soon' is not allowed; use true, false, never$"):
        from_data({"early_stopping": "soon"}, GenerateSpec)


def test_many_names_are_counted_where_none_is_close():
    names = [f"{letter}{number}" for letter in "abc" for number in range(10)]
    assert nearest("xyz", names).startswith("allowed: a0, a1") and nearest("xyz", names).endswith("b1 … (30)")
    assert nearest("xyz", names[:2]) == "allowed: a0, a1" and nearest("a00", names).startswith("did you mean a0")
