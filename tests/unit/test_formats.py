"""Models written elsewhere give what their originals give: compared with onnxruntime, and with the originals' equations
in NumPy."""

from __future__ import annotations

import itertools
import json
import os
import struct
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.cli import main
from glassformer.data.display import letter
from glassformer.data.vocabulary import END
from glassformer.errors import CheckpointError, InputError
from glassformer.formats.g2p_en import LETTERS, PHONEMES, read_g2p_en
from glassformer.formats.hama import _pieces as pieces
from glassformer.formats.llama2c import HEADER
from glassformer.formats.onnx import Graph

DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[3] / "shared" / "data"))
HAMA, ENGLISH, STORIES = (DATA / name for name in ("hama_g2p_ko", "g2p_en", "stories260k"))
PATTERN = "decoder.blocks.2.mixer.cross.pattern"


def needs(path: Path):
    return pytest.mark.skipif(not path.is_dir(), reason=f"needs {path} (set GLASSFORMER_DATA)")


def written(loaded, source, **settings) -> list[int]:
    """The ids that a model writes of a source, the end token left out."""
    events = list(loaded.generate(source, max_new_tokens=32, **settings))
    return [event.token for event in events if event.finished != "end"]


# ---------------------------------------------------------------- hama: Korean letters to phonemes

SENTENCE = {"고양이가": "gojaŋiga", "생선을": "seŋsʌnɯl", "먹었다": "mʌgʌdt͈a"}
WORDS = [*SENTENCE, "값", "읽다", "독립문", "꽃잎", "학교", "안녕하세요", "의사", "봤습니다", "hello", "ㅋㅋㅋ", "ㅏ"]


@needs(HAMA)
def test_hama_writes_the_published_phonemes_of_the_sentence_with_their_alignment():
    model = gf.load(HAMA)
    words = list(SENTENCE)
    events = list(model.generate(words, max_new_tokens=32))
    for row, word in enumerate(words):
        assert "".join(event.text for event in events if event.row == row) == SENTENCE[word]
    trace = model.trace((words[0], SENTENCE[words[0]]))
    letters = trace.labels("s", PATTERN)
    assert letters == [letter(one) for one in unicodedata.normalize("NFD", words[0])] and len(letters) == 9
    looked = trace[PATTERN][0, 0].argmax(-1).tolist()  # row i writes what is label i + 1
    read = [(sound, letters[place]) for sound, place in zip(trace.labels("t")[1:], looked, strict=False)]
    assert read == list(zip(["g", "o", "ja", "ŋ", "i", "g", "a"], "ㄱㅗㅑㅇㅣㄱㅏ", strict=True))


@needs(HAMA)
def test_a_source_and_what_is_written_about_it_are_told_apart(capsys):
    greedy = ["-m", str(HAMA), "--temperature", "0", "--repetition-penalty", "1"]
    assert main(["generate", "고양이가", *greedy]) == 0
    assert capsys.readouterr().out == "고양이가 → gojaŋiga\n"
    assert main(["generate", "고양이가", "생선을", *greedy]) == 0
    assert capsys.readouterr().out == "[0] 고양이가 → gojaŋiga\n[1] 생선을 → seŋsʌnɯl\n"


@needs(HAMA)
@torch.no_grad()
def test_hama_equals_onnxruntime():
    """Every output of both files. The original multiplies in fp16, hence the tolerance."""
    ort = pytest.importorskip("onnxruntime")
    first, step = (ort.InferenceSession(str(HAMA / name)) for name in ("encoder.onnx", "decoder_step.onnx"))
    loaded = gf.load(HAMA)
    model, start = loaded.model, 1
    for word in WORDS:
        ids = loaded.read(word)
        encoded = first.run(None, {"input_ids": np.array([ids]), "input_lengths": np.array([len(ids)])})
        memory, keys, hidden, mask, before = encoded
        state = model.empty(torch.tensor([ids]), 40)
        aligned = state.blocks[2].mixer
        near(aligned.memory, memory)
        near(aligned.keys, keys)
        near(torch.stack([block.mixer.parts[0] for block in state.blocks[:2]]), hidden)
        near(aligned.before, before)
        token, own = start, loaded.tokenizer.end_id
        for _ in range(32):
            given = {"decoder_input_ids": [[token]], "positions": np.arange(len(ids), dtype=np.float32)[None]}
            given |= {"encoder_outputs": memory, "projected_keys": keys, "encoder_mask": mask}
            token, hidden, before, place = step.run(None, given | {"prev_attn": before, "hidden": hidden})
            token = int(token[0])
            logits, state = model.step(torch.tensor([[own]]), state)
            aligned = state.blocks[2].mixer
            near(torch.stack([block.mixer.parts[0] for block in state.blocks[:2]]), hidden)
            near(aligned.before, before)
            assert int(logits[0, -1].argmax()) == token and int(aligned.before[0].argmax()) == int(place[0]), word
            own = token
            if token == loaded.tokenizer.end_id:
                break
        assert token == loaded.tokenizer.end_id


