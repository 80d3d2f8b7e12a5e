"""Whisper base as CTranslate2 has it, on speech of espeak-ng, against CTranslate2's own runtime and transformers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from pulled import original
from safetensors.torch import save_file

import glassformer as gf
from glassformer.generate.transcription import TranscribeSpec
from glassformer.hf import export
from glassformer.trace import Trace

SPOKEN = {
    "en": "The cat sat on the mat and looked at the bird in the garden.",
    "ko": "안녕하세요. 오늘은 날씨가 아주 좋습니다.",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng, which speaks the sentences"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return original("whisper-base", tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def loaded(folder):
    return gf.load(folder)


@pytest.fixture(scope="module")
def runtime(folder):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2, the runtime that is compared with")
    return ctranslate2.models.Whisper(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """The path of each sentence's sound."""
    folder, paths = tmp_path_factory.mktemp("speech"), {}
    for code, sentence in SPOKEN.items():
        paths[code] = folder / f"{code}.wav"
        subprocess.run(["espeak-ng", "-v", code, "-w", paths[code], sentence], check=True)
    return paths


def heard(loaded, path: Path):
    """(the listener, the spectrogram `1 c w`, the encoder's output)"""
    listener = loaded._listener()
    sound = loaded._one(path, None)
    return listener, listener.embed.mel(sound[None]), listener.hear(sound)


def as_features(mel: torch.Tensor):
    from ctranslate2 import StorageView

    return StorageView.from_array(np.ascontiguousarray(mel.numpy()))


@pytest.mark.parametrize("code", SPOKEN)
def test_the_encoder_and_the_language(loaded, runtime, spoken, code):
    listener, mel, memory = heard(loaded, spoken[code])
    theirs = np.array(runtime.encode(as_features(mel), to_cpu=True))
    assert np.abs(theirs - memory.numpy()).max() <= 1e-4 * np.abs(theirs).max()
    shares = listener.languages(memory)
    for name, share in runtime.detect_language(as_features(mel))[0]:
        assert shares[name[2:-2]] == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("timed", [False, True], ids=["plain", "timed"])
@pytest.mark.parametrize("code", SPOKEN)
def test_the_text_and_its_score(loaded, runtime, spoken, code, timed, beams):
    """CTranslate2 divides by the length without the end token, whose probability counts."""
    listener, mel, memory = heard(loaded, spoken[code])
    spec = TranscribeSpec(language=code, beams=beams)
    begin = listener.prompt(spec) + ([] if timed else [listener.speech.untimed])
    best, silence = listener.written(memory, begin, spec, 224)
    how = {"return_scores": True, "return_no_speech_prob": True, "beam_size": beams}
    [wanted] = runtime.generate(as_features(mel), [begin], **how)
    assert list(best.ids) == wanted.sequences_ids[0]
    assert best.log_probability / len(best.ids) == pytest.approx(wanted.scores[0], abs=1e-3)
    assert silence == pytest.approx(wanted.no_speech_prob, abs=1e-4)


def test_speech_is_understood(loaded, spoken):
    """English by its words. The Korean of espeak-ng is hard to follow, but what is written is Hangul; the model itself
    is in doubt, so that as a transcript it counts as no speech."""
    [segment] = loaded.transcribe(spoken["en"])
    assert segment.text.strip() == SPOKEN["en"] and segment.language == "en"
    listener, _, memory = heard(loaded, spoken["ko"])
    spec = TranscribeSpec(language="ko")
    best, silence = listener.written(memory, listener.prompt(spec), spec, 224)
    korean = loaded.tokenizer.decode(best.ids)
    assert sum("가" <= c <= "힣" for c in korean) > 8 and silence > 0.6


def test_a_long_sound_is_read_in_windows(loaded, spoken):
    """Forty seconds: the sentence, silence, and the sentence again behind the first window."""
    sound, long = loaded._one(spoken["en"], None), torch.zeros(40 * 16_000)
    for second in (0, 33):
        long[second * 16_000 :][: len(sound)] = sound
    said = [one for one in loaded.transcribe(long, language="en") if "cat" in one.text]
    assert len(said) == 2 and said[0].start < 1 and said[0].end == pytest.approx(3.2, abs=0.5)
    assert 30 <= said[1].start <= 33.5 and said[1].end == pytest.approx(36.2, abs=0.5)


def test_it_is_the_same_model_in_transformers(loaded, spoken, tmp_path):
    """Exported to a folder that transformers loads: the same logits."""
    transformers = pytest.importorskip("transformers", reason="the published models are compared with transformers")
    _, mel, _ = heard(loaded, spoken["en"])
    config, tensors = export(loaded.model, "whisper")
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    _, ids = loaded.heard((spoken["en"], SPOKEN["en"]))
    with torch.no_grad():
        wanted = theirs(input_features=mel, decoder_input_ids=ids).logits
        assert (wanted - loaded.model(mel, ids)).abs().max() <= 2e-5 * wanted.abs().max()
    assert max(Trace(loaded.model, (mel, ids)).difference().values()) < 1e-4
