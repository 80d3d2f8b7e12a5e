"""What the page is given of a run: every name in it is one of the trace's, for every family and shape."""

import base64
import contextlib
import importlib
import json
import shlex

import msgspec
import numpy as np
import pytest
import torch
from page_runs import runs
from sheet_models import SPECS, loaded, of, pair

import glassformer as gf
from glassformer.cli import main
from glassformer.explain.sight import said, through
from glassformer.mask import Mask
from glassformer.mixers.attention import Attention, AttentionSpec
from glassformer.page.again import Again, asked, edited
from glassformer.page.documents import PageEdit, PageRun
from glassformer.page.outline import outline

RUNS = runs()
SHIPPED = ("small", "mlp", "cnn", "lstm", "transformer", "ssm", "lenet", "vit", "korean-g2p")


def names(document):
    """Every name of a value that the document tells the page to ask for."""
    for stack in document.stacks:
        yield from filter(None, (stack.position,))
        for block in stack.blocks:
            yield from (f"{block.channel}.{short}" for short in ("out",) if block.channel)
            for mixer in filter(None, (block.mixer, block.cross)):
                own = (mixer.weights,) if mixer.weights else ()
                own += ("q", "k", "v", "dots", "scores", "pattern", "z") if mixer.softmax else ()
                yield from (f"{mixer.path}.{short}" for short in own)
    if document.picture is not None:
        yield document.picture.name


def check(trace, document):
    """All that must hold for any run."""
    assert msgspec.json.decode(msgspec.json.encode(document), type=PageRun) == document
    known = {value.name: value for value in document.values}
    assert set(names(document)) <= known.keys() <= set(trace.names())
    for value in document.values:
        found = trace[value.name]
        assert tuple(found.shape) == value.sizes and found.is_floating_point() and value.card in document.cards
    for stack in document.stacks:
        for block in stack.blocks:
            if block.mixer.weights:
                axes = dict(
                    zip(
                        *(getattr(known[f"{block.mixer.path}.{block.mixer.weights}"], a) for a in ("axes", "sizes")),
                        strict=True,
                    )
                )
                assert axes["t"] == axes["s"] == stack.length
                assert (
                    axes.get(block.mixer.axis, block.mixer.heads if not block.mixer.axis else None) == block.mixer.heads
                )
            for text in (block.mixer.mask, block.mixer.called):
                assert text.en and any("가" <= letter <= "힣" or letter.isascii() for letter in text.ko)
        if stack.blocks:
            assert stack.length == trace[f"{stack.blocks[0].path}.resid_in"].shape[1] == len(stack.labels)
            for cells in stack.cells.values():
                assert [i for cell in cells for i in cell.tokens] == list(range(stack.length))
    assert all(title.en and title.ko for _, title in document.explains) and document.explains


@pytest.mark.parametrize("name", RUNS)
def test_every_family_and_shape(name):
    trace = RUNS[name]()
    check(trace, outline(trace, "x"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_model_and_the_lines_that_make_the_same(name):
    model = gf.load(name)
    image = hasattr(model.model, "shapes")
    given = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0)) if image else "학교"
    trace = model.trace(given)
    document = outline(trace, "x", model=name)
    check(trace, document)
    assert document.model == name
    if not image:
        scope = {}
        exec("\n".join(document.python), scope)
        for one, other in zip(scope["trace"].stacks, trace.stacks, strict=True):
            assert torch.equal(one.tokens, other.tokens)


@pytest.mark.parametrize("start", [True, False])
def test_the_lines_know_how_the_text_began_and_what_was_changed(start):
    model = gf.load("transformer")
    trace = model.trace("별이 빛난다", start=start, edits=gf.scale("blocks.1.mixer.z", 0.5, h=[0, 2]))
    document, scope = outline(trace, "x"), {}
    exec("\n".join(document.python), scope)
    assert torch.equal(scope["trace"].logits, trace.logits)
    assert document.edits == (PageEdit("scale", "blocks.1.mixer.z", {"h": [0, 2]}, 0.5),)
    assert document.changes == ("gf.scale('blocks.1.mixer.z', 0.5, h=[0, 2])",)
    special = model.trace([0, 5, 0, 9], start=False)
    exec("\n".join(outline(special, "x").python), scope)
    assert torch.equal(scope["trace"].stacks[0].tokens, special.stacks[0].tokens)


