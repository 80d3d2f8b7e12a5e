"""What a notebook shows of a trace and of an explanation, and what the kernel answers to a widget's messages."""

from __future__ import annotations

import builtins
import html
import itertools
import json
import re
import subprocess
import sys
import threading
import types

import pytest
import torch
from quick import quick_first
from safetensors.torch import load

import glassformer as gf
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.explanation import (
    Check,
    Edge,
    Explanation,
    Graph,
    HeatMap,
    Line,
    Node,
    Point,
    Points,
    Said,
    Series,
    Table,
    TokenScores,
)
from glassformer.notebook import made

anywidget = pytest.importorskip("anywidget")
VIEW = "application/vnd.jupyter.widget-view+json"
TEXT = "고양이가 <b>생선</b>을"


@pytest.fixture(scope="module")
def trace():
    return gf.load("small").trace(TEXT)


@pytest.fixture(autouse=True)
def built(monkeypatch, tmp_path):
    """A page that stands in for the built one, which a checkout need not have."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.js").write_text("let page = 'of a notebook';", encoding="utf-8")
    (tmp_path / "assets" / "a.css").write_text("p { margin: 1px }", encoding="utf-8")
    (tmp_path / "index.html").write_text('<script src="./assets/a.js"></script><link href="./assets/a.css">', "utf-8")
    monkeypatch.setattr("glassformer.page.saved.PAGE", tmp_path)
    return tmp_path


@pytest.fixture
def widget(trace):
    """A widget, and what it tells the page."""
    one = gf.widget(trace, lang="ko")
    one.told = []
    one.over = threading.Event()

    def send(content, buffers):
        one.told.append((content, bytes(buffers[0])))
        if not content["more"]:
            one.over.set()

    one.send = send
    yield one
    one.close()


NUMBERS = itertools.count(100)  # the page gives each request its own


def asked(widget, path, body="", view="v"):
    """The status and the bytes of an answer."""
    number = next(NUMBERS)
    widget.over.clear()
    widget.told.clear()
    headers = {"accept-language": "en", **({"content-type": "application/json"} if body else {})}
    message = {"view": view, "ask": number, "method": "POST" if body else "GET", "path": path, "headers": headers}
    widget._handle_custom_msg(message | {"body": body}, [])
    assert widget.over.wait(30)
    assert {(one["view"], one["of"]) for one, _ in widget.told} == {(view, number)}
    return widget.told[-1][0]["status"], b"".join(data for _, data in widget.told)


def kernel(monkeypatch, lives=True):
    shell = types.SimpleNamespace(kernel=object() if lives else None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))


# ---------------------------------------------------------------- what a cell shows


def test_a_cell_has_the_widget_and_always_what_a_saved_notebook_shows(trace, monkeypatch):
    kernel(monkeypatch)
    data, _ = trace._repr_mimebundle_()
    assert set(data) == {VIEW, "text/html", "text/plain"} and data["text/plain"] == repr(trace)
    monkeypatch.setattr(made, "NEEDED", "nowhere_to_be_found")
    assert set(trace._repr_mimebundle_()) == {"text/html", "text/plain"}
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.delitem(sys.modules, "IPython")
    assert set(trace._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_a_cell_says_what_to_do_where_the_page_is_gone(trace, widget, monkeypatch):
    """JupyterLab looks for the widget alone, and says "model not found" where it is opened without its kernel."""
    import IPython.display

    told = []
    monkeypatch.setattr(IPython.display, "publish_display_data", lambda data, metadata=None: told.append(data))
    widget._ipython_display_()
    assert [set(one) for one in told] == [{"text/html", "text/plain"}, {VIEW, "text/html", "text/plain"}]
    assert "run this cell again" in told[0]["text/html"] and "다시 실행하십시오" in told[0]["text/html"]
    with pytest.raises(NotImplementedError):  # in no kernel: IPython asks for the other forms then
        trace._ipython_display_()
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    trace._ipython_display_()
    assert len(told) == 4 and VIEW in told[3]


def test_a_terminal_shows_the_line_and_computes_no_page(trace, monkeypatch):
    kernel(monkeypatch, lives=False)
    monkeypatch.setattr("glassformer.page.saved.body_of", lambda *a, **k: pytest.fail("made a page"))
    assert trace._repr_mimebundle_() == {"text/plain": repr(trace)}


def test_without_a_page_or_for_a_batch_a_cell_shows_the_line(trace, built, monkeypatch):
    kernel(monkeypatch)
    batch = gf.load("small").trace([[5, 6], [7, 8]])
    assert batch._repr_mimebundle_() == {"text/plain": repr(batch)}
    (built / "index.html").unlink()
    assert trace._repr_mimebundle_() == {"text/plain": repr(trace)}
    with pytest.raises(UnsupportedError, match="the page is not built"):
        gf.widget(trace)


def test_what_is_kept_holds_the_run_and_can_be_read_without_frames(trace):
    shown = trace._repr_html_()
    frame, _, below = shown.partition("</iframe>")
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1])
    assert 'sandbox="allow-scripts allow-downloads"' in frame and "let page = 'of a notebook';" in inside
    assert inside.count('id="saved"') == inside.count('id="values"') == 1
    assert html.escape(repr(trace)) in below and "<b>생선" not in below
    best = gf.explain("next", trace).figures[0].rows[0]
    assert f"<td>{best[0]}</td>" in below


@pytest.mark.parametrize("words", quick_first([3, 120], [3]))
def test_what_is_kept_is_small_whatever_the_text(words):
    long = gf.load("small").trace("고양이가 생선을 먹었다 " * words)
    assert 100_000 < len(long._repr_html_().encode()) < 2_910_000


def test_an_explanation_is_a_table_in_both_languages(trace):
    one = gf.explain("weights", trace)
    shown = one._repr_html_()
    assert html.escape(one.claim.en) in shown and html.escape(one.claim.ko) in shown
    figure = one.figures[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", shown)
    assert cells == ["" if v is None else f"{v:.4g}" for row in figure.values for v in row]


def test_every_kind_of_figure_is_written_and_nothing_in_it_is_markup():
    bad, said = "<script>", Said("<i>a", "<i>가")
    figures = (
        HeatMap("m", said, (bad,) * 40, (bad,) * 40, [[-1.0] * 40] * 40, said, said, said, "signed"),
        Series("s", said, (bad, "b"), said, said, (Line(said, [0.5, None]),)),
        TokenScores("t", said, (bad,), [2.0], said),
        Graph("g", said, (Node("1", bad, 0, 0), Node("2", "z", 1, 0)), (Edge("1", "2", 3.25),), ("a", "b"), said),
        Table("r", said, (said, said), [[bad, 7], [None, 1.5]]),
        Points("p", said, (Point(bad, bad, 4.75, -6.5),), said, said),
    )
    shown = Explanation("x", said, said, figures, (Check("c", said),))._repr_html_()
    assert "<script>" not in shown and "<i>" not in shown
    for number in ("-1", "0.5", ">2<", "3.25", ">7<", "1.5", "4.75", "-6.5"):
        assert number in shown
    assert "+ 16 …" in shown and "explanation.figure(&#x27;m&#x27;)" in shown


# ---------------------------------------------------------------- what is asked for by name


def test_without_anywidget_the_widget_names_the_way_out(trace, monkeypatch):
    monkeypatch.setattr(made, "NEEDED", "nowhere_to_be_found")
    with pytest.raises(UnsupportedError, match=re.escape('pip install "glassformer[notebook]"')):
        gf.widget(trace)


def test_anywidget_is_not_imported_before_a_widget_is_asked_for(monkeypatch):
    """A trace is made and written as text where it is not installed."""
    real = builtins.__import__

    def guarded(name, *how):
        assert not name.startswith(("anywidget", "ipywidgets", "traitlets")), name
        return real(name, *how)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert gf.load("small").trace(TEXT)._repr_mimebundle_()["text/plain"].startswith("<trace of")


def test_what_cannot_be_a_widget_is_refused(trace):
    with pytest.raises(InputError, match="lang: 'fr'"):
        gf.widget(trace, lang="fr")
    with pytest.raises(UnsupportedError, match=r"gf\.load or gf\.build"):
        gf.widget(gf.Trace(gf.load("small").model, torch.tensor([[5, 6]])))


# ---------------------------------------------------------------- messages


def test_the_module_holds_the_page_as_it_was_built(widget):
    page = json.loads(re.search(r'^const PAGE = (".*");$', widget._esm, re.MULTILINE)[1])
    assert "let page = 'of a notebook';" in page and '<div id="kernel" hidden></div>' in page
    assert "connect-src" not in page and "default-src 'none'" in page
    assert set(widget.get_state()) >= {"_esm", "run", "kept", "lang"}


def test_a_value_comes_as_a_buffer(widget, trace):
    run = json.loads(widget.run)["id"]
    status, data = asked(widget, f"api/runs/{run}/values?name=blocks.1.mixer.pattern&b=0&h=2&t=3")
    assert status == 200
    assert torch.equal(
        load(data)["blocks.1.mixer.pattern"], trace.beside().part("blocks.1.mixer.pattern", b=0, h=2, t=3)
    )


def test_an_explanation_and_a_new_run_come_with_their_progress(widget):
    run = json.loads(widget.run)["id"]
    status, data = asked(widget, f"api/runs/{run}/explanations/weights?layer=1")
    lines = [json.loads(line) for line in data.splitlines()]
    assert status == 200 and "progress" in lines[0] and lines[-1]["done"]["name"] == "weights"
    status, data = asked(widget, "api/runs", json.dumps({"model": "small", "text": "별"}))
    done = json.loads(data.splitlines()[-1])["done"]
    assert status == 200 and done["text"] == "별" and done["id"] != run
    assert asked(widget, f"api/runs/{done['id']}/values?name=embed.out")[0] == 200


def test_the_model_of_the_notebook_is_the_one_that_runs_again():
    """Also where the package has another of that name."""
    model = gf.load("small")
    with torch.no_grad():
        model.model.embed.token.weight.mul_(2)
    trace = model.trace("별이")
    widget = gf.widget(trace)
    widget.told, widget.over = [], threading.Event()
    widget.send = lambda content, buffers: (
        widget.told.append((content, bytes(buffers[0]))),
        content["more"] or widget.over.set(),
    )
    _, data = asked(widget, "api/runs", json.dumps({"model": "small", "text": "별이"}))
    run = json.loads(data.splitlines()[-1])["done"]["id"]
    _, data = asked(widget, f"api/runs/{run}/values?name=embed.out")
    assert torch.equal(load(data)["embed.out"], trace["embed.out"])
    listed = json.loads(asked(widget, "api/models")[1])
    assert [one["summary"]["en"] for one in listed if one["name"] == "small"] == ["the model that is in use here"]
    widget.close()


def test_two_widgets_have_no_runs_in_common(widget, trace):
    other = gf.widget(trace)
    assert json.loads(other.run)["id"] != json.loads(widget.run)["id"]
    assert asked(widget, f"api/runs/{json.loads(other.run)['id']}/values?name=embed.out")[0] == 410
    other.close()


@pytest.mark.parametrize("how", ["stop", "leave", "close"])
def test_what_nobody_waits_for_ends(widget, monkeypatch, how):
    begun, ended = threading.Event(), threading.Event()

    def slow(name, trace, settings, report):
        begun.set()
        try:
            for i in range(3000):
                report(i, 3000)
                ended.wait(0.01)
        except BaseException:
            ended.set()
            raise

    monkeypatch.setattr("glassformer.serve.app.explained", slow)
    path = f"api/runs/{json.loads(widget.run)['id']}/explanations/flow"
    widget._handle_custom_msg({"view": "v", "ask": 4, "method": "GET", "path": path}, [])
    assert begun.wait(30)
    if how == "close":
        widget.close()
    else:
        widget._handle_custom_msg({"view": "v", **({"stop": 4} if how == "stop" else {"leave": True})}, [])
    assert ended.wait(5)
    assert not widget.over.is_set()


NO_PAGE_SENDS = [None, 3, {}, {"ask": 1}, {"view": 2, "ask": 1}, {"view": "v", "ask": "1"}, {"view": "v", "stop": 99}]


def test_what_no_page_sends_is_not_answered_and_breaks_nothing(widget):
    for message in (*NO_PAGE_SENDS, {"view": "v"}):
        widget._handle_custom_msg(message, [])
        assert asked(widget, "api/models")[0] == 200, message


def test_an_address_that_does_not_exist_is_refused(widget):
    for path in ("api", "api/nothing", "../../etc/passwd", "api/%2e%2e/x", "api/runs/x/values?name=é"):
        status, data = asked(widget, path)
        assert status in (404, 410) and "refused" in json.loads(data), path


def test_a_program_with_widgets_ends_without_a_word(built):
    """Whether or not they were ever asked for anything."""
    code = f"""
import pathlib, time
import glassformer as gf, glassformer.page.saved as saved
saved.PAGE = pathlib.Path({str(built)!r})
trace, told = gf.load("small").trace("별"), []
widgets = [gf.widget(trace), gf.widget(trace)]
widgets[1].send = lambda content, buffers: told.append(content)
widgets[1]._handle_custom_msg({{"view": "v", "ask": 1, "method": "GET", "path": "api/models"}}, [])
while not told or told[-1]["more"]:
    time.sleep(0.01)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