def near(found: torch.Tensor, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found.numpy() - wanted).max() <= 0.02 * max(1, np.abs(wanted).max())


@needs(HAMA)
def test_hama_reads_letters_and_refuses_a_blank():
    source = gf.load(HAMA).source
    assert [source.piece_bytes(id).decode() for id in source.encode("값").ids] == list("\u1100\u1161\u11b9")
    assert source.encode("Hi").ids == source.encode("hi").ids
    with pytest.raises(InputError, match=r"no piece for ' '; leave it out, or give one word at a time"):
        source.encode("고양이가 생선을")


@needs(HAMA)
def test_a_changed_onnx_file_is_refused_by_name(tmp_path):
    onnx = pytest.importorskip("onnx")
    for name in ("encoder.onnx", "decoder_step.onnx", "g2p_vocab.json"):
        (tmp_path / name).write_bytes((HAMA / name).read_bytes())
    file = onnx.load(str(tmp_path / "encoder.onnx"))
    node = next(node for node in file.graph.node if node.op_type == "GRU")
    next(one for one in node.attribute if one.name == "linear_before_reset").i = 0
    onnx.save(file, str(tmp_path / "encoder.onnx"))
    with pytest.raises(CheckpointError, match=r"'/encoder/GRU' has linear_before_reset=0; this reader knows 1 only"):
        gf.load(tmp_path)
    raw = (HAMA / "encoder.onnx").read_bytes()
    (tmp_path / "encoder.onnx").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(CheckpointError, match=r"encoder\.onnx is broken or truncated"):
        gf.load(tmp_path)


def test_an_onnx_file_is_read_as_its_own_library_reads_it(tmp_path):
    onnx = pytest.importorskip("onnx")
    numbers = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array(-2.5, dtype=np.float32)}
    nodes = [
        onnx.helper.make_node("Cast", ["a"], ["c"], name="/cast", to=1),
        onnx.helper.make_node("MatMul", ["x", "c"], ["y"], name="/product", pads=[2, 2], word="yes", share=0.5),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [], [onnx.numpy_helper.from_array(v, k) for k, v in numbers.items()])
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "g.onnx"))
    found = Graph(tmp_path / "g.onnx")
    assert found.number("/product", 1).tolist() == numbers["a"].tolist()
    assert found.weights["b"].item() == -2.5
    found.expect("/product", pads=[2, 2], word="yes", share=0.5)
    with pytest.raises(CheckpointError, match=r"the weight 'b' has no place"):
        found.check_all_read()
    with pytest.raises(CheckpointError, match=r"no operation '/other'"):
        found.node("/other")


# ---------------------------------------------------------------- g2p-en: English letters to phonemes


def spoken(weights: dict[str, np.ndarray], word: str) -> list[int]:
    """The phonemes of one word by the equations of a GRU, with nothing of this package."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def step(side, id, h):
        of_x = weights[f"{side}_w_ih"] @ weights[f"{side}_emb"][id] + weights[f"{side}_b_ih"]
        of_h = weights[f"{side}_w_hh"] @ h + weights[f"{side}_b_hh"]
        (xr, xz, xn), (hr, hz, hn) = np.split(of_x, 3), np.split(of_h, 3)
        z = sigmoid(xz + hz)
        return (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h

    h = np.zeros(weights["enc_w_hh"].shape[1])
    for one in [*word, "</s>"]:
        h = step("enc", LETTERS.index(one), h)
    token, found = PHONEMES.index("<s>"), []
    while len(found) < 20:
        h = step("dec", token, h)
        token = int((weights["fc_w"] @ h + weights["fc_b"]).argmax())
        if token == PHONEMES.index("</s>"):
            break
        found.append(token)
    return found


def english(path: Path, seed: int = 0, **changed) -> Path:
    """An npz of g2p-en's form with random numbers."""
    draw = np.random.default_rng(seed)
    sizes = {"emb": (None, 5), "w_ih": (12, 5), "w_hh": (12, 4), "b_ih": (12,), "b_hh": (12,)}
    made = {
        f"{side}_{name}": draw.normal(size=size if size[0] else (len(pieces), 5))
        for side, pieces in (("enc", LETTERS), ("dec", PHONEMES))
        for name, size in sizes.items()
    }
    made |= {"fc_w": draw.normal(size=(len(PHONEMES), 4)), "fc_b": draw.normal(size=len(PHONEMES))} | changed
    np.savez(path, **{name: value.astype(np.float32) for name, value in made.items()})
    return path


