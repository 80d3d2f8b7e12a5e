"""The most that can flow through layers of pipes, from the top to each place at the bottom (Dinic 1970)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from .explainer import Report, quiet

MOST_WORK = 1_000_000  # pipes times places at the bottom: seconds of work
LEAST = 1e-12  # less than that is rounding


def most_flowing(entering: np.ndarray, pipes: Sequence[np.ndarray], report: Report = quiet) -> np.ndarray:
    """For each place at the bottom the largest flow to it alone, `s`.

    entering  `t`, the most that may enter at each place of the top
    pipes     for each layer from the top the widths `t s` of its pipes from each place above to each below

    Raises InputError for so many pipes that this would take minutes.
    """
    widths = [[(i, j, float(one[i, j])) for i, j in np.argwhere(one > 0)] for one in pipes]
    bottom = pipes[-1].shape[1]
    if sum(map(len, widths)) * bottom > MOST_WORK:
        raise InputError(
            f"the flow to {bottom} tokens through {sum(map(len, widths)):,} weights would take minutes; give a shorter "
            "text, a lower layer, or use rollout"
        )
    starts = np.cumsum([1, len(entering), *(one.shape[1] for one in pipes)]).tolist()  # node 0 is where all comes from
    found = np.zeros(bottom)
    for s in range(bottom):
        report(s, bottom)
        graph = _Graph(starts[-1])
        for i, most in enumerate(entering):
            graph.pipe(0, starts[0] + i, float(most))
        for layer, some in enumerate(widths):
            for i, j, most in some:
                if layer + 1 < len(widths) or j == s:
                    graph.pipe(starts[layer] + i, starts[layer + 1] + j, most)
        found[s] = graph.most(0, starts[len(pipes)] + s)
    return found


class _Graph:
    """Pipes between nodes, each with what may still go through it; the way back of a pipe is the next or the one
    before."""

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.left: list[float] = []

    def pipe(self, start: int, end: int, most: float) -> None:
        for one, other, room in ((start, end, most), (end, start, 0.0)):
            self.out[one].append(len(self.to))
            self.to.append(other)
            self.left.append(room)

    def most(self, start: int, end: int) -> float:
        """The largest flow: along shortest ways, again and again, until none is left."""
        total = 0.0
        while (depth := self._depths(start))[end] >= 0:
            tried = [0] * len(self.out)
            while (sent := self._send(start, end, depth, tried)) > 0:
                total += sent
        return total

    def _depths(self, start: int) -> list[int]:
        depth = [-1] * len(self.out)
        depth[start] = 0
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for pipe in self.out[node]:
                if self.left[pipe] > LEAST and depth[self.to[pipe]] < 0:
                    depth[self.to[pipe]] = depth[node] + 1
                    waiting.append(self.to[pipe])
        return depth

    def _send(self, start: int, end: int, depth: list[int], tried: list[int]) -> float:
        """What one shortest way takes; 0 where there is none left. tried: how many pipes of each node lead nowhere."""
        way: list[int] = []
        node = start
        while node != end:
            while tried[node] < len(self.out[node]):
                pipe = self.out[node][tried[node]]
                if self.left[pipe] > LEAST and depth[self.to[pipe]] == depth[node] + 1:
                    break
                tried[node] += 1
            else:
                if not way:
                    return 0.0
                node = self.to[way.pop() ^ 1]
                tried[node] += 1
                continue
            way.append(pipe)
            node = self.to[pipe]
        sent = min(self.left[pipe] for pipe in way)
        for pipe in way:
            self.left[pipe] -= sent
            self.left[pipe ^ 1] += sent
        return sent
