"""Named models of state spaces."""

from __future__ import annotations

from ..mixers.mamba import MambaSpec
from ..mixers.mamba2 import Mamba2Spec
from ..model import BlockSpec, ModelSpec
from ..nn.norm import RMSNormSpec


def mamba(vocab: int = 50_280, dim: int = 768, blocks: int = 24, context: int = 2048) -> ModelSpec:
    """Mamba of 130 million parameters (Gu & Dao 2023, table 12): no channel mixer, one table for embedding and head.
    Weights start normal, 0.02; in the published code, those of linear layers as PyTorch draws them, which at this
    width is nearly as large. What a block adds is scaled by 1/√(2·blocks) at the start, there by 1/√blocks."""
    norm = RMSNormSpec(eps=1e-5)
    block = BlockSpec(mixer=MambaSpec(), channel=None, norm=norm)
    return ModelSpec(vocab=vocab, dim=dim, blocks=(block,) * blocks, context=context, norm=norm)


def mamba2(vocab: int = 50_288, dim: int = 768, blocks: int = 24, heads: int = 24, context: int = 2048) -> ModelSpec:
    """Mamba-2 of 130 million parameters (Dao & Gu 2024, table 10), 2·dim/heads numbers wide in each head, with the rest
    as in `mamba`."""
    norm = RMSNormSpec(eps=1e-5)
    block = BlockSpec(mixer=Mamba2Spec(heads=heads), channel=None, norm=norm)
    return ModelSpec(vocab=vocab, dim=dim, blocks=(block,) * blocks, context=context, norm=norm)
