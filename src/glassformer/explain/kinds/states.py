"""states: what the states, memories and gates of a layer do from token to token."""

from __future__ import annotations

from torch import Tensor

from ...errors import UnsupportedError
from ...rerun import Stack
from ...trace import Trace
from ..explainer import WRITTEN_OUT, Explainer, Report, Settings, block_of, cells_of, line, names_of, numbers, stack_of
from ..explanation import Explanation, Line, Said, Series
from ..quantity import exact

# What says how much is written, kept or let through, of which the mean is shown; of the others the length.
GATES = ("reset", "update", "input", "forget", "output", "gate", "delta", "beta", "log_decay")
STATES = ("hidden", "cell", "candidate", "context", "written", "z", "y")
ENGLISH = {"log_decay": "decay", "y": "output", "z": "output", "output": "output gate", "input": "input gate"}
ENGLISH |= {"forget": "forget gate", "reset": "reset gate", "update": "update gate", "delta": "step size"}
KOREAN = {
    "reset": "리셋 게이트", "update": "업데이트 게이트", "input": "입력 게이트", "forget": "망각 게이트",
    "output": "출력 게이트", "gate": "게이트", "delta": "스텝 크기", "beta": "쓰기 비율", "log_decay": "감쇠",
    "hidden": "은닉 상태", "cell": "셀", "candidate": "후보", "context": "문맥", "written": "쓴 값",
    "z": "출력", "y": "출력",
}  # fmt: skip


class StatesSpec(Settings, frozen=True, tag="states"):
    """layer: of the stack (-1 the last), None for the first that keeps something; stack: -1 the last."""

    layer: int | None = None
    stack: int = -1


def kept_names(trace: Trace, stack: Stack, layer: int) -> tuple[list[str], list[str]]:
    """The names of a layer's states and of its gates that have a number for each token."""
    path = block_of(stack, layer).mixer.path
    own = [name for name in trace.names() if name.startswith(f"{path}.") and "t" in trace.axes(name).split()]
    own = [name for name in own if name.removeprefix(f"{path}.").count(".") < 2 and "s" not in trace.axes(name).split()]
    short = {name: name.rpartition(".")[2] for name in own}
    own = [name for name in own if short[name] != "hidden" or f"{path}.pre" not in own]  # an MLP's keeps nothing
    return [n for n in own if short[n] in STATES], [n for n in own if short[n] in GATES]


def made(trace: Trace, settings: StatesSpec, report: Report) -> Explanation:
    """Figures "states", lengths, and "gates", means over a gate's channels."""
    stack = stack_of(trace, settings.stack)
    layers = range(len(stack.model.blocks)) if settings.layer is None else [settings.layer]
    kept = [kept_names(trace, stack, i) for i in layers]
    layer, (states, gates) = next((one for one in zip(layers, kept, strict=True) if any(one[1])), (0, ([], [])))
    cells = cells_of(trace, stack)
    figures = [
        Series(
            name,
            Said(f"{title.en}, layer {layer}", f"{layer}층 {title.ko}"),
            names_of(cells),
            TOKEN,
            unit,
            tuple(_line(trace, one, measure) for one in found),
        )
        for name, title, unit, found, measure in (
            ("states", LENGTHS, Said("‖·‖", "‖·‖"), states, _length),
            ("gates", MEANS, Said("mean", "평균"), gates, _mean),
        )
        if found
    ]
    if not figures:
        raise UnsupportedError("this layer keeps no state and has no gates; choose another one")
    return Explanation("states", TITLE, CLAIM, tuple(figures), (WRITTEN_OUT,), line("states", settings))


def _line(trace: Trace, name: str, measure) -> Line:
    letters = [one for one in trace.axes(name).split() if one != "b"]
    value = exact(trace.part(name, b=0)).movedim(letters.index("t"), 0).flatten(1)
    card = trace.card(name)
    value = value.exp() if name.endswith(".log_decay") else value
    symbol = "α" if name.endswith(".log_decay") else card.symbol
    short = name.rpartition(".")[2]
    return Line(
        Said(f"{ENGLISH.get(short, short)} {symbol}", f"{KOREAN.get(short, short)} {symbol}"), numbers(measure(value))
    )


def _length(value: Tensor) -> Tensor:
    return value.norm(dim=1)


def _mean(value: Tensor) -> Tensor:
    return value.mean(1)


TOKEN = Said("token", "토큰")
TITLE = Said("What the layer keeps and lets through", "층이 기억하고 통과시키는 것")
LENGTHS = Said("How long the states are", "상태의 길이")
MEANS = Said("How far the gates are open", "게이트가 열린 정도")
CLAIM = Said(
    "For each token the length ‖·‖ of what the layer keeps or reads out, and the mean over all channels of its "
    "gates: how much is forgotten, written and let through (of a decay α itself, not its logarithm).",
    "토큰마다 층이 기억하거나 읽어 낸 벡터의 길이 ‖·‖와, 무엇을 얼마나 잊고 쓰고 통과시키는지 정하는 게이트의 채널 "
    "평균입니다(감쇠는 로그가 아니라 α 자체).",
)


def _applies(trace: Trace) -> bool:
    stack = trace.stacks[-1]
    if len(stack.tokens) != 1 or not all(hasattr(block, "mixer") for block in stack.model.blocks):
        return False
    blocks = enumerate(stack.model.blocks)
    return any(not hasattr(block.mixer, "mask") and any(kept_names(trace, stack, i)) for i, block in blocks)


STATE = Explainer("states", TITLE, StatesSpec, made, _applies, ("written_out",))
