"""The film of a training: the weights that were kept, and what each makes of the same text."""

import pytest
from train_runs import a_run, write_text

import glassformer as gf
from glassformer.checkpoint import load_model
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.explain.explained import available
from glassformer.explain.explanation import HeatMap


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("film")
    reports = list(gf.fit(a_run(write_text(folder), snapshots=4), folder / "run"))
    return folder / "run", reports


def table(one):
    return [list(row) for row in one.figure("snapshots").rows]


def test_every_kept_step_is_a_frame_with_its_loss(trained):
    folder, reports = trained
    run = gf.load(folder).trace("the cat saw")
    one = gf.explain("film", run)
    steps = sorted(int(path.name) for path in (folder / "train" / "snapshots").iterdir())
    assert [row[0] for row in table(one)] == steps and steps[0] == 0 and steps[-1] == 12 and len(steps) == 4
    assert [row[3] for row in table(one)] == [0, 0, 0, 1]
    assert table(one)[0][1] is None and table(one)[-1][1] == pytest.approx(reports[-1].loss, rel=1e-4)
    assert table(one)[-1][2] == pytest.approx(reports[-1].watched or reports[-1].validation, rel=1e-4)
    loss = one.figure("loss")
    assert [int(x) for x in loss.x] == [report.step for report in reports]
    assert loss.lines[0].values == pytest.approx([report.loss for report in reports], rel=1e-4)


def test_a_frame_shows_what_those_weights_make_of_the_text(trained):
    folder, _ = trained
    model = gf.load(folder)
    run = model.trace("the cat saw")
    first = gf.explain("film", run, step=0, show="weights", how="layer=0&head=1")
    other = type(model)(load_model(folder / "train" / "snapshots" / "0000000"), model.tokenizer, "other")
    pattern = other.trace("the cat saw")["blocks.0.mixer.pattern"][0, 1]
    found = first.figure("weights")
    assert isinstance(found, HeatMap)
    for t, row in enumerate(found.values):
        assert row[: t + 1] == pytest.approx(pattern[t, : t + 1].tolist(), rel=1e-5)
    last = gf.explain("film", run, show="weights", how="layer=0&head=1").figure("weights")
    assert last.values != found.values and [row[3] for row in table(first)] == [1, 0, 0, 0]


def test_a_frame_for_which_there_is_no_room_is_refused_with_the_sizes(trained, monkeypatch):
    """Its weights stand in memory beside those of the model that is looked at."""
    run = gf.load(trained[0]).trace("the cat saw")
    need = sum(p.numel() for p in run.loaded.model.parameters()) * 4
    monkeypatch.setattr("glassformer.machine.free_bytes", lambda device: need - 1)
    monkeypatch.setattr("glassformer.explain.kinds.film.load_model", lambda *given: pytest.fail("it was loaded"))
    with pytest.raises(
        InputError, match=r"0000000: the weights need [\d.]+ KiB of memory, and [\d.]+ KiB are free; cl"
    ):
        gf.explain("film", run, step=0, show="weights")
    assert gf.explain("film", run, step=0).figure("loss"), "without a frame nothing is loaded"


def test_what_is_refused(trained):
    run = gf.load(trained[0]).trace("the cat saw")
    with pytest.raises(InputError, match="no snapshot of step 5 was kept; there are: 0, 1, 3, 12"):
        gf.explain("film", run, step=5)
    with pytest.raises(InputError, match="a film shows no film"):
        gf.explain("film", run, show="film")
    with pytest.raises(InputError, match="there is no explanation 'flom'"):
        gf.explain("film", run, show="flom")
    with pytest.raises(UnsupportedError, match="does not apply"):
        gf.explain("film", gf.load("transformer").trace("the cat"))
    assert "film" in dict(available(run)) and "film" not in dict(available(gf.load("transformer").trace("the cat")))
    for key in ("name", "given", "text", "report", "trace", "show"):  # of an address: never what a function takes
        with pytest.raises(SettingError, match=f"{key}: unknown setting '{key}'; "):
            gf.explain("film", run, show="weights", how=f"{key}=x")
