"""A model of sound: its spectrogram is that of a tone, and what holds of every model holds of it."""

import pytest
import torch
from sound_models import built, spec, tone
from torch.utils.flop_counter import FlopCounterMode

from glassformer.api import load
from glassformer.checkpoint import save_model
from glassformer.edit import scale, zero
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.explain.cost import cost
from glassformer.explain.influence import influence
from glassformer.model import AnySpec, Model, build_model, without_memory
from glassformer.nn.position import LearnedSpec
from glassformer.nn.sound import Sound, SoundSpec, mel_filters
from glassformer.spec import from_json, to_json
from glassformer.stored import StoredTrace
from glassformer.trace import Trace

SOUND = torch.tensor(tone(0.2, 600), dtype=torch.float32)[None]
TARGET = torch.tensor([[3, 1, 4, 1]])


def test_the_bands_have_equal_areas_and_one_peak_each():
    filters = mel_filters(SoundSpec())
    assert filters.shape == (80, 201) and filters.min() == 0
    wide = filters[40:]  # of several lines each, so that their sum is close to the area under the triangle
    torch.testing.assert_close(wide.sum(1) * 40, torch.ones(40), atol=0.12, rtol=0)
    assert bool((filters.argmax(1).diff() >= 0).all())


def test_a_tone_is_loudest_in_its_own_band():
    """3 mel a 200 Hz up to 1,000 Hz: 600 Hz are 9 of the 45.2 up to 8,000, and 80 bands lie between 81 gaps."""
    sound = Sound(SoundSpec(), 16, 10)
    mel = sound.mel(SOUND)[0]  # c w
    assert mel.shape == (80, 20)
    assert set(mel[:, 3:-3].argmax(0).tolist()) == {round(9 / (45.2455 / 81)) - 1}
    assert mel.max() - mel.min() <= 2.0 + 1e-6  # 80 dB are two units of (log10 + 4) / 4
    louder = sound.mel(SOUND * 10)[0]
    torch.testing.assert_close(louder - mel, torch.full_like(mel, 0.5), atol=2e-3, rtol=0)


def test_a_short_sound_is_filled_up_with_silence():
    model = built()
    filled = torch.cat((SOUND, torch.zeros(1, 640)), 1)
    assert torch.equal(model(SOUND, TARGET), model(filled, TARGET))
    mel = model.encoder.embed.mel(SOUND)
    assert torch.equal(model(SOUND, TARGET), model(mel, TARGET))


def test_a_batch_gives_what_single_sounds_give_and_rows_have_a_scale_of_their_own():
    model = built()
    sounds = torch.cat((SOUND, 0.01 * SOUND.flip(1) + 0.001))
    both = model(sounds, TARGET.expand(2, -1))
    for i in range(2):
        torch.testing.assert_close(both[i : i + 1], model(sounds[i : i + 1], TARGET))
    assert (both[0] - both[1]).abs().max() > 0.01


def test_steps_give_what_the_whole_gives():
    model = built()
    state = model.empty(SOUND, 4)
    parts = []
    for token in TARGET[0]:
        logits, state = model.step(token[None, None], state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), model(SOUND, TARGET))


@pytest.mark.parametrize("position", [{}, {"position": None}, {"position": LearnedSpec()}])
def test_a_trace_holds_every_value_by_its_name(position, tmp_path):
    model = built(spec(**position))
    trace = Trace(model, (SOUND, TARGET))
    torch.testing.assert_close(trace.logits, model(SOUND, TARGET))
    names = [name for name in trace.names() if name.startswith("encoder.embed.")]
    inside = ["mel", "first", "second", *(["position"] if position != {"position": None} else []), "out"]
    assert names == [f"encoder.embed.{name}" for name in inside]
    for name in names:
        assert [size for _, size in trace.sizes(name)] == list(trace[name].shape)
        assert trace.card(name).ko and trace.card(name).formula
    assert trace.labels("w", "encoder.embed.mel")[:3] == ["0.00", "0.01", "0.02"]
    assert trace.labels("t", "encoder.embed.out")[:3] == ["0.00", "0.02", "0.04"]
    assert trace.labels("s", "decoder.blocks.1.cross.pattern")[-1] == "0.22"
    assert trace["decoder.blocks.1.cross.pattern"].shape == (1, 2, 4, 12)
    assert max(trace.difference().values()) < 1e-6
    trace.save(tmp_path / "a.safetensors")
    stored = StoredTrace(tmp_path / "a.safetensors")
    assert torch.equal(stored["encoder.embed.mel"], trace["encoder.embed.mel"])
    assert stored.labels("w", "encoder.embed.mel")[-1] == "0.23"


