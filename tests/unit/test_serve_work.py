"""Long work of the explorer's server: it can be ended, it takes turns, and it changes nothing that it computes."""

import json
import os
import socket
import sys
import threading
import time
from contextlib import contextmanager

import anyio
import httpx
import pytest
import torch
import uvicorn
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.serve import models as models_module
from glassformer.serve.answers import refused
from glassformer.serve.app import application
from glassformer.serve.connection import MOST_REQUESTS
from glassformer.serve.models import Models
from glassformer.serve.start import configured
from glassformer.serve.work import MOST_WAITING, BusyError, Cancelled, Desk, Work

TEXT = "고양이가 생선을 먹었다. " * 12


@pytest.fixture(scope="module")
def app():
    return application()


@contextmanager
def listening(app):  # or uvicorn's settings, with an application
    """The address of a real server: only with one does a person leave."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    quiet = app if isinstance(app, uvicorn.Config) else uvicorn.Config(app, log_level="error", ws="none")
    one = uvicorn.Server(quiet)
    thread = threading.Thread(target=one.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not one.started and time.monotonic() < until:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    one.should_exit = True
    thread.join(10)
    bound.close()


@pytest.fixture(scope="module")
def server(app):
    with listening(app) as address:
        yield address


def outcome(response):
    return json.loads(response.text.splitlines()[-1])


def computing(app):
    """How many computations go on."""
    return len(app.state.desk._works)


def ends_soon(app):
    """How long it takes until nothing is computed any more, in seconds."""
    began = time.monotonic()
    while computing(app) and time.monotonic() < began + 10:
        time.sleep(0.005)
    return time.monotonic() - began


def test_what_is_computed_while_it_is_watched_is_the_same_to_the_last_bit():
    model = gf.load("small")

    def made():
        trace = model.trace("고양이가 생선을 먹었다")
        influence = trace.influence(rows=[3], method="estimate", directions=8).norms
        tokens = [event.token for event in model.generate("별이", max_new_tokens=4)]
        return trace.logits, trace["blocks.2.mixer.pattern"], influence, torch.tensor(tokens)

    alone = made()
    with Work().watched():
        watched = made()
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


@pytest.mark.parametrize("begin", ["trace", "way back", "generation", "part"])
def test_work_that_nobody_wants_ends_at_its_next_operation(begin):
    model, work = gf.load("small"), Work()
    trace = model.trace("고양이가 생선을 먹었다")
    kinds = {
        "trace": lambda: [model.trace(TEXT) for _ in range(50)],
        "way back": lambda: trace.influence(method="exact"),
        "generation": lambda: [list(model.generate("별이", max_new_tokens=200)) for _ in range(100)],
        "part": lambda: [trace.beside().part("blocks.3.mixer.pattern", h=0) for _ in range(500)],
    }
    ended = []

    def run():
        try:
            with work.watched():
                kinds[begin]()
        except Cancelled:
            ended.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    asked = time.monotonic()
    work.cancel()
    thread.join(10)
    assert ended and ended[0] - asked < 1


def begun(response):
    """The lines behind the first; the answer ends when they are dropped."""
    lines = response.iter_lines()
    next(lines)
    return lines


def leave_after(client, method, url, **how):
    """Begin a streamed request and leave as soon as the first line is there."""
    with client.stream(method, url, **how) as response:
        assert response.status_code == 200
        begun(response)


@pytest.mark.parametrize("what", ["run", "influence", "generation"])
def test_a_person_who_leaves_ends_the_computing_within_a_second(app, server, what):
    with httpx.Client(base_url=server, timeout=60) as client:
        run = outcome(client.post("/api/runs", json={"model": "small", "text": TEXT}))["done"]
        kinds = {
            "run": ("POST", "/api/runs", {"json": {"model": "small", "text": "긴 글입니다. " * 1500}}),
            "influence": ("GET", f"/api/runs/{run['id']}/explanations/influence?method=exact", {}),
            "generation": (
                "POST",
                "/api/generate",
                {"json": {"model": "small", "text": "별이", "settings": {"max_new_tokens": 200, "ends": [0]}}},
            ),
        }
        method, url, how = kinds[what]
        leave_after(client, method, url, **how)
        assert ends_soon(app) < 1


@pytest.mark.parametrize("what", ["run", "generation", "page", "file"])
def test_work_that_ends_with_the_server_is_refused_and_has_no_outcome(app, server, what):
    """A stream in its last line, anything else by its status; else the page would take nothing for what it asked."""
    with httpx.Client(base_url=server, timeout=60, headers={"accept-language": "ko"}) as client:
        run = outcome(client.post("/api/runs", json={"model": "small", "text": TEXT}))["done"]
        kinds = {
            "run": ("/api/runs", {"model": "small", "text": "긴 글입니다. " * 1500}),
            "generation": ("/api/generate", {"model": "small", "text": "별이", "settings": {"max_new_tokens": 200}}),
            "page": (f"/api/runs/{run['id']}/page", {"lang": "ko"}),
            "file": (f"/api/runs/{run['id']}/page", None),
        }
        path, body = kinds[what]
        stopping = threading.Thread(target=lambda: (waits_for(app), app.state.desk.stop()))
        stopping.start()
        found = client.get(path) if body is None else client.post(path, json=body)
        stopping.join()
        assert found.status_code == (503 if what == "file" else 200)
        told = outcome(found)
        assert told == {"refused": "서버가 멈추었습니다. 다시 시작한 뒤 화면을 새로 고치십시오.", "status": 503}


def waits_for(app):
    """Wait until something is computed."""
    until = time.monotonic() + 30
    while not computing(app) and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.1)
    assert computing(app)  # it is under way


def leaves(server, app, method, path, body=b""):
    """Ask, leave without reading a word as soon as it is computed, and return how long the computing still takes."""
    host, port = server.removeprefix("http://").split(":")
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as one:
        one.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        waits_for(app)
    return ends_soon(app)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A server that knows a model with a snapshot of its training: (its application, its address)."""
    folder = tmp_path_factory.mktemp("trained") / "one"
    model = gf.load("small")
    for place in (folder, folder / "train" / "snapshots" / "5"):
        model.save(place)
    app = application(models=Models(named={"one": folder}))
    with listening(app) as address:
        yield app, address


