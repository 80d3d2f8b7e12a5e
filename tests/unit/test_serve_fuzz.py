"""A fuzz of all routes of the explorer's server, from what each of them takes: odd names, places, bodies and headers.

Nothing may make it fail (5xx) or grow, and work that nobody waits for ends. Ten seconds among the quick tests, ten
minutes among the slow ones; GLASSFORMER_FUZZ_S sets another time.
"""

import contextlib
import json
import os
import socket
import string
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

# A server whose memory is full soon, so that it must not grow any more, and which asks no other machine.
PROGRAM = """
import sys, uvicorn
from glassformer.errors import InputError
from glassformer.serve import models
from glassformer.serve.app import application
from glassformer.serve.runs import Runs

def none(name, *how):
    raise InputError(f"{name}: not in a fuzz")

models.from_hub = models.pull = none
runs = Runs(models.Models(), run_bytes=32 << 20, all_bytes=64 << 20)
uvicorn.run(application(runs=runs), port=int(sys.argv[1]), log_level="error", ws="none")
"""
MIB = 1 << 20
TEXTS = ("고양이가 생선을 먹었다", "a", "", " ", "👩‍👧", "가", "\u202e<script>", "e\u0301" * 20, "\0", "x" * 500)
MODELS = ("small", "lstm", "cnn", "ssm", "mlp", "korean-g2p", "vit", "lenet", "smollm2-135m", "org/model@v1")
PLACES = ("/etc/passwd", "../..", "out", ".", "~", "src/glassformer/shipped/small", "a" * 400)
NAMES = (
    *("embed.out", "blocks.0.mixer.pattern", "blocks.1.mixer.scores", "blocks.0.resid_out", "head.logits", "norm.out"),
    *("blocks.0.mixer.q", "blocks.2.channel.hidden", "blocks.99.mixer.q", "blocks", "..", "encoder.embed.out"),
)

odd = st.text(max_size=12) | st.sampled_from(TEXTS)
whole = st.integers(-3, 12) | st.sampled_from([10**9, -(10**9), 2**63, 10**30])
word = st.text(string.ascii_letters + string.digits + "._-", max_size=8)
thing = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False) | odd,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(word, inside, max_size=3),
    max_leaves=6,
)
model = st.sampled_from(MODELS[:5]) | st.sampled_from(MODELS + PLACES) | odd
edit = st.fixed_dictionaries(
    {"kind": st.sampled_from(["zero", "scale", "add", "mean", "noise", "replace"]), "name": st.sampled_from(NAMES)},
    optional={
        "where": st.dictionaries(st.sampled_from("bthsdev?"), whole | st.lists(whole, max_size=3), max_size=2),
        "value": st.none() | st.floats(allow_nan=False) | whole,
    },
)
run = st.fixed_dictionaries(
    {"model": model, "text": st.sampled_from(TEXTS) | odd},
    optional={
        "target": st.none() | odd,
        "ids": st.none() | st.lists(whole, max_size=5),
        "start": st.booleans(),
        "edits": st.lists(edit, max_size=2),
        "image": st.none() | odd,
    },
)
how = st.dictionaries(
    st.sampled_from(["temperature", "top_k", "top_p", "min_p", "stop", "seed", "beams", "ends", "forced", "chunk"]),
    thing,
    max_size=2,
) | st.dictionaries(word, thing, max_size=2)
writing = st.fixed_dictionaries(
    {"model": model, "text": st.sampled_from(TEXTS)},
    optional={
        "top": whole,
        "settings": how.map(lambda given: {"max_new_tokens": 3} | given),
    },
)
place = whole.map(str) | st.lists(whole, max_size=3).map(lambda many: ",".join(map(str, many))) | odd
values = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES) | odd}, optional=dict.fromkeys(("b", "t", "h", "s", "d", "e", "v", "é"), place)
)
candidates = st.dictionaries(st.sampled_from(["t", "top", "temperature", "x"]), place, max_size=3)
explanations = st.dictionaries(
    st.sampled_from(
        [
            "by",
            "layer",
            "head",
            "row",
            "rows",
            "size",
            "of",
            "stack",
            "token",
            "method",
            "directions",
            "seed",
            "what",
            "x",
        ]
    ),
    place | st.sampled_from(["word", "token", "source", "estimate", "null", "{}", "[1]", "1e999"]),
    max_size=3,
)
several = st.fixed_dictionaries(
    {"name": st.sampled_from(["embed.out", "blocks.0.mixer.pattern", "none"]) | word},
    optional={
        "where": st.dictionaries(word | st.sampled_from("bhts"), st.integers() | st.lists(st.integers()) | thing)
    },
)
named = (
    st.sampled_from(["influence", "flow", "weights", "heads", "maps", "journey", "surprise", "cost", "field", "none"])
    | word
)

