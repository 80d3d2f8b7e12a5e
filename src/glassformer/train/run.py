"""A training run as data: what is trained, on what, how long and how."""

from __future__ import annotations

from typing import Literal

from ..data.images import ViewSpec
from ..data.vocabulary import TokenizerSpec
from ..errors import SettingError
from ..image import ImageModelSpec
from ..model import ModelSpec
from ..spec import Spec, check_between, check_least, check_positive, check_share


class AdamWSpec(Spec, frozen=True, tag="adamw"):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019). Only matrices and tables decay, vectors do not.

    rate is the highest learning rate, betas how slowly the means of gradient and square forget, eps what keeps the
    division safe, decay the share of a weight that is lost per step at rate 1.
    """

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    decay: float = 0.1

    def __post_init__(self) -> None:
        check_least(self, 0, "rate", "decay")
        check_share(self, "betas")
        check_positive(self, "eps")


class MuonSpec(Spec, frozen=True, tag="muon"):
    """Muon (Jordan et al. 2024): the momentum of each matrix inside the blocks is orthogonalised before it is used.

    Tables, the head and vectors have no two sides to balance; they are trained by `others`. Each matrix moves by
    rate · √(max(1, rows/columns)) along the orthogonalised momentum; decay is that of AdamW.
    """

    rate: float = 0.02
    momentum: float = 0.95
    decay: float = 0.0
    others: AdamWSpec = AdamWSpec()

    def __post_init__(self) -> None:
        check_least(self, 0, "rate", "decay")
        check_share(self, "momentum")


class ScheduleSpec(Spec, frozen=True, tag="schedule"):
    """The factor on every rate: it rises linearly over `warmup` steps (at most half of all) to 1, then falls towards
    `final`, which a step after the last would have: the last one still learns where final is 0.

    shape: cosine and linear fall all the way; trapezoid stays at 1 and falls linearly over the last `cooldown` share
    of the steps (at most those after the rise); constant stays.
    """

    shape: Literal["cosine", "linear", "trapezoid", "constant"] = "cosine"
    warmup: int = 100
    final: float = 0.1
    cooldown: float = 0.4

    def __post_init__(self) -> None:
        check_least(self, 0, "warmup")
        check_between(self, 0, 1, "final", "cooldown")
        check_positive(self, "cooldown")


DEFAULT_PROMPT = "\n"
MOST_THREADS = 1024  # far beyond it the system refuses threads, and the process ends without a word


class AnyRunSpec(Spec, frozen=True, kw_only=True):
    """What every training run has.

    data            where the examples are; $NAME stands for an environment variable
    steps           updates
    batch           examples in one pass forward and backward
    accumulate      passes whose gradients are averaged before an update
    optimizer       and the `schedule` of its rates
    clip            the largest norm of the whole gradient; None: any
    dtype           of the passes; weights and optimizer stay in float32. auto: see `train.precision`
    threads         processor threads while training; None: PyTorch's choice
    compile         torch.compile; it needs a C++ compiler and about a minute at the start
    seed            of the initial weights, the order of the examples and dropout
    evaluate_every  steps between validation losses; None: only at the end
    save_every      steps between checkpoints; None: only at the end and when interrupted
    snapshots       how many sets of weights are kept for a film of the training, from the first to the last step, the
                    steps between them growing; 0: none
    """

    data: str
    steps: int
    batch: int = 32
    accumulate: int = 1
    optimizer: AdamWSpec | MuonSpec = AdamWSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    clip: float | None = 1.0
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int | None = None
    compile: bool = False
    seed: int = 0
    evaluate_every: int | None = 250
    save_every: int | None = 250
    snapshots: int = 12

    def __post_init__(self) -> None:
        check_least(self, 1, "steps", "batch", "accumulate", "evaluate_every", "save_every")
        check_least(self, 0, "snapshots")
        check_between(self, 1, MOST_THREADS, "threads")
        check_between(self, 0, 2**32 - 1, "seed")
        check_positive(self, "clip")


class RunSpec(AnyRunSpec, frozen=True, kw_only=True, tag="run"):
    """A language model's training; `data` is a text file or a folder of them.

    The documents (files) of the text are packed into one line of tokens, the end token before each. A window of it may
    hold several, and attention reaches across their borders, in the validation loss too.

    model           its `vocab` may be 0, which means the size of the `tokenizer`
    validation      the share of the text, from its end, that is held out; or the path of a text of its own
    block           tokens in each of the `batch` windows of a pass
    begin           the share of the windows that begin behind the end token as a document does, so that a text of few
                    documents too is learnt from its start; where documents are that frequent, they suffice. 0: none
    evaluate_blocks windows of the validation split used on the way; None: the whole split. The last is always whole
    sample_every    steps between samples (None: only at the end), of sample_tokens tokens after `prompt`
    """

    model: ModelSpec
    validation: float | str = 0.1
    tokenizer: TokenizerSpec = TokenizerSpec()
    block: int = 128
    begin: float = 1 / 16
    evaluate_blocks: int | None = None
    sample_every: int | None = 250
    sample_tokens: int = 100
    prompt: str = DEFAULT_PROMPT

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "block", "evaluate_blocks", "sample_every")
        check_least(self, 0, "sample_tokens")
        check_between(self, 0, 1, "begin")
        if not isinstance(self.validation, str):
            check_share(self, "validation")
        if self.block > self.model.context:
            raise SettingError(f"block: {self.block} is longer than model.context={self.model.context}")


class ImageRunSpec(AnyRunSpec, frozen=True, kw_only=True, tag="image-run"):
    """A classifier's training; `data` is a labelled set of images as `data.images.read_labelled` takes it, of which the
    training part is used.

    model       reads images of that size
    view        how the images are changed before it sees them
    validation  the share of the training images, from their end, that is held out; 0: none
    """

    model: ImageModelSpec
    view: ViewSpec = ViewSpec()
    validation: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self, "validation")


AnyRun = RunSpec | ImageRunSpec

# Settings that may differ when a run goes on: what was learnt by then stays what it was. `steps` stretches the schedule
# of what follows, and other `threads` may sum in another order.
_PACE = ("steps", "threads", "evaluate_every", "evaluate_blocks", "sample_every", "sample_tokens", "prompt")
FREE = frozenset((*_PACE, "data", "tokenizer.path", "save_every", "snapshots"))


def width(run: AnyRun) -> int:
    """Of the vectors in the run's model; 0 where it works on maps and pixels."""
    return getattr(run.model, "dim", getattr(getattr(run.model, "embed", None), "dim", 0))
