"""Circuits: which edges between heads and MLPs an answer needs (Wang et al. 2022; Conmy et al. 2023).

Where every part adds to the residual, what enters part v is the sum of what all nodes u before it gave. An edge u → v
is the share of u in that sum. Without the edge the share is that of another run, û, and all else stays:

    x_v = Σ_u (m_uv u + (1 − m_uv) û)        m_uv = 1: the edge is there, 0: it is not

Nodes are the embedding, each head and each channel mixer; a head reads the residual three times, as q, k and v, and
heads of one group share what enters k and v. To first order f loses ⟨∂f/∂x_v, u − û⟩ without an edge (edge attribution
patching, Syed et al. 2023), of all edges from one way back; the gradient can be the mean of those of runs between the
two (EAP-IG, Hanna et al. 2024). Exactly it is another run for each edge. Pruning (ACDC, Conmy et al. 2023) goes from
the output back and leaves out for good every edge whose loss moves f less than a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from ..edit import circle
from ..errors import InputError
from ..mixers.attention import Attention
from ..positions import POSITIONS
from ..tap import Probe
from ..trace import Trace
from .answer import Answer
from .explainer import Report, quiet
from .mixing import widened

Entry = Literal["q", "k", "v", "channel", "logits"]
Absent = Literal["mean", "resample"]
COPIES, KEPT = 32, 8  # of the text in one run; numbers that are alive for each of what a node gives or a part reads
MOST_PRUNED = 1 << 14  # edges that are tried one after the other


@dataclass(frozen=True)
class Node:
    """What adds to the residual: the embedding (layer None), a head, or a channel mixer (head None)."""

    layer: int | None = None
    head: int | None = None

    @property
    def name(self) -> str:
        """Its layer, and its head in it, as 2.h3; 2.mlp; embedding."""
        if self.layer is None:
            return "embedding"
        return f"{self.layer}.mlp" if self.head is None else f"{self.layer}.h{self.head}"


@dataclass(frozen=True)
class Reader:
    """What reads the residual: for q of a head, for k or v of a group (`index`), for a channel mixer, for the logits.
    seen: so many nodes are before it, the first ones of all; makes: the nodes that what it reads goes into."""

    layer: int
    entry: Entry
    index: int
    seen: int
    makes: tuple[int, ...] = ()


def check_parts(trace: Trace) -> None:
    """Raise InputError for a run whose residual is not a plain sum of heads and channel mixers, and for one with edits
    of values, which act on sums that a circuit parts."""
    if any(edit.name.rpartition(".")[2] != POSITIONS for edit in trace.acting):
        raise InputError("a circuit is that of a run without edits; leave them out, or use tracing or the ledger")
    if len(trace.stacks) > 1:
        raise InputError("a circuit is that of one stack; of an encoder-decoder use tracing or the ledger")
    for i, block in enumerate(trace.stacks[-1].model.blocks):
        if not isinstance(getattr(block, "mixer", None), Attention):
            raise InputError(
                f"blocks.{i}: a circuit consists of attention heads and channel mixers, and this is another layer; use "
                "tracing or the ledger, which take every layer"
            )
        plain = block.spec.wiring in ("pre", "parallel") and block.spec.residual and block.width == block.dim
        if not plain or block.cross is not None:
            raise InputError(
                f"blocks.{i}: here the layers do not simply add to the residual, as with wiring pre or parallel, so "
                "there are no edges between them; use tracing or the ledger"
            )


class Circuits:
    """Runs of one text with some edges alone. The edges that there are: `exists`, bool `c n`, of readers and nodes;
    circuits are such tables, several at once `b c n`.

    nodes, readers   in the order in which they act
    clean, absent    `n t d`, what each node gives in the run, and what stands there in the place of a lost edge
    whole, empty     f with all edges, and with none
    """

    def __init__(self, answer: Answer, absent: Absent | Tensor = "mean", seed: int = 0) -> None:
        """absent: the rows of another text's tokens `1 t d`, whose run then is û; "mean": each node's mean over the
        places of this run; "resample": what it gives at another place, drawn from seed.

        Raises InputError for a run without such edges, one too long, and where nothing is lost with all edges."""
        check_parts(answer.trace)
        self.answer, self.model = answer, answer.stack.model
        self.nodes, self.readers = _parts(self.model.blocks)
        self.exists = torch.tensor([[n < one.seen for n in range(len(self.nodes))] for one in self.readers])
        self._check_room()
        self.clean = self._given(answer.rows)
        if isinstance(absent, Tensor):
            self.absent = self._given(absent)
        elif absent == "mean":
            self.absent = self.clean.mean(1, keepdim=True).expand_as(self.clean)
        else:
            self.absent = self.clean[:, circle(self.clean.shape[1], seed)]
        self.base = self.absent.cumsum(0)
        ends = self.runs(torch.stack([self.exists, torch.zeros_like(self.exists)]))
        self.whole, self.empty = ends.tolist()
        if not abs(self.total) > 1e-6 * max(abs(self.whole), 1e-3):
            raise InputError(
                "second: without all edges the answer is the same, so no circuit can be found; give another text as "
                "second, or another baseline"
            )

    @property
    def total(self) -> float:
        """What f loses with all edges."""
        return self.whole - self.empty

    @property
    def edges(self) -> Tensor:
        """Reader and node of each edge, `k 2`."""
        return self.exists.nonzero()

    def faithfulness(self, f: Tensor) -> Tensor:
        """Which share of the total a circuit's f has kept: (f − f(none)) / (f(all) − f(none))."""
        return (f - self.empty) / self.total

    def at_once(self) -> int:
        """How many circuits are run together."""
        return max(1, min(COPIES, self.answer.trace.limit_bytes // self._bytes(len(self.nodes) + self._widest())))

    # ------------------------------------------------------------ runs

    @torch.no_grad()
    def runs(self, kept: Tensor, begin: int = 0, report: Report = quiet) -> Tensor:
        """f of circuits `b c n`, in fp64; from block `begin` on, where all edges into the blocks before are kept."""
        found, parts = [], kept.split(self.at_once())
        for i, part in enumerate(parts):
            report(i, len(parts))
            found.append(self._run(part, begin).cpu().double())
        return torch.cat(found)

    def _run(
        self, kept: Tensor, begin: int = 0, first: Tensor | None = None, leaves: Sequence[Tensor] | None = None
    ) -> Tensor:
        """f `b` of circuits. first: `t d`, what the embedding gives; leaves: for each entry of each layer what is added
        to what its readers read, `c t d`."""
        kept, batch = kept.to(self.clean), len(kept)
        known = next(one.seen for one in self.readers if one.layer == begin)  # nodes in front of the first block
        apart = (self.clean if first is None else first[None])[:known] - self.absent[:known]
        apart = apart.expand(batch, -1, -1, -1)
        added = None if leaves is None else iter(leaves)

        def read(layer: int, entry: Entry) -> Tensor:
            at, seen = self._at(layer, entry)
            x = self.base[seen - 1] + torch.einsum("bcn,bntd->bctd", kept[:, at, :seen], apart[:, :seen])
            return x if added is None else x + next(added)

        def joined(given: Tensor) -> Tensor:
            start = apart.shape[1]
            return torch.cat([apart, given - self.absent[start : start + given.shape[1]]], 1)

        for layer, block in enumerate(self.model.blocks[begin:], begin):
            apart = joined(self._heads(block, [read(layer, entry) for entry in ("q", "k", "v")]))
            if block.channel is not None:
                apart = joined(self._channel(block, read(layer, "channel")))
        return self.answer.of_last(read(len(self.model.blocks), "logits")[:, 0])

    def _heads(self, block: nn.Module, entering: list[Tensor]) -> Tensor:
        """What the heads give, `b h t d`, of what their q `b h t d`, k and v `b g t d` read; the bias behind them is
        shared out among them."""
        mixer, batch = block.mixer, len(entering[0])
        probe = Probe(lambda name: name == f"{mixer.path}.head_out")
        call = replace(widened(self.answer.stack.call, batch), probe=probe, shared={})
        normed = [block.reads(x.flatten(0, 1), call).unflatten(0, (batch, -1)) for x in entering]
        mixer.apart(*normed, call)
        given = probe.values[f"{mixer.path}.head_out"].transpose(1, 2)
        return given if mixer.out.bias is None else given + mixer.out.bias / mixer.heads

    def _channel(self, block: nn.Module, x: Tensor) -> Tensor:
        """What the channel mixer gives, `b 1 t d`, of what it reads."""
        call = replace(widened(self.answer.stack.call, len(x)), shared={})
        x = x[:, 0] if block.channel_norm is None else block.channel_norm(x[:, 0], call)
        return block.channel(x, call)[:, None]

    def _at(self, layer: int, entry: Entry) -> tuple[slice, int]:
        """The readers of one entry of a layer, and how many nodes they see."""
        own = [i for i, one in enumerate(self.readers) if (one.layer, one.entry) == (layer, entry)]
        return slice(own[0], own[-1] + 1), self.readers[own[0]].seen

    @torch.no_grad()
    def _given(self, rows: Tensor) -> Tensor:
        """What every node gives in the run of a text, `n t d`."""
        names = [self.answer.stack.entry(0)]
        for block in self.model.blocks:
            names += [f"{block.mixer.path}.head_out"] + ([f"{block.path}.channel.out"] if block.channel else [])
        probe, made = Probe(lambda name: name in names), []
        self.answer.of_rows(rows, probe)
        for name in names:
            value = probe.values[name][0]
            if name.endswith("head_out"):
                mixer = self.model.blocks[int(name.split(".")[1])].mixer
                value = value if mixer.out.bias is None else value + mixer.out.bias / mixer.heads
            made.append(value.transpose(0, 1) if value.ndim == 3 else value[None])
        return torch.cat(made)

    def _widest(self) -> int:
        return max(sum(one.layer == layer for one in self.readers) for layer in {one.layer for one in self.readers})

    def _bytes(self, vectors: int) -> int:
        return self.answer.stack.block_bytes * KEPT * vectors

    def _check_room(self) -> None:
        """Raise InputError for what does not fit: one circuit, and on the way back what every reader reads."""
        needed, limit = self._bytes(len(self.nodes) + len(self.readers)), self.answer.trace.limit_bytes
        if needed > limit:
            raise InputError(
                f"the circuits of this text take {needed >> 20} MiB, and {limit >> 20} are allowed; give a shorter "
                "text, or more memory"
            )

    # ------------------------------------------------------------ what single edges do

    def scores(self, steps: int = 0, report: Report = quiet) -> Tensor:
        """To first order what f loses with each edge, `c n` in fp64: ⟨∂f/∂x_v, u − û⟩. steps: the gradient is the mean
        over so many runs whose embedding lies between the two; 0: that of the run itself."""
        found = torch.zeros(self.exists.shape, dtype=torch.float64)
        apart = (self.clean - self.absent).double()
        ways = [1.0] if not steps else [(k + 0.5) / steps for k in range(steps)]
        for k, way in enumerate(ways):
            report(k, len(ways))
            first = self.absent[0] + way * (self.clean[0] - self.absent[0])
            for (at, seen), grad in zip(self._entries(), self._gradients(first), strict=True):
                found[at, :seen] += torch.einsum("ctd,ntd->cn", grad.double(), apart[:seen]).cpu() / len(ways)
        return found

    def _entries(self) -> list[tuple[slice, int]]:
        return [self._at(*one) for one in dict.fromkeys((one.layer, one.entry) for one in self.readers)]

    def _gradients(self, first: Tensor) -> tuple[Tensor, ...]:
        """∂f/∂x of what each entry's readers read, `c t d`, of all edges."""
        shape = self.clean.shape[1:]
        with torch.enable_grad():
            leaves = [self.clean.new_zeros(at.stop - at.start, *shape).requires_grad_() for at, _ in self._entries()]
            return torch.autograd.grad(self._run(self.exists[None], 0, first, leaves).sum(), leaves)

    def exact(self, edges: Tensor, report: Report = quiet) -> Tensor:
        """What f loses without each of some edges `k 2`, by running the rest of the model, `k` in fp64."""
        found = torch.zeros(len(edges), dtype=torch.float64)
        layers = torch.tensor([self.readers[int(c)].layer for c, _ in edges])
        for done, layer in enumerate(sorted(set(layers.tolist()))):
            report(done, len(self.model.blocks) + 1)
            own = (layers == layer).nonzero()[:, 0]
            kept = self.exists.repeat(len(own), 1, 1)
            kept[torch.arange(len(own)), edges[own, 0], edges[own, 1]] = False
            found[own] = self.whole - self.runs(kept, layer)
        return found

    # ------------------------------------------------------------ circuits

    def first(self, scores: Tensor, count: int) -> Tensor:
        """The circuit `c n` of so many edges whose scores are largest in size."""
        kept, edges = torch.zeros_like(self.exists), self.edges
        order = scores[self.exists].abs().argsort(descending=True, stable=True)[:count]
        kept[edges[order, 0], edges[order, 1]] = True
        return kept

    def pruned(self, scores: Tensor, threshold: float, report: Report = quiet) -> Tensor:
        """The circuit `c n` that is left when, from the output back, every edge is lost that alone moves f less than
        `threshold` of the total; of one reader the edges of the smallest scores first.

        Several losses in a row are tried at once and taken up to the first that moves f too far, which gives what one
        after the other gives. Raises InputError for too many edges."""
        if len(self.edges) > MOST_PRUNED:
            raise InputError(
                f"method: {len(self.edges)} edges are too many to be tried one by one; use attribution or integrated"
            )
        kept, f, size = self.exists.clone(), self.whole, 1
        for done, c in enumerate(reversed(range(len(self.readers)))):
            report(done, len(self.readers))
            order = scores[c, : self.readers[c].seen].abs().argsort(stable=True)
            while len(order):
                some = order[:size]
                tried = kept.repeat(len(some), 1, 1)
                for k, node in enumerate(some.tolist()):
                    tried[k:, c, node] = False
                values = [f, *self.runs(tried, self.readers[c].layer).tolist()]
                moved = [abs(a - b) >= threshold * abs(self.total) for a, b in pairwise(values)]
                good = moved.index(True) if True in moved else len(some)
                kept, f = (tried[good - 1] if good else kept), values[good]
                order = order[good + (good < len(some)) :]
                size = min(2 * size, self.at_once()) if good == len(some) else max(1, size // 2)
        return kept

    def connected(self, kept: Tensor, rooted: bool) -> Tensor:
        """A circuit without edges that lead nowhere, and where it is `rooted` without those that come from no
        embedding: with another text's run as û these have nothing of their own."""
        makes = torch.tensor([[n in one.makes for n in range(len(self.nodes))] for one in self.readers])
        last = torch.tensor([one.entry == "logits" for one in self.readers])
        while True:
            leads = (makes & kept.any(0)).any(1) | last
            comes = (makes & kept.any(1)[:, None]).any(0)
            comes[0] = True
            fewer = kept & leads[:, None] & (comes if rooted else torch.ones_like(comes))
            if torch.equal(fewer, kept):
                return kept
            kept = fewer

    def random(self, count: int, generator: torch.Generator, rooted: bool | None = None) -> Tensor:
        """A circuit `c n` of so many edges drawn at random. rooted: connected as `connected` has it, of as many edges
        or, where none can be lost without others, a few more; None: any edges."""
        scores = torch.rand(self.exists.shape, generator=generator, dtype=torch.float64)
        if rooted is None:
            return self.first(scores, count)
        low, high = count, len(self.edges)  # more edges never leave fewer that are connected
        while low < high:
            middle = (low + high) // 2
            enough = int(self.connected(self.first(scores, middle), rooted).sum()) >= count
            low, high = (low, middle) if enough else (middle + 1, high)
        kept = self.connected(self.first(scores, low), rooted)
        edges = kept.nonzero()
        for c, n in edges[torch.randperm(len(edges), generator=generator)].tolist():
            if int(kept.sum()) == count:
                break
            fewer = kept.clone()
            fewer[c, n] = False
            fewer = self.connected(fewer, rooted)
            kept = fewer if int(fewer.sum()) >= count else kept
        return kept


def _parts(blocks: nn.ModuleList) -> tuple[list[Node], list[Reader]]:
    """The nodes and readers of a stack, in the order in which they act."""
    nodes, readers = [Node()], []
    for layer, block in enumerate(blocks):
        mixer, start = block.mixer, len(nodes)
        share = mixer.heads // mixer.groups
        readers += [Reader(layer, "q", h, start, (start + h,)) for h in range(mixer.heads)]
        for entry in ("k", "v"):
            readers += [
                Reader(layer, entry, g, start, tuple(range(start + g * share, start + (g + 1) * share)))
                for g in range(mixer.groups)
            ]
        nodes += [Node(layer, h) for h in range(mixer.heads)]
        if block.channel is not None:
            seen = start if block.spec.wiring == "parallel" else len(nodes)
            readers.append(Reader(layer, "channel", 0, seen, (len(nodes),)))
            nodes.append(Node(layer))
    return nodes, [*readers, Reader(len(blocks), "logits", 0, len(nodes))]