def test_an_edit_of_the_spectrogram_acts():
    model, mel = built(), "encoder.embed.mel"
    louder = Trace(model, (SOUND, TARGET), edits=scale(mel, 1.5, w=range(4, 8))).logits
    changed = model.encoder.embed.mel(SOUND)
    changed[:, :, 4:8] *= 1.5
    torch.testing.assert_close(louder, model(changed, TARGET))
    silent = Trace(model, (SOUND, TARGET), edits=zero("encoder.embed.first")).logits
    assert (silent - louder).abs().max() > 0.01


def test_influence_tells_which_frames_moved_a_word():
    """Against a difference quotient; the norm is over the bands of a frame and all numbers of the output."""
    model = built().double()
    found = influence(model, (SOUND.double(), TARGET), of="source", rows=[2], method="exact")
    assert found.norms.shape == (1, 24)
    mel = model.encoder.embed.mel(SOUND.double())

    def out(given):
        trace = Trace(model, (given, TARGET))
        return trace["decoder.norm.out"][0, 2]

    squares = 0.0
    for band in range(8):
        moved = mel.clone()
        moved[0, band, 5] += 1e-6
        squares += ((out(moved) - out(mel)) / 1e-6).square().sum().item()
    assert found.norms[0, 5].item() == pytest.approx(squares**0.5, rel=1e-4)
    assert influence(model, (SOUND.double(), TARGET), rows=[2]).norms.shape == (1, 4)


def test_flops_are_those_that_pytorch_counts():
    model = build_model(spec())
    with FlopCounterMode(display=False) as counter:
        Trace(model.eval(), (SOUND, TARGET))  # the fused path counts attention
    with FlopCounterMode(display=False) as embed:
        model.encoder.embed(SOUND, model.encoder.call(SOUND))
    assert embed.get_total_flops() == model.encoder.embed.flops(12)
    assert cost(model.spec, 4, 12).parameters == sum(p.numel() for p in model.parameters())
    assert counter.get_total_flops() > embed.get_total_flops()


def test_it_is_saved_and_read_back_equal(tmp_path):
    model = built()
    assert from_json(to_json(model.spec), AnySpec) == model.spec
    save_model(model, tmp_path)
    again = load(tmp_path).model
    assert torch.equal(again(SOUND, TARGET), model(SOUND, TARGET))
    assert [name for name, _ in without_memory(model.spec).named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    narrow = load(tmp_path, dtype="bfloat16").model
    torch.testing.assert_close(narrow(SOUND, TARGET).float(), model(SOUND, TARGET), atol=0.5, rtol=0)


def test_one_graph_is_compiled():
    model = built()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(SOUND, TARGET), model(SOUND, TARGET))


def test_what_it_cannot_read_is_refused():
    model = built()
    for given in (TARGET, SOUND[0], torch.zeros(1, 0), torch.zeros(1, 7, 4), [0.0]):
        with pytest.raises(InputError, match="this model reads sound: give samples"):
            model(given, TARGET)
    with pytest.raises(InputError, match="longer than the 0.24 seconds"):
        model(torch.zeros(1, 3841), TARGET)
    with pytest.raises(InputError, match="longer than the 0.24 seconds"):
        model(torch.zeros(1, 8, 25), TARGET)
    with pytest.raises(InputError, match="pos and segments: a sound"):
        model(SOUND, TARGET, source_pos=torch.zeros(1, 12, dtype=torch.long))
    with pytest.raises(UnsupportedError, match="reads a whole sound at once"):
        model.encoder.empty(1, 4)


def test_settings_that_mean_nothing_are_refused():
    encoder = spec().encoder
    for change, message in (
        ({"vocab": 3}, "vocab: 3 is not allowed"),
        ({"head": {"kind": "head", "tied": False}}, "head: a stack that reads sound"),
        ({"embed": {"kind": "sound", "position": {"kind": "learned", "offset": 2}}}, "position.offset: 2"),
    ):
        with pytest.raises(SettingError, match=message):
            encoder.changed(**change)
    assert not Model(encoder).causal
