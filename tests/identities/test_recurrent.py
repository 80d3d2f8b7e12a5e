"""Recurrences: PyTorch's own layers, the paper's equations by hand, what fades (S6) and what waits (S7)."""

import pytest
import torch
from torch import nn

from contract.cases import assert_same, call_of, drawn, stack
from glassformer.call import Call
from glassformer.edit import replace, scale, zero
from glassformer.errors import InputError, SettingError
from glassformer.explain.cost import cost
from glassformer.mixers.attention import AttentionSpec
from glassformer.mixers.packing import ROOM, Packing
from glassformer.mixers.recurrent import GruSpec, LstmSpec, Recurrent, RnnSpec, StartSpec
from glassformer.model import BlockSpec, EncoderDecoderSpec, build_model
from glassformer.nn.init import InitSpec, initialise
from glassformer.tap import Probe

DIM = 6
TORCH = {
    "rnn-tanh": (RnnSpec, {}, nn.RNN, {}),
    "rnn-relu": (RnnSpec, {"activation": "relu"}, nn.RNN, {"nonlinearity": "relu"}),
    "gru": (GruSpec, {}, nn.GRU, {}),
    "lstm": (LstmSpec, {}, nn.LSTM, {}),
}


def as_torch(mixer: Recurrent, kind: type, **more) -> nn.Module:
    """PyTorch's layer with the weights of the mixer; its second bias is the candidate's alone."""
    both = mixer.back is not None
    layer = kind(DIM, mixer.cell.width, batch_first=True, bidirectional=both, **more)
    with torch.no_grad():
        for cell, ending in ((mixer.cell, ""), (mixer.back, "_reverse")):
            if cell is None:
                continue
            hidden = torch.zeros_like(cell.bias)
            if getattr(cell, "recurrent_bias", None) is not None:
                hidden[2 * cell.width :] = cell.recurrent_bias
            for name, value in (
                ("weight_ih", cell.weight),
                ("weight_hh", cell.recurrent),
                ("bias_ih", cell.bias),
                ("bias_hh", hidden),
            ):
                getattr(layer, f"{name}_l0{ending}").copy_(value)
    return layer


@torch.no_grad()
@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("looked_at", [False, True])
def test_equals_pytorchs_layer(name, both, looked_at):
    spec, settings, kind, more = TORCH[name]
    mixer = drawn(Recurrent(spec(hidden=5, bidirectional=both, **settings), DIM))
    for path, part in mixer.named_modules():
        part.path = path
    x, probe = torch.randn(2, 7, DIM), Probe() if looked_at else None
    wanted, _ = as_torch(mixer, kind, **more)(x)
    assert_same(mixer.parallel(x, call_of(7, probe)), mixer.out(wanted))


@torch.no_grad()
def test_s7_the_paper_resets_before_the_product():
    """Cho et al. 2014, equations 5 to 8, one token at a time; PyTorch's variant differs."""
    mixer = drawn(Recurrent(GruSpec(reset="before", project=False), DIM))
    x, h = torch.randn(1, 5, DIM), torch.zeros(DIM)
    (w_r, w_z, w_n), (u_r, u_z, u_n) = mixer.cell.weight.split(DIM), mixer.cell.recurrent.split(DIM)
    b_r, b_z, b_n = mixer.cell.bias.split(DIM)
    rows = []
    for one in x[0]:
        r, z = torch.sigmoid(w_r @ one + u_r @ h + b_r), torch.sigmoid(w_z @ one + u_z @ h + b_z)
        h = z * h + (1 - z) * torch.tanh(w_n @ one + u_n @ (r * h) + b_n)
        rows.append(h)
    assert_same(mixer.parallel(x, call_of(5))[0], torch.stack(rows))
    after = Recurrent(GruSpec(project=False), DIM)
    after.load_state_dict({**mixer.state_dict(), "cell.recurrent_bias": torch.zeros(DIM)})
    assert (after.parallel(x, call_of(5))[0] - torch.stack(rows)).abs().max() > 0.01


@torch.no_grad()
def test_an_edited_gate_acts_on_what_the_state_becomes():
    """A forget gate of 0 at one token erases all that came before; an update gate of 1 keeps the first state."""
    mixer = drawn(Recurrent(LstmSpec(project=False), DIM))
    x = torch.randn(1, 6, DIM)
    erased = Probe(edits=(zero("cell.forget", t=3), replace("cell.hidden", 0.0, t=2)))
    mixer.cell.path = "cell"
    found = mixer.parallel(x, call_of(6, erased))
    assert_same(found[:, 3:], mixer.parallel(x[:, 3:], call_of(3)))
    gru = drawn(Recurrent(GruSpec(project=False), DIM))
    gru.cell.path = "cell"
    probe = Probe(edits=(replace("cell.update", 1.0, t=[1, 2, 3, 4, 5]),))
    found = gru.parallel(x, call_of(6, probe))
    assert_same(found, found[:, :1].expand_as(found))
    assert probe.values["cell.update"][0, 1:].eq(1).all() and not probe.values["cell.update"][0, 0].eq(1).any()


