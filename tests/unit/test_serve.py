"""The explorer's server: what it answers, by the numbers that Python gives."""

import base64
import json
import shlex
import struct
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load as read_values
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.cli import main
from glassformer.page.documents import PageEdit
from glassformer.serve import models as models_module
from glassformer.serve import runs as kept_runs
from glassformer.serve.answers import TooLargeError
from glassformer.serve.app import application
from glassformer.serve.edits import edits_of
from glassformer.serve.models import Models
from glassformer.serve.runs import Runs

TEXT = "고양이가 생선을 먹었다"
OWN = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def client():
    with TestClient(application(), base_url=OWN, raise_server_exceptions=False) as made:
        yield made


def lines(response):
    """The lines of a streamed answer."""
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def outcome(response):
    """What a streamed answer ends in."""
    return lines(response)[-1]["done"]


def run_of(client, **asked):
    return outcome(client.post("/api/runs", json={"model": "small", "text": TEXT, **asked}))


def value_of(client, run, name, **where):
    found = client.get(f"/api/runs/{run['id']}/values", params={"name": name, **where})
    assert found.status_code == 200, found.text
    return read_values(found.content)[name]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("blocks.0.mixer.pattern", {}),
        ("blocks.1.mixer.pattern", {"b": 0, "h": 2}),
        ("blocks.2.mixer.scores", {"b": 0, "h": [1, 3], "t": -1}),
        ("blocks.3.resid_out", {"b": 0, "t": 2}),
        ("head.logits", {"b": 0, "t": [0, 1]}),
        ("embed.out", {}),
    ],
)
def test_a_value_is_what_the_trace_gives(client, name, where):
    given = {axis: ",".join(map(str, at)) if isinstance(at, list) else at for axis, at in where.items()}
    wanted = gf.load("small").trace(TEXT).part(name, **where)
    assert torch.equal(value_of(client, run_of(client), name, **given), wanted)


def test_several_values_come_in_one_answer(client, monkeypatch):
    run, trace = run_of(client), gf.load("small").trace(TEXT)
    asked = [
        {"name": "blocks.1.mixer.pattern", "where": {"b": 0, "h": 2, "t": [3, 1]}},
        {"name": "blocks.3.resid_out", "where": {"b": 0, "t": 2}},
        {"name": "blocks.3.resid_out", "where": {"b": 0, "t": -1}},
        {"name": "embed.out"},
    ]

    def sent(asked):
        return client.post(f"/api/runs/{run['id']}/values", json=asked)

    found = read_values(sent(asked).content)
    assert sorted(found) == ["0", "1", "2", "3"]
    for i, one in enumerate(asked):
        assert torch.equal(found[str(i)], trace.part(one["name"], **one.get("where", {})))
    for wrong, status, said in (
        ([asked[0], {"name": "none"}], 400, "none"),
        ([{"name": "embed.out", "where": {"t": 99}}], 400, "axis 't' has no index 99"),
        ([{"name": "embed.out", "at": {}}], 400, "cannot be read"),
        (asked * 17, 413, "68 values and the page takes 64"),
    ):
        refused = sent(wrong)
        assert refused.status_code == status and said in refused.json()["refused"]
    assert client.post("/api/runs/none/values", json=asked).status_code == 410
    monkeypatch.setattr("glassformer.serve.runs.VALUE_BYTES", 4 * (found["0"].numel() + found["1"].numel()))
    assert sent(asked[:2]).status_code == 200
    refused = sent(asked[:3])
    assert refused.status_code == 413 and "blocks.3.resid_out" in refused.json()["refused"], "all of them together"


def test_edits_change_the_run_as_in_python(client):
    run = run_of(client, edits=[{"kind": "zero", "name": "blocks.1.mixer.z", "where": {"h": 2}, "value": None}])
    trace = gf.load("small").trace(TEXT, edits=gf.zero("blocks.1.mixer.z", h=2))
    assert torch.equal(value_of(client, run, "head.logits"), trace.logits)
    assert not torch.equal(trace.logits, gf.load("small").trace(TEXT).logits)


