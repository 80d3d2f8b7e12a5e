"""difference: how far the fast run and the written-out mathematics are apart."""

from __future__ import annotations

import torch

from ...trace import Trace
from ..explainer import Explainer, Report, Settings, line, number
from ..explanation import Check, Explanation, Said, Table

ALIKE = 1e-4  # relative, of fp32; rounding alone leaves a few 1e-7


class DifferenceSpec(Settings, frozen=True, tag="difference"):
    """It has no settings."""


def made(trace: Trace, settings: DifferenceSpec, report: Report) -> Explanation:
    """The figure "difference": each part that has a fast and a written-out path, and how far they are apart."""
    found = trace.difference()
    rows: list[list[str | float | int | None]] = [[name, number(value)] for name, value in found.items()]
    most = max(found.values())
    wide = trace.stacks[-1].kept[max(trace.stacks[-1].kept)].dtype in (torch.float32, torch.float64)
    check = Check("largest", LARGEST, number(most), most < ALIKE if wide else None)
    table = Table("difference", TITLE, (Said("output of", "출력"), Said("difference", "차이")), rows)
    return Explanation("difference", TITLE, CLAIM, (table,), (check,), line("difference", settings))


TITLE = Said("The fast run and the written-out one", "빠른 실행과 풀어 쓴 계산의 차이")
CLAIM = Said(
    "max |fast − written out| / max |written out|: the run uses fused kernels, what is shown is worked out again "
    "by the formulas on the cards; both read the same input, and this is how far their outputs are apart.",
    "max |빠른 계산 − 풀어 쓴 계산| / max |풀어 쓴 계산|: 실행은 합쳐진 커널로 하고, 보여 주는 값은 카드에 적힌 "
    "식으로 다시 계산합니다. 같은 입력에 대한 두 출력이 얼마나 다른지 나타냅니다.",
)
LARGEST = Said("Largest difference, relative", "가장 큰 상대 차이")


def _applies(trace: Trace) -> bool:
    tapped = {name.rpartition(".")[0] for name in trace.names()}
    return any(getattr(part, "written_out", ()) and part.path in tapped for part in trace.model.modules())


DIFFERENCE = Explainer("difference", TITLE, DifferenceSpec, made, _applies, ("largest",))