@torch.no_grad()
def test_a_scaled_gate_is_scaled_where_it_was_born():
    """By hand: the edit acts on the gate of the edited run, not on that of a run without the edit."""
    mixer = drawn(Recurrent(GruSpec(project=False), DIM))
    mixer.cell.path = "cell"
    x, h = torch.randn(1, 4, DIM), torch.zeros(1, DIM)
    probe = Probe(edits=(scale("cell.update", 0.5),))
    found = mixer.parallel(x, call_of(4, probe))
    for i in range(4):
        gates = {}
        mixer.cell.next(mixer.cell.read(x[:, i]), (h,), lambda n, v, at, g=gates: g.setdefault(n, v), i)
        h = (1 - gates["update"] / 2) * gates["candidate"] + gates["update"] / 2 * h
        assert_same(found[:, i], h)


def influence(spec, n: int = 40) -> torch.Tensor:
    """Norm of ∂h_n / ∂x_j for j = 1 … n, of a mixer as it starts."""
    torch.manual_seed(0)
    mixer = Recurrent(spec.changed(project=False), 32)
    initialise(mixer, InitSpec(std=None), 1)
    mixer.double()
    x = torch.randn(1, n, 32, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda v: mixer.parallel(v, call_of(n))[0, -1], x)
    return jacobian[:, 0].norm(dim=(0, 2))


def test_s6_what_is_far_fades_and_gates_slow_it_down():
    """The Jacobian is a product over the steps between: it falls by orders of magnitude, less so behind a forget gate
    that starts open."""
    plain, forgetful = influence(RnnSpec()), influence(LstmSpec(forget_bias=0.0))
    open_gate = influence(LstmSpec(forget_bias=3.0))
    for found in (plain, forgetful):
        blocks = found.view(4, 10).mean(1)
        assert (blocks[1:] > blocks[:-1]).all()  # nearer means more, all the way
    assert plain[0] / plain[-1] < 1e-3 and forgetful[0] / forgetful[-1] < 1e-3
    assert open_gate[0] / open_gate[-1] > 20 * max(plain[0] / plain[-1], forgetful[0] / forgetful[-1])


@pytest.mark.parametrize(("spec", "factor"), [(RnnSpec(), 4), (GruSpec(), 12), (LstmSpec(), 16)])
def test_s7_s8_steps_wait_and_the_state_does_not_grow(spec, factor):
    mixer = BlockSpec(mixer=spec.changed(project=False), channel=None)
    short, long = (cost(stack(mixer, dim=8, head=None), n) for n in (10, 1000))
    assert (short.steps, long.steps) == (10, 1000) and (short.path, long.path) == (10, 1000)
    assert short.state_bytes == long.state_bytes
    assert long.flops == factor * 8 * 8 * 1000


def test_the_forget_gate_starts_open_and_rotations_keep_a_length():
    mixer = Recurrent(LstmSpec(hidden=5, forget_bias=2.0), DIM)
    initialise(mixer, InitSpec(), 1)
    assert mixer.cell.bias.view(4, 5).tolist() == [[0.0] * 5, [2.0] * 5, [0.0] * 5, [0.0] * 5]
    for block in mixer.cell.recurrent.split(5):
        assert_same(block @ block.T, torch.eye(5))


def test_chrono_spreads_what_is_remembered_over_the_lags_asked_for():
    """Each forget gate begins at u/(1 + u), so that what it keeps fades in about u tokens, u from 1 to chrono − 1; the
    input gate lets in as much as is forgotten."""
    torch.manual_seed(0)
    mixer = Recurrent(LstmSpec(hidden=2000, chrono=101), DIM)
    initialise(mixer, InitSpec(), 1)
    write, keep, candidate, out = mixer.cell.bias.detach().view(4, 2000)
    lags = keep.exp()
    assert 1 <= lags.min() < 2 and 99 < lags.max() <= 100 and abs(lags.mean().item() - 50.5) < 2
    assert_same(torch.sigmoid(write), 1 - torch.sigmoid(keep))
    assert not candidate.any() and not out.any()
    with pytest.raises(SettingError, match="^chrono: 1 is not allowed"):
        LstmSpec(chrono=1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (GruSpec(project=False, hidden=5), r"^project: states of 5 numbers .* d=6 as they are; set hidden=6"),
        (
            GruSpec(project=False, bidirectional=True),
            r"^project: states of 12 numbers .*; set hidden=3, or project=true",
        ),
        (LstmSpec(bidirectional=True, start=StartSpec()), r"^start: a decoder reads in one direction"),
    ],
)
def test_settings_that_do_not_fit_name_the_way_out(spec, message):
    with pytest.raises(SettingError, match=message):
        Recurrent(spec, DIM)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stack(BlockSpec(mixer=AttentionSpec(), width=8)), r"^blocks\.0\.width: these vectors stay 16 wide"),
        (lambda: stack(BlockSpec(mixer=GruSpec(), width=8)), r"^head\.tied: .* rows of 16 .* have 8; set it to false"),
        (
            lambda: stack(BlockSpec(mixer=GruSpec(project=False), width=8)),
            r"^blocks\.0\.mixer\.project: .*; set hidden=8",
        ),
    ],
)
def test_a_width_that_cannot_be_is_refused(make, message):
    with pytest.raises(SettingError, match=message):
        build_model(make())


