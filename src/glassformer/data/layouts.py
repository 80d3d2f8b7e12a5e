"""Which ids and special tokens the classes of published models give to the pieces of a SentencePiece model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .sentencepiece import Pieces

_MBART = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_MBART50 = (
    f"{_MBART} af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE "
    "sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


@dataclass(frozen=True)
class Layout:
    """One class of tokenizer.

    names: its special tokens by role. first: special pieces that take the place of the file's own; behind them come the
    file's pieces but for the first `skip`, then `last`; sentinels: T5's <extra_id_99> to <extra_id_0>, so many that the
    settings may change it. before, behind: what is put around a text: "bos", "eos", or "source", the source language's
    code. optional: that is decided by add_bos_token and add_eos_token, which are True where they are named here.
    """

    names: dict[str, str]
    first: tuple[str, ...] = ()
    skip: int = 0
    last: tuple[str, ...] = ()
    sentinels: int = 0
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    optional: tuple[str, ...] = field(default=())

    def arranged(self, pieces: Pieces, settings: Mapping[str, Any]) -> Pieces:
        """The pieces under this class's ids. settings: those of tokenizer_config.json."""
        count = int(settings.get("extra_ids", self.sentinels)) if self.sentinels else 0
        held = {text for text, *_ in pieces.pieces}
        marks = [one for one in (f"<extra_id_{i}>" for i in range(count - 1, -1, -1)) if one not in held]
        return pieces.arranged(self.first, self.skip, [*self.last, *marks])


def _fairseq(*codes: str, before: tuple[str, ...], behind: tuple[str, ...]) -> Layout:
    """The ids of models trained with fairseq, which has four special tokens of its own before the pieces."""
    first = ("<s>", "<pad>", "</s>", "<unk>")
    return Layout(_FAIRSEQ, first, 3, (*codes, "<mask>"), before=before, behind=behind)


_T5 = Layout({"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}, sentinels=100, behind=("eos",))
_GEMMA = {"unk": "<unk>", "bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}
LAYOUTS = {
    "Llama": Layout({"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, optional=("bos",)),
    "Gemma": Layout(_GEMMA, optional=("bos",)),
    "T5": _T5,
    "MT5": _T5,
    "XLMRoberta": _fairseq(before=("bos",), behind=("eos",)),
    "MBart": _fairseq(*_MBART.split(), before=(), behind=("eos", "source")),
    "MBart50": _fairseq(*_MBART50.split(), before=("source",), behind=("eos",)),
}
