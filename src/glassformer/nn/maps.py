"""Layers over images: convolution, subsampling, and the dense layer that reads everything at once.

What flows between them are feature maps `b c y x` or one vector `b f`. Each layer knows the shape that it is given and
the shape that it gives, and is called like a block: (x, call) to (x, None).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .channel import ACTIVATIONS
from .init import InitSpec, Linear

Activation = Literal["none", "scaled_tanh", "tanh", "relu", "gelu", "gelu_tanh", "relu2", "silu", "sigmoid"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **ACTIVATIONS,
    "none": lambda a: a,
    # LeCun et al. 1998, equation 6 and appendix A: f(±1) = ±1, and the slope is steepest in between.
    "scaled_tanh": lambda a: 1.7159 * torch.tanh(2 / 3 * a),
}
_WRITTEN = {"none": "{}", "scaled_tanh": "1.7159 · tanh(2/3 · {})"}

# Which maps of S2 each map of C3 reads (LeCun et al. 1998, table 1): three neighbours, four neighbours, two pairs, all.
LENET_TABLE = (
    *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (0, 4, 5), (0, 1, 5)),
    *((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (0, 3, 4, 5), (0, 1, 4, 5), (0, 1, 2, 5)),
    *((0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5)),
    (0, 1, 2, 3, 4, 5),
)


class Conv2dSpec(Spec, frozen=True, tag="conv2d"):
    """y[i,j,k] = b[k] + Σ W[u,v,c,k] · x[s·i+u, s·j+v, c], then `activation` (LeCun et al. 1998): the same small
    weights at every place.

    maps      output channels k
    kernel    rows and columns of W
    stride    s, how far one output's field lies from the next one's
    pad       rows and columns of zeros around the input
    table     which input channels each output channel reads, or "lenet", those of the paper's C3; None: all
    """

    maps: int
    kernel: int = 5
    stride: int = 1
    pad: int = 0
    table: tuple[tuple[int, ...], ...] | Literal["lenet"] | None = None
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        check_least(self, 1, "maps", "kernel", "stride")
        check_least(self, 0, "pad")
        if self.rows is not None and len(self.rows) != self.maps:
            raise SettingError(f"table: it has {len(self.rows)} rows; give one for each of maps={self.maps}")
        for row in self.rows or ():
            if not row or len(set(row)) < len(row) or min(row) < 0:
                raise SettingError(f"table: {list(row)} is not allowed; give each map different input maps, from 0")

    @property
    def rows(self) -> tuple[tuple[int, ...], ...] | None:
        """The table written out."""
        return LENET_TABLE if self.table == "lenet" else self.table


class SubsampleSpec(Spec, frozen=True, tag="subsample"):
    """One number for each `size` × `size` square of a map, so that the exact place matters less.

    pool      sum: w[k] · (sum of the square) + b[k] as in LeNet, max: the largest of it, times w[k] plus b[k]
    trained   whether w and b are learnt; else they are 1/size² with the sum (the mean), 1 with the maximum, and 0
    """

    size: int = 2
    pool: Literal["sum", "max"] = "sum"
    trained: bool = True
    activation: Activation = "none"  # after it

    def __post_init__(self) -> None:
        check_least(self, 2, "size")


class DenseSpec(Spec, frozen=True, tag="dense"):
    """h = σ(x W + b) over the whole input, flattened: no assumption about what lies beside what. `width` numbers come
    out; `activation` is σ."""

    width: int
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        check_least(self, 1, "width")


LayerSpec = Conv2dSpec | SubsampleSpec | DenseSpec


@dataclass(frozen=True)
class Shape:
    """What flows between two layers, without the batch: its axis letters and sizes, as "c y x" and (6, 28, 28)."""

    axes: str
    sizes: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many numbers that is."""
        return math.prod(self.sizes)

    @property
    def words(self) -> str:
        """For a message: "6 maps of 28 × 28", "197 tokens of width 768", "a vector of 84"."""
        sizes = self.sizes
        if self.axes == "c y x":
            return f"{sizes[0]} map{'s' if sizes[0] > 1 else ''} of {sizes[1]} × {sizes[2]}"
        return f"{sizes[0]} tokens of width {sizes[1]}" if self.axes == "t d" else f"a vector of {sizes[0]}"


def _maps(given: Shape, what: str) -> tuple[int, int, int]:
    """Channels, rows and columns of the input. Raises SettingError where it is no maps."""
    if given.axes != "c y x":
        raise SettingError(f"kind: a {what} reads maps, and is given {given.words}; put it before, or use dense")
    return given.sizes