@pytest.mark.parametrize("what", ["page", "seen", "effect", "film"])
def test_whoever_leaves_before_the_first_word_ends_the_computing_too(trained, what):
    """Of a saved page, whose answer comes all at once, and of what computes for long by itself."""
    app, server = trained
    edits = [{"kind": "zero", "name": "blocks.0.mixer.z", "where": {"h": 1}}] if what == "effect" else []
    text = "긴 글입니다. " * 300 if what == "effect" else TEXT
    with httpx.Client(base_url=server, timeout=60) as client:
        run = outcome(client.post("/api/runs", json={"model": "one", "text": text, "edits": edits}))["done"]
    base = f"/api/runs/{run['id']}"
    kinds = {
        "page": ("GET", f"{base}/page"),
        "seen": ("POST", f"{base}/page", b'{"lang": "ko"}'),
        "effect": ("GET", f"{base}/explanations/effect"),
        "film": ("GET", f"{base}/explanations/film?show=influence&how=method%3Dexact"),
    }
    assert leaves(server, app, *kinds[what]) < 1


def test_whoever_leaves_a_pull_ends_its_pip(app, server, monkeypatch, tmp_path):
    """A pip that says nothing for ever is ended with the pull, and what was begun of the model is not kept."""
    pip = tmp_path / "pip.py"
    pip.write_text(
        "import os, sys, time\n"
        "if '--version' in sys.argv: sys.exit(print('pip 25.0 from here'))\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    starter = tmp_path / "python"
    starter.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" "{pip}" "$@"\n')
    starter.chmod(0o755)
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("glassformer.pull.sys.executable", str(starter))
    with httpx.Client(base_url=server, timeout=60) as client:
        with client.stream("POST", "/api/models", json={"name": "minilm-l6"}) as response:
            lines = begun(response)
            until = time.monotonic() + 30
            while not (tmp_path / "pid").is_file() and time.monotonic() < until:
                time.sleep(0.02)
        del lines
        assert ends_soon(app) < 1
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not list((tmp_path / "home" / "models").glob("*"))


def test_numbers_are_given_while_others_compute(app, server):
    """The event loop is free, and a run's values do not wait for an explanation of it."""
    with httpx.Client(base_url=server, timeout=60) as client:
        run = outcome(client.post("/api/runs", json={"model": "small", "text": TEXT}))["done"]
        slow = f"/api/runs/{run['id']}/explanations/influence?method=exact"
        with client.stream("GET", slow) as one, client.stream("GET", slow) as two:
            kept = begun(one), begun(two)
            assert computing(app) == 2
            assert client.get("/api/models").status_code == 200
            found = client.get(f"/api/runs/{run['id']}/values?name=blocks.0.mixer.pattern&b=0&h=0&t=3")
            assert found.status_code == 200 and computing(app) == 2
        del kept
        assert ends_soon(app) < 1


def in_background(*does):
    """Threads that do these things, begun one after another, and what each of them returned."""
    found = [None] * len(does)

    def done(i, one):
        found[i] = one()

    threads = [threading.Thread(target=done, args=pair, daemon=True) for pair in enumerate(does)]
    for one in threads:
        one.start()
    return threads, found


def slow_loading(models, monkeypatch, slow):
    """Loading takes until the event is set, of the models named; what began to be loaded, in order."""
    loaded, may_end, began = models._loaded, threading.Event(), []

    def load(place, name):
        began.append(name)
        assert name not in slow or may_end.wait(30)
        return loaded(place, name)

    monkeypatch.setattr(models, "_loaded", load)
    return may_end, began


def until(true):
    """Wait until something is so."""
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    assert true()


def test_a_slow_load_lets_others_run_and_load_and_is_done_once(monkeypatch):
    models = Models()
    models.open("cnn", Work())
    may_end, began = slow_loading(models, monkeypatch, {"small"})
    threads, found = in_background(*[lambda: models.open("small", Work())] * 2)
    until(lambda: began == ["small"])
    with TestClient(application(models=models), base_url="http://127.0.0.1") as client:
        for name in ("cnn", "lstm"):
            assert "done" in outcome(client.post("/api/runs", json={"model": name, "text": "a"})), name
    impatient = Work()
    impatient.cancel()
    with pytest.raises(Cancelled):
        models.open("small", impatient)
    may_end.set()
    for one in threads:
        one.join(30)
    assert found[0] is not None and found[0] is found[1] and began == ["small", "lstm"]
    assert [*models._kept] == ["cnn", "lstm", "small"] and not models._coming and not models._loading


def test_models_that_may_not_fit_together_are_loaded_one_after_another(monkeypatch):
    """None of them is refused for what another one only will take."""
    models, free = Models(), [0]
    need = models_module._need_bytes(models.place("small"), "float32")
    free[0] = int(models_module.BESIDE * need) + 1
    monkeypatch.setattr("glassformer.machine.free_bytes", lambda device: free[0])
    may_end, began = slow_loading(models, monkeypatch, {"small", "lstm"})
    threads, found = in_background(lambda: models.open("small", Work()))
    until(lambda: began == ["small"])
    more, second = in_background(lambda: models.open("lstm", Work()))
    time.sleep(0.3)
    assert began == ["small"] and models._coming == {"small": need}
    may_end.set()
    for one in threads + more:
        one.join(30)
    assert found[0].name == "small" and second[0].name == "lstm" and began == ["small", "lstm"]


def test_a_model_that_cannot_be_loaded_leaves_no_claim(monkeypatch):
    models = Models()
    monkeypatch.setattr(models, "_loaded", lambda place, name: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            models.open("cnn", Work())
    assert models._coming == {} and [*models._kept] == []


def test_who_waits_is_told_and_may_leave(app, server):
    with httpx.Client(base_url=server, timeout=60) as client:
        run = outcome(client.post("/api/runs", json={"model": "small", "text": TEXT}))["done"]
        slow = f"/api/runs/{run['id']}/explanations/influence?method=exact"
        with client.stream("GET", slow) as one, client.stream("GET", slow) as two:
            kept = begun(one), begun(two)
            with client.stream("GET", slow.replace("influence?method=exact", "cost")) as third:
                kept += (third.iter_lines(),)
                assert json.loads(next(kept[-1]))["progress"]["what"] == "wait"
            assert "done" in outcome(client.post("/api/runs", json={"model": "small", "text": "b"})), "a run is made"
        del kept
        assert ends_soon(app) < 1
        assert "done" in outcome(client.post("/api/runs", json={"model": "small", "text": "a"}))


def test_too_many_who_wait_are_refused():
    async def filled():
        desk, hold = Desk(), threading.Event()
        async with anyio.create_task_group() as group:
            for _ in range(2 + MOST_WAITING):
                group.start_soon(desk.done, Work(), hold.wait, "long")
            await anyio.sleep(0.2)
            with pytest.raises(BusyError, match=f"busy: {MOST_WAITING}"):
                desk.check_room("long")
            desk.check_room("quick")
            hold.set()

    anyio.run(filled)


def test_a_busy_server_says_when_to_try_again(monkeypatch):
    monkeypatch.setattr("glassformer.serve.work.MOST_WAITING", 0)
    with TestClient(application(), base_url="http://127.0.0.1") as client:
        found = client.post("/api/runs", json={"model": "small", "text": "a"}, headers={"accept-language": "ko"})
        assert (
            found.status_code == 503 and found.headers["retry-after"] == "2" and "바쁩니다" in found.json()["refused"]
        )


def test_a_mistake_of_the_server_is_told_and_the_next_request_is_answered(monkeypatch, caplog):
    def broken(*_, **how):
        raise ZeroDivisionError("secret")

    with TestClient(application(), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        with monkeypatch.context() as inside:
            inside.setattr("glassformer.serve.runs.outline", broken)
            told = outcome(client.post("/api/runs", json={"model": "lstm", "text": "a"}))
        assert told["status"] == 500 and "secret" not in told["refused"] and "ZeroDivisionError" in caplog.text
        assert "done" in outcome(client.post("/api/runs", json={"model": "lstm", "text": "a"}))
        with monkeypatch.context() as inside:
            inside.setattr("glassformer.serve.models.Models.listed", broken)
            found = client.get("/api/models")
        assert found.status_code == 500 and "secret" not in found.text


def allocated(count):
    """What PyTorch, or Python, says where there is no memory to be had."""
    return lambda *_, **how: torch.empty(count) if count else bytearray(1 << 62)


def test_what_finds_no_memory_is_too_large_and_no_mistake_of_the_server(monkeypatch):
    cuda = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    for error in (
        cuda,
        MemoryError(),
        RuntimeError("MPS backend out of memory"),
        OSError(12, "Cannot allocate memory"),
    ):
        assert refused(error, "en")[1] == 413, error
    for error in (RuntimeError("shape '[2]' is invalid"), ValueError("out of memory"), OSError(28, "No space left")):
        assert refused(error, "en")[1] == 500, error
    with TestClient(application(), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        for count in (1 << 52, 0):
            monkeypatch.setattr("glassformer.serve.runs.outline", allocated(count))
            told = outcome(client.post("/api/runs", json={"model": "lstm", "text": "a"}))
            assert told["status"] == 413 and "give a shorter text" in told["refused"], told


def closed_after(address, *parts, patience=10):
    """How long until the server closes a connection on which these were sent, and what it answered."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=patience) as one:
        for part in parts:
            one.sendall(part)
        began, found = time.monotonic(), b""
        while part := one.recv(1 << 16):
            found += part
        return time.monotonic() - began, found


def test_whoever_says_nothing_or_half_of_it_does_not_keep_a_connection(app, monkeypatch):
    monkeypatch.setattr("glassformer.serve.connection.HEAD_S", 0.5)
    monkeypatch.setattr("glassformer.serve.guard.BODY_S", 0.5)
    head = b"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    whole = b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with listening(configured(app)) as address:
        for parts in ((), (head,), (whole, b"GET / HTTP/1.1\r\n")):
            took, found = closed_after(address, *parts)
            assert took < 8 and found.startswith(b"HTTP/1.1 200" if parts[:1] == (whole,) else b""), parts
        _, found = closed_after(address, head + b"accept-language: ko\r\nConnection: close\r\n\r\n", b'{"mod')
        assert found.startswith(b"HTTP/1.1 408") and "다시 시도하십시오".encode() in found
        with httpx.Client(base_url=address, timeout=60) as client:  # a computation may be longer than all of that
            with monkeypatch.context() as inside:
                inside.setattr("glassformer.serve.models.Models.listed", lambda self: time.sleep(1.5) or [])
                assert client.get("/api/models").json() == []
            time.sleep(0.2)
            assert client.get("/api/models").status_code == 200


def test_no_more_connections_are_held_than_may_be(app, monkeypatch):
    monkeypatch.setattr("glassformer.serve.connection.MOST_CONNECTIONS", 2)
    with listening(configured(app)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))):
            assert closed_after(address)[0] < 5
    assert configured(app).limit_concurrency == MOST_REQUESTS


def test_a_report_is_told_no_more_often_than_can_be_read():
    told = []
    work = Work(told.append)
    for done in range(1000):
        work.report("wheel", done, 1000)
    work.report("wheel", 1000, 1000)
    assert told[0]["progress"]["done"] == 0 and told[-1]["progress"]["done"] == 1000 and len(told) < 20
