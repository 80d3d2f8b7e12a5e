"""From sound to the vectors that enter the first block: a log-mel spectrogram and two convolutions, as Whisper has them
(Radford et al. 2022, section 2.2)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import InputError, SettingError
from ..spec import Spec, check_least
from ..tap import Card, as_built
from .init import Conv, Embedding
from .position import LearnedSpec, PositionSpec, SinusoidalSpec, formula_of, sinusoid

KERNEL, STRIDE = 3, 2
LEAST_POWER = 1e-10  # silence, whose logarithm would be infinite
RANGE = 8.0  # what is more than 80 dB below the loudest place counts as silence


class SoundSpec(Spec, frozen=True, tag="sound"):
    """Two convolutions over a log-mel spectrogram, x = gelu(W_2 * gelu(W_1 * mel)) + p(position), the second of which
    halves the number of places. A sound shorter than the model's context is filled up with silence.

    bins      how many bands of the mel scale, from 0 to half the rate
    rate      samples a second
    window    samples whose spectrum is one frame (Hann)
    hop       samples from one frame to the next
    position  added to the vectors: sinusoids, or learned rows (as fixed tables are stored); None: no signal
    """

    bins: int = 80
    rate: int = 16_000
    window: int = 400
    hop: int = 160
    position: PositionSpec | None = SinusoidalSpec(layout="timescales")

    def __post_init__(self) -> None:
        check_least(self, 1, "bins", "hop")
        check_least(self, 100, "rate")
        check_least(self, 2, "window")
        if getattr(self.position, "offset", 0):
            raise SettingError(f"position.offset: {self.position.offset} has no meaning for sound; use 0")

    @property
    def seconds(self) -> float:
        """How long one position of the encoder lasts."""
        return STRIDE * self.hop / self.rate


class Sound(nn.Module):
    """The embedding of SoundSpec: samples `b n` (or their spectrogram `b c w`) to vectors `b t d`."""

    path = ""
    previous = None  # a sound has no table of tokens
    cards = {
        "mel": Card(
            "mel",
            "(max(log₁₀ M|STFT|², max − 8) + 4) / 4",
            "The log-mel spectrogram: how loud each band of the hearing scale is in each frame.",
            "로그 멜 스펙트로그램으로, 프레임마다 멜 척도의 각 대역이 얼마나 큰 소리인지 나타냅니다.",
            ("S4",),
        ),
        "first": Card(
            "h_1",
            "gelu(W₁ * mel + b₁)",
            "Each frame with the one before and the one behind it, by weights that are the same at every frame.",
            "프레임마다 앞뒤 프레임까지 함께 읽은 값입니다. 모든 프레임에 같은 가중치를 씁니다.",
            ("S4",),
        ),
        "second": Card(
            "h_2",
            "gelu(W₂ * h_1 + b₂), every second place",
            "Two frames as one vector: half as many places, which attention then looks at.",
            "프레임 두 개를 벡터 하나로 합친 값으로, 어텐션이 볼 위치가 절반으로 줄어듭니다.",
            ("S4",),
        ),
        "position": Card(
            "p_t",
            "P[t], a learned row",
            "The position's vector, added so that order can be used.",
            "순서를 이용할 수 있도록 더하는 위치 벡터입니다.",
            ("S15", "S16", "S29"),
        ),
        "out": Card("x_0", "h_2 + p_t", "What enters the first block.", "첫 블록에 들어가는 벡터입니다.", ("S22",)),
    }

    def __init__(self, spec: SoundSpec, dim: int, context: int) -> None:
        super().__init__()
        self.spec, self.dim, self.context = spec, dim, context
        self.conv1 = Conv(spec.bins, dim, KERNEL, padding=KERNEL // 2)
        self.conv2 = Conv(dim, dim, KERNEL, stride=STRIDE, padding=KERNEL // 2)
        self.position = Embedding(context, dim) if isinstance(spec.position, LearnedSpec) else None
        for name, value in self.buffer_values().items():
            self.register_buffer(name, value, persistent=False)
        position = {"formula": formula_of(spec.position)} if spec.position else None
        self.cards = as_built(Sound.cards, position=position, out={"formula": "h_2 + p_t" if spec.position else "h_2"})

    def buffer_values(self) -> dict[str, Tensor]:
        """The constants, which no checkpoint holds."""
        return {"filters": mel_filters(self.spec), "hann": torch.hann_window(self.spec.window)}

    @property
    def samples(self) -> int:
        """The longest sound, in samples, that is read at once."""
        return self.context * STRIDE * self.spec.hop

    def places(self, given: Tensor) -> int:
        """How many vectors a given sound becomes."""
        return self.context if given.ndim == 2 else -(-given.shape[2] // STRIDE)

    def check(self, given: Tensor) -> None:
        """Raise InputError for what is neither samples `b n` nor a spectrogram `b c w` that this reads."""
        spec = self.spec
        tensor = isinstance(given, Tensor)
        fits = tensor and given.is_floating_point() and given.numel() and given.ndim in (2, 3)
        if not fits or (given.ndim == 3 and given.shape[1] != spec.bins):
            shown = f"{given.dtype} of shape {tuple(given.shape)}" if tensor else type(given).__name__
            raise InputError(
                f"this model reads sound: give samples of shape (batch, n), {spec.rate} a second from -1 to 1, or a "
                f"spectrogram of shape (batch, {spec.bins}, frames); not {shown}"
            )
        longest = self.samples if given.ndim == 2 else STRIDE * self.context
        if given.shape[-1] > longest:
            seconds = self.samples / spec.rate
            raise InputError(
                f"the sound is longer than the {seconds:g} seconds that this model reads at once; transcribe cuts it "
                "into windows, or give a shorter one"
            )

    def mel(self, samples: Tensor) -> Tensor:
        """The log-mel spectrogram `b c w` of samples `b n`, worked out in fp32 at least."""
        spec, wide = self.spec, torch.promote_types(samples.dtype, torch.float32)
        samples = F.pad(samples.to(wide), (0, self.samples - samples.shape[1]))
        around = F.pad(samples, (spec.window // 2, spec.window // 2), mode="reflect")
        spectrum = torch.stft(
            around, spec.window, spec.hop, window=self.hann.to(wide), center=False, return_complex=True
        )
        power = spectrum[..., : samples.shape[1] // spec.hop].abs().square()
        level = (self.filters.to(wide) @ power).clamp(min=LEAST_POWER).log10()
        return (torch.maximum(level, level.amax((1, 2), keepdim=True) - RANGE) + 4) / 4

    def forward(self, given: Tensor, call: Call, state: None = None) -> tuple[Tensor, None]:
        """Vectors `b t d`; no state, since every place of a sound is there at once."""
        tap, dtype = call.tap(self), self.conv1.weight.dtype
        mel = tap("mel", (self.mel(given) if given.ndim == 2 else given).to(dtype), "b c w")
        x = tap("first", F.gelu(self.conv1(mel)), "b d w")
        x = tap("second", F.gelu(self.conv2(x)).mT, "b t d")
        if self.spec.position is not None:
            x = x + tap("position", self._positions(x).expand_as(x), "b t d")
        return tap("out", x, "b t d"), None

    def _positions(self, x: Tensor) -> Tensor:
        """The vectors `1 t d` of all places."""
        if self.position is not None:
            return self.position.weight[None, : x.shape[1]].to(x.dtype)
        return sinusoid(torch.arange(x.shape[1], device=x.device)[None], self.dim, self.spec.position, x.dtype)

    def flops(self, places: int) -> int:
        """Of a sound of so many places: the mel filters and both convolutions."""
        frames = STRIDE * places
        mel = 2 * frames * self.filters.numel()
        return mel + self.conv1.flops(frames) + self.conv2.flops(places)


def mel_filters(spec: SoundSpec) -> Tensor:
    """Triangles over the spectrum, `bins 1 + window/2`, that touch one another on the mel scale and hold equal areas.

    Slaney's scale (Auditory Toolbox, 1998): 3 mel for 200 Hz up to 1,000 Hz, above it 27 mel for a factor of 6.4.
    """
    top = spec.rate / 2

    def mel(hertz: float) -> float:
        return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)

    marks = torch.linspace(0, mel(top), spec.bins + 2, dtype=torch.float64)
    hertz = torch.where(marks < 15, marks * 200 / 3, 1000 * torch.exp((marks - 15) * math.log(6.4) / 27))
    lines = torch.linspace(0, top, 1 + spec.window // 2, dtype=torch.float64)
    low, middle, high = (hertz[i : i + spec.bins, None] for i in range(3))
    rising, falling = (lines - low) / (middle - low), (high - lines) / (high - middle)
    return (torch.minimum(rising, falling).clamp(min=0) * 2 / (high - low)).float()