def printed(capsys, command):
    """What a command line prints as JSON."""
    program, *words = shlex.split(command)
    at = words.index("--") if "--" in words else len(words)
    assert program == "glassformer" and main([*words[:at], "--json", *words[at:]]) == 0
    return json.loads(capsys.readouterr().out)


GIVEN = {
    "as it is": ("small", "별이 빛난다", {}),
    "without the start": ("small", "별이 빛난다", {"start": False}),
    "like an option": ("small", "--json -n", {}),
    "quotes and lines": ("transformer", 'it\'s "so"\n$HOME', {}),
    "a recurrence": ("lstm", "별이 빛난다", {}),
    "what the model writes itself": ("korean-g2p", "값없이", {}),
    "another target": ("korean-g2p", ("값없이", "kap"), {}),
}
BEYOND = ("without the start", "another target")  # what a page of its own is never asked for


@pytest.mark.parametrize("case", GIVEN)
def test_the_command_shows_the_same_numbers(case, capsys):
    """At a token and a temperature, and without them those that it chooses by itself."""
    name, given, how = GIVEN[case]
    path = "decoder.blocks.0.mixer.out" if name == "korean-g2p" else "blocks.0.mixer.out"
    trace = gf.load(name).trace(given, edits=gf.scale(path, 0.5), **how)
    again, live = Again(trace, name), outline(trace, "x").live
    assert ("--target" in again.command()) == (case == "another target") and printed(capsys, again.command())
    for heat, written in ((2.5, " --temperature 2.5"), (3.0, " --temperature 3"), (1.0, "")):
        command = again.command(1, heat)
        assert command.partition(" -- ")[0].endswith(written) and ("--temperature" in command) == bool(written)
        found = printed(capsys, command)
        rows = gf.explain("next", trace, token=1, temperature=heat, top=8).figures[0].rows
        shown = [(one["token"], one["probability"]) for one in found.get("sheet", found)["next"]]
        assert shown == [pytest.approx((row[0], row[4]), rel=1e-6) for row in rows]
    assert not live if case in BEYOND else live.startswith("glassformer explore ") and name in live


def test_the_live_command_opens_the_same_run_or_there_is_none(monkeypatch):
    """What explore asks the page for gives the tokens and the numbers of this run. Of what the page cannot be asked for
    there was a command too, which explore refused, or which opened another run."""
    place = {}
    verb = importlib.import_module("glassformer.verbs.explore")  # its name in the package is the function
    monkeypatch.setattr(verb, "_ready", lambda *_: contextlib.nullcontext((None, None)))
    monkeypatch.setattr(verb, "_show", lambda shown, *_: place.update(shown))
    zero, cut = gf.zero("encoder.embed.out", t=0), gf.cut("decoder.blocks.0.mixer", t=1, s=0)
    some = gf.zero("encoder.embed.out", t=slice(0, 1))
    cases = [
        *(("small", "별이 빛난다", edit, {}, asks) for edit, asks, _ in EDITS.values()),
        *((*GIVEN[case][:2], (), GIVEN[case][2], case not in BEYOND) for case in GIVEN),
        *(
            ("korean-g2p", "값없이", edits, {}, asks)
            for edits, asks in ((zero, True), ([zero, cut], True), (some, False))
        ),
    ]
    for name, given, edits, how, opens in cases:
        trace = gf.load(name).trace(given, edits=edits, **how)
        live = outline(trace, "x").live
        assert bool(live) == opens, (name, given, edits)
        if live:
            words, at = shlex.split(live), live.count(" -- ")
            place.clear()
            assert main([words[1], "--json", *words[2:]]) == 0 and at == (given[0] == "-")
            changes = msgspec.json.decode(place.get("edits", "[]"), type=list[PageEdit])
            again = gf.load(place["model"]).trace(place["text"], edits=[*map(edited, changes)])
            assert torch.equal(again.logits, trace.logits) and len(changes) == len(trace.edits)


