"""From an image to what the first block reads: maps of pixels, or one vector for each patch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..spec import Spec, check_finite, check_least, check_positive
from ..tap import Card, as_built
from .init import Embedding, InitSpec, Linear
from .maps import Shape
from .position import LearnedSpec, sinusoid


class Sinusoidal2dSpec(Spec, frozen=True, tag="sinusoidal-2d"):
    """The sinusoids of the row in one half of the vector and those of the column in the other, each as Vaswani et al.
    (2017, section 3.5) have them for a position, with this `base`."""

    base: float = 10_000.0

    def __post_init__(self) -> None:
        check_finite(self, "base")
        if self.base <= 1:
            raise SettingError(f"base: {self.base} is not allowed; use more than 1")


class PixelsSpec(Spec, frozen=True, tag="pixels"):
    """The image as it is: (pixel - mean) / deviation for each pixel from 0 to 1, after `pad` rows and columns of 0 were
    put around it. mean, deviation: of all channels, or a number for each."""

    pad: int = 0
    mean: float | tuple[float, ...] = 0.0
    deviation: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        check_least(self, 0, "pad")
        check_finite(self, "mean")
        check_positive(self, "deviation")


class PatchesSpec(Spec, frozen=True, tag="patches"):
    """x = E · patch + b + p(position) for each `patch` × `patch` square of the image, row by row, in vectors of width
    `dim` (Dosovitskiy et al. 2021, equation 1).

    class_token  a learned vector before the patches, from which the classes are read; without it they are read from
                 the mean of all patches
    distilled    a second learned vector, behind the class token (Touvron et al. 2021, section 4)
    position     learned, or the sinusoids of row and column (the class token then has none); None: no signal
    mean, deviation  of the pixels, from 0 to 1, as in PixelsSpec
    """

    patch: int = 16
    dim: int = 768
    class_token: bool = True
    distilled: bool = False
    position: LearnedSpec | Sinusoidal2dSpec | None = LearnedSpec()
    mean: float | tuple[float, ...] = 0.5
    deviation: float | tuple[float, ...] = 0.5

    def __post_init__(self) -> None:
        check_least(self, 1, "patch", "dim")
        check_finite(self, "mean")
        check_positive(self, "deviation")
        if self.distilled and not self.class_token:
            raise SettingError("distilled: the distillation token stands behind the class token; set class_token=true")
        if isinstance(self.position, LearnedSpec) and self.position.offset:
            raise SettingError(f"position.offset: {self.position.offset} has no meaning for patches; use 0")
        if isinstance(self.position, Sinusoidal2dSpec) and self.dim % 2:
            raise SettingError(f"dim: {self.dim} has no two halves for row and column; use an even number")


_PIXELS = Card(
    "x_ijc",
    "(pixel − mean) / deviation",
    "The image, every pixel brought to the scale on which the model was trained.",
    "픽셀값을 학습할 때 쓴 범위로 맞춘 이미지입니다.",
    ("S4",),
)


class Pixels(nn.Module):
    """The embedding of PixelsSpec: images `b c y x` to maps `b c y x`."""

    path = ""
    cards = {"out": _PIXELS}

    def __init__(self, spec: PixelsSpec, size: int, channels: int) -> None:
        super().__init__()
        check_channels(spec, channels)
        self.spec = spec
        side = size + 2 * spec.pad
        self.shape = Shape("c y x", (channels, side, side))
        self.cards = as_built(Pixels.cards, out={"formula": _scaled(spec)})

    def forward(self, images: Tensor, call: Call) -> tuple[Tensor, None]:
        x = nn.functional.pad(images, [self.spec.pad] * 4) if self.spec.pad else images
        return call.tap(self)("out", scaled(x, self.spec), "b c y x"), None

    def flops(self, images: int) -> int:
        """No product of matrices."""
        return 0


class Patches(nn.Module):
    """The embedding of PatchesSpec: images `b c y x` to vectors `b t d`, the class token first."""

    path = ""
    cards = {
        "pixels": _PIXELS,
        "patch": Card(
            "E x_p + b",
            "E x_p + b",
            "Each patch of the image as one vector, by one linear map for all patches: an image becomes tokens.",
            "이미지 조각을 하나씩 벡터로 바꾼 값입니다. 모든 조각에 같은 선형 변환을 써서 이미지를 토큰으로 만듭니다.",
            ("S30",),
        ),
        "position": Card(
            "p_t",
            "a learned row",
            "The vector of the patch's place, added since attention by itself does not know what lies beside what.",
            "조각의 위치를 나타내는 벡터입니다. 어텐션만으로는 조각의 배치를 알 수 없으므로 더합니다.",
            ("S15", "S16", "S30"),
        ),
        "out": Card(
            "x_0",
            "[x_class; E x_p + b] + p_t",
            "What enters the first block.",
            "첫 블록에 들어가는 벡터입니다.",
            ("S30",),
        ),
    }

    def __init__(self, spec: PatchesSpec, size: int, channels: int) -> None:
        super().__init__()
        check_channels(spec, channels)
        if size % spec.patch:
            fitting = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
            raise SettingError(f"patch: {spec.patch} does not divide size={size}; use {fitting}")
        self.spec, self.side = spec, size // spec.patch
        tokens = self.side**2 + spec.class_token + spec.distilled
        self.shape = Shape("t d", (tokens, spec.dim))
        self.patch = Linear(channels * spec.patch**2, spec.dim)
        self.first = nn.Parameter(torch.zeros(spec.dim)) if spec.class_token else None
        self.second = nn.Parameter(torch.zeros(spec.dim)) if spec.distilled else None
        self.position = Embedding(tokens, spec.dim) if isinstance(spec.position, LearnedSpec) else None
        self.cards = _cards(spec)

    def draw(self, init: InitSpec) -> None:
        """The class token starts like a row of a table; at zero, as in the paper's code, a norm would have nothing to
        bring to scale where it gets no position."""
        for token in self.tokens:
            nn.init.normal_(token, std=init.embedding_std)

    @property
    def tokens(self) -> list[nn.Parameter]:
        """The learned vectors before the patches."""
        return [token for token in (self.first, self.second) if token is not None]

    def forward(self, images: Tensor, call: Call) -> tuple[Tensor, None]:
        tap, p = call.tap(self), self.spec.patch
        x = tap("pixels", scaled(images, self.spec), "b c y x").to(self.patch.weight.dtype)
        x = x.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # b c row y column x
        x = tap("patch", self.patch(x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)), "b t d")
        if self.tokens:
            x = torch.cat([token.expand(len(x), 1, -1).to(x.dtype) for token in self.tokens] + [x], 1)
        if self.spec.position is not None:
            x = x + tap("position", self.positions(x).expand_as(x), "b t d")
        return tap("out", x, "b t d"), None

    def positions(self, x: Tensor) -> Tensor:
        """The vectors `t d` of all places."""
        if self.position is not None:
            return self.position.weight.to(x.dtype)
        place = torch.arange(self.side, device=x.device)
        half = sinusoid(place, self.spec.dim // 2, self.spec.position, x.dtype)
        rows, columns = half[:, None].expand(-1, self.side, -1), half[None].expand(self.side, -1, -1)
        both = torch.cat((rows, columns), -1).flatten(0, 1)
        return torch.cat((torch.zeros_like(both[: len(self.tokens)]), both)) if self.tokens else both

    def names(self) -> list[str]:
        """What the tokens are called: "class", "distilled", and each patch by its row and column, from 0."""
        patches = [f"{row},{column}" for row in range(self.side) for column in range(self.side)]
        return ["class", "distilled"][: len(self.tokens)] + patches

    def flops(self, images: int) -> int:
        """Of so many images."""
        return self.patch.flops(images * self.side**2)


def check_channels(spec: PixelsSpec | PatchesSpec, channels: int) -> None:
    """Raise SettingError where means or deviations of single channels are not as many as there are channels."""
    for name in ("mean", "deviation"):
        given = getattr(spec, name)
        if isinstance(given, tuple) and len(given) != channels:
            raise SettingError(
                f"{name}: there are {len(given)} numbers; give one, or one for each of channels={channels}"
            )


def scaled(images: Tensor, spec: PixelsSpec | PatchesSpec) -> Tensor:
    """(pixel - mean) / deviation of images `b c y x`."""
    mean, deviation = (
        images.new_tensor(one)[:, None, None] if isinstance(one, tuple) else one for one in (spec.mean, spec.deviation)
    )
    return (images - mean) / deviation


def _scaled(spec: PixelsSpec | PatchesSpec) -> str:
    mean, deviation = (
        f"({', '.join(f'{n:.4g}' for n in one)})_c" if isinstance(one, tuple) else f"{one:.4g}"
        for one in (spec.mean, spec.deviation)
    )
    shift = "pixel" if spec.mean == 0 else f"(pixel − {mean})"
    return shift if spec.deviation == 1 else f"{shift} / {deviation}"


def _cards(spec: PatchesSpec) -> dict[str, Card]:
    total = "E x_p + b"
    if spec.class_token:
        total = f"[x_class; x_distilled; {total}]" if spec.distilled else f"[x_class; {total}]"
    position = {}
    if isinstance(spec.position, Sinusoidal2dSpec):
        position = {"formula": f"sin(row/{spec.position.base:g}^{{2i/(d/2)}}), cos(…); the same of the column"}
    return as_built(
        Patches.cards,
        pixels={"formula": _scaled(spec)},
        position=position if spec.position else None,
        out={"formula": f"{total} + p_t" if spec.position else total},
    )


EMBEDS: dict[type, type[Pixels] | type[Patches]] = {PixelsSpec: Pixels, PatchesSpec: Patches}