@needs(ENGLISH)
def test_g2p_en_writes_what_its_equations_say():
    loaded = gf.load(ENGLISH)
    weights = {name: value.astype(np.float64) for name, value in np.load(next(ENGLISH.glob("*.npz"))).items()}
    for word in ("activationist", "hello", "context", "transformer", "seoul", "zyx", "a"):
        assert written(loaded, word) == spoken(weights, word), word
    events = list(loaded.generate("activationist", max_new_tokens=32))
    assert "".join(event.text for event in events) == " AE2 K T IH0 V EY1 SH AH0 N IH0 S T"


def test_g2p_en_of_any_numbers_and_its_refusals(tmp_path):
    path = english(tmp_path / "checkpoint20.npz")
    weights = {name: value.astype(np.float64) for name, value in np.load(path).items()}
    for loaded in (gf.load(tmp_path), gf.load(path)):
        for word in ("abc", "zebra"):
            found = written(loaded, word)[:20]
            assert found == spoken(weights, word)[: len(found)] and found
    with pytest.raises(InputError, match=r"no piece for '1'; leave it out"):
        list(loaded.generate("aB1"))
    with pytest.raises(CheckpointError, match=r"holds the unknown 'attention_w'"):
        gf.load(english(tmp_path / "other.npz", attention_w=np.zeros(3)))
    with pytest.raises(CheckpointError, match=r"sizes are not those of g2p-en"):
        gf.load(english(tmp_path / "other.npz", dec_emb=np.zeros((70, 5))))
    assert read_g2p_en(path).source.closing == [2]
    assert loaded.read("Zebra") == loaded.read("zebra"), "in either case, as the original"


# ---------------------------------------------------------------- llama2.c