EDITS = {
    "a place of numpy": (gf.zero("blocks.0.mixer.z", h=np.int64(1)), True, "zero blocks.0.mixer.z h=1"),
    "several": (gf.zero("blocks.0.mixer.z", h=torch.tensor([0, 2])), True, "zero blocks.0.mixer.z h=0,2"),
    "noise of a seed": (gf.noise("blocks.0.mixer.out", 0.1, seed=7), True, "noise blocks.0.mixer.out 0.1 seed=7"),
    "a number in its place": (gf.replace("blocks.0.mixer.out", 0.5), True, "replace blocks.0.mixer.out 0.5"),
    "a slice": (gf.zero("blocks.0.mixer.out", t=slice(0, 2)), False, "zero blocks.0.mixer.out t=0:2"),
    "a cut": (gf.cut("blocks.0.mixer", t=2, s=1), True, "cut blocks.0.mixer t=2 s=1"),
    "another run": (gf.patch("blocks.0.resid_out", "a b", t=1), True, 'patch blocks.0.resid_out run="a b" t=1'),
    "a tensor": (gf.add("blocks.0.mixer.out", torch.ones(1)), False, ""),
}


@pytest.mark.parametrize("case", EDITS)
def test_every_edit_is_told(case):
    """As Python that makes the same, in the words of the terminal where it has any, and whether a page can ask for it;
    a tensor is written nowhere, and not left out without a word."""
    edit, asks, words = EDITS[case]
    trace = gf.load("small").trace("별이 빛난다", edits=edit)
    document, found = outline(trace, "x"), asked(edit)
    [line] = document.changes
    assert document.edits == ((found,) if asks else ()) and (found is not None) == asks
    if case == "a tensor":
        assert line == "gf.add('blocks.0.mixer.out', …)"
    else:
        scope = {}
        exec("\n".join(document.python), scope)
        assert torch.equal(scope["trace"].logits, trace.logits) and line in document.python[-1]
    assert not asks or torch.equal(gf.load("small").trace("별이 빛난다", edits=edited(found)).logits, trace.logits)
    command = Again(trace, "small").command()
    assert shlex.split(command)[-2:] == ["--edit", words] if words else command == ""


def test_the_command_of_a_picture_gives_its_classes(capsys, tmp_path, monkeypatch):
    image = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", image)
    trace = gf.load("vit").trace(image, edits=gf.zero("blocks.1.mixer.z", h=0))
    shares = (trace.logits[0].double() / 2.5).softmax(0)
    for guess in printed(capsys, Again(trace, "vit", "one.npy").command(0, 2.5)):
        assert guess["probability"] == pytest.approx(shares[guess["number"]].item(), rel=1e-6)
    assert outline(trace, "x").live == "glassformer explore -m vit"


def test_there_is_no_command_for_what_nobody_can_type():
    model = gf.load("small")
    apart = [one for letter in "영화가" for one in model.encode(letter, start=False)]
    assert apart != model.encode("영화가", start=False)  # so no text gives these tokens
    for trace in (model.trace(apart, start=False), model.trace("a\0b"), model.trace(" ")):
        assert Again(trace, "small").command() == ""
    half = Again(gf.load("small", dtype="bfloat16").trace("a"), "small")
    assert "dtype='bfloat16'" in half.lines()[1] and "--dtype bfloat16" in half.command()


def test_shapes_are_told_apart():
    shapes = {"gpt2": "decoder", "bert": "encoder", "t5": "pair", "bahdanau": "pair", "vit": "image", "full": "encoder"}
    for name, shape in shapes.items():
        assert outline(RUNS[name](), "x").shape == shape, name
    assert outline(RUNS["gpt2"](), "x").next and not outline(RUNS["no-head"](), "x").next
    found = {name: outline(RUNS[name](), "x").scores for name in ("gpt2", "t5", "vit", "no-head")}
    assert found == {"gpt2": "softmax", "t5": "softmax", "vit": "softmax", "no-head": None}


def test_images_have_their_picture_their_classes_and_their_maps():
    model = gf.load("lenet")
    image = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    trace = model.trace(image)
    document = outline(trace, "x")
    picture, [stack] = document.picture, document.stacks
    assert np.array_equal(np.frombuffer(base64.b64decode(picture.pixels), np.uint8).reshape(28, 28), image)
    inside = trace[picture.name][0, 0, 2:-2, 2:-2]  # LeNet puts two rows and columns around a picture
    order = inside.flatten().argsort()
    assert (torch.tensor(image).flatten()[order].int().diff() >= 0).all()  # scaled, but in the same order
    assert document.classes == tuple("0123456789") and document.context == 0
    assert stack.units == "maps" and not stack.blocks
    vit = outline(RUNS["vit"](), "x").stacks[0]
    assert vit.units == "patches" and vit.labels == ("class", "0,0", "0,1", "1,0", "1,1")


