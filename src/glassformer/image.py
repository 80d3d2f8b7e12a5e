"""The skeleton for images: pixels or patches, blocks or layers, norm, and the classes that an image may belong to.

The same blocks as in `model` work on patches (a vision transformer); layers of `nn.maps` work on maps of pixels (LeNet)
or on all pixels at once (an MLP).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .block import Block, BlockSpec, name_parts, share_relative
from .call import Call
from .errors import InputError, SettingError, under
from .nn.classes import ENDS, ClassesSpec, PoolerSpec
from .nn.init import InitSpec, initialise
from .nn.maps import LAYERS, LayerSpec, Shape
from .nn.norm import Norm, NormSpec
from .nn.pixels import EMBEDS, PatchesSpec, PixelsSpec
from .nn.resize import ResizeSpec
from .spec import Spec, check_least, check_share
from .tap import Probe


class ImageModelSpec(Spec, frozen=True, tag="image-model"):
    """A classifier of square images of `size` × `size` pixels in `channels` channels: embed, blocks, norm, and a linear
    map to the logits of `classes` classes, read from the class token, from the mean of all patches or places, or from
    the vector that the last layer gives.

    head     the classes; or, with classes=0, a pooler that gives one vector for each image, or None: what leaves the
             norm, the vector of each token
    labels   what the classes are called; empty: their numbers
    resize   how an image of any size is brought to this one; None: as `data.fit` does it
    dropout  of what leaves the embedding
    init     how the weights start
    """

    classes: int
    size: int
    channels: int = 1
    embed: PixelsSpec | PatchesSpec = PixelsSpec()
    blocks: tuple[BlockSpec | LayerSpec, ...] = ()
    norm: NormSpec | None = None
    head: ClassesSpec | PoolerSpec | None = ClassesSpec()
    labels: tuple[str, ...] = ()
    resize: ResizeSpec | None = None
    dropout: float = 0.0
    init: InitSpec = InitSpec(std=None)

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "channels")
        if isinstance(self.head, ClassesSpec):
            check_least(self, 2, "classes")
        elif self.classes:
            raise SettingError(
                f"classes: {self.classes} classes need a head that gives them; set it to 0, or head.kind to classes"
            )
        check_share(self, "dropout")
        if self.labels and len(self.labels) != self.classes:
            raise SettingError(f"labels: there are {len(self.labels)}; give one for each of classes={self.classes}")


class ImageModel(nn.Module):
    """The classifier of ImageModelSpec: images `b c y x`, pixels from 0 to 1, to logits `b k`."""

    path = ""

    def __init__(self, spec: ImageModelSpec) -> None:
        super().__init__()
        self.spec = spec
        with under("embed"):
            self.embed = EMBEDS[type(spec.embed)](spec.embed, spec.size, spec.channels)
        self.blocks, self.shapes = nn.ModuleList(), [self.embed.shape]  # what leaves so many blocks
        class_token = isinstance(spec.embed, PatchesSpec) and spec.embed.class_token
        for i, block in enumerate(spec.blocks):
            with under(f"blocks.{i}"):
                self._append(block, class_token)
        last = self.shapes[-1]
        if spec.norm is not None and last.axes == "c y x":
            raise SettingError(f"norm: the last layer gives {last.words}, which have no single width; set it to null")
        self.norm = Norm(spec.norm, last.sizes[-1]) if spec.norm else None
        with under("head"):
            self.head = self._head(last, class_token)
        share_relative(self.blocks)
        initialise(self, spec.init, len(spec.blocks))
        name_parts(self)

    def _head(self, last: Shape, class_token: bool) -> nn.Module | None:
        spec, distilled = self.spec, getattr(self.spec.embed, "distilled", False)
        kind = ENDS.get(type(spec.head))
        return None if kind is None else kind(spec.head, last, spec.classes, class_token, distilled)

    def _append(self, spec: BlockSpec | LayerSpec, class_token: bool) -> None:
        """Add one block or layer over what the one before gives."""
        given = self.shapes[-1]
        if not isinstance(spec, BlockSpec):
            self.blocks.append(LAYERS[type(spec)](spec, given))
            self.shapes.append(self.blocks[-1].shape)
            return
        if given.axes != "t d":
            raise SettingError(f"kind: a block mixes tokens, and is given {given.words}; embed the image as patches")
        if spec.reads_memory:
            part = "mixer" if spec.cross is None else "cross"
            raise SettingError(f"{part}: an image alone gives no memory to look at; leave it out")
        block = Block(spec, given.sizes[1])
        if class_token and block.mixer.causal:
            raise SettingError(
                "mixer: it sees earlier tokens only, and the class token comes before all patches; use one that sees "
                "both sides (attention with mask.causal=false), or embed.class_token=false"
            )
        self.blocks.append(block)
        self.shapes.append(Shape("t d", (given.sizes[0], block.width)))

    def forward(self, images: Tensor, *, probe: Probe | None = None, losses: list[Tensor] | None = None) -> Tensor:
        """Logits `b k` of images `b c y x`, floats from 0 to 1; of a model without classes one vector `b d` for each
        image, or those that leave the norm, such as `b t d`."""
        check_images(images, self.spec)
        return self.run(images, self.call(images, probe=probe, losses=losses))

    def call(self, images: Tensor, **more: Any) -> Call:
        """The call of these images: what their blocks know of places is that of a text of all patches."""
        tokens = self.embed.shape.sizes[0] if self.embed.shape.axes == "t d" else 1
        return Call(torch.arange(tokens, device=images.device)[None], True, end=tokens, **more)

    def run(self, images: Tensor, call: Call) -> Tensor:
        """The same for a call that is already made."""
        x, _ = self.embed(images, call)
        x = F.dropout(x, self.spec.dropout, self.training) if self.spec.dropout else x
        for block in self.blocks:
            x, _ = block(x, call)
        return self.finish(x, call)

    def finish(self, x: Tensor, call: Call) -> Tensor:
        """The last norm and the head."""
        x = x if self.norm is None else self.norm(x, call)
        return x if self.head is None else self.head(x, call)

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.parameters())
        spec = self.spec
        return (
            f"<ImageModel of {len(self.blocks)} blocks over {spec.channels} × {spec.size} × {spec.size} pixels: "
            f"{count:,} parameters>"
        )


def check_images(images: Tensor, spec: ImageModelSpec) -> None:
    """Raise InputError for what is no batch of images of the model's size."""
    wanted = (spec.channels, spec.size, spec.size)
    if (
        not isinstance(images, Tensor)
        or not images.is_floating_point()
        or images.shape[1:] != wanted
        or not len(images)
    ):
        tensor = isinstance(images, Tensor)
        given = f"{images.dtype} of shape {tuple(images.shape)}" if tensor else type(images).__name__
        raise InputError(
            f"this model takes a batch of images, numbers from 0 to 1 of shape (batch, {', '.join(map(str, wanted))}); "
            f"not {given}"
        )