def parts_of(raw: bytes) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """Header and weights, cut one after the other as the format's own description has them."""
    sizes = dim, hidden, blocks, heads, kv_heads, vocab, context = struct.unpack("<7i", raw[:28])
    kv, at, found = dim // heads * kv_heads, 28, {}
    for name, shape in (
        ("embedding", (abs(vocab), dim)),
        ("rms_att", (blocks, dim)),
        ("wq", (blocks, dim, dim)),
        ("wk", (blocks, kv, dim)),
        ("wv", (blocks, kv, dim)),
        ("wo", (blocks, dim, dim)),
        ("rms_ffn", (blocks, dim)),
        ("w1", (blocks, hidden, dim)),
        ("w2", (blocks, dim, hidden)),
        ("w3", (blocks, hidden, dim)),
        ("rms", (dim,)),
        ("angles", (context, dim // heads)),
        *([("classifier", (-vocab, dim))] if vocab < 0 else []),
    ):
        count = int(np.prod(shape))
        found[name] = np.frombuffer(raw, "<f4", count, at).reshape(shape).astype(np.float64)
        at += 4 * count
    assert at == len(raw)
    return sizes, found


def llama_logits(raw: bytes, ids: list[int]) -> np.ndarray:
    """Logits `t v` in NumPy: RMSNorm, RoPE on neighbouring pairs, grouped heads, SwiGLU."""
    (dim, _, blocks, heads, kv_heads, _, _), w = parts_of(raw)
    t, size = len(ids), dim // heads

    def norm(x, gain):
        return gain * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    angle = np.arange(t)[:, None] / 10_000 ** (np.arange(0, size, 2) / size)
    turn = np.exp(1j * angle)[:, None]  # t 1 e/2

    def turned(x):
        pairs = (x[..., ::2] + 1j * x[..., 1::2]) * turn
        return np.stack((pairs.real, pairs.imag), -1).reshape(x.shape)

    x, dark = w["embedding"][ids], np.triu(np.full((t, t), -np.inf), 1)
    for i in range(blocks):
        y = norm(x, w["rms_att"][i])
        q, k, v = (
            (y @ w[name][i].T).reshape(t, count, size)
            for name, count in (("wq", heads), ("wk", kv_heads), ("wv", kv_heads))
        )
        q, k, v = turned(q), np.repeat(turned(k), heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("the,she->hts", q, k) / np.sqrt(size) + dark
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hts,she->the", weights, v).reshape(t, dim) @ w["wo"][i].T
        y = norm(x, w["rms_ffn"][i])
        gate = y @ w["w1"][i].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["w3"][i].T)) @ w["w2"][i].T
    return norm(x, w["rms"]) @ w.get("classifier", w["embedding"]).T


def merged(pieces: list[tuple[bytes, float]], text: str) -> list[int]:
    """The tokens of a text as llama2.c finds them: characters, or bytes for unknown ones, then ever the best pair."""
    ids = {piece: i for i, (piece, _) in reversed(list(enumerate(pieces)))}
    found = []
    for character in " " + text:
        raw = character.encode()
        found += [ids[raw]] if raw in ids else [byte + 3 for byte in raw]
    while True:
        joined = [(pieces[a][0] + pieces[b][0], at) for at, (a, b) in enumerate(itertools.pairwise(found))]
        known = [(pieces[ids[piece]][1], -at, ids[piece]) for piece, at in joined if piece in ids]
        if not known:
            return found
        _, at, id = max(known)
        found[-at : -at + 2] = [id]


def pieces_of(path: Path) -> list[tuple[bytes, float]]:
    raw, at, found = path.read_bytes(), 4, []
    while at < len(raw):
        score, size = struct.unpack_from("<fi", raw, at)
        found.append((raw[at + 8 : at + 8 + size], score))
        at += 8 + size
    return found


@needs(STORIES)
def test_stories260k_goes_on_as_its_equations_say():
    loaded, raw = gf.load(STORIES), (STORIES / "stories260K.bin").read_bytes()
    assert sum(p.numel() for p in loaded.model.parameters()) == 260_032
    ids = loaded.encode("Once upon a time, there was a")
    wanted = llama_logits(raw, ids)
    assert np.abs(loaded(ids)[0].numpy() - wanted).max() < 1e-4 * np.abs(wanted).max()
    events = list(loaded.generate([ids], max_new_tokens=24, temperature=0))
    for event in events:
        assert event.token == llama_logits(raw, ids)[-1].argmax()
        ids.append(event.token)
    assert "".join(event.text for event in events).startswith(" little girl named L")


@needs(STORIES)
def test_stories260k_tokens_are_those_of_llama2c():
    tokenizer, pieces = gf.load(STORIES).tokenizer, pieces_of(STORIES / "tok512.bin")
    for text in (
        "Once upon a time",
        "Lily's  big, red ball!\nShe",
        "고양이가 생선을",
        "xylophone zebra",
        "<s> a",
        "ß~€",
    ):
        encoding = tokenizer.encode(text)
        assert encoding.ids == merged(pieces, text), text
        assert tokenizer.decode(encoding.ids) == f" {text}"


def llama(folder: Path, vocab: int) -> bytes:
    """A small model with random numbers, and a tokenizer of a few letters beside it."""
    header = (8, 12, 2, 4, 2, vocab, 16)
    count = abs(vocab) * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 96) + 8 + 16 * 2 + (8 * -vocab if vocab < 0 else 0)
    numbers = np.random.default_rng(1).normal(size=count).astype("<f4").tobytes()
    raw = HEADER.pack(*header) + numbers
    (folder / "small.bin").write_bytes(raw)
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % i for i in range(256)), b" ", b"a", b"b", b" a", b"ab"]
    assert len(pieces) == abs(vocab)
    rows = [struct.pack("<fi", -float(i), len(piece)) + piece for i, piece in enumerate(pieces)]
    (folder / "tok.bin").write_bytes(struct.pack("<i", 6) + b"".join(rows))
    return raw