def _applied(activation: Activation, value: str) -> str:
    """An activation's formula."""
    return _WRITTEN.get(activation, f"{activation}({{}})").format(value)


class Conv2d(nn.Module):
    """The convolution of Conv2dSpec, `b c y x` to `b c y x`."""

    path = ""
    cards = {
        "pre": Card(
            "y_ijk",
            "b_k + Σ_uvc W_uvck x_{i+u,j+v,c}",
            "What each map finds at each place: one small field of the input, weighted by the map's own filter.",
            "맵마다 자기 필터로 입력의 작은 영역을 가중합한 값입니다. 같은 필터를 모든 위치에 씁니다.",
            ("S4", "S5"),
        ),
        "out": Card(
            "f(y_ijk)",
            "f(y_ijk)",
            "The feature maps after the activation.",
            "활성화 함수를 지난 특징 맵입니다.",
            ("S4",),
        ),
    }

    def __init__(self, spec: Conv2dSpec, given: Shape) -> None:
        super().__init__()
        channels, *place = _maps(given, "convolution")
        self.spec, self.channels = spec, channels
        rows, columns = ((n + 2 * spec.pad - spec.kernel) // spec.stride + 1 for n in place)
        if min(rows, columns) < 1:
            raise SettingError(f"kernel: {spec.kernel} is larger than the input, {given.words}; use less, or pad")
        if spec.rows is not None and max(map(max, spec.rows)) >= channels:
            raise SettingError(f"table: it names map {max(map(max, spec.rows))}, and the input has {channels}")
        self.shape = Shape("c y x", (spec.maps, rows, columns))
        side = (spec.kernel, spec.kernel)
        kernels = (spec.maps, channels) if spec.table is None else (sum(map(len, spec.rows)),)
        self.weight = nn.Parameter(torch.full((*kernels, *side), math.nan))
        self.bias = nn.Parameter(torch.zeros(spec.maps))
        for name, value in self.buffer_values().items():
            self.register_buffer(name, value, persistent=False)
        field = "x_{i+u,j+v,c}" if spec.stride == 1 else f"x_{{{spec.stride}i+u,{spec.stride}j+v,c}}"
        read = "" if spec.table is None else ", c in the table's row k"
        self.cards = as_built(
            Conv2d.cards,
            pre={"formula": f"b_k + Σ_uvc W_uvck {field}{read}"},
            out={"symbol": _applied(spec.activation, "y_ijk"), "formula": _applied(spec.activation, "y_ijk")},
        )

    def buffer_values(self) -> dict[str, Tensor]:
        """Where each kernel of the table stands among all pairs (output map, input map)."""
        if self.spec.table is None:
            return {}
        places = [k * self.channels + c for k, row in enumerate(self.spec.rows) for c in row]
        return {"places": torch.tensor(places)}

    def draw(self, init: InitSpec) -> None:
        """Normal; None: 1/√(inputs of a unit), of each output map by itself."""
        if self.spec.table is None:
            nn.init.normal_(self.weight, std=self.weight[0].numel() ** -0.5 if init.std is None else init.std)
            return
        nn.init.normal_(self.weight, std=1.0)
        inputs = [len(row) * self.spec.kernel**2 for row in self.spec.rows for _ in row]
        stds = [n**-0.5 if init.std is None else init.std for n in inputs]
        with torch.no_grad():
            self.weight.mul_(torch.tensor(stds)[:, None, None])

    @property
    def filters(self) -> Tensor:
        """W as k c u v, zero where the table has no connection."""
        if self.spec.table is None:
            return self.weight
        side = self.weight.shape[1:]
        dense = self.weight.new_zeros(self.spec.maps * self.channels, *side)
        return dense.index_copy(0, self.places, self.weight).view(self.spec.maps, self.channels, *side)

    def forward(self, x: Tensor, call: Call) -> tuple[Tensor, None]:
        tap = call.tap(self)
        y = F.conv2d(x, self.filters, self.bias, self.spec.stride, self.spec.pad)
        return tap("out", _ACTIVATIONS[self.spec.activation](tap("pre", y, "b c y x")), "b c y x"), None

    @property
    def field(self) -> tuple[int, int, int]:
        """(rows of the input that one output sees, rows from its field to the next one's, rows of padding)."""
        return self.spec.kernel, self.spec.stride, self.spec.pad

    def flops(self, images: int) -> int:
        """Of so many images; a table's missing connections are multiplied with zero, and count."""
        return 2 * images * self.shape.numbers * self.channels * self.spec.kernel**2


class Subsample(nn.Module):
    """The subsampling of SubsampleSpec, `b c y x` to `b c y x` of fewer rows and columns."""

    path = ""
    cards = {
        "pre": Card(
            "a_ijk",
            "w_k Σ_uv x_{i·s+u,j·s+v,k} + b_k",
            "One number for each square of a map, so that where exactly a feature lies matters less.",
            "맵의 정사각형 영역마다 하나로 줄인 값으로, 특징의 정확한 위치에 덜 민감해집니다.",
            ("S4", "S5"),
        ),
        "out": Card(
            "f(a_ijk)",
            "f(a_ijk)",
            "The smaller maps after the activation.",
            "활성화 함수를 지난 작아진 맵입니다.",
            ("S4",),
        ),
    }

    def __init__(self, spec: SubsampleSpec, given: Shape) -> None:
        super().__init__()
        channels, *place = _maps(given, "subsampling")
        self.spec = spec
        if any(n % spec.size for n in place):
            raise SettingError(f"size: {spec.size} does not divide the input, {given.words}; use a size that does")
        self.shape = Shape("c y x", (channels, *(n // spec.size for n in place)))
        self.weight = nn.Parameter(torch.full((channels,), math.nan)) if spec.trained else None
        self.bias = nn.Parameter(torch.zeros(channels)) if spec.trained else None
        square = f"x_{{{spec.size}i+u,{spec.size}j+v,k}}"
        pooled = f"Σ_uv {square}" if spec.pool == "sum" else f"max_uv {square}"
        mean = f" / {spec.size**2}" if spec.pool == "sum" else ""
        self.cards = as_built(
            Subsample.cards,
            pre={"formula": f"w_k {pooled} + b_k" if spec.trained else f"{pooled}{mean}"},
            out={"symbol": _applied(spec.activation, "a_ijk"), "formula": _applied(spec.activation, "a_ijk")},
        )

    def draw(self, init: InitSpec) -> None:
        """w starts at 1/size with the sum, which keeps the variance of independent numbers, and at 1 with the
        maximum."""
        if self.weight is not None:
            nn.init.constant_(self.weight, 1 / self.spec.size if self.spec.pool == "sum" else 1.0)
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, call: Call) -> tuple[Tensor, None]:
        tap, size = call.tap(self), self.spec.size
        y = F.avg_pool2d(x, size) if self.spec.pool == "sum" else F.max_pool2d(x, size)
        if self.weight is not None:
            weight = self.weight * size**2 if self.spec.pool == "sum" else self.weight
            y = y * weight[:, None, None] + self.bias[:, None, None]
        return tap("out", _ACTIVATIONS[self.spec.activation](tap("pre", y, "b c y x")), "b c y x"), None

    @property
    def field(self) -> tuple[int, int, int]:
        """(rows of the input that one output sees, rows from its field to the next one's, rows of padding)."""
        return self.spec.size, self.spec.size, 0

    def flops(self, images: int) -> int:
        """Neither a matrix product nor a convolution."""
        return 0


class Dense(nn.Module):
    """The dense layer of DenseSpec over maps, tokens or a vector, flattened in the order of their axes, to `b f`."""

    path = ""
    cards = {
        "pre": Card(
            "xW + b",
            "xW + b",
            "Every unit weighs every number of the flattened input; where it lay in the image makes no difference.",
            "유닛마다 한 줄로 편 입력 전체를 가중합한 값입니다. 각 값이 이미지의 어디에 있었는지는 구별하지 않습니다.",
            ("S2", "S3"),
        ),
        "out": Card(
            "σ(xW + b)",
            "σ(xW + b)",
            "The hidden units after the activation.",
            "활성화 함수를 지난 은닉 유닛입니다.",
            ("S3",),
        ),
    }

    def __init__(self, spec: DenseSpec, given: Shape) -> None:
        super().__init__()
        self.spec, self.shape = spec, Shape("f", (spec.width,))
        self.linear = Linear(given.numbers, spec.width)
        written = _applied(spec.activation, "xW + b")
        self.cards = as_built(Dense.cards, out={"symbol": written, "formula": written})

    def forward(self, x: Tensor, call: Call) -> tuple[Tensor, None]:
        tap = call.tap(self)
        y = tap("pre", self.linear(x.flatten(1)), "b f")
        return tap("out", _ACTIVATIONS[self.spec.activation](y), "b f"), None

    def flops(self, images: int) -> int:
        """Of so many images."""
        return self.linear.flops(images)


LAYERS: dict[type, Callable[..., nn.Module]] = {Conv2dSpec: Conv2d, SubsampleSpec: Subsample, DenseSpec: Dense}
