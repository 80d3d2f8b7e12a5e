"""Models by their id on the hub: what is fetched, and what is told where that is not possible. No network is used: a
small server on this machine answers as the hub does."""

import hashlib
import http.server
import json
import re
import threading
from pathlib import Path

import pytest
import torch
from cli_runs import refused, run
from safetensors.torch import save_file

import glassformer as gf
from glassformer import hub
from glassformer.errors import InputError, UnsupportedError
from glassformer.hub import fetched, is_id, wanted
from glassformer.serve.models import Models
from glassformer.serve.work import Work

constants = pytest.importorskip("huggingface_hub.constants")
ID, SHA, OTHER = "someone/tiny", "1" * 40, "2" * 40
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 32,
}


def weights(folder, seed=0):
    """The files of a tiny model."""
    torch.manual_seed(seed)
    block = "model.layers.0."
    shapes = {"model.embed_tokens": (32, 16), "model.norm": (16,), "lm_head": (32, 16)}
    shapes |= {f"{block}self_attn.{name}_proj": (16, 16) for name in "qkvo"}
    shapes |= {f"{block}mlp.{name}_proj": (24, 16) for name in ("gate", "up")} | {f"{block}mlp.down_proj": (16, 24)}
    shapes |= {f"{block}{name}_layernorm": (16,) for name in ("input", "post_attention")}
    save_file({f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}, folder / "w.safetensors")
    return (folder / "w.safetensors").read_bytes()


