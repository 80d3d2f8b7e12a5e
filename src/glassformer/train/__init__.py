"""Training: a run as data, and an iterator of reports. Nothing here prints."""

from .evaluate import evaluate
from .loop import Report, fit
from .run import AdamWSpec, MuonSpec, RunSpec, ScheduleSpec, read_run

__all__ = ["AdamWSpec", "MuonSpec", "Report", "RunSpec", "ScheduleSpec", "evaluate", "fit", "read_run"]
