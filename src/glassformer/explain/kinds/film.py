"""film: the weights that training kept on its way, and what each of them makes of the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl

from ...checkpoint import load_model
from ...errors import CheckpointError, InputError
from ...machine import check_free
from ...trace import Trace
from ..explainer import Explainer, Limit, Report, Settings, line, of_text
from ..explanation import Check, Explanation, Line, Said, Series, Table


class FilmSpec(Settings, frozen=True, tag="film"):
    """step: of which snapshot; -1 the last. show: the explanation that is made of it, "" none; how: its settings as
    they stand in an address ("layer=2&by=word")."""

    step: int = -1
    show: str = ""
    how: str = ""

    LIMITS: ClassVar[dict[str, Limit]] = {"step": Limit(-1)}


def snapshots(trace: Trace) -> dict[int, Path]:
    """The folders of the kept weights by their steps; empty where the model is not that of a run."""
    place = getattr(getattr(trace, "loaded", None), "place", None)
    folder = Path(place) / "train" / "snapshots" if place else None
    if folder is None or not folder.is_dir():
        return {}
    found = {int(one.name): one for one in folder.iterdir() if one.name.isdigit() and (one / "model.json").is_file()}
    return dict(sorted(found.items()))


def losses(trace: Trace) -> list[tuple[int, float, float | None]]:
    """(step, loss, validation loss) of the run's record."""
    path = Path(trace.loaded.place) / "train" / "reports.jsonl"
    if not path.is_file():
        return []
    try:
        lines = [json.loads(one) for one in path.read_text(encoding="utf-8").splitlines()]
        return [(int(one["step"]), float(one["loss"]), one.get("watched", one.get("validation"))) for one in lines]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = " ".join(str(error).split())
        raise CheckpointError(f"{path} is broken ({what}); delete it, the run goes on without it") from None


def made(trace: Trace, settings: FilmSpec, report: Report) -> Explanation:
    """Figures "snapshots" (step, loss, validation loss, whether it is the shown one), "loss" of the whole run, and
    those of the explanation `show` by the weights of that step."""
    kept, record = snapshots(trace), losses(trace)
    step = max(kept) if settings.step == -1 else settings.step
    if step not in kept:
        raise InputError(f"step: no snapshot of step {step} was kept; there are: {', '.join(map(str, kept))}")
    rows = [[one, *_loss(record, one), int(one == step)] for one in kept]
    figures = [
        Table("snapshots", SNAPSHOTS, COLUMNS, rows),
        Series("loss", LOSS, tuple(str(one) for one, *_ in record), STEP, NATS, (
            Line(Said("training", "학습"), [loss for _, loss, _ in record]),
            Line(Said("validation", "검증"), [watched for *_, watched in record]),
        )),
    ]  # fmt: skip
    checks, claim = (ROUNDED,), CLAIM
    if settings.show:
        one = _shown(trace, kept[step], settings, report)
        figures, checks = [*figures, *one.figures], (*checks, *one.checks)
        claim = Said(f"{CLAIM.en} {one.claim.en}", f"{CLAIM.ko} {one.claim.ko}")
    return Explanation("film", TITLE, claim, tuple(figures), checks, line("film", settings))


def _again(trace: Trace, folder: Path) -> Trace:
    loaded, device = trace.loaded, trace.stacks[-1].tokens.device
    check_free(sum(p.nbytes for p in loaded.model.parameters()), folder, device)  # beside the model that is there
    model = load_model(folder, device, trace.stacks[-1].kept[0].dtype)
    other = type(loaded)(model, loaded.tokenizer, loaded.name, loaded.about, loaded.source)
    ids = [stack.tokens[0].tolist() for stack in trace.stacks]
    return other.trace(ids[0] if len(ids) == 1 else tuple(ids), limit_bytes=trace.limit_bytes, start=False)


def _shown(trace: Trace, folder: Path, settings: FilmSpec, report: Report) -> Explanation:
    from ..explained import explained  # which has this in its table

    if settings.show == "film":
        raise InputError("show: a film shows no film; name another explanation")
    how = dict(parse_qsl(settings.how, keep_blank_values=True))
    return explained(settings.show, _again(trace, folder), how, report)


def _loss(record: list[tuple[int, float, float | None]], step: int) -> tuple[float | None, float | None]:
    """The losses noted at that step; before the first of them none."""
    before = [one for one in record if one[0] <= step]
    return before[-1][1:] if before and before[-1][0] == step else (before[-1][1], None) if before else (None, None)


TITLE = Said("The film of the training", "학습 필름")
SNAPSHOTS = Said("The weights that were kept", "저장해 둔 가중치")
LOSS = Said("The loss while training", "학습 중의 손실")
STEP, NATS = Said("step", "단계"), Said("nats", "내트")
COLUMNS = (Said("step", "단계"), Said("loss", "손실"), Said("validation loss", "검증 손실"), Said("shown", "표시"))
CLAIM = Said(
    "Training kept its weights at these steps, in bf16; the same text is run through those of one of them.",
    "학습하면서 이 단계들의 가중치를 bf16으로 저장해 두었습니다. 그중 한 단계의 가중치로 같은 텍스트를 실행한 "
    "결과입니다.",
)
ROUNDED = Check(
    "rounded",
    Said(
        "How far rounding the kept weights to bf16 moves what the model ends in",
        "저장할 때 가중치를 bf16으로 반올림하여 모델의 출력이 달라지는 정도",
    ),
)


def _applies(trace: Trace) -> bool:
    return of_text(trace) and not trace.edits and bool(snapshots(trace))


FILM = Explainer("film", TITLE, FilmSpec, made, _applies, ("rounded",))
