"""Who may ask the explorer's server, for what, and how much: everything else is refused in the reader's language."""

import json
import os
import re

import pytest
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.errors import InputError
from glassformer.serve.app import application
from glassformer.serve.edits import LONGEST_TEXT, MOST_EDITS, MOST_IDS
from glassformer.serve.guard import BODY_BYTES
from glassformer.serve.models import Models

OWN = "http://127.0.0.1:8765"
KOREAN = {"accept-language": "ko"}


@pytest.fixture(scope="module")
def client():
    with TestClient(application(), base_url=OWN, raise_server_exceptions=False) as made:
        yield made


def said(response):
    """What a refusal says; it is JSON in any case."""
    assert response.headers["content-type"] == "application/json"
    assert response.json()["status"] == response.status_code
    return response.json()["refused"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "10.0.0.7", "", "[::"])
@pytest.mark.parametrize("path", ["/api/models", "/"])
def test_a_name_that_is_not_its_own_is_refused(client, host, path):
    """As an address that another page makes point here (DNS rebinding)."""
    found = client.get(path, headers={"host": host, **KOREAN})
    assert found.status_code == 403 and "이름으로 접속했습니다" in said(found)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "[::1]:8765", "LOCALHOST"])
def test_its_own_names_are_answered(client, host):
    assert client.get("/api/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://[::"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_gets_nothing(client, headers):
    run = {"model": "small", "text": "a"}
    for found in (client.get("/api/models", headers=headers), client.post("/api/runs", json=run, headers=headers)):
        assert found.status_code == 403 and "another page" in said(found)
    own = {"origin": OWN, "sec-fetch-site": "same-origin"}
    assert client.get("/api/models", headers=own).status_code == 200


def test_a_form_of_another_page_cannot_post(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        found = client.post("/api/runs", content=b'{"model":"small","text":"a"}', headers={"content-type": kind})
        assert found.status_code == 415


def test_bound_elsewhere_a_token_is_demanded():
    with TestClient(application(host="0.0.0.0", token="s3cret"), base_url="http://10.0.0.7:8765") as client:
        for headers in (
            {},
            {"authorization": "Bearer s3cre"},
            {"authorization": "Bearer s3cret2"},
            {"authorization": ""},
        ):
            found = client.get("/api/models", headers={**headers, **KOREAN})
            assert found.status_code == 401 and "토큰" in said(found)
        assert client.get("/api/models", headers={"authorization": "Bearer s3cret"}).status_code == 200
        assert client.get("/api/font").status_code == 200, "a style asks for it without a word"
        other = {"authorization": "Bearer s3cret", "host": "evil.example"}
        assert client.get("/api/models", headers=other).status_code == 403


def test_every_answer_has_the_headers_of_safety(client):
    for path in ("/", "/api/models", "/api/none", "/api/font"):
        headers = client.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'" and policy["connect-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert client.get("/api/models").headers["cache-control"] == "no-store"


# ---------------------------------------------------------------- how much


def chunks(size):
    for _ in range(size // 65536 + 1):
        yield b" " * 65536


def test_a_body_that_is_too_large_is_refused_also_without_a_length(client):
    how = {"content-type": "application/json", **KOREAN}
    for body in (b" " * (BODY_BYTES + 1), chunks(BODY_BYTES)):
        found = client.post("/api/runs", content=body, headers=how)
        assert found.status_code == 413 and "너무 큽니다" in said(found)
    for length in ("-1", "9" * 40, "1e3"):
        found = client.post("/api/runs", content=b"{}", headers={**how, "content-length": length})
        assert found.status_code == 413


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"text": "가" * (LONGEST_TEXT + 1)}, "글자|자까지"),
        ({"text": "a", "target": "b" * (LONGEST_TEXT + 1)}, "자까지"),
        ({"ids": [1] * (MOST_IDS + 1)}, "토큰 번호"),
        ({"text": "a", "edits": [{"kind": "zero", "name": "embed.out", "where": {}}] * (MOST_EDITS + 1)}, "바꿀 것"),
        ({"text": "a", "edits": [{"kind": "zero", "name": "embed.out", "where": {"t": [0] * 5000}}]}, "바꿀 것"),
        ({"text": ""}, "비어"),
        ({"text": "a", "edits": [{"kind": "zero", "name": "no.such", "where": {}}]}, "no.such"),
        ({"text": "a", "edits": [{"kind": "zero", "name": "embed.out", "where": {"h": 0}}]}, "축"),
        ({"text": "a", "edits": [{"kind": "swap", "name": "embed.out"}]}, "[가-힣]"),
        ({"text": "a", "edits": [{"kind": "cut", "name": "blocks.0.mixer", "where": {"t": 1}}]}, "끊을|s=2"),
        ({"text": "a", "edits": [{"kind": "cut", "name": "blocks.0.mixer", "where": {"s": 99}}]}, "99"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "embed.out"}]}, "[가-힣]"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "embed.out", "run": ""}]}, "[가-힣]"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "no.such", "run": "a"}]}, "no.such"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "embed.out", "run": "a" * (LONGEST_TEXT + 1)}]}, "자까지"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "embed.out", "run": [1] * (MOST_IDS + 1)}]}, "토큰 번호"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "embed.out", "run": "고양이가"}]}, "크기|shape|위치"),
        ({"text": "a", "edits": [{"kind": "patch", "name": "embed.out", "run": f"a{i}"} for i in range(5)]}, "4개"),
        ({"text": "a", "edits": [{"kind": "resample", "name": "embed.out", "seed": 2**64}]}, "시드"),
        ({"ids": [99999999999999999999999]}, "[가-힣]"),
        ({"ids": []}, "[가-힣]"),
        ({"ids": [-1]}, "[가-힣]"),
    ],
)
def test_what_is_too_much_or_makes_no_sense_is_refused(client, asked, words):
    found = client.post("/api/runs", json={"model": "small", **asked}, headers=KOREAN)
    refused = json.loads(found.text.splitlines()[-1])
    assert refused["status"] < 500 and re.search(words, refused["refused"]), refused


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model":1}', b'{"model":"small","x":1}', b"\xff", b'"\\ud800"'])
def test_a_body_that_is_no_request_is_refused(client, body):
    found = client.post("/api/runs", content=body, headers={"content-type": "application/json", **KOREAN})
    assert found.status_code == 400 and "읽을 수 없습니다" in said(found)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("name=none", 400),
        ("", 400),
        ("name=embed.out&h=1", 400),
        ("name=embed.out&t=99", 400),
        ("name=embed.out&t=a", 400),
        ("name=embed.out&t=1,,2", 400),
        ("name=embed.out&t=" + "9" * 5000, 400),
        ("name=embed.out&t=1&t=2", 400),
        ("name=embed.out&t=" + "1," * 5000 + "1", 414),
        ("name=%00", 400),
    ],
)
def test_a_place_that_does_not_exist_is_refused(client, asked, status):
    run = json.loads(client.post("/api/runs", json={"model": "small", "text": "고양이"}).text.splitlines()[-1])["done"]
    found = client.get(f"/api/runs/{run['id']}/values?{asked}", headers=KOREAN)
    assert found.status_code == status and re.search("[가-힣]", said(found))


