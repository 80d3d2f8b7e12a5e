"""flow: what each token hands to each other in one block, and how long the vectors on the way are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...data.display import By, Cell
from ...errors import InputError
from ...rerun import Stack
from ...trace import Trace
from ..contributions import Contributions, contributions
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
    number,
    numbers,
    places_of,
    seen_only,
    stack_of,
)
from ..explanation import Check, Explanation, HeatMap, Said, TokenScores
from ..quantity import exact
from ..sight import through

EXACT = 1e-4  # relative; fp32 runs are nearer to it by far
LENGTH = Said("length of the vector", "벡터의 길이")


class FlowSpec(Settings, frozen=True, tag="flow"):
    """layer: of the stack (-1 the last); stack: -1 the last, which writes; by: how tokens are grouped. rows: those that
    take, alone and in this order, as "3,7"; "" for all."""

    layer: int = 0
    stack: int = -1
    by: By = "token"
    rows: str = ""


def made(trace: Trace, settings: FlowSpec, report: Report) -> Explanation:
    """Figures "mixing", "before", "mixed", "reworked", "after", "rest" where something comes from no token of the text,
    and "looking" and "looked" where there is a source."""
    stack = stack_of(trace, settings.stack)
    block = block_of(stack, settings.layer)
    cells = cells_of(trace, stack, settings.by)
    takers = [cells[i] for i in places_of("rows", settings.rows, len(cells))]
    if len(takers) * len(cells) > MOST:
        raise InputError(f"a map of {len(takers)} × {len(cells)} tokens is too large; say which rows, as rows=3,7")
    rows = last_of(takers)
    found = contributions(trace, stack, block.mixer.path, cells, report, rows=rows)
    sees = through(block.mixer, length_of(stack), length_of(trace.stacks[0]), rows=rows)
    ways = any_seen(sees, cells)
    figures: list[Any] = [_map("mixing", found, ways, takers, cells)]
    checks = [_check("closure", found)]
    cross = block.cross if block.cross is not None else getattr(block.mixer, "cross", None)
    if cross is not None:
        sources = cells_of(trace, trace.stacks[0], settings.by)
        looked = contributions(trace, stack, cross.path, sources, report, rows=rows)
        figures.append(_map("looking", looked, torch.ones(len(rows), len(sources)) > 0, takers, sources))
        checks.append(_check("closure_source", looked))
    figures += _lengths(trace, stack, block, takers)
    rest = found.biases.norm(dim=-1)
    if rest.any():
        begins = getattr(block.mixer, "start", None) is not None  # with a state made of the source
        title = REST_AND_SOURCE if begins or cross not in (None, block.cross) else REST
        figures.append(TokenScores("rest", title, names_of(takers), numbers(rest), LENGTH))
    claim = BY_WEIGHTS if found.way == "weights" else BY_SLOPES
    return Explanation("flow", TITLE, claim, tuple(figures), tuple(checks), line("flow", settings))


def _map(name: str, found: Contributions, ways: Tensor, cells: list[Cell], sources: list[Cell]) -> HeatMap:
    title = MIXING if name == "mixing" else LOOKING
    into = Said("into", "받는 토큰")
    return HeatMap(
        name,
        title,
        names_of(cells),
        names_of(sources),
        seen_only(found.norms, ways),
        into,
        Said("from", "보내는 토큰"),
        LENGTH,
    )


def _check(name: str, found: Contributions) -> Check:
    """That the parts add up."""
    return Check(name, SUMS, number(found.error), found.error < EXACT)


def _lengths(trace: Trace, stack: Stack, block: Any, cells: list[Cell]) -> list[TokenScores]:
    """‖x‖ before the block, what its parts add, and ‖x‖ after it, of the last token of each group."""
    at, known = block.path, set(trace.names())
    places = last_of(cells)
    wanted = {
        "before": (f"{at}.resid_in",),
        "mixed": (f"{at}.mixer_out_norm.out", f"{at}.mixer.out"),
        "looked": (f"{at}.cross_out_norm.out", f"{at}.cross.out", f"{at}.mixer.cross.context"),
        "reworked": (f"{at}.channel_out_norm.out", f"{at}.channel.out"),
        "after": (f"{at}.resid_out",),
    }
    made = []
    for figure, names in wanted.items():
        name = next((one for one in names if one in known), None)
        if name is not None:
            lengths = exact(trace.part(name, b=0, t=places)).norm(dim=-1)
            title = READ if name.endswith(".context") else LENGTHS[figure]
            title = title if block.spec.residual else INSTEAD.get(figure, title)
            made.append(TokenScores(figure, title, names_of(cells), numbers(lengths), LENGTH))
    return made


TITLE = Said("What each token hands to each other", "토큰이 서로 주고받는 정보")
MIXING = Said("What the token mixer carries from token to token", "토큰 믹서가 토큰 사이에 옮기는 양")
LOOKING = Said("What is taken from the source", "원문에서 가져오는 양")
BY_WEIGHTS = Said(
    "The width from s to t is the length of the vector that token s hands to token t in this layer: ‖Σ_h w_ts^h · "
    "v_s^h W_O^h‖. With the layer's weights w, gates and norm scales as they were in this run, the output is a sum "
    "of these vectors and of biases, so nothing is left out. A layer with a short convolution counts what that "
    "convolution left at s.",
    "s에서 t로 가는 굵기는 이 층에서 토큰 s가 토큰 t에 전달하는 벡터의 길이 ‖Σ_h w_ts^h · v_s^h W_O^h‖입니다. "
    "가중치 w와 게이트, 정규화 배율을 이 실행의 값으로 고정하면 층의 출력은 이 벡터들과 편향의 합이므로 빠지는 "
    "것이 없습니다. 짧은 합성곱이 앞에 있는 층에서는 합성곱을 지난 뒤 s 자리에 있는 값을 기준으로 합니다.",
)
BY_SLOPES = Said(
    "The width from s to t is the length of J_ts x_s, where x_s is the vector that the layer reads. With its gates and "
    "the slopes f(x)/x of its nonlinearities as they were in this run the layer is a linear map J with biases, so its "
    "output is a sum of these vectors and of biases, and nothing is left out.",
    "s에서 t로 가는 굵기는 J_ts x_s의 길이이고, x_s는 이 층이 읽는 벡터입니다. 게이트와 비선형 함수의 기울기 f(x)/x를 "
    "이 실행의 값으로 고정하면 층은 편향이 있는 선형 사상 J이므로, 층의 출력은 이 벡터들과 편향의 합이고 빠지는 것이 "
    "없습니다.",
)
SUMS = Said(
    "Largest distance between the sum of all parts and the layer's output, relative to that output",
    "모든 조각의 합과 층의 출력 사이의 차이를 출력에 대한 비율로 나타낸 값 중 가장 큰 값",
)
LENGTHS = {
    "before": Said("The token's vector before the block", "블록에 들어오기 전의 토큰 벡터"),
    "mixed": Said("What the token mixer adds", "토큰 믹서가 더하는 값"),
    "looked": Said("What cross-attention adds", "교차 어텐션이 더하는 값"),
    "reworked": Said("What the channel mixer adds", "채널 믹서가 더하는 값"),
    "after": Said("The token's vector after the block", "블록에서 나온 토큰 벡터"),
}
INSTEAD = {  # of a block without a residual
    "mixed": Said("What the token mixer puts in its place", "토큰 믹서가 대신하는 값"),
    "reworked": Said("What the channel mixer puts in its place", "채널 믹서가 대신하는 값"),
}
READ = Said("What the token mixer reads of the source", "토큰 믹서가 원문에서 읽는 값")
REST = Said("From no token: biases", "어느 토큰의 것도 아닌 몫(편향)")
REST_AND_SOURCE = Said(
    "From no token of this text: biases and the source", "이 텍스트의 토큰에서 오지 않은 몫(편향과 원문)"
)
FLOW = Explainer("flow", TITLE, FlowSpec, made, has_tokens, ("closure",))
