"""Circuits: against a model written out in plain torch, against runs of both texts, and against the model whose groups
are written out as heads."""

import pytest
import torch
import torch.nn.functional as F
from page_runs import runs
from sheet_models import DIM, ROPE, SPECS, loaded, model_of, of, pair

import glassformer as gf
from glassformer.api import Loaded
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.answer import Answer
from glassformer.explain.circuit import Circuits, Node
from glassformer.explain.target import Target
from glassformer.mixers.attention import AttentionSpec
from glassformer.nn.pool import PooledSpec

TEXT, LENGTH = [3, 7, 1, 7, 5, 2, 9], 7
OTHER = torch.tensor([[3, 8, 1, 4, 5, 6, 9]])


def answer_of(spec, double=True):
    model, candidate = model_of(spec), "2" if getattr(spec.head, "classes", None) else "#5"
    return Answer(Loaded(model.double() if double else model, name="tiny").trace(TEXT), Target(candidate=candidate))


def circuits_of(spec, double=True):
    answer = answer_of(spec, double)
    return Circuits(answer, answer.rows_of(OTHER))


def where(circuits, source, entry):
    """Reader and node of an edge, as ("0.h1", "1.k0")."""
    names = [
        f"{one.layer}.{one.entry}{one.index}"
        if one.entry in "qkv"
        else one.entry
        if one.entry == "logits"
        else f"{one.layer}.mlp"
        for one in circuits.readers
    ]
    return names.index(entry), [one.name for one in circuits.nodes].index(source)


