"""The Korean grapheme-to-phoneme model of hama (PyPI, Apache-2.0): `encoder.onnx`, `decoder_step.onnx` and
`g2p_vocab.json`. It reads the letters (자모) of one word and writes phonemes.

Gated units read in both directions and write in one, with an additive, location-sensitive alignment. Where the original
has two recurrent layers within one residual, the vectors here are widened by the first one's states: [x; h], of which
the second layer and the residual each read their part. The numbers are the same.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..files import read_object
from ..mixers.alignment import AlignmentSpec, LocationSpec
from ..mixers.conv import ConvSpec
from ..mixers.recurrent import GruSpec, StartSpec
from ..model import BlockSpec, EncoderDecoderSpec, ModelSpec
from ..nn.head import HeadSpec
from ..nn.norm import LayerNormSpec
from .imported import Imported, listed
from .onnx import Graph

FILES = ("encoder.onnx", "decoder_step.onnx", "g2p_vocab.json")
START, END = "<sos>", "<eos>"
Tensors = dict[str, Tensor]


def is_hama(path: Path) -> Path | None:
    """The folder to read where there is one at `path`."""
    return path if path.is_dir() and all((path / name).is_file() for name in FILES[:2]) else None


def read_hama(folder: Path) -> Imported:
    """The model in a folder that holds FILES. Raises CheckpointError for what is missing, broken or unknown."""
    encoder, decoder = (Graph(folder / name) for name in FILES[:2])
    letters, phonemes = _pieces(folder / FILES[2])
    tensors, front = _encoder(encoder), encoder.number("/encoder_embedding/Gather", 0)
    hidden = encoder.number("/bridge/Gemm", 1).shape[0]
    more, table, drift = _decoder(decoder, phonemes, hidden)
    tensors |= more | _starts(encoder)
    spec = _spec(front, table, hidden, tensors, drift)
    encoder.check_all_read()
    decoder.check_all_read()
    source = listed(letters, ("<pad>", "<unk>"), how="jamo")
    target = listed(phonemes, ("<pad>", START, "<unk>", END), end=END)
    about = {
        "format": "hama g2p",
        "summary": "Korean grapheme-to-phoneme: reads the letters of a word, writes its phonemes (IPA)",
        "summary_ko": "한국어 발음 변환: 낱말의 자모를 읽고 음소(IPA)를 씁니다",
    }
    return Imported(spec, tensors, target, source, about)


def _pieces(path: Path) -> list[list[str]]:
    """The letters and the phonemes, in the order of their ids."""
    held = read_object(path, needed=True)
    found = [held.get(side) for side in ("encoder", "decoder")]
    if not all(isinstance(side, list) and all(isinstance(one, str) for one in side) for side in found):
        raise CheckpointError(f"{path} must hold two lists of pieces, encoder and decoder; fetch it again")
    return found


def _spec(front: Tensor, table: Tensor, n: int, tensors: Tensors, drift: float) -> EncoderDecoderSpec:
    narrow, wide = front.shape[1], 2 * n
    bare, normed = {"channel": None, "norm": None}, {"channel": None, "norm": LayerNormSpec(), "wiring": "post"}
    both = GruSpec(hidden=n, bidirectional=True)
    filters, places = tensors["decoder.blocks.2.mixer.cross.filters.weight"].shape
    kernel = tensors["encoder.blocks.0.mixer.conv.weight"].shape[2]
    encoder = ModelSpec(
        vocab=len(front),
        dim=narrow,
        blocks=(
            BlockSpec(mixer=ConvSpec(width=kernel, causal=False, bias=False), **normed),
            BlockSpec(mixer=both, width=narrow + wide, **bare),
            BlockSpec(mixer=both.changed(project=False), width=wide, **normed),
        ),
        context=128,
        norm=None,
        head=None,
    )
    one, two = (GruSpec(hidden=n, start=StartSpec(layer=i, width=wide)) for i in range(2))
    aligned = AlignmentSpec(
        cell=None,
        width=n,
        location=LocationSpec(filters=filters, width=places),
        drift=drift,
        context_norm=LayerNormSpec(),
        activation="tanh",
        memory_dim=wide,
    )
    decoder = ModelSpec(
        vocab=len(table),
        dim=table.shape[1],
        blocks=(
            BlockSpec(mixer=one, width=table.shape[1] + n, **bare),
            BlockSpec(mixer=two.changed(project=False), width=n, **normed),
            BlockSpec(mixer=aligned, residual=False, **normed),
        ),
        context=128,
        norm=None,
        head=HeadSpec(tied=False, bias=True),
    )
    return EncoderDecoderSpec(encoder=encoder, decoder=decoder)


def _encoder(graph: Graph) -> Tensors:
    table = graph.number("/encoder_embedding/Gather", 0)
    depthwise, pointwise = (graph.number(f"/frontend/{one}/Conv", 1) for one in ("depthwise", "pointwise"))
    width, kernel = table.shape[1], depthwise.shape[2]
    side, sizes = [kernel // 2] * 2, {"dilations": [1], "strides": [1]}
    graph.expect("/frontend/depthwise/Conv", group=width, kernel_shape=[kernel], pads=side, **sizes)
    graph.expect("/frontend/pointwise/Conv", group=1, kernel_shape=[1], pads=[0, 0], **sizes)
    found = {
        "encoder.embed.token.weight": table,
        "encoder.blocks.0.mixer.conv.weight": pointwise * depthwise.transpose(0, 1),  # o i 1 by 1 i k
        **_norm(graph, "/frontend/norm", "encoder.blocks.0.mixer_norm"),
        **_norm(graph, "/encoder_out_norm", "encoder.blocks.2.mixer_norm"),
    }
    first, second = (_gru(graph, f"/encoder/GRU{one}", two_sided=True) for one in ("", "_1"))
    past = graph.number("/encoder_residual_proj/MatMul", 1).T
    found |= _widened("encoder.blocks.1", "encoder.blocks.2", width, past, first, second)
    found["decoder.blocks.2.mixer.cross.key.weight"] = graph.number("/key_proj/MatMul", 1).T
    return found


def _decoder(graph: Graph, phonemes: list[str], n: int) -> tuple[Tensors, Tensor, float]:
    table = graph.number("/decoder_embedding/Gather", 0)
    kernel = graph.number("/location_conv/Conv", 1)  # f 1 k
    side = [kernel.shape[2] // 2] * 2
    one = {"dilations": [1], "strides": [1], "group": 1}
    graph.expect("/location_conv/Conv", kernel_shape=[kernel.shape[2]], pads=side, **one)
    first, second = (_gru(graph, f"/decoder/GRU{which}", two_sided=False) for which in ("", "_1"))
    past = graph.number("/decoder_residual_proj/MatMul", 1).T
    mixer = "decoder.blocks.2.mixer"
    found = _widened("decoder.blocks.0", "decoder.blocks.1", table.shape[1], past, first, second)
    found |= {
        **_norm(graph, "/decoder_state_norm", "decoder.blocks.1.mixer_norm"),
        **_norm(graph, "/context_norm", f"{mixer}.context_norm"),
        **_norm(graph, "/fusion_norm", "decoder.blocks.2.mixer_norm"),
        f"{mixer}.cross.query.weight": graph.number("/query_proj/MatMul", 1).T,
        f"{mixer}.cross.energy.weight": graph.number("/energy/MatMul", 1).T,
        f"{mixer}.cross.filters.weight": kernel[:, 0],
        f"{mixer}.cross.place.weight": graph.number("/location_proj/MatMul", 1).T,
        f"{mixer}.out.weight": graph.number("/context_proj/Gemm", 1),
        f"{mixer}.out.bias": graph.number("/context_proj/Gemm", 2),
    }
    # Two linear maps, one behind the other, are one.
    unembed = graph.number("/output_proj/MatMul", 1).T
    found["decoder.head.weight"] = unembed @ graph.number("/output_in_proj/Gemm", 1)
    found["decoder.head.bias"] = unembed @ graph.number("/output_in_proj/Gemm", 2)
    # A target begins with the end token here: it has the vector of the original's start token, and is not read again.
    embedded = table.clone()
    embedded[phonemes.index(END)] = table[phonemes.index(START)]
    found["decoder.embed.token.weight"] = embedded
    return found, table, graph.number("/Mul_1", 1).item()


def _starts(graph: Graph) -> Tensors:
    """One bridge for both layers of the decoder."""
    weight, bias = (graph.number("/bridge/Gemm", place) for place in (1, 2))
    return {
        f"decoder.blocks.{i}.mixer.start.bridge.{name}": value
        for i in range(2)
        for name, value in (("weight", weight), ("bias", bias))
    }


def _norm(graph: Graph, name: str, path: str) -> Tensors:
    node = f"{name}/LayerNormalization"
    graph.expect(node, axis=-1, epsilon=torch.tensor(1e-5).item())
    return {f"{path}.weight": graph.number(node, 1), f"{path}.bias": graph.number(node, 2)}


def _gru(graph: Graph, name: str, two_sided: bool) -> dict[str, Tensors]:
    """The cells of one layer, `cell` and where it is two-sided `back`; ONNX has the rows z, r, n, and two biases."""
    weight, recurrent, bias = (graph.number(name, place) for place in (1, 2, 3))
    n = recurrent.shape[2]
    more = {"direction": "bidirectional"} if two_sided else {}
    graph.expect(name, hidden_size=n, linear_before_reset=1, **more)

    def ordered(rows: Tensor) -> Tensor:
        z, r, candidate = rows.split(n)
        return torch.cat((r, z, candidate))

    cells = {}
    for side, cell in enumerate(("cell", "back")[: len(weight)]):
        of_x, of_h = bias[side].split(3 * n)
        gates = torch.cat((of_h[: 2 * n], torch.zeros(n)))
        cells[cell] = {
            "weight": ordered(weight[side]),
            "recurrent": ordered(recurrent[side]),
            "bias": ordered(of_x + gates),
            "recurrent_bias": of_h[2 * n :],
        }
    return cells


def _widened(
    one: str, two: str, width: int, past: Tensor, first: dict[str, Tensors], second: dict[str, Tensors]
) -> Tensors:
    """Two layers with one residual around both, x ← P x + g(f(x)), as two blocks: [x; f(x)], then P x + g."""
    states = sum(cell["recurrent"].shape[1] for cell in first.values())
    found = {f"{one}.mixer.{cell}.{name}": value for cell, part in first.items() for name, value in part.items()}
    found |= {f"{two}.mixer.{cell}.{name}": value for cell, part in second.items() for name, value in part.items()}
    for cell, part in second.items():
        skip = torch.zeros(len(part["weight"]), width)
        found[f"{two}.mixer.{cell}.weight"] = torch.cat((skip, part["weight"]), 1)
    found |= {
        f"{one}.shortcut.weight": torch.eye(width + states, width),
        f"{one}.mixer.out.weight": torch.cat((torch.zeros(width, states), torch.eye(states))),
        f"{one}.mixer.out.bias": torch.zeros(width + states),
        f"{two}.shortcut.weight": torch.cat((past, torch.zeros(len(past), states)), 1),
    }
    return found
