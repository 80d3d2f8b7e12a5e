"""Whisper against transformers: the features of a sound, and models of published configurations, shrunk."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from published import check_export, check_same, lively, pair, tokens, transformers

import glassformer as gf
from glassformer.errors import CheckpointError, SettingError, UnsupportedError
from glassformer.generate.transcription import TranscribeSpec
from glassformer.hf import FAMILIES, export, read_model
from glassformer.model import without_memory
from glassformer.nn.sound import Sound, SoundSpec
from glassformer.spec import to_data
from unit.sound_models import NAMES, tokenizer, tone

SIZES = {
    **{"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "encoder_layers": 2, "decoder_layers": 3},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 2, "vocab_size": 96, "pad_token_id": 0},
    **{"bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 2},
}
CASES = {
    "whisper-tiny": {**SIZES, "num_mel_bins": 80},
    "whisper-large-v3": {**SIZES, "num_mel_bins": 128, "scale_embedding": False, "apply_spec_augment": False},
    "whisper-large-v3-turbo": {**SIZES, "num_mel_bins": 128, "decoder_layers": 1, "dropout": 0.1},
    "distil-whisper-untied": {**SIZES, "tie_word_embeddings": False, "activation_function": "relu"},
}
SOUND = np.random.default_rng(0).normal(size=(2, 50_000)).astype(np.float32) * [[0.1], [0.01]]


def features(bins: int) -> torch.Tensor:
    extract = transformers.WhisperFeatureExtractor(feature_size=bins)
    return extract(list(SOUND), sampling_rate=16_000, return_tensors="pt").input_features


def both_of(name: str):
    fields = CASES[name]
    mel, target = features(fields.get("num_mel_bins", 80)), tokens(95, 7) + 1  # 0 is padding
    return pair(
        transformers.WhisperConfig(**fields),
        "WhisperForConditionalGeneration",
        lambda model: model(input_features=mel, decoder_input_ids=target).logits,
        lambda model: model(mel, target),
    )


def test_how_a_sound_is_prepared_is_written_for_transformers(tmp_path):
    both = both_of("whisper-large-v3")
    config, _ = export(both.ours, "whisper")
    beside = {name: config[name] for name in FAMILIES["whisper"].beside["preprocessor_config.json"] & config.keys()}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(beside))
    extract = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path)
    found = extract(list(SOUND), sampling_rate=16_000, return_tensors="pt").input_features
    assert torch.equal(found, features(128))


@pytest.mark.parametrize("bins", [80, 128])
def test_the_features_of_a_sound_are_those_of_transformers(bins):
    found = Sound(SoundSpec(bins=bins), 8, 1500).mel(torch.tensor(SOUND, dtype=torch.float32))
    assert (found - features(bins)).abs().max() <= 1e-4


@pytest.mark.parametrize("name", CASES)
def test_logits_and_gradients(name):
    check_same(both_of(name))


@pytest.mark.parametrize("name", CASES)
def test_an_export_is_loaded_by_transformers(name, tmp_path):
    check_export(both_of(name), tmp_path)


@pytest.mark.parametrize("name", ["whisper-tiny", "whisper-large-v3-turbo"])
def test_the_same_text_without_drawing(name):
    """From the samples, ours with its cache; with positions so large that no token is repeated for ever."""
    both, new = both_of(name), 24
    both.theirs.model.decoder.embed_positions.weight.data *= 5
    ours = read_model(both.config, both.theirs.state_dict(), "memory")
    begin = torch.tensor([[2, 5, 7]] * 2)
    with torch.no_grad():
        both.theirs.generation_config.update(eos_token_id=None, begin_suppress_tokens=None, suppress_tokens=None)
        wanted = transformers.GenerationMixin.generate(
            both.theirs, features(CASES[name]["num_mel_bins"]), decoder_input_ids=begin, max_new_tokens=new
        )
        state = ours.empty(torch.tensor(SOUND, dtype=torch.float32), 3 + new)
        logits, state = ours.step(begin, state)
        made = [begin, logits[:, -1:].argmax(-1)]
        while sum(part.shape[1] for part in made) < 3 + new:
            logits, state = ours.step(made[-1], state)
            made.append(logits[:, -1:].argmax(-1))
    assert torch.equal(torch.cat(made, 1), wanted)
    assert len({tuple(row) for row in wanted.T.tolist()}) > 6, "one token repeated shows nothing"


def test_what_no_whisper_model_is_is_refused():
    family, both = FAMILIES["whisper"], both_of("whisper-tiny")
    config = both.config
    with pytest.raises(UnsupportedError, match="^use_weighted_layer_sum: True"):
        family.spec(config | {"use_weighted_layer_sum": True})
    with pytest.raises(UnsupportedError, match="^num_hidden_layers: 9 is not encoder_layers"):
        family.spec(config | {"num_hidden_layers": 9})
    with pytest.raises(SettingError, match="heads: 5"):
        without_memory(family.spec(config | {"encoder_attention_heads": 5}))
    spec, encoder = both.ours.spec, to_data(both.ours.spec.encoder)
    both.ours.spec = spec.changed(encoder=encoder | {"embed": {"kind": "sound"}})
    with pytest.raises(UnsupportedError, match="encoder.embed.position: it can only have learned"):
        export(both.ours, "whisper")
    both.ours.spec = spec.changed(encoder=encoder | {"embed": encoder["embed"] | {"hop": 80}})
    config, _ = export(both.ours, "whisper")
    assert (config["hop_length"], config["n_samples"], config["chunk_length"]) == (80, 240_000, 15)
    for field, message in (({"feature_size": 128}, "feature_size: 128 is not"), ({"dither": 0.1}, "dither: 0.1")):
        with pytest.raises(UnsupportedError, match=message):
            family.spec(both.config | field)


# ---------------------------------------------------------------- a folder with its tokenizer

TIMED = {"max_source_positions": 50, "max_target_positions": 40}  # windows of a second


@pytest.fixture(scope="module", params=[0, 1, 6])
def folder(request, tmp_path_factory):
    """A model of transformers that writes bytes, its folder, and a sound."""
    known = tokenizer()
    ids = {name: known.library.token_to_id(f"<|{name}|>") for name in NAMES}
    special = {"eos_token_id": ids["endoftext"], "decoder_start_token_id": ids["startoftranscript"]}
    config = transformers.WhisperConfig(
        **(SIZES | special | TIMED | {"bos_token_id": ids["endoftext"], "vocab_size": known.vocab_size})
    )
    theirs = lively(transformers.WhisperForConditionalGeneration(config), request.param)
    theirs.model.decoder.embed_positions.weight.data *= 5  # so that no token is repeated for ever
    for name, value in {
        **special,
        **{"is_multilingual": True, "lang_to_id": {"<|en|>": ids["en"], "<|ko|>": ids["ko"]}, "pad_token_id": 0},
        **{"task_to_id": {task: ids[task] for task in ("transcribe", "translate")}, "max_initial_timestamp_index": 50},
        **{"no_timestamps_token_id": ids["notimestamps"], "suppress_tokens": [*range(0, 32), *range(127, 256)]},
        **{"begin_suppress_tokens": [ids["endoftext"]], "max_length": 40},
    }.items():
        setattr(theirs.generation_config, name, value)
    place = tmp_path_factory.mktemp("whisper")
    theirs.save_pretrained(place)
    known.library.save(str(place / "tokenizer.json"))
    (place / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return theirs.eval(), place, tone(0.2, 700)


@pytest.mark.parametrize("timed", [False, True])
def test_prompt_suppressed_tokens_and_times_are_those_of_transformers(folder, timed):
    theirs, place, sound = folder
    loaded = gf.load(place)
    listener = loaded._listener()
    heard = torch.tensor(sound, dtype=torch.float32)
    mel = listener.embed.mel(heard[None])
    spec = TranscribeSpec(language="ko", task="translate", max_new_tokens=20)
    begin = listener.prompt(spec) + ([] if timed else [listener.speech.untimed])
    best, _ = listener.written(listener.hear(heard), begin, spec, 20)
    how = {"language": "ko", "task": "translate", "return_timestamps": timed, "max_new_tokens": 20}
    with torch.no_grad():
        wanted = theirs.generate(
            mel, attention_mask=torch.ones(1, mel.shape[2]), force_unique_generate_call=True, **how
        )
    found = [*begin, *best.ids, *([] if best.end is None else [best.end])]
    assert found == wanted[0].tolist()
    assert not timed or best.ids[0] > listener.speech.untimed


@pytest.mark.parametrize("alone", [False, True], ids=["as it came", "by its speech tokens alone"])
def test_an_exported_folder_writes_the_same_in_transformers(folder, alone, tmp_path):
    theirs, place, sound = folder
    loaded = gf.load(place)
    if alone:  # as a model from elsewhere, such as CTranslate2's, has it
        loaded.about = {"speech": loaded.about["speech"]}
    loaded.export(tmp_path / "out")
    again = transformers.AutoModelForSpeechSeq2Seq.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    extract = transformers.AutoFeatureExtractor.from_pretrained(tmp_path / "out")
    features = extract(sound, sampling_rate=16_000, return_tensors="pt").input_features
    mask = torch.ones(1, features.shape[2])
    how = {"language": "ko", "return_timestamps": True, "max_new_tokens": 12, "attention_mask": mask}
    with torch.no_grad():
        wanted, found = theirs.generate(features, **how), again.generate(features, **how)
    assert torch.equal(wanted, found) and len(set(found[0].tolist())) > 2
    other = gf.load(tmp_path / "out")
    assert other.about["speech"].items() >= {"suppressed": loaded.about["speech"]["suppressed"]}.items()
    assert [one.tokens for one in other.transcribe(sound)] == [one.tokens for one in loaded.transcribe(sound)]


def test_what_the_generation_config_says_is_kept_and_saved(folder, tmp_path):
    _, place, sound = folder
    loaded = gf.load(place)
    speech = loaded.about["speech"]
    assert speech["suppressed"] == [*range(0, 32), *range(127, 256)] and speech["languages"].keys() == {"en", "ko"}
    loaded.save(tmp_path / "own")
    again = gf.load(tmp_path / "own")
    [one], [other] = again.transcribe(sound), loaded.transcribe(sound)
    assert one.tokens == other.tokens and one.log_probability == pytest.approx(other.log_probability, rel=1e-4)


# ---------------------------------------------------------------- in CTranslate2's format


def converted(theirs, place, out, quantization=None, change=lambda spec: None):
    """A folder of CTranslate2 with a model of transformers, and the tokenizer of its folder."""
    transformers_of = pytest.importorskip("ctranslate2.converters.transformers", reason="needs ctranslate2")
    spec = transformers_of.WhisperLoader().get_model_spec(theirs)
    known = tokenizer().library
    spec.register_vocabulary([known.id_to_token(id) for id in range(known.get_vocab_size())])
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [3, 4], [5]
    spec.config.lang_ids = [known.token_to_id("<|en|>"), known.token_to_id("<|ko|>")]
    spec.config.alignment_heads = [[0, 0]]
    change(spec)
    spec.validate()
    spec.optimize(quantization)
    out.mkdir()
    spec.save(str(out))
    shutil.copy(place / "tokenizer.json", out)
    return out


@pytest.mark.parametrize("quantization", [None, "float16", "int8", "int16"])
def test_a_file_of_ctranslate2_is_the_same_model(folder, quantization, tmp_path):
    """Of stored whole numbers as well, where the runtime is told to compute in fp32."""
    theirs, place, sound = folder
    out = converted(theirs, place, tmp_path / "out", quantization)
    ctranslate2 = pytest.importorskip("ctranslate2")
    runtime = ctranslate2.models.Whisper(str(out), compute_type="float32", inter_threads=1, intra_threads=1)
    loaded = gf.load(out)
    speech, heard = loaded.about["speech"], torch.tensor(sound, dtype=torch.float32)
    assert (speech["suppressed"], speech["suppressed_first"]) == ([3, 4], [5])
    listener = loaded._listener()
    mel, memory = listener.embed.mel(heard[None]), listener.hear(heard)
    features = ctranslate2.StorageView.from_array(np.ascontiguousarray(mel.numpy()))
    difference = np.abs(np.array(runtime.encode(features)) - memory.numpy()).max()
    assert difference <= 1e-4
    assert speech["languages"] == {}, "a model of so few tokens counts as an English one"
    spec = TranscribeSpec(beams=3, max_new_tokens=12)
    for begin in (listener.prompt(spec), [*listener.prompt(spec), listener.speech.untimed]):
        best, _ = listener.written(memory, begin, spec, 12)
        [wanted] = runtime.generate(features, [begin], beam_size=3, max_length=24, return_scores=True)
        assert list(best.ids) == wanted.sequences_ids[0]
        assert best.log_probability / len(best.ids) == pytest.approx(wanted.scores[0], abs=1e-3)
    if quantization is None:
        with torch.no_grad():
            ids = torch.tensor([[5, 6, 7]])
            found = theirs(input_features=mel, decoder_input_ids=ids).logits
        assert (found[..., : loaded.spec.decoder.vocab] - loaded.model(mel, ids)).abs().max() <= 5e-5


def test_what_is_no_whisper_of_ctranslate2_is_refused(folder, tmp_path):
    theirs, place, _ = folder

    def refused(error, message, change, name):
        out = converted(theirs, place, tmp_path / name, None, change)
        with pytest.raises(error, match=message):
            gf.load(out)

    def without_norm(spec):
        spec.encoder.layer_norm.beta = pytest.importorskip("ctranslate2.specs.model_spec").OPTIONAL

    def another_activation(spec):
        spec.decoder.activation = np.dtype("int8").type(4)

    def after(spec):
        spec.decoder.pre_norm = False

    refused(CheckpointError, r"the tensors lack 'encoder\.norm\.bias'", without_norm, "a")
    refused(UnsupportedError, "decoder/activation has a value", another_activation, "b")
    refused(UnsupportedError, "decoder/pre_norm has a value", after, "c")
    out = converted(theirs, place, tmp_path / "d")
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"suppress_ids": [-1]}))
    with pytest.raises(CheckpointError, match="suppress_ids: the configuration holds no list"):
        gf.load(out)
