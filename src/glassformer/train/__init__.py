"""Training: a run as data, and an iterator of reports. Nothing here prints."""

from .evaluate import evaluate
from .loop import check, fit
from .recipe import read_run
from .report import Report
from .run import AdamWSpec, ImageRunSpec, MuonSpec, RunSpec, ScheduleSpec
from .several import Outcome, read_runs

__all__ = [
    "AdamWSpec",
    "ImageRunSpec",
    "MuonSpec",
    "Outcome",
    "Report",
    "RunSpec",
    "ScheduleSpec",
    "check",
    "evaluate",
    "fit",
    "read_run",
    "read_runs",
]
