"""glassformer explore: the sheet and the link in the terminal, and a server that ends when it is told to."""

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest
from cli_runs import refused, run

import glassformer as gf
from glassformer.errors import InputError
from glassformer.serve import start

TEXT = "The cat <ate> & slept"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page that is built, and a port that is free."""
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<p>the page</p>")
    monkeypatch.setattr("glassformer.serve.app.PAGE", tmp_path / "page")
    monkeypatch.setattr("glassformer.serve.start.torch.set_num_threads", lambda count: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def explored(capsys, port, *arguments, while_open=lambda link: None, ends=signal.SIGINT):
    """(status, stdout, stderr) of explore, ended by a signal once something was done with its page."""
    found = []

    def use():
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        try:
            found.append(while_open(f"http://127.0.0.1:{port}"))
        finally:
            os.kill(os.getpid(), ends)

    other = threading.Thread(target=use)
    other.start()
    made = run(capsys, "explore", *arguments, "--port", str(port), "--lang", "en")
    other.join()
    return *made, found


def test_the_sheet_is_printed_and_the_page_shown_until_ctrl_c(capsys, page, monkeypatch):
    opened = []
    monkeypatch.setattr(start, "open_browser", opened.append)

    def look(link):
        with urllib.request.urlopen(f"{link}/") as root, urllib.request.urlopen(f"{link}/api/models") as models:
            return root.read().decode(), json.load(models)[0]["name"]

    status, out, _, found = explored(capsys, page, TEXT, "-m", "lstm", while_open=look)
    assert status == 0 and found == [("<p>the page</p>", "small")]
    assert "lstm" in out and out.rstrip().endswith("The page is closed.")
    [link] = opened
    assert link in out.replace("\n", "")
    assert parse_qs(urlsplit(link).query) == {"lang": ["en"]}
    place = parse_qs(urlsplit(link).fragment)
    assert place == {"model": ["lstm"], "text": [TEXT]} and urlsplit(link).port == page


def test_edits_are_those_of_the_page_too(capsys, page):
    """The sheet in the terminal is that of the changed run, and the page opens with the same changes."""
    edits = ["--edit", "zero positions", "--edit", "scale blocks.1.mixer.z 0.5 h=0,2"]
    status, out, _, _ = explored(capsys, page, TEXT, "--no-browser", *edits)
    link = next(line for line in out.splitlines() if "http://" in line).partition("http")[2]
    [given] = parse_qs(urlsplit(f"http{link}").fragment)["edits"]
    assert status == 0 and json.loads(given) == [
        {"kind": "zero", "name": "positions", "where": {}, "value": None},
        {"kind": "scale", "name": "blocks.1.mixer.z", "where": {"h": [0, 2]}, "value": 0.5},
    ]
    other = gf.load().trace(TEXT, edits=[gf.zero("positions"), gf.scale("blocks.1.mixer.z", 0.5, h=[0, 2])])
    shares = [f"{100 * one.probability:.2f}%" for one in other.sheet().next]
    assert all(one in out for one in shares[:3])


def test_json_gives_the_link_and_no_sheet(capsys, page):
    status, out, err, _ = explored(capsys, page, "--json", "--no-browser")
    assert status == 0 and json.loads(out) == {"link": f"http://127.0.0.1:{page}/?lang=en", "port": page}
    assert "closed" in err


def test_a_folder_is_opened_by_the_path_that_was_given(capsys, page, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    gf.load("lstm").save(folder)
    monkeypatch.chdir(tmp_path)

    def trace(link):
        body = json.dumps({"model": "elsewhere", "text": "a"}).encode()
        asked = urllib.request.Request(f"{link}/api/runs", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            return json.loads(answer.read().splitlines()[-1])["done"]["model"]

    how = ("-m", "elsewhere", "--json", "--no-browser")
    assert explored(capsys, page, *how, while_open=trace)[3] == ["elsewhere"]


def test_bound_elsewhere_the_link_holds_a_token(capsys, page):
    def look(link):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{link}/api/models")

    _, out, _, _ = explored(capsys, page, "--no-browser", "--host", "0.0.0.0", while_open=look)
    link = next(line for line in out.splitlines() if "http://" in line)
    assert len(link.split("?token=")[1]) >= 32 and "not encrypted" in out


def test_without_a_page_to_show_the_sheet_alone_is_printed(capsys, monkeypatch):
    status, out, err = run(capsys, "explore", "고양이가 생선을 먹었다", "--no-serve")
    assert status == 0 and "먹었다" in out and "softmax" in out and "glassformer explore" in err


def test_a_page_that_is_not_built_is_told_with_the_way_out(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.serve.app.PAGE", tmp_path / "none")
    assert "make page" in refused(capsys, "explore", "--json")
    assert "make page" in refused(capsys, "explore", "--json", lang="ko")
    assert run(capsys, "explore", TEXT)[:2] == (2, "")  # before the sheet


def test_a_port_in_use_is_told_or_the_next_one_taken(capsys, page):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(capsys, "explore", "--json", "--port", str(port))
        assert f"{port} cannot be had" in said
        status, out, _ = run(capsys, "explore", TEXT, "--port", str(port))  # before the sheet
        assert (status, out) == (2, "")
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(start, "PORT", port)
            with start.listening("127.0.0.1", None) as other:
                assert port < other.getsockname()[1] < port + start.TRIED


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "0 to 65535"),
        (["--models", "none"], "is no folder"),
        (["-m", "none", "--json"], "no model 'none'"),
        (["", "--json"], "the text is empty"),
        (["--memory", "0"], "--memory"),
        (["-m", "whisper-base"], "reads sound, which the page does not show; choose a model of texts or images"),
        (["--edit", "zro blocks.0.mixer.z"], "this is no edit; say what is done"),
        (["--edit", "zero blocks.9.mixer.z"], "no value named 'blocks.9.mixer.z' in this model"),
        (["--json", "--edit", "zero blocks.9.mixer.z"], "no value named 'blocks.9.mixer.z' in this model"),
        (["--json", "--host", "no.such.host.invalid"], "is no address of this machine"),
    ],
)
def test_mistakes_are_told_before_anything_is_served(capsys, page, arguments, said):
    assert said in refused(capsys, "explore", *arguments)


def test_links_are_written_so_that_a_browser_reads_them():
    assert start.link("127.0.0.1", 8765, {"token": "", "lang": ""}) == "http://127.0.0.1:8765/"
    assert start.link("::1", 1, {}) == "http://[::1]:1/"
    made = start.link("0.0.0.0", 8765, {"token": "a-b_c", "lang": ""}, text="고양이 & 개#1", model="out/x y")
    assert made.startswith(f"http://{socket.gethostname()}:8765/?token=a-b_c#text=%EA")
    assert parse_qs(urlsplit(made).fragment) == {"text": ["고양이 & 개#1"], "model": ["out/x y"]}
    assert start.token_for("127.0.0.1") == "" and start.token_for("0.0.0.0") != start.token_for("0.0.0.0")


def test_a_browser_is_opened_only_where_there_is_a_display(monkeypatch):
    opened = threading.Event()
    monkeypatch.setattr("webbrowser.open", lambda address: opened.set())
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    start.open_browser("http://127.0.0.1/")
    assert not opened.wait(0.2)
    monkeypatch.setenv("DISPLAY", ":0")
    start.open_browser("http://127.0.0.1/")
    assert opened.wait(5)


def test_a_host_that_is_none_is_refused():
    for host in ("203.0.113.7", "\udcff", "a" * 300):
        with pytest.raises(InputError, match="no address of this machine"):
            start.listening(host, 0)
