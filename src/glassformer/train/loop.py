"""The training loop: an iterator of reports."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..checkpoint import read_about, save_model
from ..errors import GlassformerError, InputError
from ..files import given_path
from ..machine import is_out_of_memory
from ..nn.channel import ExpertsSpec
from ..spec import to_data
from .classify import ImageTask
from .figure import Records
from .lock import alone_in
from .optimizer import Optimizer, rate_share
from .precision import precision
from .prepare import Progress
from .recipe import read_run
from .report import Report
from .run import AnyRun, ImageRunSpec, RunSpec
from .store import STATE, Facts, by_name, load_state, save_state
from .task import Task, TextTask


def fit(
    run: AnyRun | str | Path,
    folder: str | Path,
    device: str = "cpu",
    fresh: bool = False,
    progress: Progress | None = None,
) -> Generator[Report]:
    """Train `run` (or what `read_run` makes of the path of a recipe or a text) into `folder`, one report an update. A
    folder that holds the same run is continued, in the number format it began with; with `fresh` its training so far is
    thrown away.

    Mistakes in the settings and the text are raised by this call, before anything in the folder changes. It is this
    call too that learns the tokenizer and encodes the text; `progress` is told of it with what is being done
    ("tokenizer", "text", "resume"), how much of it and of how much (bytes of text, steps). Closing the iterator, or an
    interrupt while it works, saves. Continuing on the same machine, with as many threads and steps, gives the same
    numbers, bit for bit, as never having stopped. A run that is already complete gives its last report again.

    Raises SettingError, InputError, CheckpointError, and GlassformerError where the loss is no longer a number.
    """
    if not isinstance(folder, str | Path):
        raise InputError(f"{folder!r} is no folder to train into; give its path")
    if isinstance(run, str | Path):
        run = read_run(run, folder=None if fresh else folder)
    if not isinstance(run, AnyRun):
        raise InputError(f"{run!r} is no run; give a recipe, a text, or what train.read_run makes of one")
    return Trainer(run, given_path(folder), device, fresh, progress).reports()


TASKS: dict[type, type[Task]] = {RunSpec: TextTask, ImageRunSpec: ImageTask}


def check(run: AnyRun, folder: Path, device: str = "cpu", fresh: bool = False) -> None:
    """Raise what `fit` would raise, but for what it finds only while it reads the text; nothing is changed."""
    TASKS[type(run)].check(run, folder, fresh, device)
    precision(run, torch.device(device))


class Trainer:
    """A run in progress: its task, model, optimizer and place."""

    def __init__(
        self, run: AnyRun, folder: Path, device: str = "cpu", fresh: bool = False, progress: Progress | None = None
    ) -> None:
        self.began = time.perf_counter()
        self.run, self.folder, self.device = run, folder, torch.device(device)
        self.state_path = folder / STATE
        with contextlib.ExitStack() as held:
            held.enter_context(alone_in(folder))
            precision(run, self.device)  # refuses a format before anything in the folder changes
            self.task = TASKS[type(run)](run, folder, fresh, progress, device)
            self._begin()
            self.held = held.pop_all()

    def _begin(self) -> None:
        """The model and the optimizer, fresh or as the last session left them."""
        run, facts = self.run, self.task.facts
        self.dtype = precision(run, self.device, facts and facts.dtype)
        self.model = self.task.fresh_model().to(self.device).train()
        self.optimizer = Optimizer(self.model, run.optimizer, self.dtype)
        self.step, self.seconds_before, self.last = 0, 0.0, None
        if facts is not None:
            load_state(self.state_path, self.model, self.optimizer)
            self.step, self.seconds_before, self.last = facts.step, facts.seconds, facts.report
        self.first_step = self.saved_step = self.step
        self.finished = facts is None or (facts.finished and (self.step < run.steps or self._complete(facts)))
        self.records = Records(
            self.folder / "train", self.step, run.steps, facts.losses if facts else [], self.task.unit
        )
        self.best = self.records.lowest(self.task.windows)  # step and loss
        self.forward = torch.compile(self.model) if run.compile else self.model
        self.experts = any(isinstance(getattr(block, "channel", None), ExpertsSpec) for block in self.model.spec.blocks)
        self.step_seconds: float | None = None  # running mean
        self.paced = (self.began, self.step)  # from when and where on the time left is reckoned
        self.updating = False

    def _complete(self, facts: Facts) -> bool:
        """Whether the last step's checkpoint was written as that of the last step, and the model folder after it."""
        return facts.report.saved and read_about(self.folder).get("step") == facts.step

    # ------------------------------------------------------------ the loop

    def reports(self) -> Generator[Report]:
        """The reports of the updates still to make; at their end the folder is free for another training."""
        with self.held:
            yield from self._reports()

    def _reports(self) -> Generator[Report]:
        if self.step >= self.run.steps and self.last is not None:
            yield replace(self.last, sample=self.sample()) if self.finished else self.finish()
            return
        with _threads(self.run.threads):
            if self.step == 0:
                self.keep_snapshot()
            try:
                if not self.finished:
                    yield self.finish()
                while self.step < self.run.steps:
                    yield self.advance()
            except (GeneratorExit, KeyboardInterrupt):
                # Between updates the state is whole; inside one the weights may be half new, so the last checkpoint
                # is kept instead. A program that ends without closing the iterator can no longer write.
                if not self.updating and self.saved_step != self.step and not sys.is_finalizing():
                    self.save()
                raise

    def advance(self) -> Report:
        """One update, and whatever is due after it."""
        started = time.perf_counter()
        if self.step - self.first_step < 2:  # the first update alone says little: torch.compile is at work in it
            self.paced = (started, self.step)
        try:
            loss, norm, share = self.update()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise GlassformerError(self.too_large()) from None
        took = time.perf_counter() - started
        self.step_seconds = took if self.step_seconds is None else self.step_seconds + 0.05 * (took - self.step_seconds)
        self.step += 1
        self.records.losses.append(loss)
        self.last = Report(
            step=self.step,
            steps=self.run.steps,
            loss=loss,
            rate=share * self.run.optimizer.rate,
            gradient_norm=norm,
            tokens=self.step * self.task.per_update,
            tokens_per_s=self.task.per_update / self.step_seconds,
            **self.times(),
        )
        self.finished = self.updating = False
        return self.finish()

    def finish(self) -> Report:
        """Whatever is due after the last update. The sample comes after the checkpoint, which it cannot endanger."""
        assert self.last is not None
        if self.due(self.run.evaluate_every):
            self.validate()
        self.keep_snapshot()
        save = self.due(self.run.save_every)
        best = dict(zip(("best_step", "best_validation"), self.best, strict=True)) if self.best[0] else {}
        self.last = replace(self.last, saved=save, **self.times(), **best)
        self.records.add(asdict(self.last), self.task.windows)
        self.finished = True
        if save:
            self.save()
        if self.due(getattr(self.run, "sample_every", None)):
            self.last = replace(self.last, sample=self.sample())
        return self.last

    def times(self) -> dict[str, float]:
        """The report's `seconds` and `seconds_left`."""
        now, (since, first) = time.perf_counter(), self.paced
        done, rest = self.step - first, max(self.run.steps - self.step, 0)
        left = (now - since) / done * rest if done else self.last.seconds_left
        return {"seconds": self.seconds_before + now - self.began, "seconds_left": left}

    def due(self, every: int | None) -> bool:
        """Whether something that is done every so many steps is to be done now; all of it is after the last."""
        return self.step >= self.run.steps or (every is not None and self.step % every == 0)

    def update(self) -> tuple[float, float, float]:
        """One step of the optimizer: (loss, norm of the gradient, the schedule's factor). `updating` says from here on
        that the weights belong to a step that is not noted yet."""
        run = self.run
        inputs, targets = self.task.batch(self.step)
        loss = 0.0
        with torch.random.fork_rng(devices=[]):
            # Dropout draws from (seed, step) alone, so that a run that goes on needs no generator's state.
            torch.manual_seed(run.seed * 1_000_003 + self.step)
            for i in range(0, len(inputs), run.batch):
                x, y = (a[i : i + run.batch].to(self.device) for a in (inputs, targets))
                loss += self.backward(x, y)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        total = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        norm = total.item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise GlassformerError(self.diverged(loss, norm))
        if run.clip is not None and norm > run.clip:
            torch.nn.utils.clip_grads_with_norm_(parameters, run.clip, total)
        share = rate_share(run.schedule, self.step, run.steps)
        self.updating = True
        self.optimizer.step(share)
        return loss, norm, share

    def backward(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Add the gradient of one pass's share of the mean loss; returns that share of the loss."""
        extra: list[torch.Tensor] | None = [] if self.experts else None
        mixed = self.dtype != torch.float32
        with torch.autocast(self.device.type, self.dtype, enabled=mixed, cache_enabled=True):
            logits = self.forward(x, losses=extra)
        loss = self.task.loss(logits, y)
        total = loss if not extra else loss + torch.stack(extra).sum()
        (total / self.run.accumulate).backward()
        return loss.item() / self.run.accumulate

    def too_large(self) -> str:
        """The message for a step that does not fit into the memory."""
        run = self.run
        return (
            f"step {self.step + 1}: the memory does not suffice for {self.task.one_pass} a pass; use a "
            f"smaller batch with more passes, for example --set batch={max(run.batch // 2, 1)} --set "
            f"accumulate={run.accumulate * 2}, in a new folder; {self.kept()}"
        )

    def kept(self) -> str:
        """What of the run is left when it ends here."""
        return f"the checkpoint of step {self.saved_step} is kept" if self.saved_step else "no checkpoint was due yet"

    def diverged(self, loss: float, norm: float) -> str:
        """The message for a loss or gradient that is not a number."""
        return (
            f"step {self.step + 1}: the loss is {loss:g} and the norm of its gradient {norm:g}; lower the rate, for "
            f"example --set optimizer.rate={self.run.optimizer.rate / 3:.2g}, in a new folder; {self.kept()}"
        )

    # ------------------------------------------------------------ what is due now and then

    def validate(self) -> None:
        """Put the loss on the validation split into the last report: over the windows that are looked at on the way,
        which alone can be compared, and after the last step over the whole split."""
        if not self.task.watches:
            return
        found = self.task.measure(self.model, self.task.windows)
        watched = found["validation"]
        if self.task.windows and self.step >= self.run.steps:
            found = self.task.measure(self.model, None)
        self.last = replace(self.last, watched=watched, **found)
        if watched < self.best[1]:
            self.best = self.step, watched

    def sample(self) -> str | None:
        """What the model makes by itself, where that can be shown."""
        return self.task.sample(self.model)

    def keep_snapshot(self) -> None:
        """Keep this step's weights, in half the bytes, where it is one of the film's."""
        if self.step in snapshot_steps(self.run.snapshots, self.run.steps):
            save_model(self.model, self.folder / "train" / "snapshots" / f"{self.step:07}", dtype=torch.bfloat16)

    def save(self) -> None:
        """The record of the losses, then the state to go on from (lines of later steps are dropped by then), then the
        model folder that is made from it."""
        assert self.last is not None
        facts = Facts(
            step=self.step,
            seconds=self.last.seconds,
            run=by_name(self.run),
            fingerprint=self.task.fingerprint,
            report=self.last,
            losses=self.records.losses,
            finished=self.finished,
            dtype=str(self.dtype).removeprefix("torch."),
        )
        self.records.save()
        save_state(self.state_path, self.model, self.optimizer, facts)
        save_model(self.model, self.folder, self.about())
        self.saved_step = self.step

    def about(self) -> dict[str, Any]:
        """How the model was made. Its validation loss is that of these weights, or null."""
        return {
            "made_by": f"glassformer {__version__}, torch {torch.__version__}",
            "run": to_data(by_name(self.run)),
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "step": self.step,
            "tokens": self.last.tokens,
            "seconds": round(self.last.seconds, 1),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "training_loss": self.last.loss,
            "validation_loss": self.last.validation,
            "bits_per_byte": self.last.bits_per_byte,
            "validation_error": self.last.error,
            **self.task.about(),
        }


def snapshot_steps(count: int, steps: int) -> set[int]:
    """The steps whose weights are kept: 0 (before the first update), the last, and between them ever further apart."""
    if count < 2:
        return {steps} if count else set()
    return {0, steps, *(round(steps ** (i / (count - 2))) for i in range(count - 2))}


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """So many threads of the processor inside, as many as before afterwards."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)
