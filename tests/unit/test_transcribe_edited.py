"""Speech written down by a model in which something is changed: as if everything were read again before each token."""

import pytest
import sound_models
import torch

import glassformer as gf
from glassformer.edit import listed
from glassformer.errors import InputError
from glassformer.generate.transcription import TranscribeSpec

NEW = 5
EDITS = {
    "a head of the encoder": gf.zero("encoder.blocks.1.mixer.z", h=1),
    "frames of the sound": gf.scale("encoder.embed.mel", 0.2, w=[0, 3]),
    "what is looked at in the sound": gf.zero("decoder.blocks.0.cross.pattern", s=[0, 1]),
    "an edge to the sound": gf.cut("decoder.blocks.1.cross", t=3, s=2, h=0),
    "one token": gf.add("decoder.blocks.0.resid_out", 0.7, t=2),
    "the mean over the text": gf.mean("decoder.blocks.1.mixer.out"),
    "positions": gf.zero("decoder.positions"),
    "two": [gf.scale("decoder.embed.out", 1.5), gf.zero("encoder.blocks.0.channel.out")],
    "noise": gf.noise("decoder.blocks.0.mixer.z", 0.5, seed=3, t=[1, 2]),
}


def heard(seconds=0.2):
    return sound_models.tone(seconds)


def written(loaded, sound, edits, spec):
    """The tokens and the probability of silence, by a trace of all that is written so far before each token."""
    listener = loaded._listener()
    speech = listener.speech
    begin = [*listener.prompt(spec), speech.untimed]
    found, silence = [], 0.0
    for number in range(NEW):
        run = loaded.trace((sound, begin + found), edits=edits)
        logits = run["decoder.head.logits"][0]
        if not number:
            silence = logits[begin.index(speech.start)].double().softmax(0)[speech.silence].item()
        found.append(int(listener._scores(logits[-1:], [found], False)[0].argmax()))
        if found[-1] == speech.end:
            break
    return tuple(id for id in found if id < speech.end), silence


@pytest.mark.parametrize("name", EDITS)
def test_edits_act_as_if_everything_were_read_again(name):
    loaded, edits = sound_models.listener(), listed(EDITS[name])
    spec = TranscribeSpec(language="ko", max_new_tokens=NEW)
    wanted, silence = written(loaded, heard(), edits, spec)
    listener = loaded._listener(edits)
    sound = listener.ready(torch.as_tensor(heard()))
    best, quiet = listener.written(listener.hear(sound), [*listener.prompt(spec), listener.speech.untimed], spec, NEW)
    assert tuple(id for id in best.ids if id < listener.speech.end) == wanted
    assert quiet == pytest.approx(silence, rel=1e-4, abs=1e-7)
    [plain] = loaded.transcribe(heard(), language="ko", max_new_tokens=NEW) or [None]
    changed = [*loaded.transcribe(heard(), language="ko", max_new_tokens=NEW, edits=edits)]
    assert [one.tokens for one in changed] == ([wanted] if loaded.tokenizer.decode(wanted).strip() else [])
    assert [one.silence for one in changed] != [plain.silence]


def test_the_language_is_found_by_the_changed_model():
    loaded = sound_models.listener()
    heard_as = {}
    for value in (-30.0, 30.0):
        edit = gf.replace("decoder.head.logits", value, v=loaded._listener().speech.languages["ko"])
        found = [*loaded.transcribe(heard(), max_new_tokens=NEW, edits=edit)]
        heard_as[value] = {one.language for one in found}
    assert heard_as[30.0] <= {"ko"} and "ko" not in heard_as[-30.0] and any(heard_as.values())


@pytest.mark.parametrize("beams", [1, 3])
def test_nothing_that_is_edited_changes_nothing(beams):
    loaded = sound_models.listener()
    how = {"language": "en", "max_new_tokens": NEW, "beams": beams}
    plain = [*loaded.transcribe(heard(0.5), **how)]
    same = [*loaded.transcribe(heard(0.5), **how, edits=gf.scale("decoder.blocks.0.resid_mid", 1))]
    assert [one.tokens for one in same] == [one.tokens for one in plain] and plain


def test_what_cannot_be_edited_is_refused_before_anything_is_read():
    loaded = sound_models.listener()
    for edit, said in (
        (gf.zero("decoder.blocks.0.mixer.zz"), "no value named 'decoder.blocks.0.mixer.zz'"),
        (gf.zero("decoder.blocks.0.mixer.z", h=9), "h"),
        (gf.zero("decoder.blocks.0.mixer.z", b=0), "leave b out"),
        (gf.patch("encoder.embed.out", "없는.wav"), "없는.wav"),
    ):
        with pytest.raises(InputError, match=said):
            loaded.transcribe(heard(), edits=edit)


def test_what_another_sound_has_is_put_in(tmp_path):
    """By its file: all of the other sound's encoding gives what is written for the other sound."""
    loaded, data = sound_models.listener(), (sound_models.tone(0.24, 1500) * 32767).astype("<i2")
    other = sound_models.wav(tmp_path / "other.wav", (1, 1, 16_000, 16), data.tobytes())
    how = {"language": "en", "max_new_tokens": NEW}
    patched = gf.patch("encoder.norm.out", str(other))
    own, wanted, found = (
        [(one.silence, one.log_probability) for one in loaded.transcribe(sound, edits=edits, **how)]
        for sound, edits in ((heard(0.24), ()), (str(other), ()), (heard(0.24), patched))
    )
    assert found[0] == pytest.approx(wanted[0], rel=1e-5) and own[0] != pytest.approx(wanted[0], rel=1e-3)
