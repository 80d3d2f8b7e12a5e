"""What a training refuses or survives, and that a refused one changes nothing."""

import pytest
import torch
from safetensors.torch import load_file
from train_runs import a_run, contents, write_text

from glassformer.checkpoint import load_model, read_about
from glassformer.errors import GlassformerError, InputError, SettingError, UnsupportedError
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.nn.embed import EmbedSpec
from glassformer.nn.position import LearnedSpec
from glassformer.train import AdamWSpec, ScheduleSpec, fit
from glassformer.train import store as train_store
from glassformer.train.loop import Trainer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("corpus"))


def test_a_loss_that_is_no_number_says_to_lower_the_rate(text, tmp_path):
    run = a_run(text, optimizer=AdamWSpec(rate=1e30), clip=None, save_every=1, schedule=ScheduleSpec(warmup=0))
    with pytest.raises(
        GlassformerError, match=r"step \d+: .* lower the rate, for example --set optimizer\.rate=3\.3e\+29"
    ):
        list(fit(run, tmp_path))
    kept = load_file(tmp_path / "train" / "state.safetensors")
    assert all(torch.isfinite(value).all() for name, value in kept.items() if name.startswith("model."))


def test_texts_that_cannot_be_trained_on(text, tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        fit(a_run(tmp_path / "missing.txt"), tmp_path / "a")
    bad = tmp_path / "bad.txt"
    bad.write_bytes("고양이".encode("cp949") * 50)
    with pytest.raises(InputError, match="not UTF-8"):
        fit(a_run(bad), tmp_path / "b")
    short = tmp_path / "short.txt"
    short.write_text("the cat")
    with pytest.raises(InputError, match="too few for a window of block=16"):
        fit(a_run(short), tmp_path / "c")
    with pytest.raises(InputError, match=r"model\.vocab: 3 is less than the tokenizer's"):
        fit(a_run(text, model=a_run(text).model.changed(vocab=3)), tmp_path / "d")


def wide_mixer(text, **mixer):
    model = a_run(text).model
    return model.changed(blocks=(model.blocks[0].changed(mixer=AttentionSpec(**mixer)),))


REFUSED = {
    "no data": ({"data": "missing.txt"}, InputError, "there is no such file"),
    "another text": ({"data": "other.txt"}, SettingError, "data: .* another text"),
    "heads": ({"model": {"heads": 5}}, SettingError, r"^model\.blocks\.0\.mixer\.heads: "),
    "vocab": ({"model": {"vocab": 3}}, GlassformerError, r"model\.vocab"),
    "too short": ({"data": "short.txt"}, GlassformerError, "too few|another text"),
    "sees all": ({"model": {"mask": Mask(causal=False)}}, UnsupportedError, r"^model\.blocks\.0\.mixer: .* later"),
    "prefix": ({"model": {"mask": Mask(prefix=4)}}, UnsupportedError, r"^model\.blocks\.0\.mixer: .* later"),
    "headless": ({"model": {"head": None}}, SettingError, r"^model\.head: "),
    "prompt": ({"prompt": "ß"}, InputError, "^prompt: .*never saw 'ß'"),
}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_run_changes_nothing(text, tmp_path, name, fresh):
    changes, kind, message = REFUSED[name]
    (tmp_path / "other.txt").write_text(text.read_text() + " a tree")
    (tmp_path / "short.txt").write_text("the cat")
    changes = dict(changes)
    if "data" in changes:
        changes["data"] = str(tmp_path / changes["data"])
    if "model" in changes:
        mixer = {"heads": 2} | changes["model"]
        own = {key: mixer.pop(key) for key in ("head", "vocab") if key in mixer}
        changes["model"] = wide_mixer(text, **mixer).changed(**own)
    if fresh and name == "another text":
        pytest.skip("a fresh run may have another text")
    folder = tmp_path / "run"
    list(fit(a_run(text, steps=3), folder))
    before = contents(folder)
    with pytest.raises(kind, match=message):
        fit(a_run(text, **{"steps": 3} | changes), folder, fresh=fresh)
    assert contents(folder) == before
    if name != "another text":  # in a new folder there is no other
        with pytest.raises(GlassformerError):
            fit(a_run(text, **changes), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_fresh_leaves_nothing_of_the_older_run(text, tmp_path):
    list(fit(a_run(text, steps=3, snapshots=3), tmp_path / "run"))
    other = tmp_path / "other.txt"
    other.write_text("xyz" * 500)
    reports = fit(a_run(other, prompt="x", steps=2), tmp_path / "run", fresh=True)
    names = {str(path) for path in contents(tmp_path / "run")}
    kept = {"tokenizer.json", "train/run.json", "train/tokens/index.json"}
    assert {name for name in names if "tokens-" not in name} == kept
    assert [report.step for report in reports] == [1, 2]
    assert load_model(tmp_path / "run").spec.vocab == 4
    (tmp_path / "run" / "train" / "state.safetensors").unlink()
    with pytest.raises(InputError, match="holds a model, but no training to go on with; .* --fresh"):
        fit(a_run(other, prompt="x", steps=2), tmp_path / "run")


def test_samples_never_end_a_training(text, tmp_path):
    model = a_run(text).model
    wide = a_run(text, model=model.changed(vocab=500), sample_tokens=12, sample_every=1)
    assert all(report.sample for report in fit(wide, tmp_path / "wide"))
    default = a_run(text, prompt="\n", sample_every=1)  # no character of this text
    assert all(report.sample for report in fit(default, tmp_path / "default"))  # an end token drawn shows no text
    learned = model.changed(embed=EmbedSpec(position=LearnedSpec()))
    long = a_run(text, model=learned, prompt="the cat saw a dog and ran", sample_every=1)
    assert all(report.sample.startswith(" and ran") for report in fit(long, tmp_path / "long"))
    exact = a_run(text, model=learned, prompt="the cat saw a do", sample_every=1)
    assert all(report.sample.startswith("saw a do") for report in fit(exact, tmp_path / "exact"))


def test_a_checkpoint_is_written_before_the_sample(text, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "sample", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(fit(a_run(text, save_every=2, sample_every=2), tmp_path))
    assert train_store.read_facts(tmp_path / "train" / "state.safetensors").step == 2


def test_an_interrupted_last_evaluation_is_made_up_for(text, tmp_path, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "validate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(fit(a_run(text, evaluate_every=None), tmp_path))
    (last,) = fit(a_run(text, evaluate_every=None), tmp_path)
    assert last.step == 12 and last.validation is not None and last.saved
    assert read_about(tmp_path)["validation_loss"] == pytest.approx(last.validation)