PATCHED = "개가 생선을 먹었다"
CHANGES = {  # as the page asks, and as Python makes the same
    "an edge": (
        {"kind": "cut", "name": "blocks.1.mixer", "where": {"t": 4, "s": 2}},
        gf.cut("blocks.1.mixer", t=4, s=2),
    ),
    "an edge of one head, the rest as it was": (
        {"kind": "cut", "name": "blocks.1.mixer", "where": {"t": 4, "s": 2, "h": 1}, "renormalise": False},
        gf.cut("blocks.1.mixer", t=4, s=2, h=1, renormalise=False),
    ),
    "drawn anew": (
        {"kind": "resample", "name": "blocks.0.mixer.z", "where": {"h": 2}, "seed": 5},
        gf.resample("blocks.0.mixer.z", seed=5, h=2),
    ),
    "another run": (
        {"kind": "patch", "name": "blocks.2.resid_out", "where": {"t": 1}, "run": PATCHED, "there": {"t": 2}},
        gf.patch("blocks.2.resid_out", PATCHED, t=1, there={"t": 2}),
    ),
    "a number": (
        {"kind": "replace", "name": "blocks.0.mixer.out", "value": 0.5},
        gf.replace("blocks.0.mixer.out", 0.5),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_made_again_by_what_the_page_offers(client, capsys, change):
    """Over HTTP as in Python, by the Python lines and by the command; and the address has it whole."""
    asked, edit = CHANGES[change]
    run, trace = run_of(client, edits=[asked]), gf.load("small").trace(TEXT, edits=edit)
    assert torch.equal(value_of(client, run, "head.logits"), trace.logits)
    assert not torch.equal(trace.logits, gf.load("small").trace(TEXT).logits)
    assert run["changes"] == [edit.line] and asked.items() <= run["edits"][0].items()
    again = run_of(client, edits=run["edits"])
    assert again["edits"] == run["edits"] and torch.equal(value_of(client, again, "head.logits"), trace.logits)
    made: dict = {}
    exec("\n".join(run["python"]), made)
    assert torch.equal(made["trace"].logits, trace.logits)
    found = outcome(client.get(f"/api/runs/{run['id']}/explanations/effect", params={"token": 5}))
    table, *_ = found["figures"]
    shown = [(row[0], row[3]) for row in table["rows"]]
    after = trace.logits[0, 5].double().softmax(-1)
    assert shown == [pytest.approx((i, after[i].item()), rel=1e-5) for i, _ in shown]
    assert found["checks"][0]["value"] > 0 and table["columns"][4]["en"] == "control"
    capsys.readouterr()
    assert main([*shlex.split(found["command"])[1:], "--json"]) == 0
    printed = {one["token"]: one["probability"] for one in json.loads(capsys.readouterr().out)["next"]}
    both = printed.keys() & dict(shown).keys()
    assert len(both) >= 5 and {i: printed[i] for i in both} == pytest.approx(
        {i: dict(shown)[i] for i in both}, rel=1e-5
    )


def test_what_is_frozen_mixes_as_the_other_text_does(client):
    """A run under the pattern of another text as long: each layer's pattern is that one's."""
    model = gf.load("small")
    other = model.trace("고양이는 생선을 먹었다")
    edits = [{"kind": "patch", "name": one.name, "run": other.text} for one in gf.freeze(other)]
    run = run_of(client, edits=edits)
    for one in edits:
        assert torch.equal(value_of(client, run, one["name"]), other[one["name"]])
    wanted = model.trace(TEXT, edits=gf.freeze(other)).logits
    assert torch.equal(value_of(client, run, "head.logits"), wanted)


def test_values_of_other_runs_have_a_limit_and_none_come_from_a_file(client, tmp_path):
    asked = {"kind": "patch", "name": "blocks.0.mixer.pattern", "run": TEXT}
    trace = gf.load("small").trace(TEXT)
    size = trace["blocks.0.mixer.pattern"].numel() * 4
    page = [PageEdit(**asked)] * 3
    assert len(edits_of(page, gf.load("small").trace, 3 * size)) == 3
    with pytest.raises(TooLargeError, match="put in fewer values"):
        edits_of(page, gf.load("small").trace, 3 * size - 1)
    picture = tmp_path / "secret.pgm"
    picture.write_text("P2 1 1 255 0")
    image = base64.b64encode(b"P5 28 28 255\n" + bytes(784)).decode()
    edits = [{"kind": "patch", "name": "embed.out", "run": str(picture)}]
    body = {"model": "vit", "image": image, "edits": edits}
    told = lines(client.post("/api/runs", json=body))[-1]
    assert told["status"] == 400 and "leave patch out" in told["refused"]


def test_a_generation_is_that_of_python_with_its_candidates_and_its_state(client):
    model, how = gf.load("small"), {"max_new_tokens": 5, "temperature": 0.8, "seed": 3}
    wanted = list(model.generate(TEXT, **how))
    answer = lines(client.post("/api/generate", json={"model": "small", "text": TEXT, "top": 3, "settings": how}))
    events = [line["event"] for line in answer if "event" in line]
    assert [one["token"] for one in events] == [one.token for one in wanted]
    assert [one["probability"] for one in events] == [one.probability for one in wanted]
    begun = len(model.encode(TEXT))
    assert [one["length"] for one in events] == list(range(begun, begun + 5))
    assert [one["state_bytes"] for one in events] == [
        gf.cost(model.spec, n).state_bytes for n in range(begun, begun + 5)
    ]
    logits = model(TEXT)[0, -1].double()
    assert [one["token"] for one in events[0]["candidates"]] == logits.topk(3).indices.tolist()
    assert events[0]["candidates"][0]["probability"] == pytest.approx(logits.softmax(-1).max().item(), rel=1e-4)
    assert answer[-1]["done"]["text"] == "".join(one.text for one in wanted)


def test_a_generation_with_changes_is_that_of_python(client, capsys):
    """Through the cache and by reading everything again; its lines and its command write the same."""
    model, how = gf.load("small"), {"max_new_tokens": 4, "temperature": 0.0}
    changes = [CHANGES["another run"], CHANGES["an edge"], CHANGES["drawn anew"]]
    plain = [one.probability for one in model.generate(TEXT, **how)]
    for given in (changes[:2], changes):
        asked, edits = [one for one, _ in given], [one for _, one in given]
        wanted = [(one.token, one.probability) for one in model.generate(TEXT, edits=edits, **how)]
        body = {"model": "small", "text": TEXT, "settings": how, "edits": asked}
        told = lines(client.post("/api/generate", json=body))
        events = [line["event"] for line in told if "event" in line]
        assert [(one["token"], one["probability"]) for one in events] == wanted
        assert [one["probability"] for one in events] != plain
        made: dict = {"seen": []}
        lines_of = "\n".join(told[-1]["done"]["python"])
        exec(lines_of.replace("print(event.text, end='')", "seen.append((event.token, event.probability))"), made)
        assert made["seen"] == wanted
        capsys.readouterr()
        assert main([*shlex.split(told[-1]["done"]["command"])[1:], "--json"]) == 0
        printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["probability"] for one in printed] == pytest.approx([share for _, share in wanted], rel=1e-5)
    body = {"model": "small", "text": TEXT, "edits": [{"kind": "patch", "name": "embed.out", "run": "a" * 20_001}]}
    assert lines(client.post("/api/generate", json=body))[-1]["status"] == 400


def test_progress_is_told_before_the_outcome(client):
    told = lines(client.post("/api/runs", json={"model": "cnn", "text": TEXT}))
    assert [*dict.fromkeys(line["progress"]["what"] for line in told[:-1])] == ["load", "run"]
    assert told[-2]["progress"] == {"what": "run", "done": 3, "all": 3}


def test_a_run_of_images_that_was_given_none_says_so_and_no_other_refusal_does(client):
    asked = (
        {"model": "lenet"},
        {"model": "lenet", "image": "?"},
        {"model": "a/b"},
        {"model": "small", "text": "x" * 20_001},
    )
    found = [lines(client.post("/api/runs", json={"text": "", **one}))[-1] for one in asked]
    assert [one.get("reads") for one in found] == ["image", None, None, None]
    assert [one["status"] for one in found] == [400] * 4 and found[0][
        "refused"
    ] == "lenet reads images; choose a picture"


def test_the_list_names_what_is_shipped_and_what_can_be_fetched(client, monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path))
    listed = {one["name"]: one for one in client.get("/api/models").json()}
    assert listed["small"]["kind"] == "shipped" and "580만" in listed["small"]["summary"]["ko"]
    assert [listed[one]["reads"] for one in ("lenet", "korean-g2p", "lstm")] == ["image", "pair", "text"]
    assert listed["smollm2-135m"]["kind"] == "pullable" and listed["smollm2-135m"]["bytes"] == 98_362_432


