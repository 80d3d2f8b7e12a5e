"""The weights and nodes of an ONNX file, read without its library.

An ONNX file is one protobuf message. Of its schema only what a graph of weights needs is read here: nodes with inputs,
outputs and attributes, and tensors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.protobuf import fields, varint
from ..errors import CheckpointError

DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


@dataclass
class Node:
    """One operation: its name, what it reads and gives, and its attributes (numbers, texts, tensors)."""

    name: str = ""
    op: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


class Graph:
    """The graph of an ONNX file: nodes by name, and the numbers that they read."""

    def __init__(self, path: Path) -> None:
        self.path, self.nodes, self.weights = path, {}, {}
        try:
            raw = memoryview(path.read_bytes())
            graph = next(value for number, value in fields(raw) if number == 7)
            for number, value in fields(graph):
                if number == 1:
                    node = _node(value)
                    self.nodes[node.name] = node
                elif number == 5:
                    name, tensor = _tensor(value)
                    self.weights[name] = tensor
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None
        except (StopIteration, IndexError, KeyError, ValueError, struct.error) as error:
            raise CheckpointError(f"{path} is broken or truncated ({error}); restore it from a copy") from None
        self.made = {out: node for node in self.nodes.values() for out in node.outputs}
        self.read: set[str] = set()

    def node(self, name: str) -> Node:
        """A node by its name."""
        if name not in self.nodes:
            raise CheckpointError(f"{self.path}: no operation {name!r}; it is another model than this reader's")
        return self.nodes[name]

    def number(self, name: str, place: int) -> Tensor:
        """The weight or constant that a node reads at a place, in fp32; casts on the way change nothing."""
        node = self.node(name)
        source = node.inputs[place] if place < len(node.inputs) else ""
        while source in self.made and self.made[source].op == "Cast":
            source = self.made[source].inputs[0]
        if source in self.weights:
            self.read.add(source)
            return self.weights[source].float()
        if source in self.made and self.made[source].op == "Constant":
            return self.made[source].attributes["value"].float()
        raise CheckpointError(f"{self.path}: {name!r} reads no weight at place {place}")

    def expect(self, name: str, **attributes: Any) -> None:
        """Raise CheckpointError where a node's attributes are others than these."""
        given = self.node(name).attributes
        for key in sorted(given.keys() | attributes.keys()):
            if given.get(key) != attributes.get(key):
                raise CheckpointError(
                    f"{self.path}: {name!r} has {key}={given.get(key)}; this reader knows {attributes.get(key)} only"
                )

    def check_all_read(self) -> None:
        """Raise CheckpointError where a weight has no place in the model that was made."""
        for name in sorted(self.weights.keys() - self.read):
            raise CheckpointError(f"{self.path}: the weight {name!r} has no place in the model that this reader knows")


def _text(value: memoryview) -> str:
    return bytes(value).decode()


def _node(raw: memoryview) -> Node:
    node = Node()
    for number, value in fields(raw):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 3:
            node.name = _text(value)
        elif number == 4:
            node.op = _text(value)
        elif number == 5:
            name, one = _attribute(value)
            node.attributes[name] = one
    return node


def _attribute(raw: memoryview) -> tuple[str, Any]:
    name, value = "", None
    several: list[int] = []
    for number, one in fields(raw):
        if number == 1:
            name = _text(one)
        elif number in (2, 3):
            value = one
        elif number == 4:
            value = _text(one)
        elif number == 5:
            value = _tensor(one)[1]
        elif number == 8:
            several += _whole(one)
    return name, several or value


def _whole(value: Any) -> list[int]:
    """Whole numbers, one or packed."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at)
        found.append(one)
    return found


def _tensor(raw: memoryview) -> tuple[str, Tensor]:
    name, sizes, kind, data = "", [], 0, memoryview(b"")
    for number, value in fields(raw):
        if number == 1:
            sizes += _whole(value)
        elif number == 2:
            kind = value
        elif number == 8:
            name = _text(value)
        elif number == 9:
            data = value
    if kind not in DTYPES:
        raise ValueError(f"the tensor {name!r} is of type {kind}")
    return name, torch.from_numpy(np.frombuffer(data, DTYPES[kind]).reshape(sizes).copy())
