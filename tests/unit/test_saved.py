"""What a saved page holds of the runs beside its own, and of pictures."""

import base64
import gzip
import io
import json
import re
from pathlib import Path

import msgspec
import pytest
import torch
from fontTools.ttLib import TTFont
from safetensors.torch import load as read_values
from sheet_models import SPECS, loaded
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.errors import InputError
from glassformer.page.outline import outline
from glassformer.page.saved import HANGUL, Seen, explanations, page_of
from glassformer.serve.app import application
from glassformer.sources import SIBLINGS

ROOT = Path(__file__).parents[2]
TEXT = "개가"
PICTURE = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0))
PGM = base64.b64encode(b"P5 28 28 255\n" + bytes(range(196)) * 4).decode()


@pytest.fixture(autouse=True)
def built(monkeypatch):
    monkeypatch.setattr("glassformer.page.saved.built", lambda: ("", ""))


@pytest.fixture
def brief(monkeypatch):
    """One explanation of the page's own run, since all of them take seconds."""
    title = gf.explain("cost", gf.load("small").trace(TEXT)).title
    monkeypatch.setattr("glassformer.page.saved.available", lambda trace: [("cost", title)])


def held(page):
    """The documents and the values in a page."""
    saved, values = (
        gzip.decompress(base64.b64decode(re.search(rf'id="{name}">([^<]*)<', page)[1])) for name in ("saved", "values")
    )
    return json.loads(saved), read_values(values)


def seen(trace, number, explanations=(), values=()):
    found = {name: gf.explain(name, trace) for name in explanations}
    return Seen(trace, outline(trace, f"seen{number}"), found, values)


def test_what_was_seen_of_a_family_comes_to_what_the_page_needs_of_it(brief):
    """A brief look at one of them leaves none out."""
    lstm = gf.load("lstm").trace(TEXT)
    run = gf.load("small").trace(TEXT)
    whole, _ = held(page_of(run))
    saved, values = held(page_of(run, seen=[seen(lstm, 0, ["sight", "journey"], ("embed.out",))]))
    assert sorted(one["run"]["model"] for one in saved["runs"]) == sorted(one["run"]["model"] for one in whole["runs"])
    [one] = [one for one in saved["runs"] if one["run"]["model"] == "lstm"]
    [plain] = [one for one in whole["runs"] if one["run"]["model"] == "lstm"]
    assert set(one["explanations"]) == {*plain["explanations"], "journey"} and "journey" not in plain["explanations"]
    assert torch.equal(values[f"{one['key']}/embed.out"], lstm["embed.out"])


def test_of_a_long_text_the_influence_on_its_last_token_is_kept(brief):
    """All rows of a model and five families would take minutes."""
    trace = gf.load("small").trace("고양이가 생선을 먹었다. " * 6)
    saved, _ = held(page_of(trace))
    last = trace.stacks[-1].length - 1
    assert last > 32 and len(saved["runs"]) == 6
    for one in saved["runs"]:
        kept = [name for name in one["explanations"] if name.startswith("influence")]
        assert kept == [f"influence?method=estimate&row={last}"]


def test_a_run_that_was_made_twice_stands_there_once_with_all_that_was_seen(brief):
    run, other = (gf.load("small").trace(text) for text in (TEXT, "소가"))
    again = [seen(other, 0, ["next"], ("embed.out", "norm.out")), seen(other.beside(), 1, ["cost"], ("norm.out",))]
    own = seen(run.beside(), 2, ["surprise"], ("embed.out",))
    saved, values = held(page_of(run, beside=[], seen=[*again, own]))
    assert [(one["key"], one["run"]["text"]) for one in saved["runs"]] == [("", TEXT), ("beside-0", "소가")]
    assert set(saved["runs"][1]["explanations"]) == {"next", "cost"} and "surprise" in saved["runs"][0]["explanations"]
    for name in ("embed.out", "norm.out"):
        assert torch.equal(values[f"beside-0/{name}"], other[name]) and torch.equal(values[name], run[name])


