"""Speech to text: the prompt, what may not be written, times, languages, windows, and every view of it."""

import json
import re

import numpy as np
import pytest
import torch
from cli_runs import refused, run
from sound_models import NAMES, listener, tone, wav

import glassformer as gf
from glassformer.api import Loaded
from glassformer.data.speech import speech_of
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.generate.beams import Beam
from glassformer.generate.transcription import Listener, Segment, TranscribeSpec
from glassformer.terminal.hearing import show_segments

SOUND = tone(0.2, 600)
END, START, EN, KO, TRANSLATE, TRANSCRIBE, SILENCE, UNTIMED = range(256, 264)
ZERO = UNTIMED + 1


def texts(segments) -> list[str]:
    return [segment.text for segment in segments]


def test_the_tokens_are_found_by_their_names():
    speech = speech_of(listener().tokenizer, [3], [4, 5])
    assert speech.languages == {"en": EN, "ko": KO}
    assert (speech.start, speech.end, speech.untimed, speech.silence) == (START, END, UNTIMED, SILENCE)
    assert (speech.transcribe, speech.translate) == (TRANSCRIBE, TRANSLATE) and len(NAMES) == 8
    with pytest.raises(UnsupportedError, match=r"no '<\|startoftranscript\|>'"):
        speech_of(gf.load().tokenizer, (), ())


def by_hand(loaded, begin: list[int], banned: set[int], first: set[int], count: int = 8) -> list[int]:
    """The most probable allowed token each time, the whole run anew for every one."""
    made = []
    while len(made) < count:
        sound = torch.tensor(SOUND, dtype=torch.float32)[None]
        logits = loaded.model(sound, torch.tensor([[*begin, *made]]))[0, -1].detach()
        logits[list(banned | (set() if made else first))] = -torch.inf
        token = int(logits.argmax())
        if token == END:
            break
        made.append(token)
    return made


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_text_is_the_most_probable_one_that_is_allowed(seed):
    others = {*range(128, 256), SILENCE, EN, KO, START, TRANSCRIBE, TRANSLATE, UNTIMED, *range(ZERO, ZERO + 13)}
    plain = by_hand(listener(seed), [START, KO, TRANSLATE, UNTIMED], others, {END})
    banned, first = others | {plain[2]}, {plain[0], END}
    beyond = 50_257  # which no model writes
    loaded = listener(seed, (*banned, beyond), (*first, beyond))
    wanted = by_hand(loaded, [START, KO, TRANSLATE, UNTIMED], banned, first)
    assert wanted != plain
    [found] = loaded.transcribe(SOUND, language="ko", task="translate", max_new_tokens=8)
    assert list(found.tokens) == wanted and found.text == bytes(wanted).decode()
    assert (found.start, found.end, found.language) == (0.0, 0.2, "ko")


def test_more_beams_find_a_text_that_is_at_least_as_probable():
    loaded = listener(1, tuple(range(128, 256)))
    one, five = (next(loaded.transcribe(SOUND, language="en", beams=beams, max_new_tokens=6)) for beams in (1, 5))
    assert five.log_probability >= one.log_probability and five.tokens != one.tokens


def test_the_language_is_the_most_probable_of_those_that_there_are():
    loaded = listener(3)
    sound = torch.tensor(SOUND, dtype=torch.float32)[None]
    logits = loaded.model(sound, torch.tensor([[START]]))[0, 0, [EN, KO]]
    wanted = dict(zip(("en", "ko"), logits.softmax(0).tolist(), strict=True))
    found = loaded.languages(SOUND)
    assert found == pytest.approx(wanted) and list(found) == sorted(wanted, key=wanted.get, reverse=True)
    best = max(wanted, key=wanted.get)
    plain, told = (next(loaded.transcribe(SOUND, language=code, max_new_tokens=4)) for code in (None, best))
    assert plain == told and plain.language == best


def test_a_long_sound_is_read_in_windows():
    """Without times each window is by itself; a short rest is filled up with silence."""
    loaded = listener(0, tuple(range(128, 256)))
    long = np.concatenate((SOUND, tone(0.04, 900), tone(0.1, 500)))
    found = list(loaded.transcribe(long, language="en", timestamps=False, max_new_tokens=5))
    parts = [long[:3840], long[3840:]]
    apart = [next(loaded.transcribe(part, language="en", max_new_tokens=5)) for part in parts]
    assert texts(found) == texts(apart) and len(found) == 2
    assert [(one.start, one.end) for one in found] == [(0.0, 0.24), (0.24, pytest.approx(0.34))]