def test_each_run_is_found_by_its_own_id_alone(client):
    mine, other = run_of(client), run_of(client, text="별이 빛난다")
    assert mine["id"] != other["id"] and len(mine["id"]) >= 24
    assert not torch.equal(value_of(client, mine, "embed.out")[:, :2], value_of(client, other, "embed.out")[:, :2])
    assert client.get(f"/api/runs/{mine['id'][:-1]}/values?name=embed.out").status_code == 410
    assert client.get("/api/runs").status_code == 405 and client.get("/api/none").status_code == 404


def test_a_run_that_memory_has_dropped_says_to_run_again():
    models = Models()
    with TestClient(application(runs=Runs(models, all_bytes=100_000)), base_url=OWN) as client:
        first, second = run_of(client), run_of(client, text=TEXT * 2)
        gone = client.get(f"/api/runs/{first['id']}/values?name=embed.out", headers={"accept-language": "ko"})
        assert gone.status_code == 410 and "다시 실행하십시오" in gone.json()["refused"]
        assert value_of(client, second, "embed.out").shape[-1] == 256


def test_no_more_runs_are_kept_than_may_be(monkeypatch):
    monkeypatch.setattr(kept_runs, "MOST_RUNS", 2)
    with TestClient(application(), base_url=OWN) as client:
        made = [run_of(client, model="lstm", text=one) for one in ("a", "b", "c")]
        codes = [client.get(f"/api/runs/{one['id']}/values?name=embed.out").status_code for one in made]
    assert codes == [410, 200, 200]