# What was looked at, never of its form: a page that is made takes seconds.
looked = st.fixed_dictionaries({"id": odd, "explanations": st.dictionaries(word, thing, min_size=1, max_size=2)})
seen = st.fixed_dictionaries({"seen": st.lists(looked, min_size=1, max_size=2)}, optional={"writings": thing})

# Every route: how it is asked, where, with what behind the ?, with what body. ID is that of a run that there is.
ROUTES = (
    st.tuples(st.just("GET"), st.just("/api/models"), st.just({}), st.none()),
    st.tuples(st.just("POST"), st.just("/api/models"), st.just({}), st.fixed_dictionaries({"name": model}) | thing),
    st.tuples(st.just("POST"), st.just("/api/runs"), st.just({}), run),
    st.tuples(st.just("POST"), st.just("/api/runs"), st.just({}), thing),
    st.tuples(st.just("POST"), st.just("/api/generate"), st.just({}), writing),
    st.tuples(st.just("GET"), st.just("/api/runs/ID/values"), values, st.none()),
    st.tuples(st.just("GET"), st.just("/api/letters"), st.fixed_dictionaries({"of": odd}), st.none()),
    st.tuples(st.just("POST"), st.just("/api/runs/ID/values"), st.just({}), st.lists(several, max_size=3) | thing),
    st.tuples(st.just("POST"), st.just("/api/runs/ID/page"), st.just({}), seen | thing),
    st.tuples(st.just("GET"), st.just("/api/runs/ID/documents/candidates"), candidates, st.none()),
    st.tuples(st.just("GET"), named.map("/api/runs/ID/explanations/{}".format), explanations, st.none()),
    st.tuples(st.just("GET"), odd.map(lambda ident: f"/api/runs/{quote(ident, safe='')}/values"), values, st.none()),
    st.tuples(st.just("GET"), odd.map(lambda path: f"/{quote(path)}"), st.just({}), st.none()),
    st.tuples(
        st.sampled_from(["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "x"]),
        st.sampled_from(["/api/models", "/api/runs", "/", "/api/font"]),
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
requests = st.tuples(st.one_of(ROUTES), st.just({}) | headers, st.booleans())


class Server:
    """A server in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.port)], stderr=subprocess.PIPE)
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
def server():
    made = Server()
    yield made
    said = made.close()
    assert "Traceback" not in said, said[-3000:]


def asked(server, ident, request) -> None:
    """Ask for one thing, whole or left after its first line, and look at the answer."""
    (method, path, query, body), more, stays = request
    path = path.replace("ID", ident)
    if query:
        path += "?" + urlencode(query, errors="surrogatepass")
    content = None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
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
    for name in MODELS[:5]:  # all that it will ever load
        server.run(model=name)
    idents, count, until, number = [server.run()], [0], time.monotonic() + seconds, 0
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
                    asked(server, idents[-1], one)
                    count[0] += 1
            wild(server, data + b"\r\n\r\n")

        ask()
        idents.append(server.run())
        if time.monotonic() < until - 0.7 * seconds:  # until its runs are as many as it keeps
            filled = server.of("bytes")
    grown = server.of("bytes") - filled
    most = 96 if seconds > 60 else 192  # a short time is over before its memory is full
    assert grown < most * MIB, f"grew by {grown / MIB:.0f} MiB from {filled / MIB:.0f}"
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
    assert fuzzed(server, float(os.environ.get("GLASSFORMER_FUZZ_S", 10))) > 20
    stops(server)


@needs_linux
@pytest.mark.slow
def test_nothing_makes_the_server_fail_or_grow_for_ten_minutes(server):
    count = fuzzed(server, float(os.environ.get("GLASSFORMER_FUZZ_S", 600)))
    print(f"{count} requests, {server.of('bytes') / MIB:.0f} MiB")
    assert count > 1000
    stops(server)
