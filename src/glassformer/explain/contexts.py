"""One word in many contexts: how alike its vectors are, and whether they fall into groups.

Self-similarity and its correction for anisotropy are those of Ethayarajh (2019): in some layers the vectors of any two
words point in nearly the same direction, so that a word's own likeness only counts beyond that. So is the maximum
explainable variance: how much of a word's vectors in context one fixed vector could say at best.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from ..trace import Trace

ROUNDS = 50  # of 2-means at most


def standing(trace: Trace, word: str, whole: bool = False) -> list[list[int]]:
    """Where a word stands in the text of a run: for each occurrence the tokens that hold some of it. whole: as a word,
    or at the beginning of one in a script whose endings are written to the word, as 별이 begins with 별."""
    before = r"(?<!\w)" if whole and re.match(r"\w", word) else ""
    after = r"(?!\w)" if whole and re.search(r"\w$", word) and not re.search("[가-힣]$", word) else ""
    found, cells = [], trace.cells("token")
    for one in re.finditer(f"{before}(?={re.escape(word)}{after})", trace.text):
        start, end = one.start(), one.start() + len(word)
        found.append([i for cell in cells for i in cell.tokens if cell.start < end and cell.end > start])
    return found


def unit(vectors: Tensor) -> Tensor:
    """Vectors `… d` of length 1."""
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-30)


def self_similarity(vectors: Tensor) -> Tensor:
    """The mean cosine between two different ones of the vectors `l n d` of a word, `l` (Ethayarajh 2019, definition 1).
    Needs two of them."""
    n = vectors.shape[1]
    return (unit(vectors).sum(1).square().sum(-1) - n) / (n * (n - 1))


def anisotropy(vectors: Tensor, words: list[str]) -> Tensor:
    """The mean cosine between the vectors `l n d` of two different words, `l`: what any two have in common. NaN where
    there are no two."""
    number = torch.tensor([sorted(set(words)).index(word) for word in words])
    other = (number[:, None] != number).double()
    ways = unit(vectors)
    return torch.stack([((one @ one.mT) * other).sum() / other.sum() for one in ways])


def explainable(vectors: Tensor) -> Tensor:
    """The maximum explainable variance of the vectors `l n d` of a word, `l`: σ₁² / Σ σᵢ² with the singular values σ of
    all of them together, the share of Σ ‖x‖² that lies along one direction at best (Ethayarajh 2019, definition 3; as
    there not from their mean)."""
    squares = torch.linalg.svdvals(vectors).square()
    return squares[:, 0] / squares.sum(1).clamp(min=1e-30)


def explained_along(vectors: Tensor, direction: Tensor) -> Tensor:
    """The share of Σ ‖x‖² of vectors `l n d` that lies along a direction `d`, `l`; at most `explainable`."""
    along = (vectors @ unit(direction)).square().sum(1)
    return along / vectors.square().sum((1, 2)).clamp(min=1e-30)


def explainable_by_chance(vectors: Tensor, count: int, draws: int, seed: int) -> Tensor:
    """`draws l`, the maximum explainable variance of so many vectors that are drawn from those of other words `l m d`,
    as many as a word has, because few vectors are better explained than many (the baseline of Ethayarajh 2019, section
    3.4). NaN where there are fewer than `count`."""
    if vectors.shape[1] < count:
        return torch.full((draws, len(vectors)), torch.nan, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    some = [torch.randperm(vectors.shape[1], generator=generator)[:count] for _ in range(draws)]
    return torch.stack([explainable(vectors[:, each]) for each in some])


def principal(points: Tensor) -> tuple[Tensor, Tensor]:
    """The principal components of points `n d`: their coordinates `n c`, and the share of the variance of each `c`. The
    sign of each is such that its largest coordinate is above 0."""
    u, s, _ = torch.linalg.svd(points - points.mean(0), full_matrices=False)
    found = u * s
    signs = found.gather(0, found.abs().argmax(0, keepdim=True)).sign()
    return found * torch.where(signs == 0, 1, signs), s.square() / s.square().sum().clamp(min=1e-30)


def silhouette(points: Tensor, groups: Tensor) -> float:
    """The mean over points `n d` of (b − a) / max(a, b): a is the mean distance to the others of its group, b that to
    the nearest other group (Rousseeuw 1987); 0 for one that is alone in its group. groups: numbers `n`, two at least.
    """
    away = torch.cdist(points, points)
    member = torch.nn.functional.one_hot(groups.unique(return_inverse=True)[1]).double()  # n g
    sums, sizes = away @ member, member.sum(0)
    own = member.bool()
    a = sums[own] / (member @ (sizes - 1)).clamp(min=1)
    b = (sums / sizes).masked_fill(own, torch.inf).min(1).values
    most = torch.maximum(a, b)
    alone = (member @ sizes == 1) | (most == 0)
    return torch.where(alone, 0.0, (b - a) / most.clamp(min=1e-30)).mean().item()


def two_groups(points: Tensor) -> Tensor:
    """Numbers 0 and 1 of points `n d` by 2-means, begun at the two that are farthest apart; 0 is that of the first."""
    away = torch.cdist(points, points)
    at = away.argmax().item()
    centres = points[[at // len(points), at % len(points)]]
    groups = torch.cdist(points, centres).argmin(1)
    for _ in range(ROUNDS):
        if groups.min() == groups.max():  # all in one place
            break
        centres = torch.stack([points[groups == k].mean(0) for k in (0, 1)])
        before, groups = groups, torch.cdist(points, centres).argmin(1)
        if torch.equal(before, groups):
            break
    return groups if groups[0] == 0 else 1 - groups


def shuffled(points: Tensor, groups: Tensor | None, draws: int, seed: int) -> Tensor:
    """Silhouettes of controls, one for each draw: of the same groups handed out at random; or where groups are found
    (None), of two found among as many points of one normal distribution with the same covariance, which has no groups
    (Liu et al. 2008). Shuffling coordinates would not do: what parts two groups lies along one of them."""
    generator = torch.Generator().manual_seed(seed)
    if groups is not None:
        orders = (torch.randperm(len(points), generator=generator) for _ in range(draws))
        return torch.tensor([silhouette(points, groups[order]) for order in orders])
    spread = principal(points)[0].square().mean(0).sqrt()
    clouds = (torch.randn(len(points), len(spread), generator=generator).double() * spread for _ in range(draws))
    return torch.tensor([grouped(one, two_groups(one)) for one in clouds])


def grouped(points: Tensor, groups: Tensor) -> float:
    """The silhouette, 0 where all points are in one group."""
    return silhouette(points, groups) if groups.min() < groups.max() else 0.0
