"""One word with two senses: how clearly its vectors part by sense, layer by layer, beside chance.

    python -m glassformer.bench.senses [--model smollm2-135m] [--only bank 별 …]

Of each word twelve contexts a sense, whose words before it say which one is meant, so that a model that reads from left
to right can know; the word itself is the same tokens in all of them. Behind every block: the silhouette of the senses
among the word's vectors (explain.contexts), mean and deviation of the silhouettes of the same senses handed out at
random, and how many of these and of it are as large (the p of a permutation test). At "embed.token", where all are the
same vector, every silhouette is 0. Beside it the maximum explainable variance of the word's vectors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..explain.contexts import explainable, grouped, shuffled, standing, unit
from ..explain.kinds.journey import called, stations, way

DRAWS = 999
COLUMNS = ("after", "silhouette", "chance", "deviation", "p", "MEV")
# word -> sense -> contexts
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "bank": {
        "money": (
            "She paid her salary into the bank on Friday",
            "He asked for a loan at the bank in town",
            "The robbers stole the cash from the bank at noon",
            "My account is with a bank in London",
            "The interest rate was raised by the bank last month",
            "They deposited the cheque at the bank near the station",
            "The mortgage was approved by the bank yesterday",
            "I took out my savings from the bank to buy a car",
            "The clerk counted the notes at the bank counter",
            "Investors lost millions when the bank failed",
            "He works as a manager at a bank in the city",
            "Her credit card was blocked by the bank this morning",
        ),
        "river": (
            "We sat down by the river on the bank in the sun",
            "The boat drifted slowly to the bank and stopped",
            "Willows grow along the water on the bank there",
            "The flood washed away a part of the bank last night",
            "He pulled his canoe up on the bank to dry",
            "Ducks were sleeping in the reeds on the bank below",
            "The fisherman stood in mud on the bank all day",
            "She swam across the stream to the bank opposite",
            "The otter slid into the water from the bank nearby",
            "Along the creek the grass on the bank was wet",
            "The current carried the log to the bank downstream",
            "They built a wooden pier on the bank of the lake",
        ),
    },
    "별": {
        "sky": (
            "밤하늘에 뜬 별 하나를 보았다",
            "망원경으로 먼 별 하나를 찾았다",
            "우주에는 수많은 별 들이 있다",
            "어두운 밤에 반짝이는 별 하나",
            "태양은 스스로 빛나는 별 가운데 하나이다",
            "천문학자가 새로운 별 하나를 발견했다",
            "은하수를 이루는 별 무리가 보인다",
            "하늘 높이 빛나는 별 아래를 걸었다",
            "달 옆에서 빛나는 별 하나가 금성이다",
            "북극을 가리키는 별 하나가 떴다",
            "지구에서 가장 가까운 별 은 태양이다",
            "새벽 하늘에 남은 별 몇 개가 보인다",
        ),
        "by": (
            "자료를 나이 별 로 나누었다",
            "책을 종류 별 로 정리했다",
            "인구를 지역 별 로 조사했다",
            "학생들을 학년 별 로 모았다",
            "매출을 월 별 로 비교했다",
            "비용을 항목 별 로 적었다",
            "투표율을 도시 별 로 발표했다",
            "성적을 과목 별 로 매겼다",
            "날씨를 시간 별 로 알려 준다",
            "예산을 부서 별 로 나누었다",
            "경기를 나라 별 로 치렀다",
            "상품을 가격 별 로 늘어놓았다",
        ),
    },
    "배": {
        "ship": (
            "항구에서 출발한 배 한 척이 보인다",
            "바다를 건너는 배 한 척을 탔다",
            "어부가 바다로 나가는 배 위에 섰다",
            "선장은 폭풍 속에서 배 를 몰았다",
            "강을 건너려고 작은 배 를 저었다",
            "섬으로 가는 배 가 하루에 두 번 있다",
            "부두에 묶인 배 가 흔들린다",
            "파도에 뒤집힌 배 를 구했다",
            "노를 저어 가는 배 가 느리다",
            "짐을 가득 실은 배 가 떠났다",
            "돛을 단 배 가 바람을 받는다",
            "등대 불빛을 보고 배 가 들어왔다",
        ),
        "pear": (
            "과일 가게에서 사과와 배 를 샀다",
            "가을에 딴 달콤한 배 를 먹었다",
            "나무에 열린 배 가 노랗게 익었다",
            "과수원에서 키운 배 가 달다",
            "껍질을 깎은 배 한 조각을 먹었다",
            "물이 많고 시원한 배 를 좋아한다",
            "추석에 먹을 사과와 배 를 골랐다",
            "냉장고에서 꺼낸 배 가 차갑다",
            "갈비 양념에 갈아 넣은 배 가 들어간다",
            "감과 귤과 배 를 접시에 담았다",
            "씨를 뺀 배 를 얇게 썰었다",
            "농부가 상자에 담은 배 를 팔았다",
        ),
    },
}


def vectors_of(model: Any, word: str, senses: dict[str, Sequence[str]]) -> tuple[list[str], Tensor, Tensor, bool]:
    """The stations of the word's vectors, these `l n d`, the number `n` of the sense of each, and whether the word is
    the same tokens in all contexts."""
    parts, numbers, ids, names = list[Tensor](), list[int](), set[tuple[int, ...]](), list[str]()
    for k, contexts in enumerate(senses.values()):
        for text in contexts:
            run = model.trace(text)
            [spot] = standing(run, word)
            names = stations(run, run.stacks[-1])
            parts, numbers = [*parts, way(run, names, [spot])], [*numbers, k]
            ids.add(tuple(run.stacks[-1].tokens[0][spot].tolist()))
    return names, torch.cat(parts, 1), torch.tensor(numbers), len(ids) == 1


def measured(vectors: Tensor, groups: Tensor, draws: int = DRAWS, seed: int = 0) -> list[tuple[float, ...]]:
    """Behind every station the silhouette, mean and deviation of those of random senses, p, and the maximum explainable
    variance, of vectors `l n d` in groups `n`."""
    rows = []
    for one, share in zip(unit(vectors), explainable(vectors).tolist(), strict=True):
        value, chance = grouped(one, groups), shuffled(one, groups, draws, seed)
        p = (1 + (chance >= value - 1e-12).sum().item()) / (1 + draws)
        rows.append((value, chance.mean().item(), chance.std().item(), p, share))
    return rows


def main(given: Sequence[str] | None = None) -> int:
    """Print a table for each word; 0."""
    import glassformer as gf

    parser = argparse.ArgumentParser(prog="python -m glassformer.bench.senses", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--only", nargs="+", choices=list(WORDS), default=list(WORDS))
    asked = parser.parse_args(given)
    model = gf.load(asked.model)
    for word in asked.only:
        names, vectors, groups, same = vectors_of(model, word, WORDS[word])
        print(f"{asked.model}  {word}: {', '.join(WORDS[word])}  n={len(groups)}  same tokens: {same}")
        print("  ".join(f"{one:>11}" for one in COLUMNS))
        for name, row in zip(names, measured(vectors, groups), strict=True):
            print("  ".join([f"{called(name):>11}", *(f"{value:11.4f}" for value in row)]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