def drawn_circuits(circuits, count, seed=0):
    some = torch.rand(count, *circuits.exists.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    return some & circuits.exists


# ---------------------------------------------------------------- the model written out

PLAIN = of(AttentionSpec(heads=2, kv_heads=1, out_bias=True))
EDGES = [("embedding", "0.q0"), ("embedding", "0.v0"), ("0.h1", "0.mlp"), ("0.h1", "1.k0"), ("0.mlp", "1.q1")]
EDGES += [("0.mlp", "1.v0"), ("0.mlp", "1.mlp"), ("1.h0", "1.mlp"), ("0.h0", "logits"), ("1.mlp", "logits")]


class ByHand:
    """PLAIN as sums over what nodes give, with its weights alone: pre-norm, two query heads, one key/value head."""

    def __init__(self, model):
        self.w = dict(model.named_parameters())

    def norm(self, x, name):
        return F.layer_norm(x, (DIM,), self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def head(self, i, h, q, k, v):
        w, e = (lambda name: self.w[f"blocks.{i}.mixer.{name}"]), DIM // 2
        q, k, v = (self.norm(x, f"blocks.{i}.mixer_norm") for x in (q, k, v))
        scores = (q @ w("q.weight")[h * e : (h + 1) * e].T) @ (k @ w("k.weight").T).T / e**0.5
        mask = torch.ones(LENGTH, LENGTH).tril() > 0
        return (
            scores.masked_fill(~mask, -torch.inf).softmax(-1)
            @ (v @ w("v.weight").T)
            @ (w("out.weight")[:, h * e : (h + 1) * e].T)
        )

    def mlp(self, i, x):
        w = lambda name: self.w[f"blocks.{i}.channel.{name}"]  # noqa: E731
        x = self.norm(x, f"blocks.{i}.channel_norm")
        return F.gelu(x @ w("up.weight").T + w("up.bias")) @ w("down.weight").T + w("down.bias")

    def run(self, ids, lost=(), absent=None):
        """What every node gives, and the logit of #5; lost: (node, reader), whose share is that of `absent`."""
        given = {"embedding": self.w["embed.token.weight"][ids]}
        bias = torch.zeros(DIM).to(given["embedding"])

        def read(reader):
            return bias + sum(absent[one] if (one, reader) in lost else own for one, own in given.items())

        for i in range(2):
            entering = {f"{i}.{one}": read(f"{i}.{one}") for one in ("q0", "q1", "k0", "v0")}
            for h in range(2):
                given[f"{i}.h{h}"] = self.head(i, h, *(entering[f"{i}.{one}"] for one in (f"q{h}", "k0", "v0")))
            bias = bias + self.w[f"blocks.{i}.mixer.out.bias"]
            given[f"{i}.mlp"] = self.mlp(i, read(f"{i}.mlp"))
        last = F.layer_norm(read("logits"), (DIM,), self.w["norm.weight"], self.w["norm.bias"])[-1]
        return given, (last @ self.w["embed.token.weight"][5]).item()


@torch.no_grad()
def test_edges_and_circuits_are_those_of_the_model_written_out():
    circuits = circuits_of(PLAIN)
    hand = ByHand(circuits.model)
    clean, f = hand.run(TEXT)
    absent, empty = hand.run(OTHER[0].tolist())
    assert (circuits.whole, circuits.empty) == pytest.approx((f, empty), abs=1e-10)
    shared = torch.stack([clean[f"1.h{h}"] for h in range(2)]).sum(0) + circuits.model.blocks[1].mixer.out.bias
    ours = [circuits.clean[[one.name for one in circuits.nodes].index(f"1.h{h}")] for h in range(2)]
    assert torch.allclose(sum(ours), shared, atol=1e-10)  # the bias is shared out among them
    at = torch.tensor([where(circuits, *edge) for edge in EDGES])
    wanted = [f - hand.run(TEXT, {edge}, absent)[1] for edge in EDGES]
    assert circuits.exact(at).tolist() == pytest.approx(wanted, abs=1e-9) and min(map(abs, wanted)) > 1e-4
    several = drawn_circuits(circuits, 5)
    every = {(n.name, reader) for n in circuits.nodes for reader in {edge[1] for edge in EDGES} | {"0.q1", "0.k0"}}
    for kept, value in zip(several, circuits.runs(several).tolist(), strict=True):
        lost = set()
        for source, reader in every | {(n.name, r) for n in circuits.nodes for r in ("1.q0", "1.k0", "0.mlp")}:
            c, n = where(circuits, source, reader)
            if circuits.exists[c, n] and not kept[c, n]:
                lost.add((source, reader))
        assert len(lost) == int((circuits.exists & ~kept).sum())
        assert value == pytest.approx(hand.run(TEXT, lost, absent)[1], abs=1e-9)


# ---------------------------------------------------------------- all edges, and none

KNOWN = ["grouped", "one-key-head", "qk-norm-all", "biases", "sink", "softcap-sink-relative", "alibi", "window-sinks"]
KNOWN += ["prefix", "full", "smear", "gated", "experts", "no-channel", "parallel", "no-norm", "learned", "capped-head"]


def test_with_all_edges_it_is_the_run_and_with_none_that_of_the_other_text():
    for name in KNOWN:
        circuits = circuits_of(SPECS[name], double=False)
        run = circuits.answer.trace
        ends = [run.logits[0, -1, 5].item(), run.loaded.trace(OTHER[0].tolist()).logits[0, -1, 5].item()]
        assert (circuits.whole, circuits.empty) == pytest.approx(ends, abs=1e-5, rel=1e-5), name
        assert circuits.faithfulness(torch.tensor(ends, dtype=torch.float64)).tolist() == pytest.approx(
            [1, 0], abs=1e-4
        )
        assert Answer(run, Target(candidate="#5")).value == pytest.approx(ends[0], rel=1e-5)
    classes = SPECS["full"].changed(head=PooledSpec(classes=3))
    circuits, run = circuits_of(classes, double=False), Loaded(model_of(classes), name="tiny").trace(TEXT)
    assert circuits.whole == pytest.approx(run.model(run.stacks[0].tokens)[0, 2].item(), abs=1e-5)
    parallel = {(n, c) for c, n in circuits_of(SPECS["parallel"]).edges.tolist()}
    assert len(parallel) == len(circuits_of(SPECS["rope"]).edges) - 2 * 4  # an MLP beside them reads no heads


# ---------------------------------------------------------------- to first order


def test_to_first_order_little_corruption_does_what_the_scores_say():
    answer = answer_of(SPECS["grouped"])
    apart = torch.randn(answer.rows.shape, generator=torch.Generator().manual_seed(0)).double()
    errors = []
    for size in (1e-3, 1e-4):
        circuits = Circuits(answer, answer.rows + size * apart)
        exact, edges = circuits.exact(circuits.edges), circuits.edges
        scores = circuits.scores()[edges[:, 0], edges[:, 1]]
        errors.append(((scores - exact).norm() / exact.norm()).item())
        assert torch.equal(circuits.scores() != 0, circuits.exists)
    assert errors[1] < 1e-2 and errors[1] == pytest.approx(errors[0] / 10, rel=0.3)


def test_integrated_scores_of_the_embedding_add_up_to_the_total():
    circuits = circuits_of(SPECS["rope"])
    embedding = [circuits.scores(steps)[:, 0].sum().item() for steps in (0, 16, 64)]
    apart = [abs(one - circuits.total) / abs(circuits.total) for one in embedding]
    assert apart[2] < 2e-3 < apart[0] and apart[2] < apart[1]


# ---------------------------------------------------------------- groups


def twin_of(model, spec):
    """The model in which each query head has keys and values of its own, those of its group."""
    twin = model_of(spec).double()
    with torch.no_grad():
        for (name, own), given in zip(twin.named_parameters(), model.parameters(), strict=True):
            of_keys = name.endswith(("mixer.k.weight", "mixer.v.weight"))
            own.copy_(given.unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1) if of_keys else given)
    return twin


def test_groups_are_their_heads_with_equal_keys_and_values():
    grouped = circuits_of(SPECS["grouped"])
    run = Loaded(twin_of(grouped.model, of(ROPE)), name="twin").trace(TEXT)
    answer = Answer(run, Target(candidate="#5"))
    twin = Circuits(answer, answer.rows_of(OTHER))
    assert len(grouped.edges) < len(twin.edges)

    def of_group(one):
        """The reader of the grouped model that stands for one of the twin's."""
        index = one.index // 2 if one.entry in "kv" else one.index
        return next(
            c
            for c, other in enumerate(grouped.readers)
            if (other.layer, other.entry, other.index) == (one.layer, one.entry, index)
        )

    groups = [of_group(one) for one in twin.readers]
    several = drawn_circuits(grouped, 4, 1)
    assert torch.allclose(grouped.runs(several), twin.runs(several[:, groups]), atol=1e-10)
    assert grouped.runs(several).std() > 1e-3
    summed = torch.zeros_like(grouped.scores()).index_add(0, torch.tensor(groups), twin.scores())
    assert torch.allclose(grouped.scores(), summed, atol=1e-10)


# ---------------------------------------------------------------- circuits


def test_pruning_is_one_loss_after_the_other_from_the_output_back():
    circuits = circuits_of(SPECS["rope"])
    scores, kept, f = circuits.scores(), circuits.exists.clone(), circuits.whole
    for c in reversed(range(len(circuits.readers))):
        for n in sorted(range(circuits.readers[c].seen), key=lambda n: abs(scores[c, n].item())):
            kept[c, n] = False
            moved = circuits.runs(kept[None]).item()
            if abs(moved - f) >= 0.05 * abs(circuits.total):
                kept[c, n] = True
            else:
                f = moved
    found = circuits.pruned(scores, 0.05)
    assert torch.equal(found, kept) and 0 < found.sum() < len(circuits.edges)
    led = circuits.connected(found, True)
    assert led.sum() <= found.sum() and circuits.runs(led[None]).item() == pytest.approx(f, abs=1e-9)
    assert circuits.pruned(scores, 1e-12).sum() > found.sum() and not (found & ~circuits.exists).any()


def test_edges_that_lead_nowhere_are_left_out():
    circuits = circuits_of(PLAIN)
    path = [("embedding", "0.k0"), ("0.h1", "1.v0"), ("1.h0", "logits")]
    dead = [("embedding", "0.mlp"), ("0.h0", "1.mlp"), ("1.h1", "1.mlp")]
    kept = torch.zeros_like(circuits.exists)
    for edge in path + dead:
        kept[where(circuits, *edge)] = True
    led = circuits.connected(kept, False)
    assert sorted(led.nonzero().tolist()) == sorted(list(where(circuits, *edge)) for edge in path)
    kept[where(circuits, "1.mlp", "logits")] = True
    assert circuits.connected(kept, False).sum() == 6  # 1.mlp leads now, 0.mlp still does not
    rooted = circuits.connected(kept, True)  # nothing from the embedding reaches 0.h0's q, but its k0 does
    assert rooted.sum() == 6 and not rooted[where(circuits, "embedding", "0.mlp")]


def test_what_stands_in_the_place_of_a_lost_share():
    answer = answer_of(PLAIN)
    mean, other = Circuits(answer, "mean"), Circuits(answer, "resample", 3)
    assert torch.allclose(mean.absent[:, 0], mean.clean.mean(1)) and torch.equal(mean.absent[:, 0], mean.absent[:, -1])
    assert torch.equal(other.absent.sort(1).values, other.clean.sort(1).values)
    assert not (other.absent == other.clean).all(-1).any()
    model = mean.model  # with none, the logits are those of the means' sum
    x = mean.clean.mean(1).sum(0)
    wanted = F.layer_norm(x, (DIM,), model.norm.weight, model.norm.bias) @ model.embed.token.weight[5]
    assert mean.empty == pytest.approx(wanted.item(), abs=1e-9)


# ---------------------------------------------------------------- the explanation


def test_the_explanation():
    run = loaded(SPECS["grouped"]).trace("고양이가 생선을 먹었다")
    usual = {"candidate": "#5", "edges": 20, "samples": 16, "orders": 2}
    one = gf.explain("circuit", run, **usual)
    circuits = Circuits(Answer(run, Target(candidate="#5")), "mean")
    kept = circuits.connected(circuits.first(circuits.scores(), 20), False)
    checks = {check.name: check for check in one.checks}
    f = circuits.runs(torch.stack([kept, circuits.exists & ~kept]))
    own = circuits.faithfulness(f).tolist()
    assert [checks[name].value for name in ("faithfulness", "faithfulness_complement")] == pytest.approx(own, rel=1e-3)
    assert checks["closure"].passed and -1 <= checks["agreement"].value <= 1
    table = one.figure("edges").rows
    assert len(table) == kept.sum() and sorted(map(abs, [row[2] for row in table]), reverse=True) == [
        abs(row[2]) for row in table
    ]
    row = table[0]
    at = torch.tensor([where(circuits, row[0], row[1])])
    assert row[2:] == pytest.approx([circuits.scores()[tuple(at[0])].item(), circuits.exact(at).item()], rel=1e-3)
    graph = one.figure("circuit")
    assert sum(edge.value for edge in graph.edges) == pytest.approx(sum(abs(row[2]) for row in table), rel=1e-5)
    known = {node.id: node for node in graph.nodes}
    assert all(known[edge.source].layer < known[edge.target].layer for edge in graph.edges)
    assert len({(node.layer, node.place) for node in graph.nodes}) == len(graph.nodes)
    curve = one.figure("faithfulness")
    assert curve.x[-1] == str(len(circuits.edges)) and len(curve.lines) == 2
    assert [line.values[-1] for line in curve.lines] == pytest.approx([1, 1], abs=1e-4)
    values = {row[0]: row[2] for row in one.figure("runs").rows}
    assert values["the circuit"] == pytest.approx(f[0].item(), rel=1e-4)
    run = loaded(SPECS["grouped"], "byte").trace("the cat ate")
    second = gf.explain("circuit", run, second="the dog ate", method="pruning", threshold=0.1, **usual)
    assert second.figure("edges").rows and second.checks[3].passed
    circuits = Circuits(Answer(run, Target(candidate="#5")), "mean")
    few = gf.explain("circuit", run, method="integrated", steps=2, **usual | {"edges": 0, "threshold": 0.2})
    assert all(abs(row[2]) >= 0.2 * abs(circuits.total) * 0.999 for row in few.figure("edges").rows)


def test_what_has_no_circuits_is_refused_with_the_way_out():
    usual = [name for name in SPECS if "post" in name or "after" in name or "sandwich" in name or name == "no-residual"]
    for name in usual:
        with pytest.raises(InputError, match="blocks.0: here the layers do not simply add to the residual"):
            circuits_of(SPECS[name])
    lstm = runs()["lstm"]()
    with pytest.raises(InputError, match="blocks.0: a circuit consists of .* use tracing or the ledger"):
        Circuits(Answer(lstm, Target(candidate="#5")))
    two = loaded(pair()).trace(("생선을", "먹었다"))
    with pytest.raises(InputError, match="of an encoder-decoder use tracing"):
        Circuits(Answer(two, Target(candidate="#5")))
    for run in (lstm, two):
        with pytest.raises(UnsupportedError, match="circuit does not apply .* tracing"):
            gf.explain("circuit", run)
    answer = answer_of(PLAIN)
    with pytest.raises(InputError, match="second: without all edges the answer is the same"):
        Circuits(answer, answer.rows)
    circuits = Circuits(answer)
    run = circuits.answer.trace
    with pytest.raises(InputError, match="threshold: no edge is left"):
        gf.explain("circuit", run, candidate="#5", edges=0, threshold=1e9)
    run.limit_bytes = 1 << 10
    with pytest.raises(InputError, match="the circuits of this text take .* give a shorter text, or more memory"):
        Circuits(Answer(run, Target(candidate="#5")))
    assert Node(2, 3).name == "2.h3"


def test_a_random_circuit_is_connected_as_the_circuit_is_that_it_stands_beside():
    circuits, generator = circuits_of(PLAIN), torch.Generator().manual_seed(1)
    for rooted in (True, False):
        for count in (3, 12, 24):
            drawn = circuits.random(count, generator, rooted)
            assert torch.equal(circuits.connected(drawn, rooted), drawn)
            assert count <= int(drawn.sum()) <= count + 3  # more only where none can be lost without others
    made = gf.explain("circuit", gf.load().trace("The cat ate the fish"), edges=16, samples=2, orders=8)
    runs_of = {row[0]: row[1:] for row in made.figure("runs").rows}
    assert 0 <= runs_of["random circuits"][0] - runs_of["the circuit"][0] < 1.5
    assert runs_of["random circuits"][1] != pytest.approx(runs_of["no edge"][1], abs=1e-3)  # they lead somewhere
    loose = [int(circuits.connected(circuits.random(12, generator), True).sum()) for _ in range(8)]
    assert sum(loose) < 0.75 * 8 * 12  # of edges drawn anywhere many lead nowhere