def test_a_model_for_which_there_is_no_room_is_refused_with_the_sizes(monkeypatch):
    monkeypatch.setattr("glassformer.machine.free_bytes", lambda device: 1 << 20)
    with TestClient(application(), base_url=OWN) as client:
        refused = lines(client.post("/api/models", json={"name": "small"}))[-1]["refused"]
    assert "small needs 26.6 MiB of memory and 1.0 MiB are free" in refused


def test_models_make_room_for_another(monkeypatch):
    free = [8 << 20]
    monkeypatch.setattr("glassformer.machine.free_bytes", lambda device: free[0])
    models = Models()
    with TestClient(application(models=models), base_url=OWN) as client:
        run = run_of(client, model="lstm")
        free[0] = 1 << 20  # as if it had taken the rest
        assert outcome(client.post("/api/models", json={"name": "cnn"})) == {"name": "cnn", "image": False}
        assert [*models._kept] == ["cnn"]
        run_of(client, model="cnn")
        assert client.get(f"/api/runs/{run['id']}/values?name=embed.out").status_code == 410


def test_an_explanation_is_that_of_python(client):
    run = run_of(client)
    told = lines(client.get(f"/api/runs/{run['id']}/explanations/influence", params={"by": "word", "row": 1}))
    wanted = gf.explain("influence", gf.load("small").trace(TEXT), by="word", row=1)
    assert told[-1]["done"] == json.loads(msgspec.json.encode(wanted))
    assert {line["progress"]["what"] for line in told[:-1]} == {"explain"}
    assert "influence" in [name for name, _ in run["explains"]]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("none", "there is no explanation 'none'"),
        ("influence?by=letter", "by"),
        ("influence?text=a", "text: unknown setting"),
        ("cost?name=a", "there is no setting 'name' of cost"),
        ("influence?colour=1", "colour"),
        ("influence?row=99999999999999999999", "no index"),
    ],
)
def test_an_explanation_that_does_not_exist_is_refused(client, request_, said):
    found = client.get(f"/api/runs/{run_of(client)['id']}/explanations/{request_}")
    assert found.status_code in (200, 400) and said in json.loads(found.text.splitlines()[-1])["refused"]


def given_page(monkeypatch):
    """What page_of is called with, in its place."""
    seen = []

    def page_of(trace, lang, report, **how):
        seen.append(how)
        report("explain", 1, 2)
        return f"<p>{lang}: {trace.text}"

    monkeypatch.setattr("glassformer.serve.app.page_of", page_of)
    return seen