BOTH, BEGUN = (True, True), (True, False)


@pytest.mark.parametrize(
    ("ids", "timed", "more", "pieces", "after"),
    [
        ([65, 66], False, True, [(0, 3840, [65, 66], (False, False))], 3840),
        ([ZERO, 65, ZERO + 5], True, True, [(0, 1600, [65], BOTH)], 3840),
        ([ZERO, 65, ZERO + 5, ZERO + 6, 66], True, True, [(0, 1600, [65], BOTH)], 1920),
        ([ZERO, 65, ZERO + 5, ZERO + 6, 66], True, False, [(0, 1600, [65], BOTH), (1920, 3840, [66], BEGUN)], 3840),
        ([ZERO, 65, ZERO + 5, ZERO + 5], True, True, [(0, 1600, [65], BOTH)], 1600),
        ([ZERO, 65, ZERO, ZERO, 66], True, True, [(0, 0, [65], BOTH), (0, 3840, [66], BEGUN)], 3840),
        ([ZERO + 1, 65], True, True, [(320, 3840, [65], BEGUN)], 3840),
        ([ZERO, ZERO + 3, 65, ZERO + 12], True, True, [(960, 3840, [65], BOTH)], 3840),
        ([], True, True, [], 3840),
    ],
)
def test_phrases_and_where_the_next_window_begins(ids, timed, more, pieces, after):
    """One tick is 320 samples, a window 3,840. The next one begins where a phrase was cut off, and always later."""
    one = listener()._listener()
    assert one._pieces(ids, 0, 3840, timed, more) == (pieces, after)
    moved = [(start + 7, end + 7, *others) for start, end, *others in pieces]
    assert one._pieces(ids, 7, 3840, timed, more) == (moved, after + 7)


def test_times_come_first_and_in_pairs_and_never_go_back():
    loaded = listener(2, tuple(range(128, 256)))
    one, spec = loaded._listener(), TranscribeSpec(language="en", timestamps=True)
    memory = one.hear(torch.tensor(SOUND, dtype=torch.float32))
    best, _ = one.written(memory, one.prompt(spec), spec, 9)
    times = [id for id in best.ids if id >= ZERO]
    assert best.ids[0] >= ZERO and times == sorted(times) and UNTIMED not in best.ids
    long = np.concatenate([SOUND] * 4)
    found = list(loaded.transcribe(long, language="en", max_new_tokens=9))
    assert found and all(0 <= one.start <= one.end <= 0.8 for one in found)
    assert "<|" not in "".join(texts(found))


@pytest.mark.parametrize(("silence", "each", "shown"), [(0.7, -2.0, 0), (0.5, -2.0, 1), (0.7, -0.5, 1)])
def test_silence_is_not_written_down(silence, each, shown, monkeypatch):
    """Where the model says that nobody speaks, and is not sure of its words."""
    best = Beam((65, 66), (each,) * 3, 3 * each, each, END)
    monkeypatch.setattr(Listener, "written", lambda self, *given: (best, silence))
    found = list(listener().transcribe(SOUND, language="en"))
    assert len(found) == shown
    assert not found or (found[0].log_probability, found[0].silence) == (pytest.approx(each), silence)


def test_the_probability_of_silence_is_that_behind_the_start():
    loaded = listener(4)
    sound = torch.tensor(SOUND, dtype=torch.float32)[None]
    wanted = loaded.model(sound, torch.tensor([[START]]))[0, 0].softmax(0)[SILENCE].item()
    one = loaded._listener()
    found = one._read(one.hear(sound[0]), [START, EN, TRANSCRIBE, UNTIMED], 1)[2]
    assert found == pytest.approx(wanted, rel=1e-4)


def test_a_rate_is_brought_to_the_models_and_files_are_read(tmp_path):
    loaded = listener(0, tuple(range(128, 256)))
    path = wav(tmp_path / "a.wav", (3, 1, 16_000, 32), SOUND.astype("<f4").tobytes())
    how = {"language": "en", "max_new_tokens": 5}
    assert list(loaded.transcribe(path, **how)) == list(loaded.transcribe(str(path), **how))
    assert texts(loaded.transcribe(path, **how)) == texts(loaded.transcribe(SOUND.astype(np.float32), **how))
    fast = tone(0.2, 600, 48_000)
    assert next(loaded.transcribe(fast, rate=48_000, **how)).end == pytest.approx(0.2)