def test_the_families_stand_beside_what_was_given_and_beside_a_change(brief, monkeypatch):
    """Each once, unchanged; for () none."""
    monkeypatch.setattr("glassformer.page.saved.wanted", lambda run, slow: [])
    model = gf.load("small")
    run, edit = model.trace(TEXT), gf.zero("blocks.2.mixer.z", h=3)
    cut, lstm = model.trace(TEXT, edits=[edit]), gf.load("lstm").trace(TEXT)

    def models(trace, beside):
        return [
            (one["run"]["model"], len(one["run"]["edits"])) for one in held(page_of(trace, beside=beside))[0]["runs"]
        ]

    rest = [(name, 0) for name in SIBLINGS if name != "lstm"]
    assert models(run, [cut, lstm]) == [("small", 0), ("small", 1), ("lstm", 0), *rest]
    assert models(cut, None) == [("small", 1), *((name, 0) for name in SIBLINGS)]
    assert models(run, ()) == [("small", 0)]
    changed = gf.load("ssm").trace(TEXT, edits=[gf.zero("blocks.0.mixer.out")])
    assert models(changed, None) == [("ssm", 1), *((name, 0) for name in SIBLINGS)]


def test_the_file_has_the_letters_that_the_page_asks_its_font_for():
    source = (ROOT / "ui/src/lib/letters.svelte.ts").read_text(encoding="utf-8")
    ranges = re.findall(r"U\+(\w+)(?:-(\w+))?", re.search(r'RANGES = "([^"]+)"', source)[1])
    asked = {code for low, high in ranges for code in range(int(low, 16), int(high or low, 16) + 1)}
    assert asked == {code for code in range(0x10000) if HANGUL.match(chr(code))}
    face = re.search(r"src:url\(data:font/woff;base64,([^)]+)\)", page_of(gf.load("small").trace("a  b"), slow=False))[
        1
    ]
    with TTFont(io.BytesIO(base64.b64decode(face))) as font:
        assert {ord("␠"), ord("⟨")} <= set(font.getBestCmap())


@pytest.mark.parametrize("model", ["vit", "lenet"])
def test_a_picture_is_saved_as_a_page(model, tmp_path):
    trace = gf.load(model).trace(PICTURE)
    trace.save(tmp_path / "one.html", lang="ko")
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    saved, values = held(page)
    [one] = saved["runs"]
    assert '<html lang="ko">' in page and one["run"]["model"] == model and one["run"]["picture"]["channels"] == 1
    assert {"classes", "influence", "cost"} <= set(one["explanations"])
    assert one["explanations"]["classes"] == json.loads(msgspec.json.encode(gf.explain("classes", trace)))
    name = trace.stacks[-1].output
    assert torch.equal(values[name], trace[name])
    trace.save(tmp_path / "one.safetensors", [name])
    assert torch.equal(read_values((tmp_path / "one.safetensors").read_bytes())[name], trace[name])
    with pytest.raises(InputError, match="names: the page chooses"):
        trace.save(tmp_path / "two.html", [name])
    with pytest.raises(InputError, match="a trace of 2 images; trace one of them for its page"):
        gf.load(model).trace(torch.stack([PICTURE, PICTURE])).save(tmp_path / "two.html")
    assert not (tmp_path / "two.html").exists()


def test_the_server_saves_a_picture_and_what_was_seen_of_another_is_not_mixed_with_it():
    with TestClient(application(), base_url="http://127.0.0.1") as client:

        def run(picture):
            answer = client.post("/api/runs", json={"model": "lenet", "image": picture})
            return json.loads(answer.text.splitlines()[-1])["done"]

        own, other = run(PGM), run(base64.b64encode(b"P5 28 28 255\n" + bytes(784)).decode())
        address = f"/api/runs/{own['id']}/page"
        assert [one["key"] for one in held(client.get(address).text)[0]["runs"]] == [""]
        asked = {"lang": "ko", "seen": [{"id": one["id"], "values": ["embed.out"]} for one in (own, other)]}
        *told, made = map(json.loads, client.post(address, json=asked).text.splitlines())
        saved, values = held(made["done"])
    said = [one["progress"] for one in told]
    assert [*dict.fromkeys(one["what"] for one in said)] == ["explain", "pack"] and said[0]["all"] > 0
    pictures = [one["run"]["picture"]["pixels"] for one in saved["runs"]]
    assert pictures == [one["picture"]["pixels"] for one in (own, other)]
    assert values["beside-0/embed.out"].unique().numel() == 1 < values["embed.out"].unique().numel()


def test_a_saved_page_holds_what_a_sink_takes_in_every_layer_and_head():
    trace = loaded(SPECS["sink"]).trace("a b")
    run = outline(trace, "saved")
    found = explanations(trace, run, ["weights"])
    assert {block.mixer.heads for block in run.stacks[0].blocks} == {4}
    for address in (f"weights?head={head}&layer={layer}" for head in range(4) for layer in range(2)):
        assert len(found[address].figure("sink").values) == run.stacks[0].length