def test_a_run_is_given_as_one_file_to_keep(client, monkeypatch):
    seen = given_page(monkeypatch)
    address = f"/api/runs/{run_of(client)['id']}/page"
    found = client.get(address, params={"lang": "ko"})
    assert found.text == f"<p>ko: {TEXT}" and found.headers["content-disposition"].startswith("attachment;")
    assert seen == [{"seen": [], "writings": (), "left": (), "place": ""}]
    assert client.get(address, params={"lang": "xx"}).status_code == 400


def test_a_file_holds_what_its_person_looked_at(client, monkeypatch):
    """Explanations just as they were sent, values by their names; a run that is gone is told; what does not exist or is
    too much is refused."""
    seen = given_page(monkeypatch)
    run, other = run_of(client), run_of(client, model="lstm")
    address = f"/api/runs/{run['id']}/page"
    next_ = gf.explain("next", gf.load("lstm").trace(TEXT))
    one = {"id": other["id"], "explanations": {"next": msgspec.to_builtins(next_)}, "values": ["embed.out"]}
    gone = {"id": "x" * 24, "explanations": {"sight": one["explanations"]["next"]}}
    asked = {"lang": "en", "seen": [one, gone], "left": ["heads"], "place": "view=heads"}
    told = lines(client.post(address, json=asked))
    assert told == [{"progress": {"what": "explain", "done": 1, "all": 2}}, {"done": f"<p>en: {TEXT}"}]
    [how] = seen
    [kept] = how["seen"]
    assert (kept.document.id, kept.explanations, kept.values) == (other["id"], {"next": next_}, ("embed.out",))
    assert how["left"] == ("heads", "sight") and how["place"] == "view=heads"
    wrong = ({"seen": [{**one, "values": ["nothing"]}]}, {"seen": [one] * 65}, {"lang": "xx"}, {"more": 1})
    found = [client.post(address, json=body) for body in wrong]
    assert [one.status_code for one in found] == [400, 413, 400, 400]
    assert len(seen) == 1 and "no value" in found[0].text


def test_a_model_that_reads_one_word_at_a_time_is_given_one(client):
    first, second = (run_of(client, model="korean-g2p", text="고양이가 생선을", part=part) for part in (0, 1))
    assert [one["source"] for one in (first, second)] == ["고양이가", "생선을"]
    assert first["parts"] == second["parts"] == ["고양이가", "생선을"] and run_of(client)["parts"] == []
    refused = lines(client.post("/api/runs", json={"model": "korean-g2p", "text": "고양이가", "part": 1}))[-1]
    assert "there is no word 1" in refused["refused"]


def test_the_settings_of_every_explanation_are_told(client):
    """Their kinds, what they usually are, and what this run allows: four layers of four heads."""
    run = run_of(client)
    told = outcome(client.get(f"/api/runs/{run['id']}/documents/settings"))
    assert list(told) == [name for name, _ in run["explains"]]
    layer, head, by, rows = told["weights"]
    assert (layer["name"], layer["usual"], rows["usual"]) == ("layer", None, "")
    assert [value for value, _ in layer["choices"]] == [value for value, _ in head["choices"]] == ["0", "1", "2", "3"]
    assert (by["usual"], {value for value, _ in by["choices"]}) == ("token", {"token", "character", "word"})
    assert [(one["name"], one["kind"]) for one in told["two"]][:2] == [("second", "text"), ("word", "text")]
    (temperature,) = (one for one in told["next"] if one["name"] == "temperature")
    assert (temperature["kind"], temperature["usual"]) == ("number", 1.0)
    assert told["cost"] == []