def test_mistakes_say_what_to_do():
    loaded = listener()
    for settings, message in (
        ({"language": "kr"}, "language: 'kr' is not known to this model; allowed: en, ko"),
        ({"task": "sing"}, "task: "),
        ({"max_new_tokens": 13}, "max_new_tokens: 13 is not allowed; use at most 12"),
        ({"rate": 3}, "rate: 3 is not allowed"),
        ({"beams": 0}, "beams: 0"),
    ):
        with pytest.raises((InputError, SettingError), match=message):
            loaded.transcribe(SOUND, **settings)
    with pytest.raises(InputError, match="there are 2 sounds, or channels"):
        loaded.transcribe(np.stack((SOUND, SOUND)))
    with pytest.raises(UnsupportedError, match="reads no sound"):
        gf.load().transcribe(SOUND)
    with pytest.raises(InputError, match="no tokenizer"):
        Loaded(loaded.model).transcribe(SOUND)
    english = Loaded(loaded.model, loaded.tokenizer, about={"speech": loaded.about["speech"] | {"languages": {}}})
    with pytest.raises(InputError, match="this model knows English alone"):
        english.transcribe(SOUND, task="translate")
    assert next(english.transcribe(SOUND, max_new_tokens=3)).language == "en"
    broken = Loaded(loaded.model, loaded.tokenizer, about={"speech": loaded.about["speech"] | {"end": 999}})
    with pytest.raises(InputError, match="speech: token id 999 is outside"):
        broken.transcribe(SOUND)
    for given, message in (
        ((SOUND, object()), "a text, or token ids"),
        ((SOUND, [[1], [2]]), "1 sources and 2 targets"),
    ):
        with pytest.raises(InputError, match=message):
            loaded.trace(given)


# ---------------------------------------------------------------- what is seen of it


def test_a_trace_of_speech_is_that_of_what_the_model_writes(tmp_path):
    loaded = listener(0, tuple(range(128, 256)))
    trace = loaded.trace(SOUND)
    assert loaded.reads == "sound" and trace.source_text == "0.20 s"
    ids = trace.stacks[1].tokens[0].tolist()
    assert ids[0] == START and ids[3] == UNTIMED
    [segment] = loaded.transcribe(SOUND)
    assert ids[4:] == list(segment.tokens)
    assert loaded.trace((SOUND, segment.text)).stacks[1].tokens[0].tolist() == ids
    assert torch.equal(loaded((SOUND, segment.text)), trace.logits)
    moments = trace.source_cells()
    assert [one.text for one in moments] == ["0.0", "0.1", "…"] and [len(one.tokens) for one in moments] == [5, 5, 2]
    aligned = trace.alignment(layer=1, head=1)
    pattern = trace["decoder.blocks.1.cross.pattern"][0, 1, :-1]
    wanted = torch.stack([pattern[:, :5].sum(1), pattern[:, 5:10].sum(1), pattern[:, 10:].sum(1)], 1)
    torch.testing.assert_close(torch.tensor(aligned.weights, dtype=torch.float32), wanted)
    folder = tmp_path / "kept"
    loaded.save(folder)
    assert list(gf.load(folder).transcribe(SOUND)) == [segment]


def test_a_spectrogram_is_worked_out_before_numbers_are_narrowed(tmp_path):
    listener(0).save(tmp_path / "m")
    wide, narrow = (gf.load(tmp_path / "m", dtype=dtype) for dtype in ("float32", "bfloat16"))
    mel, name = wide.trace((SOUND, [START]))["encoder.embed.mel"], "encoder.embed.mel"
    assert torch.equal(narrow.trace((SOUND, [START]))[name], mel.bfloat16())
    assert gf.load(tmp_path / "m", dtype="float64").trace((SOUND, [START]))[name].dtype == torch.float64
    assert next(narrow.transcribe(SOUND, max_new_tokens=4)).text


