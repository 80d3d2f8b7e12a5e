"""A fuzz of all routes of the explorer's server, from what each of them takes: odd names, places, bodies and headers.

Nothing may make it fail (5xx) or grow, and work that nobody waits for ends. Ten seconds among the quick tests, ten
minutes among the slow ones; GLASSFORMER_FUZZ_S sets another time.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import string
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from glassformer.edit import KINDS
from glassformer.explain.explained import EXPLANATIONS
from glassformer.generate import GenerateSpec
from glassformer.page import documents
from glassformer.serve.app import application
from glassformer.sources import SHIPPED

# A server whose memory is full soon, so that it must not grow any more; a saved page is made without the built one, and
# with few explanations.
PROGRAM = """
import sys, uvicorn
from pathlib import Path
from glassformer.page import saved
from glassformer.serve import models
from glassformer.serve.app import application
from glassformer.serve.runs import Runs

models.MOST_MODELS = 12
saved.built = lambda: ("", "")
saved.MOST_EXPLANATIONS, saved.VALUE_BYTES = 6, 1 << 20
runs = Runs(models.Models(named={"filmed": Path(sys.argv[2])}), run_bytes=32 << 20, all_bytes=64 << 20)
uvicorn.run(application(runs=runs), port=int(sys.argv[1]), log_level="error", ws="none")
"""
# Where models are fetched from: a port at which nobody answers, and no index of packages; no other machine is asked.
NOWHERE = {
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "NO_PROXY": "*",
    "no_proxy": "*",
    "PIP_NO_INDEX": "1",
    "PIP_CONFIG_FILE": os.devnull,
}
MIB = 1 << 20
MOST = 700 * MIB  # 350 with all models, 64 of runs kept, what several requests work with or C has not given back
TEXTS = ("고양이가 생선을 먹었다", "a", "", " ", "👩‍👧", "가", "\u202e<script>", "e\u0301" * 20, "\0", "x" * 500)
PICTURE = base64.b64encode(b"P5 28 28 255\n" + bytes(range(196)) * 4).decode()
SIDES = (0, 1, 2, 5, 28, 300, 3000, 32_769, 4_000_000, 2**31 - 1, 2**32 - 1)  # of pictures
# The runs of which everything is asked: one of each shape, of each kind of network, and one whose training was kept.
RUNS = (
    *({"model": name, "text": "가 a"} for name in ("lstm", "cnn", "ssm", "mlp", "filmed", "small")),
    {"model": "small", "text": TEXTS[0]},
    {"model": "korean-g2p", "text": "고양이"},
    *({"model": name, "image": PICTURE} for name in ("vit", "lenet")),
)
MODELS = ("small", "lstm", "cnn", "ssm", "mlp", "korean-g2p", "vit", "lenet", "smollm2-135m", "org/model@v1")
PLACES = ("/etc/passwd", "../..", "out", ".", "~", "src/glassformer/shipped/small", "a" * 400)
NAMES = (
    *("embed.out", "blocks.0.mixer.pattern", "blocks.1.mixer.scores", "blocks.0.resid_out", "head.logits", "norm.out"),
    *("blocks.0.mixer.q", "blocks.2.channel.hidden", "blocks.99.mixer.q", "blocks", "..", "encoder.embed.out"),
)
# What functions call what they take: never a setting or an axis.
HOSTILE = (
    "name",
    "self",
    "watch",
    "report",
    "given",
    "text",
    "trace",
    "prompt",
    "kind",
    "where",
    "settings",
    "",
    "a.b",
)

odd = st.text(max_size=12) | st.sampled_from(TEXTS)
whole = st.integers(-3, 12) | st.sampled_from([10**9, -(10**9), 2**63, 10**30])
word = st.text(string.ascii_letters + string.digits + "._-", max_size=8)
hostile = st.sampled_from(HOSTILE) | word
byte = st.integers(0, 255)
MAXIMA = (0, 1, 255, 65_535, 65_536, 10**30)  # of a PGM
thing = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False) | odd,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(hostile, inside, max_size=3),
    max_leaves=6,
)
place = whole.map(str) | st.lists(whole, max_size=3).map(lambda many: ",".join(map(str, many))) | odd
words = st.sampled_from(
    ["word", "token", "source", "estimate", "null", "{}", "[1]", "1e999", "x=1&name=2", *EXPLANATIONS]
)


def of(kind, usual, /, **known):
    """Bodies of a struct, each field missing or there: of a known strategy, or anything. usual: fields always there."""
    fields = {name: known.get(name, thing) for name in kind.__struct_fields__}
    assert known.keys() <= fields.keys(), known
    right = {name: fields.pop(name) for name in usual}
    return st.fixed_dictionaries(right, optional={name: one | thing for name, one in fields.items()})


def keys(*names):
    """Names of which most are known, and some are hostile."""
    return st.sampled_from(names) | hostile if names else hostile


@st.composite
def drawn(draw):
    """A picture in base64: a PNG whose parts fit, or one that is broken somewhere; a PGM or PPM likewise."""
    width, height = draw(st.sampled_from(SIDES)), draw(st.sampled_from(SIDES[:5]))
    bits, colour = draw(st.sampled_from([(8, 0), (8, 2), (8, 6), (1, 0), (4, 3), (16, 4)]) | st.tuples(byte, byte))
    if draw(st.booleans()):
        width, height = height, width
    if draw(st.integers(0, 3)) == 0:
        head = b"P%d %d %d %d\n" % (draw(st.sampled_from([2, 3, 5, 6])), width, height, draw(st.sampled_from(MAXIMA)))
        return base64.b64encode(head + draw(st.binary(max_size=30) | st.just(b"9 " * 784))).decode()
    row = (width * bits * {2: 3, 4: 2, 6: 4}.get(colour, 1) + 7) // 8
    lines = (
        (bytes([draw(st.integers(0, 5))]) + draw(byte).to_bytes() * row) * height
        if (row + 1) * max(1, height) < 1 << 17  # of no row too
        else b""
    )
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, draw(st.sampled_from([0, 0, 0, 1])))),
        *[(b"PLTE", bytes(48))] * (colour == 3),
        *draw(st.lists(st.tuples(st.sampled_from([b"tEXt", b"tRNS", b"IHDR"]), st.binary(max_size=7)), max_size=1)),
        (b"IDAT", zlib.compress(lines)),
    ]
    chunks = chunks if draw(st.integers(0, 4)) else draw(st.permutations(chunks))
    data = b"".join(struct.pack(">I", len(body)) + kind + body + bytes(4) for kind, body in chunks)
    end = len(data) if draw(st.integers(0, 4)) else draw(st.integers(0, len(data)))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data[:end]).decode()


model = st.sampled_from(MODELS[:5]) | st.sampled_from(MODELS + PLACES) | odd
where = st.dictionaries(keys(*"bthsdefkvcyxé"), whole | st.lists(whole, max_size=3) | thing, max_size=2)
edit = of(
    documents.PageEdit,
    ("kind", "name"),
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(NAMES),
    where=where,
    value=st.none() | st.floats(allow_nan=False) | whole,
    seed=whole,
    renormalise=st.booleans(),
    run=st.none() | st.sampled_from(TEXTS) | st.lists(whole, max_size=3) | odd,
    there=where,
)
run = of(
    documents.Asked,
    ("model", "text"),
    model=model,
    text=st.sampled_from(TEXTS) | odd,
    target=st.none() | odd,
    ids=st.none() | st.lists(whole, max_size=5),
    start=st.booleans(),
    edits=st.lists(edit, max_size=2),
    image=st.none() | st.just(PICTURE) | odd,
    part=whole,
)
pictured = of(documents.Asked, ("model", "image"), model=st.sampled_from(["vit", "lenet"]), image=drawn())
how = st.dictionaries(keys(*GenerateSpec.__struct_fields__), thing, max_size=2)
writing = of(
    documents.AskedWriting,
    ("model", "text", "settings"),
    model=model,
    text=st.sampled_from(TEXTS),
    top=whole,
    settings=how.map(lambda given: {"max_new_tokens": 3} | given),
)
several = of(documents.AskedValue, ("name",), name=st.sampled_from(NAMES) | word, where=where)

# What was looked at: as the page sends it, and in odd forms.
SAID = {"en": "a", "ko": "가"}
TABLE = {"kind": "table", "name": "x", "title": SAID, "columns": [SAID], "rows": [[1.5, "</script>", None]]}
EXPLAINED = {"name": "cost", "title": SAID, "claim": SAID, "figures": [TABLE]}
address = st.sampled_from([*EXPLANATIONS, "flow?layer=1", "none?", "?"]) | odd
looked = st.fixed_dictionaries(
    {"id": st.just("ID") | odd},
    optional={
        "explanations": st.dictionaries(address, st.just(EXPLAINED), max_size=2) | thing,
        "values": st.lists(st.sampled_from(NAMES[:4]) | st.sampled_from(NAMES), max_size=2),
    },
)
written = {"text": "a", "python": ["a"], "command": "a"}
watched = st.fixed_dictionaries({"asked": writing, "tokens": st.just([])}, optional={"written": st.just(written)})
saved = of(
    documents.AskedPage,
    ("lang", "seen"),
    lang=st.sampled_from(["en", "ko"]),
    seen=st.lists(looked, max_size=3),
    writings=st.lists(watched, max_size=1),
    left=st.lists(odd, max_size=2),
)


def explained(name):
    """Requests for an explanation: its settings and others, with values that fit and those that do not."""
    known = EXPLANATIONS[name].settings.__struct_fields__ if name in EXPLANATIONS else ()
    query = st.dictionaries(keys(*known), place | words, max_size=3)
    return st.tuples(st.just("GET"), st.just(f"/api/runs/ID/explanations/{quote(name)}"), query, st.none())


# What each route is given behind the ?, where it takes something there, and in its body.
QUERIES = {
    "/letters": st.dictionaries(keys("of"), odd, max_size=2),
    "/runs/{ident}/values": st.dictionaries(keys(*"bthsdev"), place, max_size=2).flatmap(
        lambda asked: (st.sampled_from(NAMES) | odd).map(lambda name: {**asked, "name": name})
    ),
    "/runs/{ident}/page": st.dictionaries(keys("lang"), st.sampled_from(["en", "ko"]) | odd, max_size=1),
}
BODIES = {
    "/models": of(documents.AskedModel, ("name",), name=model),
    "/runs": run | pictured,
    "/generate": writing,
    "/runs/{ident}/values": st.lists(several, max_size=3),
    "/runs/{ident}/page": saved,
}


def asks(route):
    """How a route is asked: each method that it takes, where, with what behind the ?, with what body. ID is that of a
    run that there is."""
    path = f"/api{route.path}".replace("{ident}", "ID")
    for method in sorted(route.methods - {"HEAD"}):
        if "{name}" in path:
            yield st.sampled_from([*EXPLANATIONS, "none", ".."]).flatmap(explained)
        elif method == "GET":
            query = QUERIES.get(route.path, st.just({}) | st.dictionaries(hostile, place, max_size=1))
            yield st.tuples(st.just(method), st.just(path), query, st.none())
        else:  # a new one fails here, until it is said what it takes
            yield st.tuples(st.just(method), st.just(path), st.just({}), BODIES[route.path])
            yield st.tuples(st.just(method), st.just(path), st.just({}), thing)


[API] = [one for one in application().routes if one.path == "/api"]
ROUTES = (
    *(one for route in API.routes for one in asks(route)),
    odd.flatmap(lambda name: explained(name)),
    st.tuples(
        st.just("GET"), odd.map(lambda ident: f"/api/runs/{quote(ident, safe='')}/values"), st.just({}), st.none()
    ),
    st.tuples(st.just("GET"), odd.map(lambda path: f"/{quote(path)}"), st.just({}), st.none()),
    st.tuples(
        st.sampled_from(["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "x"]),
        st.sampled_from([f"/api{route.path}" for route in API.routes] + ["/"]),
        st.just({}),
        st.none() | thing,
    ),
)
plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20).map(str.strip)
headers = st.dictionaries(
    st.sampled_from(
        ["origin", "sec-fetch-site", "content-type", "accept-language", "authorization", "range", "cookie"]
    ),
    plain | st.sampled_from(["ko", "http://127.0.0.1", "same-origin", "bytes=0-5", "application/json;charset=x"]),
    max_size=2,
)
requests = st.tuples(st.one_of(ROUTES), st.just({}) | headers, st.booleans(), st.integers(0, len(RUNS) - 1))


class Server:
    """A server in a process of its own."""

    def __init__(self, filmed: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.port), str(filmed)],
            stderr=subprocess.PIPE,
            env=os.environ | NOWHERE | {name: str(filmed.parent / name) for name in ("HF_HOME", "GLASSFORMER_HOME")},
        )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=120)
        for _ in range(1200):
            try:
                self.client.get("/api/font")
                break
            except httpx.TransportError:
                time.sleep(0.05)

    def run(self, **asked) -> str:
        """The id of a run."""
        answer = self.client.post("/api/runs", json={"model": "small", "text": TEXTS[0], **asked})
        return json.loads(answer.text.splitlines()[-1])["done"]["id"]

    def of(self, what: str) -> float:
        """Bytes of memory, or seconds of computing, as Linux counts them."""
        if what == "bytes":
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> str:
        """End it; what it said."""
        self.client.close()
        self.process.terminate()
        return self.process.communicate(timeout=30)[1].decode()


@pytest.fixture
def server(tmp_path):
    shutil.copytree(SHIPPED / "mlp", tmp_path / "filmed")
    shutil.copytree(SHIPPED / "mlp", tmp_path / "filmed" / "train" / "snapshots" / "0000000")
    made = Server(tmp_path / "filmed")
    yield made
    said = made.close()
    assert "Traceback" not in said, said[-3000:]


def asked(server, idents, request) -> None:
    """Ask for one thing, whole or left after its first line, and look at the answer."""
    (method, path, query, body), more, stays, number = request
    path = path.replace("ID", idents[number])
    if query:
        path += "?" + urlencode(query, errors="surrogatepass")
    content = (
        None
        if body is None
        else json.dumps(body).replace('"ID"', f'"{idents[number]}"').encode("utf-8", "surrogatepass")
    )
    sent = {"content-type": "application/json"} if content else {}
    with server.client.stream(method, path, content=content, headers=sent | more) as answer:
        assert answer.status_code < 500 or answer.status_code == 503, (request, answer.read())
        if not stays:
            next(iter(answer.iter_raw()), b"")
            return
        text = answer.read()
    kind = answer.headers.get("content-type", "")
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status_code >= 400 and method != "HEAD":
        refused = json.loads(text)
        assert refused["refused"] and refused["status"] < 600
    elif kind == "application/x-ndjson" and method != "HEAD":
        last = json.loads(text.splitlines()[-1])
        assert "done" in last or last["status"] < 500, (request, last)


def wild(server, data: bytes) -> None:
    """Bytes that are no request."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as line:
        line.sendall(data)
        line.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            assert b" 500 " not in line.recv(4096)[:20]


