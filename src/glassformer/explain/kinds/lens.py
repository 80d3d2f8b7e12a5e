"""lens: what each layer would say if it were the last, as it is or by a lens that learnt to read it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ...data.display import alone
from ...errors import InputError
from ...trace import Trace
from ..explainer import Explainer, Limit, Report, Settings, cells_of, line, names_of, number, numbers
from ..explanation import Check, Explanation, HeatMap, Line, Said, Series, Table
from ..quantity import exact
from ..rest import check_finite
from ..sheet import counted
from ..texts import lines_of
from ..tuned import Lens, alike, divergence, entering, kept, last_kept, spoken, trained
from .journey import keeps_width
from .next import BITS, predicts

if TYPE_CHECKING:
    from ...text_trace import TextTrace


class LensSpec(Settings, frozen=True, tag="lens"):
    """lens: "logit", the last norm and the head on each layer as it is; "tuned", behind an affine map that learnt on
    `texts`, a line each, to read that layer ("": the one that this model had last). steps: of gradient in learning it,
    for each layer; seed: of these. token: whose candidates are listed, -1 the last."""

    lens: Literal["logit", "tuned"] = "logit"
    token: int = -1
    texts: str = ""
    steps: int = 40
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {"steps": Limit(0, 10_000), "seed": Limit(most=2**31)}


def made(trace: TextTrace, settings: LensSpec, report: Report) -> Explanation:
    """Figures "candidates" of the chosen token, "divergence" by layer, and for every layer and token "tokens", how far
    it is from the end, "final", how probable what comes out is there already, and "change", how far from the layer
    before. Checks: "last", "mean", and of a tuned lens "mean_logit"."""
    stack = trace.stacks[-1]
    chosen = counted("token", settings.token, stack.length)
    check_finite(trace, chosen)
    lens = _tuned(trace, settings, report) if settings.lens == "tuned" else None
    layers = [str(i - 1) if i else "embed.out" for i in range(len(stack.model.blocks) + 1)]
    found = _Reading(trace, lens, chosen, report)
    names = names_of(cells_of(trace, stack))
    lines = [Line(LOGIT, numbers(found.plain.mean(1)))] + ([Line(TUNED, numbers(found.away.mean(1)))] if lens else [])
    figures = (
        Table("candidates", CANDIDATES, COLUMNS, [[name, *row] for name, row in zip(layers, found.rows, strict=True)]),
        Series("divergence", DIVERGENCE, tuple(layers), AFTER, BITS, tuple(lines)),
        _map("tokens", DIVERGENCE, layers, names, found.away, BITS),
        _map("final", FINAL, layers, names, found.final, PROBABILITY),
        _map("change", CHANGE, layers[1:], names, found.change, BITS),
    )
    exactly = max(EXACT, torch.finfo(next(trace.model.parameters()).dtype).eps)
    checks = [
        Check("last", LAST, number(found.last), found.last < exactly),
        Check("mean", MEAN, number(found.away[:-1].mean().item())),
    ]
    checks += [Check("mean_logit", MEAN_LOGIT, number(found.plain[:-1].mean().item()))] if lens else []
    claim = TUNED_CLAIM if lens else CLAIM
    return Explanation("lens", TITLE, claim, figures, tuple(checks), line("lens", settings))


class _Reading:
    """What all layers say of a text by a lens: as many rows at once as the memory has room for.

    away, plain  `l t` bits of KL(final ‖ lens), by this lens and by the logit lens
    final        `l t` the probability of what is most probable at the end
    change       `l-1 t` bits of KL(layer ‖ layer before)
    rows         of the chosen token, for each layer: its candidate, how probable, divergence, place of the final one
    last         how far the last layer's log probabilities are from the run's own at most, of the largest of these
    """

    def __init__(self, trace: TextTrace, lens: Lens | None, chosen: int, report: Report) -> None:
        stack, self.lens = trace.stacks[-1], lens
        count = len(stack.model.blocks) + 1
        self.away, self.plain, self.final = (torch.zeros(count, stack.length).double() for _ in range(3))
        self.change = torch.zeros(count - 1, stack.length).double()
        self.rows: list[list[str | float | int | None]] = []
        self.last, self.chosen = 0.0, chosen
        at_once = max(1, trace.rows_at_once(stack.output) // 4)  # of one layer, the one before, the end, and a copy
        for start in range(0, stack.length, at_once):
            report(start, stack.length)
            self._read(trace, list(range(start, min(start + at_once, stack.length))))

    def _read(self, trace: TextTrace, rows: list[int]) -> None:
        end = exact(trace.part(trace.stacks[-1].output, b=0, t=rows)).log_softmax(-1)
        top, before = end.argmax(-1), None
        for block in range(len(self.away)):
            x = entering(trace, block)[rows]
            plain = spoken(trace, x, rows)
            said = plain if self.lens is None else spoken(trace, self.lens.read(x, block), rows)
            self.plain[block, rows] = divergence(end, plain) / math.log(2)
            self.away[block, rows] = divergence(end, said) / math.log(2)
            self.final[block, rows] = said.gather(1, top[:, None])[:, 0].exp()
            if before is not None:
                self.change[block - 1, rows] = divergence(said, before) / math.log(2)
            if self.chosen in rows:
                self.rows.append(
                    self._candidate(trace, block, said[rows.index(self.chosen)], top[rows.index(self.chosen)])
                )
            before = said
        self.last = max(self.last, ((said - end).abs().max() / end.abs().max()).item())

    def _candidate(self, trace: TextTrace, block: int, said: Tensor, top: Tensor) -> list[str | float | int | None]:
        cell, place = trace.loaded.cell(int(said.argmax())), 1 + int((said > said[top]).sum())
        return [alone(cell), number(said.max().exp().item()), number(self.away[block, self.chosen].item()), place]


def _tuned(trace: TextTrace, settings: LensSpec, report: Report) -> Lens:
    """The lens of the settings; one that was kept and has not learnt from this text or a line of it, where no texts
    are given."""
    loaded, own = trace.loaded, {alike(text) for text in (trace.text, *trace.text.splitlines())}
    texts = [text for text in lines_of(settings.texts) if alike(text) not in own]
    if settings.texts and not texts:
        raise InputError("texts: a lens learns on other texts than the one that it reads; give some, a line each")
    if not texts:
        lens = last_kept(loaded.model, own)
        if lens is None:
            raise InputError(
                "texts: a tuned lens learns on texts, and this model has none yet that learnt on others than this; "
                "give some, a line each"
            )
        return lens
    key = "\n".join((f"{settings.steps} {settings.seed}", *texts))

    def made() -> Lens:
        runs = [loaded.trace(text, limit_bytes=trace.limit_bytes) for text in texts]
        return trained(runs, settings.steps, settings.seed, report)

    return kept(loaded.model, key, made, [alike(text) for text in texts])


def _map(name: str, title: Said, layers: list[str], tokens: tuple[str, ...], values: Tensor, unit: Said) -> HeatMap:
    return HeatMap(name, title, tuple(layers), tokens, numbers(values), AFTER, TOKEN, unit)


EXACT = 1e-5
AFTER, TOKEN = Said("after", "지난 곳"), Said("token", "토큰")
PROBABILITY = Said("probability", "확률")
TITLE = Said("What each layer would say", "층마다 예측했을 토큰")
CANDIDATES = Said("The most probable token by each layer", "층마다 가장 그럴듯한 토큰")
COLUMNS = (
    AFTER,
    TOKEN,
    PROBABILITY,
    Said("bits from the end", "끝과의 거리(비트)"),
    Said("place of what comes out", "나온 토큰의 순위"),
)
DIVERGENCE = Said("How far each layer is from the end", "층마다 끝까지 남은 거리")
FINAL = Said("How probable what comes out is already", "나올 토큰의 그 층에서의 확률")
CHANGE = Said("How far each layer moves what the one before said", "층마다 앞 층의 말을 바꾼 정도")
LOGIT, TUNED = Said("logit lens", "로짓 렌즈"), Said("tuned lens", "튜닝된 렌즈")
LAST = Said(
    "Largest difference of the last layer's log probabilities from the run's own, relative to the largest of these",
    "마지막 층의 로그 확률이 실행과 다른 정도(가장 큰 로그 확률에 대한 비율)",
)
MEAN = Said("Bits from the end, in the mean over layers and tokens", "끝까지 남은 거리(비트, 층과 토큰의 평균)")
MEAN_LOGIT = Said("The same by the logit lens (control)", "로짓 렌즈로 잰 같은 값(대조)")
CLAIM = Said(
    "head(norm(x_l)): the model's own last norm and head on the vectors behind block l, as if no block followed (logit "
    "lens). KL(p_L ‖ p_l) = Σ p_L log₂ (p_L / p_l) is how many bits that is from what comes out. Early layers write in "
    "another basis than the last, so that far here need not mean that they do not know.",
    "head(norm(x_l)): 블록 l을 지난 벡터에, 뒤따르는 블록이 없는 것처럼 모델의 마지막 정규화와 헤드를 바로 "
    "씌웁니다(로짓 렌즈). KL(p_L ‖ p_l) = Σ p_L log₂ (p_L / p_l)은 나온 결과와 몇 비트 떨어져 있는지입니다. 앞쪽 층은 "
    "마지막 층과 다른 기저로 쓰므로, 여기서 멀다고 해서 모른다는 뜻은 아닙니다.",
)
TUNED_CLAIM = Said(
    "head(norm(x_l + x_l A_l + b_l)): A_l and b_l learnt, on other texts, to bring the divergence KL(p_L ‖ p_l) from "
    "what comes out down (tuned lens, Belrose et al. 2023). Beside it the logit lens, with A = 0 and b = 0, on this "
    "same text, of which no line is among those; one that only begins as this does may be.",
    "head(norm(x_l + x_l A_l + b_l)): A_l과 b_l은 나온 결과와의 거리 KL(p_L ‖ p_l)이 줄어들도록 다른 텍스트에서 "
    "학습했습니다(튜닝된 렌즈, Belrose 등 2023). 그 가운데 어느 줄도 들어 있지 않은 이 텍스트에서, A = 0, b = 0인 로짓 "
    "렌즈와 나란히 나타냅니다. 다만 이 텍스트와 시작만 같은 텍스트는 그 가운데 있을 수 있습니다.",
)


def _applies(trace: Trace) -> bool:
    return predicts(trace) and keeps_width(trace)


LENS = Explainer("lens", TITLE, LensSpec, made, _applies, ("last", "mean"))