@pytest.mark.parametrize("vocab", [264, -264])
def test_llama2c_of_any_numbers_with_its_own_head_or_the_table(tmp_path, vocab):
    raw = llama(tmp_path, vocab)
    loaded = gf.load(tmp_path / "small.bin")
    assert loaded.encode("ab") == [1, 262, 261] and loaded.tokenizer.end == END
    ids = [1, 262, 261, 5, 9]
    wanted = llama_logits(raw, ids)
    assert np.abs(loaded(ids)[0].numpy() - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_llama2c_refusals(tmp_path):
    llama(tmp_path, 264)
    (tmp_path / "tok.bin").write_bytes((tmp_path / "tok.bin").read_bytes()[:-3])
    with pytest.raises(CheckpointError, match=r"tok\.bin"):
        gf.load(tmp_path)
    (tmp_path / "tok.bin").unlink()
    with pytest.raises(CheckpointError, match=r"needs one tok\*\.bin beside it, and there are 0"):
        gf.load(tmp_path)
    (tmp_path / "small.bin").write_bytes(b"1234" * 20)
    with pytest.raises(CheckpointError, match=r"is cut off, or in no format"):
        gf.load(tmp_path / "small.bin")


@pytest.mark.parametrize("change", [-4, 4])
def test_a_llama2c_file_of_another_size_than_its_header_tells_is_named_in_its_folder_too(tmp_path, change):
    raw = llama(tmp_path, 264)
    file = tmp_path / "small.bin"
    file.write_bytes(raw[:change] if change < 0 else raw + bytes(change))
    wanted = (
        f"{file} has {len(raw) + change} bytes and its header tells of a llama2.c model of {len(raw)}; fetch it again"
    )
    for place in (tmp_path, file):
        with pytest.raises(CheckpointError) as raised:
            gf.load(place)
        assert str(raised.value) == wanted
    file.write_bytes(raw[:20])
    with pytest.raises(CheckpointError, match=r"small\.bin is cut off, or in no format that is read here"):
        gf.load(tmp_path)
    file.write_bytes(HEADER.pack(*[1 << 30] * 7) + raw)  # the sizes of no model
    with pytest.raises(CheckpointError, match=r"small\.bin is cut off, or in no format that is read here"):
        gf.load(tmp_path)


def test_a_cut_npz_is_named_in_its_folder(tmp_path):
    for raw in (b"PK\3\4 and no more", b""):
        (tmp_path / "checkpoint20.npz").write_bytes(raw)
        with pytest.raises(CheckpointError, match=r"checkpoint20\.npz is cut off, or in no format that is read here"):
            gf.load(tmp_path)


def test_pieces_of_hama_that_are_no_lists_are_refused(tmp_path):
    for wrong in ([1], {"encoder": ["a"]}, {"encoder": ["a"], "decoder": [1]}):
        (tmp_path / "g2p_vocab.json").write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"g2p_vocab\.json must (hold two lists of pieces|be a JSON object)"):
            pieces(tmp_path / "g2p_vocab.json")


def test_a_folder_in_no_known_format_is_refused_as_before(tmp_path):
    (tmp_path / "g2p_vocab.json").write_text(json.dumps({}), encoding="utf-8")
    with pytest.raises(InputError, match=r"is not a model folder"):
        gf.load(tmp_path)


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        pytest.param(HAMA, "고양이가", marks=needs(HAMA)),
        pytest.param(ENGLISH, "hello", marks=needs(ENGLISH)),
        pytest.param(STORIES, "Once upon", marks=needs(STORIES)),
    ],
)
def test_what_was_read_is_saved_as_a_folder_and_gives_the_same(tmp_path, folder, text):
    before = gf.load(folder)
    before.save(tmp_path / "mine")
    after = gf.load(tmp_path / "mine")
    assert after.about == before.about and after.name == "mine"
    for name, value in before.model.state_dict().items():
        assert torch.equal(after.model.state_dict()[name], value), name
    one, other = (list(model.generate(text, max_new_tokens=12)) for model in (before, after))
    assert [(event.token, event.text) for event in one] == [(event.token, event.text) for event in other]
    assert [event.probability for event in one] == pytest.approx([event.probability for event in other], rel=1e-5)
    with pytest.raises(InputError, match=r"holds something already"):
        before.save(tmp_path / "mine")
    with pytest.raises(InputError, match=r"dtype: 'int8' is not allowed"):
        before.save(tmp_path / "other", dtype="int8")


@pytest.mark.parametrize("name", ["a.bin", "a.npz"])
def test_a_file_that_is_cut_off_is_said_to_be_so(name, tmp_path):
    (tmp_path / name).write_bytes(b"and no more")
    with pytest.raises(CheckpointError, match=rf"{name} is cut off, or in no format that is read here"):
        gf.load(tmp_path / name)