def fuzzed(server, seconds: float) -> int:
    """How many requests it took in so many seconds; checks its memory too."""
    idents = [server.run(**one) for one in RUNS]  # with all models that it will ever load
    count, until, number = [0], time.monotonic() + seconds, 0
    filled = server.of("bytes")

    while time.monotonic() < until:
        number += 1

        @seed(number)
        @settings(
            max_examples=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
            print_blob=False,
        )
        @given(st.lists(requests, min_size=1, max_size=4), st.binary(max_size=60))
        def ask(some, data):
            for one in some:
                if time.monotonic() < until:
                    asked(server, idents, one)
                    count[0] += 1
            wild(server, data + b"\r\n\r\n")

        ask()
        idents[:] = [server.run(**one) for one in RUNS]
        if time.monotonic() < until - 0.7 * seconds:  # until its runs are as many as it keeps
            filled = server.of("bytes")
    now = server.of("bytes")
    assert now < MOST, f"{now / MIB:.0f} MiB"
    if seconds > 60:  # a short time is over before its memory is full
        assert now - filled < 96 * MIB, f"grew from {filled / MIB:.0f} to {now / MIB:.0f} MiB"
    return count[0]


def stops(server) -> None:
    """Computations that nobody waits for end within a second: the next one begins at once, and then nothing goes on."""
    ident = server.run(text=TEXTS[0] * 10)
    for _ in range(3):
        slow = [server.client.stream("GET", f"/api/runs/{ident}/explanations/influence?method=exact") for _ in "ab"]
        lines = [one.__enter__().iter_lines() for one in slow]  # both places are taken
        assert all("progress" in next(line) for line in lines)
        for one in slow:
            one.__exit__(None, None, None)
        left = time.monotonic()
        with server.client.stream("GET", f"/api/runs/{ident}/explanations/cost") as answer:
            for line in answer.iter_lines():
                if "wait" not in line:
                    break
            assert time.monotonic() - left < 1.5
    time.sleep(1)
    before = server.of("seconds")
    time.sleep(1)
    assert server.of("seconds") - before < 0.3


needs_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory where Linux shows it")


@needs_linux
def test_nothing_makes_the_server_fail_or_grow_for_ten_seconds(server):
    count = fuzzed(server, float(os.environ.get("GLASSFORMER_FUZZ_S", 10)))
    print(f"{count} requests")
    assert count > 20
    stops(server)


@needs_linux
@pytest.mark.slow
def test_nothing_makes_the_server_fail_or_grow_for_ten_minutes(server):
    count = fuzzed(server, float(os.environ.get("GLASSFORMER_FUZZ_S", 600)))
    print(f"{count} requests, {server.of('bytes') / MIB:.0f} MiB")
    assert count > 1000
    stops(server)