def test_a_value_that_is_too_large_is_given_in_parts(client, monkeypatch):
    monkeypatch.setattr("glassformer.serve.runs.VALUE_BYTES", 40_000)
    run = json.loads(client.post("/api/runs", json={"model": "small", "text": "고양이"}).text.splitlines()[-1])["done"]
    address = f"/api/runs/{run['id']}/values?name=head.logits"
    found = client.get(address, headers=KOREAN)
    assert found.status_code == 413 and "일부만" in said(found)
    assert client.get(f"{address}&t=0").status_code == 200


NAMED = ("name", "self", "given", "text", "trace", "report", "watch", "prompt", "kind.x", "", "\0")


@pytest.mark.parametrize("key", NAMED)
def test_a_name_that_a_function_takes_is_no_setting_of_a_request(client, key):
    """What a request calls its settings and axes is looked up, and never given to a function beside its own."""
    run = json.loads(client.post("/api/runs", json={"model": "small", "text": "고양이"}).text.splitlines()[-1])["done"]
    address = f"/api/runs/{run['id']}"
    asked = [client.get(f"{address}/explanations/{one}", params={key: "x"}) for one in ("cost", "flow", "next")]
    asked.append(client.post(f"{address}/values", json=[{"name": "embed.out", "where": {key: 0}}]))
    asked += [client.get(f"{address}/values", params={"name": "embed.out", key: "0"})] if key != "name" else []
    asked.append(client.post("/api/generate", json={"model": "small", "text": "a", "settings": {key: 1}}))
    for found in asked:
        refused = json.loads(found.text.splitlines()[-1])
        assert refused["status"] == 400, (found.request.url, refused)


def test_a_wrong_setting_is_told_with_those_that_there_are(client):
    run = json.loads(client.post("/api/runs", json={"model": "small", "text": "고양이"}).text.splitlines()[-1])["done"]
    address = f"/api/runs/{run['id']}"
    wanted = {
        client.get(f"{address}/explanations/flow?name=x").text: "layer",
        client.post(f"{address}/values", json=[{"name": "embed.out", "where": {"name": 0}}]).text: "b t d",
        client.post("/api/generate", json={"model": "small", "settings": {"watch": 1}}).text: "temperature|seed|beams",
    }
    for told, offered in wanted.items():
        assert re.search(offered, json.loads(told.splitlines()[-1])["refused"]), told


