"""Whisper base as CTranslate2 has it, on speech of espeak-ng, against CTranslate2's own runtime and transformers.

GLASSFORMER_WHISPER names a folder with its model.bin, config.json, tokenizer.json and vocabulary.json.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import glassformer as gf
from glassformer.files import home
from glassformer.generate.transcription import TranscribeSpec
from glassformer.hf import export
from glassformer.trace import Trace

FOLDER = Path(os.environ.get("GLASSFORMER_WHISPER", home() / "whisper-base"))
SPOKEN = {
    "en": "The cat sat on the mat and looked at the bird in the garden.",
    "en-2": "Please write down every word that I say, and nothing else.",
    "ko": "안녕하세요. 오늘은 날씨가 아주 좋습니다.",
    "ko-2": "고양이가 생선을 먹었다.",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER / "model.bin").is_file(), reason="needs Whisper base (set GLASSFORMER_WHISPER)"),
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng, which speaks the sentences"),
]


@pytest.fixture(scope="module")
def loaded():
    return gf.load(FOLDER)


@pytest.fixture(scope="module")
def runtime():
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2, the runtime that is compared with")
    return ctranslate2.models.Whisper(str(FOLDER), compute_type="float32", inter_threads=1, intra_threads=1)


@pytest.fixture(scope="module", params=SPOKEN)
def speech(request, tmp_path_factory):
    """(code of the language, path of the sound)"""
    path = tmp_path_factory.mktemp("speech") / f"{request.param}.wav"
    subprocess.run(["espeak-ng", "-v", request.param[:2], "-w", path, SPOKEN[request.param]], check=True)
    return request.param[:2], path


def heard(loaded, path: Path):
    """(the listener, the spectrogram `1 c w`, the encoder's output)"""
    listener = loaded._listener()
    sound = loaded._one(path, None)
    return listener, listener.embed.mel(sound[None]), listener.hear(sound)


def as_features(mel: torch.Tensor):
    from ctranslate2 import StorageView

    return StorageView.from_array(np.ascontiguousarray(mel.numpy()))


def test_the_encoder_and_the_language(loaded, runtime, speech):
    listener, mel, memory = heard(loaded, speech[1])
    theirs = np.array(runtime.encode(as_features(mel), to_cpu=True))
    assert np.abs(theirs - memory.numpy()).max() <= 1e-4 * np.abs(theirs).max()
    shares = listener.languages(memory)
    for name, share in runtime.detect_language(as_features(mel))[0]:
        assert shares[name[2:-2]] == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("timed", [False, True], ids=["plain", "timed"])
def test_the_text_and_its_score(loaded, runtime, speech, beams, timed):
    """CTranslate2 divides by the length without the end token, whose probability counts."""
    listener, mel, memory = heard(loaded, speech[1])
    spec = TranscribeSpec(language=speech[0], beams=beams)
    begin = listener.prompt(spec) + ([] if timed else [listener.speech.untimed])
    best, silence = listener.written(memory, begin, spec, 224)
    how = {"return_scores": True, "return_no_speech_prob": True, "beam_size": beams}
    [wanted] = runtime.generate(as_features(mel), [begin], **how)
    assert list(best.ids) == wanted.sequences_ids[0]
    assert best.log_probability / len(best.ids) == pytest.approx(wanted.scores[0], abs=1e-3)
    assert silence == pytest.approx(wanted.no_speech_prob, abs=1e-4)


def test_english_speech_is_understood(loaded, speech):
    code, path = speech
    if code == "en" and path.stem == "en":
        [segment] = loaded.transcribe(path)
        assert segment.text.strip() == SPOKEN["en"] and segment.language == "en"
    elif code == "ko":
        text = "".join(one.text for one in loaded.transcribe(path, language="ko"))
        assert any("가" <= c <= "힣" for c in text), "Hangul is written, whatever espeak's Korean sounds like"


def test_a_long_sound_equals_its_windows(loaded, speech):
    """Forty seconds: the sentence, silence, and the sentence again behind the first window."""
    code, path = speech
    if path.stem != "en":
        return
    sound = loaded._one(path, None)
    long = torch.zeros(40 * 16_000)
    long[: len(sound)] = sound
    long[33 * 16_000 :][: len(sound)] = sound
    found = list(loaded.transcribe(long, language="en"))
    said = [one for one in found if "cat" in one.text]
    assert len(said) == 2 and said[0].start < 1 and 32 <= said[1].start <= 34 and said[1].end <= 40


def test_it_is_the_same_model_in_transformers(loaded, speech, tmp_path):
    """Exported to a folder of transformers: its logits, and its text with its own rules for times."""
    transformers = pytest.importorskip("transformers", reason="the published models are compared with transformers")
    code, path = speech
    listener, mel, memory = heard(loaded, path)
    config, tensors = export(loaded.model, "whisper")
    speech_spec = listener.speech
    config |= {"eos_token_id": speech_spec.end, "decoder_start_token_id": speech_spec.start}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor([loaded.heard((path, "A few words."))[1][0].tolist()])
    with torch.no_grad():
        wanted = theirs(input_features=mel, decoder_input_ids=ids).logits
        difference = (wanted - loaded.model(mel, ids)).abs().max()
    assert difference <= 1e-4 * wanted.abs().max()
    trace = Trace(loaded.model, (mel, ids))
    assert max(trace.difference().values()) < 1e-4