# ---------------------------------------------------------------- a start from the encoder's end


def pair(start: StartSpec, **settings) -> EncoderDecoderSpec:
    reader = BlockSpec(mixer=GruSpec(**settings))
    return EncoderDecoderSpec(encoder=stack(reader, head=None), decoder=stack(BlockSpec(mixer=GruSpec(start=start))))


@torch.no_grad()
def test_a_decoder_begins_with_tanh_of_the_encoders_end():
    """The end is the state after the last token, of the other direction that before the first one."""
    model = drawn(build_model(pair(StartSpec(), hidden=8, bidirectional=True)))
    source, probe = torch.tensor([[3, 1, 2, 5]]), Probe()
    model(source, torch.tensor([[1]]), probe=probe)
    ahead, back = (probe.values[f"encoder.blocks.0.mixer.{one}.hidden"] for one in ("cell", "back"))
    end = torch.cat((ahead[:, -1], back[:, 0]), -1)
    start = model.decoder.blocks[0].mixer.start
    state = model.empty(source, 1)
    assert_same(state.blocks[0].mixer.parts[0], torch.tanh(start.bridge(end)))
    padded = torch.tensor([[0, 3, 1, 2, 5, 0]]), torch.tensor([[-1, 0, 1, 2, 3, -1]])
    padded_state = model.empty(padded[0], 1, source_pos=padded[1])
    assert_same(padded_state.blocks[0].mixer.parts[0], state.blocks[0].mixer.parts[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pair(StartSpec(), hidden=8), r"^decoder\.blocks\.0\.mixer\.start\.width: 16 .*; use 8"),
        (lambda: pair(StartSpec(layer=1)), r"^decoder\.blocks\.0\.mixer\.start\.layer: 1 .*; it has 1 \(0 to 0\)"),
    ],
)
def test_a_start_that_does_not_fit_the_encoder_is_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_a_decoder_alone_says_what_it_lacks():
    decoder = drawn(build_model(pair(StartSpec()).decoder))
    with pytest.raises(InputError, match=r"begins with an encoder's last state"):
        decoder(torch.tensor([[1, 2]]))
    mixer = decoder.blocks[0].mixer
    with pytest.raises(InputError, match=r"begins with an encoder's last state"):
        mixer.empty(1, 1, Call(torch.zeros(1, 1, dtype=torch.long)))


def documents(batch: int, t: int, missing: float = 0.1):
    """Positions and segments of rows with gaps, in which documents of different length begin anywhere."""
    generator = torch.Generator().manual_seed(1)
    first = torch.rand(batch, t, generator=generator) < 0.05
    segments, pos = first.long().cumsum(1), torch.arange(t).expand(batch, t)
    pos = pos - torch.where(first, pos, 0).cummax(1).values
    pos = torch.where(torch.rand(batch, t, generator=generator) < missing, -1, pos)
    pos[1] = -1  # a row without a token
    return pos, segments


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", TORCH)
def test_documents_go_through_pytorchs_kernel_in_pieces(name, both, monkeypatch):
    """They equal the loop that resets at each of them, with its gradients, and leave the same state behind."""
    spec, settings, _, _ = TORCH[name]
    mixer = drawn(Recurrent(spec(hidden=5, bidirectional=both, **settings), DIM))
    for path, part in mixer.named_modules():
        part.path = path
    pos, segments = documents(6, 150)
    x = torch.randn(6, 150, DIM, requires_grad=True)
    weight = torch.randn(6, 150, DIM) * (pos >= 0)[..., None]

    def read(probe):
        call = Call(pos, segments=segments, probe=probe, ends=[])
        out = mixer.parallel(x, call)
        total = (out * weight).sum() + call.ends[0].square().sum()
        return call.ends[0], torch.autograd.grad(total, [x, *mixer.parameters()]), out * (weight != 0)

    end, gradients, out = read(Probe())
    monkeypatch.setattr(type(mixer.cell), "next", None)  # the loop's step
    found_end, found_gradients, found = read(None)
    assert_same(found, out)
    assert_same(found_end, end)
    for a, b in zip(found_gradients, gradients, strict=True):
        assert (a - b).abs().max() <= 1e-5 * max(g.abs().max() for g in gradients)


def test_few_places_are_filled_up_and_few_kernels_called():
    """At most ROOM places in each segment."""
    pos, _ = documents(6, 400, missing=0.0)
    valid = pos >= 0
    packing = Packing.of(valid, valid & (pos == 0))
    filled = sum(pieces * steps for pieces, steps in packing.segments) - int(valid.sum())
    assert 0 < filled <= ROOM * len(packing.segments)
    assert packing.segments[0][0] == int((pos == 0).sum()) and len(packing.segments) < 20
