"""Settings: strict, with the full path in every message."""

import pytest

from glassformer.errors import SettingError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.model import AnySpec, BlockSpec, EncoderDecoderSpec, ModelSpec, build_model
from glassformer.nn.channel import ExpertsSpec
from glassformer.nn.position import NtkScaling, RelativeBiasSpec, RopeSpec
from glassformer.spec import from_data, from_json, to_data, to_json, with_settings

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
        ("blocks.0.mixer.heads", "5.5", r"^blocks\.0\.mixer\.heads: expected `int`, got `float`$"),
        ("blocks.*.mixer.heads", '"many"', r"^blocks\.0\.mixer\.heads: expected `int`, got `str`$"),
        ("blocks.0.mixer.mask.window", "0", r"^blocks\.0\.mixer\.mask\.window: 0 is not allowed; use 1 or more"),
        ("blocks.1.dropout", "1", r"^blocks\.1\.dropout: 1\.0 is not allowed; use 0 to below 1$"),
        ("blocks.1.wiring", "sideways", r"^blocks\.1\.wiring: invalid enum value 'sideways'"),
        ("blocks.1.wiring", "parallel", None),
        ("blocks.0.mixr", "1", r"^blocks\.0\.mixr: unknown setting 'mixr'; did you mean mixer\?$"),
        ("blocks.0.mixer.hedas", "1", r"^blocks\.0\.mixer\.hedas: unknown setting 'hedas'; did you mean heads"),
        ("blocks.2.mixer.heads", "1", r"^blocks\.2\.mixer\.heads: there is no element '2'; use 0 to 1, or \* for all$"),
        ("vocab.size", "1", r"^vocab\.size: 'size' cannot be set, since what precedes it is 11"),
        ("vocab", "-1", r"^vocab: -1 is not allowed; use 0 or more$"),
        ("dim", "-3", r"^dim: -3 is not allowed; use 1 or more$"),
        ("context", "0", r"^context: 0 is not allowed; use 1 or more$"),
        ("head.softcap", "0", r"^head\.softcap: 0\.0 is not allowed; use more than 0, or null for no limit$"),
        ("blocks.0.mixer.softcap", "-1", r"^blocks\.0\.mixer\.softcap: -1\.0 is not allowed"),
        ("blocks.0.mixer.head_dim", "0", r"^blocks\.0\.mixer\.head_dim: 0 is not allowed; use 1 or more"),
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
    with refused(r"^blocks\.0\.mixer(\.kind)?: invalid value 'atention'"):
        from_data(data, AnySpec)


def test_changed_is_as_strict_as_writing_anew():
    assert AttentionSpec().changed(heads=2) == AttentionSpec(heads=2)
    assert SPEC.changed(norm=None).norm is None
    with refused("^heads: expected `int`, got `str`"):
        AttentionSpec().changed(heads="two")
    with refused(r"^window: 0 is not allowed"):
        Mask().changed(window=0)
    with refused("^window: expected"):
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
    with refused("^decoder: it needs a head and at least one block with cross-attention"):
        EncoderDecoderSpec(encoder=reader, decoder=SPEC)
    with refused("^share: "):
        EncoderDecoderSpec(encoder=reader.changed(vocab=12), decoder=decoder, share=True)
    with refused(r"^decoder\.blocks\.0\.cross\.memory_dim: 64 is not the encoder's width; use 32$"):
        EncoderDecoderSpec(encoder=reader.changed(dim=32), decoder=decoder)
