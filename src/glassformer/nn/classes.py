"""The end of a model of images: its classes, or one vector for the whole image."""

from __future__ import annotations

from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .channel import ACTIVATIONS, Activation
from .init import Linear
from .maps import Shape


class ClassesSpec(Spec, frozen=True, tag="classes"):
    """logits = x W + b, x the class token, the mean of all patches or places, or the vector of the last layer.

    distilled  logits = (x_class W + b + x_distilled W' + b') / 2: the distillation token has a map of its own, which
               learnt from another network's classes (Touvron et al. 2021, section 4)
    """

    distilled: bool = False


class PoolerSpec(Spec, frozen=True, tag="pooler"):
    """σ(x W + b) of the same x as in ClassesSpec, for an encoder of images that has no classes.

    `width` of that vector (None: that of x); `activation` is σ.
    """

    width: int | None = None
    activation: Activation = "tanh"

    def __post_init__(self) -> None:
        check_least(self, 1, "width")


_POOLED = Card(
    "x",
    "x_class",
    "The one vector from which the classes are read.",
    "분류를 읽어 내는 하나의 벡터입니다.",
    ("S30",),
)


class Pooled(nn.Module):
    """What both ends begin with: tokens `b t d`, maps `b c y x` or a vector `b f` to one vector for each image."""

    path = ""

    def __init__(self, given: Shape, class_token: bool) -> None:
        super().__init__()
        self.axes, self.class_token = given.axes, class_token
        self.width = given.sizes[{"f": -1, "t d": -1, "c y x": 0}[given.axes]]

    def pooled_card(self, **said: str) -> dict[str, str] | None:
        """How the card of the vector differs; None where nothing is pooled."""
        mean = {"formula": "the mean over all places" if self.axes == "c y x" else "the mean over all patches"}
        return None if self.axes == "f" else said if self.class_token else said | mean

    def pooled(self, x: Tensor, call: Call) -> Tensor:
        """The one vector of each image."""
        tap = call.tap(self)
        if self.axes == "t d":
            return tap("pooled", x[:, 0] if self.class_token else x.mean(1), "b d")
        return tap("pooled", x.mean((2, 3)), "b c") if self.axes == "c y x" else x

    def flops(self, images: int) -> int:
        """Of so many images."""
        return sum(part.flops(images) for part in self.modules() if isinstance(part, Linear))


class Classes(Pooled):
    """The end of ClassesSpec, to the logits `b k` of the classes."""

    output = "logits"
    cards = {
        "pooled": _POOLED,
        "distilled": Card(
            "x_distilled",
            "x_distilled",
            "The distillation token's vector, from which the classes are read a second time.",
            "분류를 한 번 더 읽어 내는 증류 토큰의 벡터입니다.",
            ("S30",),
        ),
        "logits": Card(
            "logits",
            "x W + b",
            "One score for each class; softmax makes it the distribution over the classes.",
            "분류마다 하나씩 있는 점수로, softmax를 거치면 분류의 확률이 됩니다.",
            ("S21",),
        ),
    }

    def __init__(self, spec: ClassesSpec, given: Shape, classes: int, class_token: bool, distilled: bool) -> None:
        super().__init__(given, class_token)
        if spec.distilled and not distilled:
            raise SettingError("distilled: the image has no distillation token; set embed.distilled=true too")
        maps = [Linear(self.width, classes) for _ in range(2 if spec.distilled else 1)]
        self.linear = nn.ModuleList(maps) if spec.distilled else maps[0]
        both = {"formula": "(x W + b + x_distilled W' + b') / 2"} if spec.distilled else {}
        own = {} if spec.distilled else None
        self.cards = as_built(Classes.cards, pooled=self.pooled_card(), distilled=own, logits=both)

    def reads(self, count: int) -> range:
        """Which of so many tokens the classes are read from, each as much as any other."""
        learned = 1 if isinstance(self.linear, Linear) else len(self.linear)
        return range(learned if self.class_token else count)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d`, `b c y x` or `b f` to `b k`."""
        tap, pooled = call.tap(self), self.pooled(x, call)
        if isinstance(self.linear, Linear):
            return tap("logits", self.linear(pooled), "b k")
        first, second = self.linear
        return tap("logits", (first(pooled) + second(tap("distilled", x[:, 1], "b d"))) / 2, "b k")


class Pooler(Pooled):
    """The end of PoolerSpec, to one vector `b d` for each image."""

    output = "out"
    cards = {
        "pooled": _POOLED,
        "out": Card(
            "pooler",
            "tanh(x W + b)",
            "The one vector that this encoder gives for the whole image.",
            "이미지 전체를 나타내는 하나의 벡터입니다.",
            ("S30",),
        ),
    }

    def __init__(self, spec: PoolerSpec, given: Shape, classes: int, class_token: bool, distilled: bool) -> None:
        super().__init__(given, class_token)
        self.spec = spec
        self.dense = Linear(self.width, spec.width or self.width)
        said = {"en": "The one vector from which the pooler reads.", "ko": "풀러가 읽는 하나의 벡터입니다."}
        out = {"formula": f"{spec.activation}(x W + b)"}
        self.cards = as_built(Pooler.cards, pooled=self.pooled_card(**said), out=out)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """`b t d`, `b c y x` or `b f` to `b d`."""
        dense = self.dense(self.pooled(x, call))
        return call.tap(self)("out", ACTIVATIONS[self.spec.activation](dense), "b d")


ENDS: dict[type, type[Classes] | type[Pooler]] = {ClassesSpec: Classes, PoolerSpec: Pooler}