def test_which_frames_moved_a_word():
    loaded = listener(0, tuple(range(128, 256)))
    trace = loaded.trace(SOUND)
    found = trace.moved("#5", by="token", of="source", method="exact")
    norms = trace.influence(rows=[4], of="source", method="exact").norms[0]
    assert [row.label for row in found.rows] == ["0.0", "0.1", "…"]
    assert [row.norm for row in found.rows] == pytest.approx(
        [norms[part].norm().item() for part in (slice(0, 10), slice(10, 20), slice(20, 24))]
    )
    weighed = trace.moved("#5", by="token", of="source", what="weights", layer=0, head=0)
    pattern = trace["decoder.blocks.0.cross.pattern"][0, 0, 4]
    assert weighed.rows[0].norm == pytest.approx(pattern[:5].sum().item(), rel=1e-5)
    sheet = trace.sheet("#5", by="token", of="source")
    assert sheet.of == "source" and [row.label for row in sheet.rows] == ["0.0", "0.1", "…"]
    assert sum(row.weight for row in sheet.rows) == pytest.approx(1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A speech model's folder and a WAV file."""
    place = tmp_path_factory.mktemp("speech")
    listener(0, tuple(range(128, 256))).save(place / "model")
    data = np.round(SOUND * 2**15).astype("<i2").tobytes()
    return str(place / "model"), str(wav(place / "a.wav", (1, 1, 16_000, 16), data))


@pytest.mark.usefixtures("english_locale")
def test_the_command_line_writes_down_what_is_spoken(capsys, kept):
    model, sound = kept
    [segment] = gf.load(model).transcribe(sound, language="ko")
    status, out, aside = run(capsys, "transcribe", sound, "-m", model, "--spoken", "ko", "--json")
    assert status == 0 and json.loads(out)["tokens"] == list(segment.tokens)
    status, out, aside = run(capsys, "transcribe", sound, "-m", model, "--spoken", "ko")
    assert status == 0 and out == f"{segment.text.strip()}\n" and aside == "Language: ko\n"
    status, out, aside = run(capsys, "transcribe", sound, "-m", model, "--spoken", "ko", "--lang", "ko")
    assert aside == "언어: ko\n"
    status, out, aside = run(capsys, "transcribe", sound, "-m", model, "--times", "--beams", "2")
    assert status == 0 and out.startswith("[00:00.0")


def test_a_time_that_the_model_did_not_write_is_not_shown(capsys):
    """Of a window that ended before a phrase's end was written, and of one without times."""
    for timed, shown in ((BOTH, "[00:01.00 – 00:02.00] a"), (BEGUN, "[00:01.00 – …] a"), ((False, False), "a")):
        show_segments([Segment(1.0, 2.0, " a", (65,), "en", 0.0, 0.0, timed)], "en")
        assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.usefixtures("english_locale")
def test_a_language_that_the_model_does_not_know_is_an_options_mistake(capsys, kept):
    model, sound = kept
    line = refused(capsys, "transcribe", sound, "-m", model, "--spoken", "xx")
    assert line.startswith("glassformer: --spoken: 'xx' is not known to this model; allowed: en, ko")


@pytest.mark.usefixtures("english_locale")
def test_without_times_the_text_alone_is_printed(capsys, kept):
    model, sound = kept
    _, plain, _ = run(capsys, "transcribe", sound, "-m", model, "--spoken", "ko", "--no-times")
    assert plain.strip() and not plain.startswith("[")


@pytest.mark.usefixtures("english_locale")
def test_the_other_verbs_take_a_sound_too(capsys, kept):
    model, sound = kept
    status, out, _ = run(capsys, "trace", sound, "-m", model)
    assert status == 0 and "0.20 s →" in out and "…" in out
    status, out, _ = run(capsys, "influence", sound, "-m", model, "--token", "#5")
    assert status == 0 and "0.1" in out
    status, out, _ = run(capsys, "models", model)
    assert status == 0
    for arguments, message in (
        (["transcribe", sound], "-m: no speech model is shipped"),
        (["transcribe", sound, "-m", "small"], "small: this model reads text, not sound"),
        (["transcribe", "none.wav", "-m", model], "none.wav: there is no such file"),
        (["generate", "a", "-m", model], "model: this model reads sound, not text"),
        (["transcribe", sound, "-m", model, "--spoken", "xx"], "--spoken: 'xx' is not known"),
    ):
        status, _, aside = run(capsys, *arguments)
        assert status == 2 and message in aside, aside
        status, _, aside = run(capsys, *arguments, "--lang", "ko")
        assert status == 2 and re.search("니다|십시오", aside)
