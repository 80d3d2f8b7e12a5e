"""The number that is explained, of an image: a class's, as a function of the image's patches or pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from ..tap import Probe
from ..trace import Trace
from .answer import Answer, Baseline
from .target import Target

IN_PLACE: tuple[Baseline, ...] = ("mean", "pad")  # an image has a pixel at every place


class ImageAnswer(Answer):
    """The number that `target` picks, of runs of other images. What is read are places `s`, line by line: the patches
    that the model cuts an image into, or single pixels. A row is the pixels of a place, `c y x` from 0, black, to 1.
    before: so many learned tokens the blocks have before the patches."""

    side: int
    usual = "mean"

    def __init__(self, trace: Trace, target: Target) -> None:
        """Raises InputError for a class that does not exist."""
        super().__init__(trace, target)
        size, embed = self.stack.model.spec.size, self.stack.model.embed
        self.side = getattr(embed, "side", size)
        self.patch, self.length = size // self.side, self.side**2
        self.kind = "patches" if self.patch > 1 else "pixels"
        self.before = len(getattr(embed, "tokens", ()))

    @property
    def removable(self) -> list[int]:
        """All places."""
        return list(range(self.length))

    @property
    def rows(self) -> Tensor:
        """The pixels of each place, `1 s d`."""
        return self._cut(self.tokens)

    def rows_of(self, second: Tensor) -> Tensor:
        """The pixels of another image's places, `1 s d`."""
        return self._cut(second.to(self.tokens))

    @property
    def mean_row(self) -> Tensor:
        """A place of the image's mean colour, `d`."""
        return self.tokens.mean((0, 2, 3)).repeat_interleave(self.patch**2)

    def padding(self) -> int:
        """Raises InputError: no number stands for no patch."""
        raise InputError("origin: an image has no token for padding; use mean or zero")

    def of_rows(self, x: Tensor, probe: Probe | None = None) -> Tensor:
        """Of other pixels `b s d` of the places."""
        parts = x.unflatten(2, (-1, self.patch, self.patch)).unflatten(1, (self.side, self.side))
        images = parts.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)  # b row column c y x to b c y x
        return self._run(len(x), None, lambda call: self.stack.model.embed(images, call)[0], probe)

    def own(self, scores: Tensor) -> Tensor:
        """Of scores of what the blocks work on those of the patches."""
        return scores[self.before :]

    def _cut(self, images: Tensor) -> Tensor:
        """Images `b c y x` as places `b s d`."""
        parts = images.unflatten(3, (self.side, -1)).unflatten(2, (self.side, -1))  # b c row y column x
        return parts.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    def _without(self, gone: Tensor, baseline: Baseline) -> Tensor:
        """mean: the image's mean colour stands there; pad: black."""
        if baseline not in IN_PLACE:
            raise InputError(f"an image has a pixel at every place, so {baseline} is not possible; use mean or pad")
        instead = self.mean_row if baseline == "mean" else torch.zeros_like(self.mean_row)
        return self.of_rows(torch.where(gone[..., None].to(self.tokens.device), instead, self.rows))
