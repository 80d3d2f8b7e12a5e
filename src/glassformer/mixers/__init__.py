"""Token mixers: what mixes information between tokens. One contract (`base`), one file a family."""

from .alignment import Alignment, AlignmentSpec
from .attention import Attention, AttentionSpec
from .base import TokenMixer
from .conv import Convolution, ConvSpec, TcnLevel, TcnSpec
from .delta import DeltaRule, DeltaSpec
from .dense import MixingMlp, MixingSpec, WindowMlp, WindowSpec
from .fixed import Bag, BagSpec, Fourier, FourierSpec
from .linear import LinearAttention, LinearSpec
from .mamba import Mamba, MambaSpec
from .mamba2 import Mamba2, Mamba2Spec
from .memory import MemoryCaching, MemoryCachingSpec
from .recurrent import GruSpec, LstmSpec, Recurrent, RnnSpec
from .rmt import Rmt, RmtSpec
from .s4 import S4D, S4DSpec

# Adding a family: its file, and one line in each of these two.
MIXERS: dict[type, type[TokenMixer]] = {
    AttentionSpec: Attention,
    ConvSpec: Convolution,
    TcnSpec: TcnLevel,
    WindowSpec: WindowMlp,
    MixingSpec: MixingMlp,
    FourierSpec: Fourier,
    BagSpec: Bag,
    AlignmentSpec: Alignment,
    RnnSpec: Recurrent,
    GruSpec: Recurrent,
    LstmSpec: Recurrent,
    LinearSpec: LinearAttention,
    DeltaSpec: DeltaRule,
    MemoryCachingSpec: MemoryCaching,
    RmtSpec: Rmt,
    S4DSpec: S4D,
    MambaSpec: Mamba,
    Mamba2Spec: Mamba2,
}
MixerSpec = (
    (AttentionSpec | AlignmentSpec)
    | (ConvSpec | TcnSpec)
    | (WindowSpec | MixingSpec)
    | (FourierSpec | BagSpec)
    | (RnnSpec | GruSpec | LstmSpec)
    | (LinearSpec | DeltaSpec)
    | (MemoryCachingSpec | RmtSpec)
    | (S4DSpec | MambaSpec | Mamba2Spec)
)
