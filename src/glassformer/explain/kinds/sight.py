"""sight: what each token can see by construction, in one layer or through all of them, and why the rest is dark."""

from __future__ import annotations

from ...data.display import By
from ...errors import InputError
from ...trace import Trace
from ..explainer import (
    MOST,
    Explainer,
    Report,
    Settings,
    any_seen,
    block_of,
    cells_of,
    has_tokens,
    last_of,
    length_of,
    line,
    names_of,
    places_of,
    seen_only,
    stack_of,
)
from ..explanation import Check, Explanation, HeatMap, Said, TokenScores
from ..sight import looks_back, reasons, said, sight, through


class SightSpec(Settings, frozen=True, tag="sight"):
    """layer: one of the stack's (-1 the last); None: through the embedding and all layers. stack: -1 the last; by: how
    tokens are grouped. rows: those that see, alone and in this order, as "3,7"; "" for all."""

    layer: int | None = None
    stack: int = -1
    by: By = "token"
    rows: str = ""


def made(trace: Trace, settings: SightSpec, report: Report) -> Explanation:
    """Figures "sight", 1 where there is a way, and "reach", how many of the groups each can see."""
    stack = stack_of(trace, settings.stack)
    cells = cells_of(trace, stack, settings.by)
    takers = [cells[i] for i in places_of("rows", settings.rows, len(cells))]
    if len(takers) * len(cells) > MOST:
        raise InputError(f"a map of {len(takers)} × {len(cells)} tokens is too large; say which rows, as rows=3,7")
    rows, groups, n = last_of(takers), [cell.tokens for cell in cells], length_of(stack)
    pos = stack.call.pos[0].tolist()
    if settings.layer is None:
        ways, dark = sight(stack.model, n, length_of(trace.stacks[0]), rows), None
        title, what = THROUGH, Said("", "")
    else:
        mixer = block_of(stack, settings.layer).mixer
        ways, dark, title, what = through(mixer, n, rows=rows), reasons(mixer, pos, rows, groups), ONE, said(mixer)
    seen = any_seen(ways, cells)
    if dark is None:
        back = all(looks_back(block.mixer) for block in stack.model.blocks)
        dark = [
            [
                "" if there else "future" if back and group[0] > t else "outside the window"
                for there, group in zip(row, groups, strict=True)
            ]
            for t, row in zip(rows, seen.tolist(), strict=True)
        ]
    names = names_of(takers)
    figures = (
        HeatMap("sight", title, names, names_of(cells), seen_only(seen.double(), seen), SEES, SEEN, WAY, "plain", dark),
        TokenScores("reach", REACH, names, seen.sum(1).double().tolist(), Said("tokens", "개")),
    )
    claim = CLAIM if settings.layer is None else Said(f"{OF_ONE.en}{what.en}.", f"{OF_ONE.ko}{what.ko}.")
    return Explanation("sight", TITLE, claim, figures, (SUPPORT,), line("sight", settings))


SUPPORT = Check(
    "support",
    Said(
        "Whether the derivative is 0 exactly where nothing is seen; `influence` measures it",
        "아무것도 보지 않는 자리에서만 미분이 0인지 여부(`influence`로 측정)",
    ),
)
TITLE = Said("What each token can see", "토큰마다 볼 수 있는 위치")
ONE = Said("What each token can see in this layer", "이 층에서 토큰마다 볼 수 있는 위치")
THROUGH = Said("What reaches each token through all layers", "모든 층을 거쳐 토큰마다 닿을 수 있는 위치")
SEES, SEEN = Said("sees", "보는 토큰"), Said("is seen", "보이는 토큰")
WAY = Said("1: there is a way", "1: 경로가 있음")
REACH = Said("How many each token can see", "토큰마다 볼 수 있는 위치의 수")
CLAIM = Said(
    "A cell is lit where there is a way from column s to row t over the embedding and all blocks. Whatever is dark "
    "moves the token by nothing, for any weights and any text.",
    "임베딩과 모든 블록을 거쳐 열 s에서 행 t로 가는 길이 있는 칸만 밝습니다. 어두운 칸은 가중치와 텍스트가 "
    "무엇이든 토큰을 전혀 움직이지 못합니다.",
)
OF_ONE = Said("What a position sees in this layer, by construction: ", "이 층에서 한 위치가 구조상 볼 수 있는 범위: ")
SIGHT = Explainer("sight", TITLE, SightSpec, made, has_tokens, ("support",))