# ---------------------------------------------------------------- which models


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A folder `here` with `out/mine`, a given folder `given/theirs`, and `secret`, which no request may reach."""
    (tmp_path / "here").mkdir()
    for name in ("here/out/mine", "given/theirs", "secret/one"):
        gf.build("lstm", vocab=9, dim=8, blocks=1, context=8).save(tmp_path / name)
    (tmp_path / "given" / "link").symlink_to(tmp_path / "secret" / "one")
    (tmp_path / "given" / "circle").symlink_to(tmp_path / "given" / "circle")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_models_of_the_folders_are_listed_and_opened(folders):
    models = Models([folders / "given"])
    with TestClient(application(models=models), base_url=OWN) as client:
        runs = [one["name"] for one in client.get("/api/models").json() if one["kind"] == "run"]
        assert runs == ["out/mine", str(folders / "given" / "theirs")]
        for name in (*runs, "./out/../out/mine"):
            found = client.post("/api/runs", json={"model": name, "ids": [1, 2]})
            document = json.loads(found.text.splitlines()[-1])["done"]
            assert document["model"] == name and f"gf.load({name!r})" in document["python"][1]


@pytest.mark.parametrize(
    "name",
    [
        "{secret}/one",
        "../secret/one",
        "out/../../secret/one",
        "{given}/../secret/one",
        "{given}/link",
        "{given}/link/",
        "{given}/circle",
        "{given}/none",
        "{given}",
        "out",
        ".",
        "/",
        "/etc/passwd",
        "~/x",
        "out/mine\0",
        "out/mine\n",
        "\u202eout/mine",
        "out/" + "a" * 290,
        "a" * 400,
        "",
        "gpt2",
        "file:///etc/passwd",
        "\\\\server\\share",
        "org/model@../../../etc",
        "org/../model",
        "ｓｍａｌｌ",
    ],
)
def test_no_other_folder_can_be_named(folders, name, monkeypatch):
    monkeypatch.setattr("glassformer.serve.models.from_hub", lambda name, *how: pytest.fail(f"asked the hub: {name}"))
    name = name.replace("{secret}", str(folders / "secret")).replace("{given}", str(folders / "given"))
    with TestClient(application(models=Models([folders / "given"])), base_url=OWN) as client:
        for path, body in (("models", {"name": name}), ("runs", {"model": name, "ids": [1]})):
            refused = json.loads(client.post(f"/api/{path}", json=body, headers=KOREAN).text.splitlines()[-1])
            assert refused["status"] == 400 and re.search("모델", refused["refused"]), refused


def test_what_was_named_at_the_start_is_opened_wherever_it_lies(folders):
    models = Models([], {"../secret/one": folders / "secret" / "one"})
    assert models.place("../secret/one") == folders / "secret" / "one"
    with pytest.raises(InputError):
        models.place(str(folders / "secret" / "one"))


def test_an_id_of_the_hub_is_fetched_from_there_alone(folders, monkeypatch):
    """Also where a folder of that name lies in the current one."""
    asked = []
    monkeypatch.setattr(
        "glassformer.serve.models.from_hub", lambda name, *how: asked.append(name) or folders / "given" / "theirs"
    )
    monkeypatch.setattr("glassformer.hub.cached", lambda name: None)
    os.makedirs("org/model")
    with TestClient(application(), base_url=OWN) as client:
        for path, body in (("runs", {"ids": [1]}), ("generate", {"text": "a"})):  # a link that somebody opens
            told = client.post(f"/api/{path}", json={"model": "org/model@v1", **body}, headers=KOREAN).text
            assert "모델 목록에 이 이름을 적어" in json.loads(told.splitlines()[-1])["refused"] and not asked
        found = client.post("/api/models", json={"name": "org/model@v1"})
    run = client.post("/api/runs", json={"model": "org/model@v1", "ids": [1]}).text
    assert "done" in json.loads(run.splitlines()[-1])
    assert asked == ["org/model@v1"] and json.loads(found.text.splitlines()[-1]) == {
        "done": {"name": "org/model@v1", "image": False}
    }


def test_a_pull_tells_how_far_it_is(folders, monkeypatch):
    def pull(name, report):
        for done in (0, 50, 100):
            report(f"{name}.whl", done, 100)
        report("convert", 0, 0)
        return folders / "given" / "theirs"

    monkeypatch.setenv("GLASSFORMER_HOME", str(folders / "home"))
    monkeypatch.setattr("glassformer.serve.models.pull", pull)
    with TestClient(application(), base_url=OWN) as client:
        answer = client.post("/api/models", json={"name": "smollm2-135m"}).text.splitlines()
        told = [json.loads(line).get("progress") for line in answer]
        not_here = client.post("/api/runs", json={"model": "minilm-l6", "text": "a"}).text
    assert {"what": "smollm2-135m.whl", "done": 100, "all": 100} in told
    assert [one["what"] for one in told[:-1] if one] == ["smollm2-135m.whl"] * 2 + ["convert", "load"]
    assert "glassformer pull minilm-l6" in not_here


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/assets/../../secret.txt",
        "/assets/..%5c..%5csecret.txt",
        "//secret.txt",
        "/link.txt",
        "/%00",
        "/api/../../secret.txt",
    ],
)
def test_no_file_beside_the_page_is_sent(tmp_path, monkeypatch, path):
    (tmp_path / "page" / "assets").mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_text("page")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "page" / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setattr("glassformer.serve.app.PAGE", tmp_path / "page")
    with TestClient(application(), base_url=OWN, raise_server_exceptions=False) as client:
        assert client.get("/").text == "page"
        found = client.request("GET", OWN + path)
        assert found.status_code in (400, 404) and "secret" not in found.text.replace(path, "")
