"""The training loop: an iterator of reports."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..checkpoint import save_model
from ..data.packed import batch_at
from ..errors import GlassformerError
from ..nn.channel import ExpertsSpec
from .evaluate import bits_per_byte, evaluate, sample, token_loss
from .figure import Records
from .optimizer import Optimizer, rate_share
from .prepare import Progress, fresh_model, prepare
from .run import RunSpec
from .store import load_state, run_facts, save_state


@dataclass(frozen=True)
class Report:
    """What happened in one update.

    step, steps       updates made so far and in all
    loss              of this update's windows before it, in nats per token
    rate              factor of the schedule times the optimizer's rate
    gradient_norm     of the whole gradient, before clipping
    tokens            seen so far
    tokens_per_s      in the last updates, without evaluations, samples and checkpoints
    seconds           since the run began, all sessions together
    seconds_left      until its end at this session's pace, evaluations included
    validation        loss in nats per token on the validation split, where it was measured after this update
    bits_per_byte     the same per byte of text, which compares across tokenizers
    sample            a text from the model, where one was drawn
    saved             whether a checkpoint was written
    """

    step: int
    steps: int
    loss: float
    rate: float
    gradient_norm: float
    tokens: int
    tokens_per_s: float
    seconds: float
    seconds_left: float
    validation: float | None = None
    bits_per_byte: float | None = None
    sample: str | None = None
    saved: bool = False


def fit(
    run: RunSpec, folder: str | Path, device: str = "cpu", fresh: bool = False, progress: Progress | None = None
) -> Iterator[Report]:
    """Train `run` into `folder`, one report an update. A folder that holds the same run is continued; with `fresh` its
    training so far is thrown away.

    Mistakes in the settings and the text are raised by this call, before anything in the folder changes. It is this
    call too that learns the tokenizer and encodes the text; `progress` is told of it with what is being done
    ("tokenizer", "text", "resume"), how much of it and of how much (bytes of text, steps). Closing the iterator, or an
    interrupt while it works, saves. Continuing gives the same numbers, bit for bit, as never having stopped. A run that
    is already complete gives its last report again.

    Raises SettingError, InputError, CheckpointError, and GlassformerError where the loss is no longer a number.
    """
    return Trainer(run, Path(folder), device, fresh, progress).reports()


class Trainer:
    """A run in progress: its data, model, optimizer and place."""

    def __init__(
        self, run: RunSpec, folder: Path, device: str = "cpu", fresh: bool = False, progress: Progress | None = None
    ) -> None:
        self.began = time.perf_counter()
        self.run, self.folder, self.device = run, folder, torch.device(device)
        self.state_path = folder / "train" / "state.safetensors"
        ready = prepare(run, folder, fresh, progress)
        self.tokenizer, self.packed, self.prompt, facts = ready.tokenizer, ready.packed, ready.prompt, ready.facts
        self.model = fresh_model(run, self.tokenizer).to(self.device).train()
        self.dtype = precision(run, self.device)
        self.optimizer = Optimizer(self.model, run.optimizer, self.dtype)
        self.step, self.seconds_before, self.last = 0, 0.0, None
        if facts is not None:
            load_state(self.state_path, self.model, self.optimizer)
            self.step, self.seconds_before, self.last = facts["step"], facts["seconds"], Report(**facts["report"])
        self.first_step = self.saved_step = self.step
        self.records = Records(folder / "train", self.step, run.steps)
        self.forward = torch.compile(self.model) if run.compile else self.model
        self.experts = any(isinstance(block.channel, ExpertsSpec) for block in self.model.spec.blocks)
        self.step_seconds: float | None = None  # running mean
        self.updating = False

    # ------------------------------------------------------------ the loop

    def reports(self) -> Iterator[Report]:
        """The reports of the updates still to make."""
        if self.step >= self.run.steps and self.last is not None:
            # Without `saved` an interrupt came between the last update and what follows it.
            yield replace(self.last, sample=self.sample()) if self.last.saved else self.finish()
            return
        with _threads(self.run.threads):
            if self.step == 0:
                self.keep_snapshot()
            try:
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
        loss, norm, share = self.update()
        took = time.perf_counter() - started
        self.step_seconds = took if self.step_seconds is None else self.step_seconds + 0.05 * (took - self.step_seconds)
        per_step = self.run.accumulate * self.run.batch * self.run.block
        self.last = Report(
            step=self.step,
            steps=self.run.steps,
            loss=loss,
            rate=share * self.run.optimizer.rate,
            gradient_norm=norm,
            tokens=self.step * per_step,
            tokens_per_s=per_step / self.step_seconds,
            **self.times(),
        )
        return self.finish()

    def finish(self) -> Report:
        """Whatever is due after the last update. The sample comes after the checkpoint, which it cannot endanger."""
        assert self.last is not None
        if self.due(self.run.evaluate_every):
            loss = self.validation()
            per_byte = None if loss is None else self.per_byte(loss)
            self.last = replace(self.last, validation=loss, bits_per_byte=per_byte)
        self.keep_snapshot()
        save = self.due(self.run.save_every)
        self.last = replace(self.last, saved=save, **self.times())
        self.records.add(asdict(self.last))
        if save:
            self.save()
        if self.due(self.run.sample_every):
            self.last = replace(self.last, sample=self.sample())
        return self.last

    def times(self) -> dict[str, float]:
        """The report's `seconds` and `seconds_left`."""
        here = time.perf_counter() - self.began
        left = here / max(self.step - self.first_step, 1) * max(self.run.steps - self.step, 0)
        return {"seconds": self.seconds_before + here, "seconds_left": left}

    def due(self, every: int | None) -> bool:
        """Whether something that is done every so many steps is to be done now; all of it is after the last."""
        return self.step >= self.run.steps or (every is not None and self.step % every == 0)

    def update(self) -> tuple[float, float, float]:
        """One step of the optimizer: (loss, norm of the gradient, the schedule's factor)."""
        run = self.run
        inputs, targets = batch_at(self.packed.train, self.step, run.batch * run.accumulate, run.block, run.seed)
        loss = 0.0
        with torch.random.fork_rng(devices=[]):
            # Dropout draws from (seed, step) alone, so that a run that goes on needs no generator's state.
            torch.manual_seed(run.seed * 1_000_003 + self.step)
            for i in range(0, len(inputs), run.batch):
                x, y = (torch.from_numpy(a[i : i + run.batch]).to(self.device) for a in (inputs, targets))
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
        self.step += 1
        self.updating = False
        return loss, norm, share

    def backward(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Add the gradient of one pass's share of the mean loss; returns that share of the loss."""
        extra: list[torch.Tensor] | None = [] if self.experts else None
        mixed = self.dtype != torch.float32
        with torch.autocast(self.device.type, self.dtype, enabled=mixed, cache_enabled=True):
            logits = self.forward(x, losses=extra)
        loss = token_loss(logits, y)
        total = loss if not extra else loss + torch.stack(extra).sum()
        (total / self.run.accumulate).backward()
        return loss.item() / self.run.accumulate

    def diverged(self, loss: float, norm: float) -> str:
        """The message for a loss or gradient that is not a number."""
        kept = f"the checkpoint of step {self.saved_step} is kept" if self.saved_step else "no checkpoint was due yet"
        return (
            f"step {self.step + 1}: the loss is {loss:g} and the norm of its gradient {norm:g}; lower the rate, for "
            f"example --set optimizer.rate={self.run.optimizer.rate / 3:.2g}, in a new folder; {kept}"
        )

    # ------------------------------------------------------------ what is due now and then

    def validation(self) -> float | None:
        """The loss on the validation split, whole after the last step."""
        run, tokens = self.run, self.packed.validation
        if len(tokens) < 2:
            return None
        most = None if self.step >= run.steps else run.evaluate_blocks
        return evaluate(self.model, tokens, run.block, max(1, 4096 // run.block), most)

    def per_byte(self, loss: float) -> float:
        """Bits per byte of validation text."""
        return bits_per_byte(loss, len(self.packed.validation), self.packed.validation_bytes)

    def sample(self) -> str | None:
        """A text from the model, where one is wanted."""
        if not self.run.sample_tokens:
            return None
        return sample(self.model, self.tokenizer, self.prompt, self.run.sample_tokens, self.run.seed)

    def keep_snapshot(self) -> None:
        """Keep this step's weights, in half the bytes, where it is one of the film's."""
        if self.step in snapshot_steps(self.run.snapshots, self.run.steps):
            save_model(self.model, self.folder / "train" / "snapshots" / f"{self.step:07}", dtype=torch.bfloat16)

    def save(self) -> None:
        """The state to go on from, then the model folder that is made from it, and the record of the losses."""
        assert self.last is not None
        facts = {
            "step": self.step,
            "seconds": self.last.seconds,
            "run": run_facts(self.run),
            "fingerprint": self.packed.fingerprint,
            "report": asdict(self.last),
        }
        save_state(self.state_path, self.model, self.optimizer, facts)
        self.saved_step = self.step
        save_model(self.model, self.folder, self.about())
        self.records.save()

    def about(self) -> dict[str, Any]:
        """How the model was made."""
        validation = self.records.newest("validation")
        return {
            "made_by": f"glassformer {__version__}, torch {torch.__version__}",
            "run": run_facts(self.run),
            "step": self.step,
            "tokens": self.last.tokens,
            "seconds": round(self.last.seconds, 1),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "training_loss": self.last.loss,
            "validation_loss": validation,
            "bits_per_byte": None if validation is None else self.per_byte(validation),
            "training_tokens": len(self.packed.train),
            "validation_tokens": len(self.packed.validation),
        }


def precision(run: RunSpec, device: torch.device) -> torch.dtype:
    """The dtype of the passes: the run's, or with `auto` bfloat16 where both hold, else float32:

    the device multiplies bfloat16 in hardware, and the model is at least 64 wide. On a processor with AVX512-BF16 a
    step then took 0.5 to 0.9 of its time in float32; at a width of 32 the conversions cost more than they saved.
    """
    if run.dtype != "auto":
        return getattr(torch, run.dtype)
    return torch.bfloat16 if run.model.dim >= 64 and multiplies_bfloat16(device) else torch.float32


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16, so that they are not emulated."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return device.type == "cpu" and bool(known.get("avx512_bf16") or known.get("amx_bf16"))


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