class Hub(http.server.BaseHTTPRequestHandler):
    """The answers of the hub that the library asks for. `state`: what it has, and what it was asked."""

    state: dict
    protocol_version = "HTTP/1.1"

    def log_message(self, *given):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(headers.get("length", len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        state, path = self.state, self.path.split("?")[0]
        state["asked"].append((self.command, path, self.headers.get("Range")))
        if state["error"]:
            status, code = state["error"]
            return self.answer(status, b"{}", X_Error_Code=code, X_Error_Message=code)
        found = re.fullmatch(rf"/api/models/{ID}(?:/(revision|tree)/([^/]+))?", path)
        if found and (found[2] or "main") not in ("main", "v2", SHA, OTHER):
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound", X_Error_Message="no such revision")
        sha = OTHER if found and found[2] in ("v2", OTHER) else SHA
        if found and found[1] == "tree":
            files = [{"type": "file", "path": name, "size": len(raw), "oid": "0" * 40} for name, raw in self.files(sha)]
            return self.answer(200, json.dumps(files).encode(), Content_Type="application/json")
        if found:
            siblings = [
                {"rfilename": name, "size": self.state["sizes"].get(name, len(raw))} for name, raw in self.files(sha)
            ]
            body = {"id": ID, "modelId": ID, "sha": sha, "siblings": siblings, "private": False, "tags": []}
            body |= self.state["more"]
            return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")
        found = re.fullmatch(rf"/{ID}/resolve/([^/]+)/(.+)", path)
        raw = dict(self.files(found[1])).get(found[2]) if found else None
        if raw is None:
            return self.answer(404, b"", X_Error_Code="RepoNotFound" if found is None else "EntryNotFound")
        return self.file(found[1], found[2], raw)

    def files(self, sha):
        return [
            (name, raw if sha == SHA or name != "model.safetensors" else self.state["other"])
            for name, raw in self.state["files"].items()
        ]

    def file(self, sha, name, raw):
        etag = f'"{hashlib.sha256(raw).hexdigest()}"'
        first = int(re.fullmatch(r"bytes=(\d+)-.*", self.headers["Range"])[1]) if self.headers.get("Range") else 0
        headers = {"ETag": etag, "X_Repo_Commit": sha, "Accept_Ranges": "bytes"}
        if first:
            headers["Content_Range"] = f"bytes {first}-{len(raw) - 1}/{len(raw)}"
        if name == self.state["cut"] and self.command == "GET":  # the connection breaks in the middle, once
            self.state["cut"] = None
            self.send_response(200)
            for key, value in headers.items():
                self.send_header(key.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw[: len(raw) // 2])
            self.wfile.flush()
            self.close_connection = True
            return self.connection.close()
        return self.answer(206 if first else 200, raw[first:], **headers)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The server's state; the library asks it, with a cache of its own."""
    state = {"files": {}, "asked": [], "error": None, "cut": None, "sizes": {}, "more": {}}
    handler = type("Answers", (Hub,), {"state": state})
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made.daemon_threads = True
    threading.Thread(target=made.serve_forever, daemon=True).start()
    raw = weights(tmp_path)
    state["other"] = weights(tmp_path, 1)
    state["files"] = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": raw,
        "pytorch_model.bin": b"not wanted",
        "model.onnx": b"not wanted",
        "onnx/model.safetensors": b"not wanted",
        "README.md": b"not wanted",
        "script.py": b"not wanted",
    }
    for name, value in {
        "ENDPOINT": f"http://127.0.0.1:{made.server_address[1]}",
        "HUGGINGFACE_CO_URL_TEMPLATE": f"http://127.0.0.1:{made.server_address[1]}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.chdir(tmp_path)
    yield state
    made.shutdown()
    made.server_close()


def taken(state):
    """The files whose content was asked for."""
    return {path.split("/", 5)[-1] for command, path, _ in state["asked"] if command == "GET" and "/resolve/" in path}


def test_only_the_files_that_are_read_are_fetched_and_once(server):
    folder = fetched(ID)
    assert taken(server) == {"config.json", "model.safetensors"}
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
    server["asked"].clear()
    assert fetched(ID) == folder and taken(server) == set()
    loaded = gf.load(ID)
    assert loaded.name == ID and loaded(torch.arange(5)[None]).shape == (1, 5, 32)


def test_a_revision_is_another_model(server):
    one, other = gf.load(ID), gf.load(f"{ID}@v2")
    assert other.name == f"{ID}@v2" and other.place != one.place
    assert not torch.equal(one.model.embed.token.weight, other.model.embed.token.weight)
    assert torch.equal(gf.load(f"{ID}@{OTHER}").model.embed.token.weight, other.model.embed.token.weight)
    with pytest.raises(InputError, match=r"someone/tiny@v9: the hub has no such revision of it; look at the branches"):
        gf.load(f"{ID}@v9")


def test_offline_takes_what_is_in_the_cache(server, monkeypatch):
    folder = fetched(ID)
    server["asked"].clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetched(ID) == folder and not server["asked"]
    with pytest.raises(InputError, match=r"someone/other: it is not in the cache, and the hub may not be asked; unset"):
        fetched("someone/other")


def test_without_a_network_too(server, monkeypatch):
    folder = fetched(ID)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetched(ID) == folder
    with pytest.raises(
        InputError, match=r"someone/other: the hub cannot be reached \(.*\); check the network and HF_E"
    ):
        fetched("someone/other")


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "GatedRepo", "its owner shares it only on request; accept the terms on its page, then log in"),
        (404, "RepoNotFound", "the hub has no such model, or a private one; check the name, or log in"),
        (401, "RepoNotFound", "the hub has no such model, or a private one; check the name, or log in"),
        (503, "", "the hub cannot be reached"),
    ],
)
def test_what_the_hub_refuses_is_told_with_the_way_out(server, capsys, monkeypatch, status, code, said):
    server["error"] = status, code
    with pytest.raises(InputError) as raised:
        fetched(ID)
    assert str(raised.value).startswith(f"{ID}: {said}")
    assert said in refused(capsys, "pull", ID)
    assert "허브" in refused(capsys, "pull", ID, lang="ko") or "약관" in refused(capsys, "pull", ID, lang="ko")


def test_a_connection_that_breaks_goes_on_from_there(server, monkeypatch):
    server["cut"] = "model.safetensors"
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    folder = fetched(ID)
    assert (folder / "model.safetensors").read_bytes() == server["files"]["model.safetensors"]
    ranges = [which for command, path, which in server["asked"] if path.endswith("model.safetensors") and which]
    assert len(ranges) == 1 and int(re.search(r"\d+", ranges[0])[0]) > 0


def test_the_command_shows_what_it_fetches(server, capsys):
    told = []
    fetched(ID, lambda *step: told.append(step))
    size = len(server["files"]["model.safetensors"])
    assert told and max(done for _, done, _ in told) == size
    status, out, _ = run(capsys, "pull", ID, "--lang", "en")
    assert status == 0 and out.startswith(f"{ID} lies in ")


def test_a_repository_in_another_form_is_refused(server):
    server["files"] = {"model.gguf": b"", "README.md": b""}
    with pytest.raises(
        InputError, match=r"holds no config\.json with .*; download one of its \.gguf files and give that"
    ):
        fetched(ID)


def test_of_an_unknown_family_nothing_but_its_configuration_is_fetched(server, capsys):
    server["files"]["config.json"] = json.dumps(CONFIG | {"model_type": "rwkv"}).encode()
    with pytest.raises(UnsupportedError, match=r"model_type: 'rwkv' is not known here"):
        gf.load(ID)
    assert "model_type: 'rwkv'" in refused(capsys, "pull", ID) and taken(server) == {"config.json"}


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_of_a_target_that_cannot_begin_nothing_but_the_settings_are_fetched(server, capsys, file):
    config = {"model_type": "bart", "vocab_size": 32, "decoder_start_token_id": 2}
    server["files"] |= {"config.json": json.dumps(config).encode(), "generation_config.json": b"{}"}
    wrong = json.loads(server["files"][file]) | {"decoder_start_token_id": 32}
    server["files"][file] = json.dumps(wrong).encode()
    line = refused(capsys, "pull", ID)
    assert line.startswith(f"glassformer: decoder_start_token_id: {file} gives the token id 32, beyond the vocabulary")
    assert taken(server) == {"config.json", "generation_config.json"}


def test_what_the_disk_has_no_room_for_is_not_fetched(server, capsys):
    """Of what is in the cache already nothing counts."""
    server["sizes"] = {"model.safetensors": 10**18, "pytorch_model.bin": 10**20}
    with pytest.raises(InputError, match=r"someone/tiny: fetching it needs 1000000000\.0 GB on the disk of .*cache"):
        gf.load(ID)
    assert taken(server) == {"config.json"} and "1000000000.0 GB" in refused(capsys, "pull", ID)
    assert "HF_HOME" in refused(capsys, "pull", ID, lang="ko")
    server["sizes"] = {}
    gf.load(ID)
    server["sizes"] = {"model.safetensors": 10**18}
    gf.load(ID)


def test_what_the_memory_has_no_room_for_is_not_fetched(server):
    """By the numbers that the hub tells, or by the files' sizes where it tells none, in which bf16 is half as large."""

    def room(*sizes):
        given.append(sizes)
        raise InputError("no room")

    for more, numbers in (({}, None), ({"safetensors": {"parameters": {"BF16": 7}, "total": 7}}, 7)):
        server["more"], given = more, []
        with pytest.raises(InputError, match="no room"):
            fetched(ID, room=room)
        assert given == [(len(server["files"]["model.safetensors"]), numbers)]
    assert taken(server) == {"config.json"}


def test_the_page_fetches_what_is_asked_for_and_nothing_for_a_link(server, monkeypatch):
    models = Models()
    with pytest.raises(InputError, match=r"someone/tiny is not on this machine yet; fetch it first: give this name in"):
        models.open(ID, Work())
    assert not server["asked"]
    server["more"] = {"safetensors": {"parameters": {"BF16": 10**12}, "total": 10**12}}
    with pytest.raises(InputError, match=r"someone/tiny needs 4,470\.3 GiB of memory and .* GiB are free"):
        models.open(ID, Work(), fetch=True)
    assert taken(server) == {"config.json"}
    with pytest.raises(InputError, match="is not on this machine yet"):
        models.open(ID, Work())
    server["more"] = {}
    opened = models.open(ID, Work(), fetch=True)
    assert models.open(ID, Work()) is opened
    server["asked"].clear()
    again = Models().open(ID, Work())
    assert again.name == ID and not server["asked"], "it is in the cache"


def test_a_path_into_a_folder_that_is_here_is_no_id(server):
    Path("out").mkdir()
    with pytest.raises(InputError, match=r"no model 'out/typo': neither a folder nor a shipped name"):
        gf.load("out/typo")
    assert not server["asked"]


def test_the_forms_of_an_id_and_of_the_files():
    assert is_id("a/b") and is_id("HuggingFaceTB/SmolLM2-135M@main") and is_id("a/b.c_d-e@refs/pr/1")
    for other in ("small", "./a/b", "/a/b", "a/b/c", "../b", "a/", "a/b@", "a b/c"):
        assert not is_id(other), other
    shards = ["model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    names = ["config.json", *shards, "pytorch_model.bin", "tokenizer.json", "optimizer.pt", "1_Pooling/config.json"]
    assert wanted(names, "a/b") == sorted(["config.json", *shards, "tokenizer.json", "1_Pooling/config.json"])
    assert wanted(["config.json", "pytorch_model.bin", "x.bin"], "a/b") == ["config.json", "pytorch_model.bin"]
    assert hub.ID.fullmatch("a/b")
