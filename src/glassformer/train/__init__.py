"""Training: a run as data, and an iterator of reports. Nothing here prints."""

from .evaluate import evaluate
from .loop import fit
from .recipe import read_run
from .report import Report
from .run import AdamWSpec, ImageRunSpec, MuonSpec, RunSpec, ScheduleSpec

__all__ = ["AdamWSpec", "ImageRunSpec", "MuonSpec", "Report", "RunSpec", "ScheduleSpec", "evaluate", "fit", "read_run"]