def test_the_list_says_of_a_published_folder_what_it_reads_as_far_as_its_settings_tell(tmp_path):
    for name, config in {
        "pictures": {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 1},
        "texts": {"model_type": "gpt2"},
        "both": {"model_type": "t5"},
        "unknown": {"model_type": "no-such-family"},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    found = {one.name.rpartition("/")[2]: (one.reads, one.family) for one in Models([tmp_path]).listed()}
    assert found["texts"] == ("text", "attention") and found["both"] == ("pair", "attention")
    assert found["pictures"] == ("image", "attention") and found["unknown"] == ("", "")


def test_what_vanishes_while_the_list_is_made_is_left_out(tmp_path, monkeypatch):
    """As where a training below `out` writes a file and renames it: between finding it and asking for its size."""
    folder = tmp_path / "one"
    gf.load("lstm").save(folder)
    [whole] = [one.bytes for one in Models([tmp_path]).listed() if one.name.endswith("/one")]
    (folder / "model.json.part").write_bytes(b"half")
    (folder / "inside").mkdir()
    stat, asked = Path.stat, []

    def gone(self, **how):
        if self.suffix == ".part":
            asked.append(self)
            if len(asked) > 1:  # it is a file when it is found
                raise FileNotFoundError(2, "No such file or directory", str(self))
        return stat(self, **how)

    monkeypatch.setattr(Path, "stat", gone)
    assert [one.bytes for one in Models([tmp_path]).listed() if one.name.endswith("/one")] == [whole] and asked
    (tmp_path / "two").mkdir()
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, how: (stat(self / "x"), 0) if self.name == "two" else glob(self, how)
    )
    (tmp_path / "two" / "config.json").write_text("{}")
    assert "two" not in {one.name.rpartition("/")[2] for one in Models([tmp_path]).listed()}


def test_no_more_models_of_a_folder_are_looked_at_than_are_listed(tmp_path, monkeypatch):
    """Each costs a look into its files; and the list takes its turn as all that is computed does."""
    for i in range(5):
        (tmp_path / f"m{i}").mkdir()
        (tmp_path / f"m{i}" / "model.json").write_text("{}")
    described, seen = models_module._described, []
    monkeypatch.setattr(models_module, "MOST_LISTED", 3)
    monkeypatch.setattr(models_module, "_described", lambda *what: (seen.append(what[0]), described(*what))[1])
    found = [one.name for one in Models([tmp_path]).listed() if "/m" in one.name]
    assert [name[-2:] for name in found] == ["m0", "m1", "m2"] == [name[-2:] for name in seen if "/m" in name]
    turns = []
    with TestClient(application(), base_url=OWN) as client:
        desk = client.app.state.desk
        done = desk.done
        monkeypatch.setattr(desk, "done", lambda work, does, lane: (turns.append(lane), done(work, does, lane))[1])
        assert client.get("/api/models").status_code == 200
    assert turns == ["quick"]


def test_only_files_with_a_hash_in_their_name_are_kept_for_good_wherever_the_package_lies(tmp_path, monkeypatch):
    place = tmp_path / "assets" / "page"
    (place / "assets").mkdir(parents=True)
    for name in ("index.html", "assets/index-1a2b.js"):
        (place / name).write_text("x")
    monkeypatch.setattr("glassformer.serve.app.PAGE", place)
    with TestClient(application(), base_url=OWN) as client:
        kept = [client.get(path).headers["cache-control"] for path in ("/", "/index.html", "/assets/index-1a2b.js")]
    assert kept == ["no-cache", "no-cache", "public, max-age=31536000, immutable"]


def test_a_file_that_is_no_picture_is_called_by_its_name(client):
    def refused(data, **asked):
        given = {"model": "lenet", "image": base64.b64encode(data).decode(), **asked}
        return lines(client.post("/api/runs", json=given, headers={"accept-language": "ko"}))[-1]["refused"]

    assert refused(b"GIF89a", called="고양이.gif").startswith("고양이.gif: PNG, PGM, PPM 파일이 아닙니다")
    assert refused(b"\x89PNG\r\n", called="a.png").startswith("a.png: ")
    assert refused(b"P5 2 2 255\n").startswith("picture.png: ")


def test_a_picture_of_more_pixels_than_the_page_takes_is_refused_before_it_is_read(client):
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 2001, 2000, 8, 0, 0, 0, 0, 0)
    hidden = head[:8] + struct.pack(">I4sI", 0, b"tEXt", 0) + head[8:]
    for data, why in (
        (head, "it has 2001 × 2000 pixels, and at most 4 million are read"),
        (hidden, "its size is not at its beginning"),
        (b"P5 2001 2000 255\n", "it has 2001 × 2000 pixels, and at most 4 million are read"),
        (b"P2 1 1 255 " + b"9" * 30, "a broken PGM or PPM file"),
    ):
        given = {"model": "lenet", "image": base64.b64encode(data).decode()}
        answer = lines(client.post("/api/runs", json=given))[-1]
        assert answer["status"] == 400 and why in answer["refused"]
