"""The number format of a run's passes."""

from __future__ import annotations

import torch

from ..errors import SettingError
from .run import AnyRun, width


def precision(run: AnyRun, device: torch.device, begun: str | None = None) -> torch.dtype:
    """The dtype of the passes: that with which the run has begun, else the run's, or with `auto` bfloat16 where

    the device multiplies bfloat16 in hardware, and the model is at least 64 wide; else float32. On a processor with
    AVX512-BF16 a step then took 0.5 to 0.9 of its time in float32; at a width of 32 the conversions cost more than they
    saved. Raises SettingError where the device does not know the format at all.
    """
    if begun is None and run.dtype == "auto":
        return torch.bfloat16 if width(run) >= 64 and multiplies_bfloat16(device) else torch.float32
    dtype = getattr(torch, begun or run.dtype)
    if dtype == torch.bfloat16 and not knows_bfloat16(device):
        raise SettingError(
            f"dtype: the device {device} cannot compute in the bfloat16 of this run; go on with a run where it began, "
            "or train anew with dtype=float32"
        )
    return dtype


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16, so that they are not emulated."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return device.type == "cpu" and bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def knows_bfloat16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16, in hardware or not."""
    return device.type != "cuda" or torch.cuda.is_bf16_supported()