def test_an_aligned_decoder_reads_its_source_and_weighs_no_text():
    mixer = outline(RUNS["bahdanau"](), "x").stacks[1].blocks[0]
    assert mixer.mixer.weights == "" and mixer.cross.weights == "pattern" and mixer.cross.path.endswith(".mixer.cross")
    assert outline(loaded(pair()).trace(("생선을", "먹었다")), "x").stacks[1].blocks[0].cross.softmax


MASKS = {
    Mask(): ("itself and everything before it", "자신과 그 앞의 모든 위치를 봅니다"),
    Mask(causal=False): ("every position, before it and behind it", "앞뒤의 모든 위치를 봅니다"),
    Mask(window=1): ("itself alone", "자신만 봅니다"),
    Mask(window=4): ("itself and the 3 positions before it", "자신과 바로 앞의 3칸을 봅니다"),
    Mask(causal=False, window=4): ("itself and 3 positions to either side", "자신과 앞뒤로 3칸씩 봅니다"),
    Mask(window=4, sinks=2): ("the first 2 positions, however far", "맨 앞의 2칸은 거리에 관계없이 봅니다"),
    Mask(window=4, globals=2): ("the first 2 positions see all and are seen by all", "모두를 보고 모두에게 보입니다"),
    Mask(stride=3): ("every position before it at a multiple of 3 steps", "앞쪽으로 거리가 3의 배수인 위치를 봅니다"),
    Mask(prefix=4): ("the first 4 positions see one another in both directions", "맨 앞의 4칸은 서로 앞뒤로 봅니다"),
    Mask(segment=5, memory=2): ("the 2 before that segment", "그 세그먼트 앞의 2칸도 봅니다"),
    Mask(window=2, random=1, block=3): ("1 drawn blocks of 3 positions", "무작위로 뽑은 3칸 블록 1개도 봅니다"),
}


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_every_mask_is_said_in_both_languages(mask):
    en, ko = MASKS[mask]
    found = said(Attention(AttentionSpec(mask=mask), 16))
    assert en in found.en.split("; ") and ko in found.ko


def test_what_is_said_of_a_window_is_what_is_seen():
    mixer = Attention(AttentionSpec(mask=Mask(window=4)), 16)
    assert through(mixer, 9).sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]
    best = said(Attention(AttentionSpec(top_k=3), 16))
    assert best.en == "itself and everything before it; of these the 3 with the largest scores"
    cnn = gf.load("cnn").model.blocks
    assert said(cnn[0].mixer).ko == "자신과 바로 앞의 2칸을 봅니다"
    assert said(cnn[2].mixer).en == "itself and the 8 positions before it; of these one in 4"
    assert said(gf.load("lstm").model.blocks[0].mixer).en == "itself and everything before it"


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_a_mask_is_called_plain_where_looking_back_says_all(mask):
    """What the page may draw without asking is what Python's mask allows, for every mask."""
    model = loaded(of(AttentionSpec(mask=mask)))
    trace = model.trace("고양이가 생선을 먹었다")
    mixer, n = outline(trace, "x").stacks[0].blocks[0].mixer, trace.stacks[0].length
    every = torch.ones(n, n, dtype=torch.bool)
    drawn = every.tril() if mixer.causal else every
    assert mixer.plain == torch.equal(through(model.model.blocks[0].mixer, n), drawn)
    assert mixer.plain or mask not in (Mask(), Mask(causal=False))


def test_what_reads_the_source_sees_all_of_it():
    blocks = outline(loaded(pair()).trace(("생선을", "먹었다")), "x").stacks[1].blocks
    assert all(block.cross.plain and not block.cross.causal for block in blocks)


def test_a_run_of_specs_with_bfloat16_weights_is_told_too():
    model = loaded(SPECS["rope"])
    model.model.bfloat16()
    document = outline(model.trace("먹었다"), "x")
    assert document.dtype == "bfloat16" and msgspec.json.decode(msgspec.json.encode(document), type=PageRun) == document
