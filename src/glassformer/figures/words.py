"""What the figures say, in both languages."""

from __future__ import annotations

WORDS: dict[str, dict[str, str]] = {
    "influence": {
        "en": "Influence: which token moves which",
        "ko": "영향: 어느 토큰이 어느 토큰을 움직이는가",
    },
    "weights": {
        "en": "Weights: which token is summed up by which",
        "ko": "가중치: 어느 토큰의 값이 어느 토큰에 더해지는가",
    },
    "⟨start⟩": {"en": "⟨start⟩", "ko": "⟨시작⟩"},
    "row": {"en": "output token", "ko": "출력 토큰"},
    "column": {"en": "input token", "ko": "입력 토큰"},
    "exact": {"en": "exact", "ko": "정확한 값"},
    "estimate": {
        "en": "estimated, {directions} directions; error ≤ {error:.1%} of the largest",
        "ko": "방향 {directions}개로 추정, 표준오차는 최댓값의 {error:.1%} 이하",
    },
    "mean": {"en": "{name}, mean of all heads or channels", "ko": "{name}, 모든 헤드 또는 채널의 평균"},
    "head": {"en": "{name}, head {head}", "ko": "{name}, 헤드 {head}"},
    "unseen": {"en": "no way by construction", "ko": "구조상 닿지 않음"},
    "scale_influence": {
        "en": "Share of the row's influence (the same scale in every panel)",
        "ko": "행 전체의 영향 가운데 차지하는 비율(모든 칸에 같은 눈금)",
    },
    "scale_weights": {
        "en": "Share of the row's weights (the same scale in every panel)",
        "ko": "행 전체의 가중치 가운데 차지하는 비율(모든 칸에 같은 눈금)",
    },
    "caption_influence": {
        "en": "A cell is the Frobenius norm of one block dy/dx of the Jacobian: how far the row's vector y, as it "
        "leaves the last layer, moves when the column's own vector x in the embedding table changes a little; shown as "
        "a share of its row. Hatched: the column lies outside what the row can see, whatever the weights and the text. "
        "Colours follow the square root of the share.",
        "ko": "칸의 값은 야코비 행렬의 한 블록 dy/dx의 프로베니우스 노름입니다. 임베딩 표에 있는 열의 벡터 x가 조금 "
        "바뀔 때 마지막 층에서 나오는 행의 벡터 y가 얼마나 움직이는지를 행의 합에 대한 비율로 나타냅니다. 빗금은 "
        "가중치나 텍스트와 상관없이 행이 볼 수 없는 열입니다. 색은 비율의 제곱근을 따릅니다.",
    },
    "caption_weights": {
        "en": "A cell is |w|: the weight with which the column's value enters the row's sum in one layer (attention's "
        "pattern, or the effective weights of a layer whose past is a sum); shown as a share of its row. Hatched: the "
        "column lies outside what the row can see. Colours follow the square root of the share.",
        "ko": "칸의 값은 |w|입니다. 한 층의 합에서 열의 값이 행에 더해지는 가중치(어텐션의 가중치, 또는 과거를 합으로 "
        "간직하는 층의 유효 가중치)를 행의 합에 대한 비율로 나타냅니다. 빗금은 행이 볼 수 없는 열입니다. 색은 비율의 "
        "제곱근을 따릅니다.",
    },
}


def say(word: str, lang: str, **values: object) -> str:
    """The text `word` in a language, with values filled in."""
    return WORDS[word][lang].format(**values)
