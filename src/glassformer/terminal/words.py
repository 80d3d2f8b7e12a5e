"""The words of the terminal views in both languages."""

from __future__ import annotations

WORDS: dict[str, dict[str, str]] = {
    "title": {"en": "How the context of {token} is computed", "ko": "{token}의 문맥 벡터가 계산되는 과정"},
    "where": {
        "en": "model {model} · layer {layer} of 0–{last} · head {head} of 0–{last_head} · position {position}",
        "ko": "모델 {model} · 층 {layer} (0–{last}) · 헤드 {head} (0–{last_head}) · 위치 {position}",
    },
    "chosen": {
        "en": "You chose this head. It moves the token's context by {move:.2f} of its length.",
        "ko": "직접 고른 헤드입니다. 이 토큰의 문맥을 벡터 길이의 {move:.2f}배만큼 옮깁니다.",
    },
    "furthest": {
        "en": "The head in which this token's context moves most: by {move:.2f} of its length.",
        "ko": "이 토큰의 문맥이 가장 크게 움직이는 헤드입니다: 벡터 길이의 {move:.2f}배.",
    },
    "vectors": {"en": "1  One vector, three questions", "ko": "1  한 벡터에서 나온 세 벡터"},
    "steps": {"en": "2  Four steps", "ko": "2  네 단계"},
    "rest": {"en": "3  The rest of the block", "ko": "3  블록의 나머지"},
    "next": {"en": "4  The next token after {token}", "ko": "4  {token} 다음에 올 토큰"},
    "token": {"en": "token", "ko": "토큰"},
    "weight": {"en": "softmax", "ko": "softmax"},
    "share": {"en": "α·|v|", "ko": "α·|v|"},
    "shift": {"en": "+ shift", "ko": "+ 보정"},
    "score": {"en": "score", "ko": "점수"},
    "sum": {"en": "sum", "ko": "합"},
    "sink": {"en": "sink", "ko": "싱크"},
    "word": {"en": "{n} tokens", "ko": "토큰 {n}개"},
    "start": {"en": "⟨start⟩", "ko": "⟨시작⟩"},
    "future": {"en": "masked: comes later", "ko": "가려짐: 뒤에 오는 토큰"},
    "padding": {"en": "masked: padding", "ko": "가려짐: 채움 자리"},
    "other document": {"en": "masked: other document", "ko": "가려짐: 다른 문서"},
    "outside the window": {"en": "masked: outside the window", "ko": "가려짐: 창 밖"},
    "length": {"en": "length", "ko": "길이"},
    "z": {
        "en": "z is {away:.3f} away from {token}'s own value v: no longer a static vector.",
        "ko": "z는 {token} 자신의 값 v에서 {away:.3f}만큼 떨어져 있습니다. 이제 고정된 벡터가 아닙니다.",
    },
    "word_rule": {
        "en": "A word of several tokens: score = logsumexp, weight = sum, value = weighted mean; its last token asks.",
        "ko": "여러 토큰으로 된 어절: 점수 = logsumexp, 가중치 = 합, 값 = 가중평균. 질문은 마지막 토큰이 합니다.",
    },
    "ffn": {
        "en": "FFN {widths}: {active:.0%} of the hidden units are above zero",
        "ko": "FFN {widths}: 은닉 유닛의 {active:.0%}가 0보다 큽니다",
    },
    "journey": {
        "en": "distance from the fixed vector after each block, |x−x₀|/|x₀|: {values}",
        "ko": "블록마다 고정 벡터에서 멀어진 거리, |x−x₀|/|x₀|: {values}",
    },
    "difference": {
        "en": "Fast path and written-out mathematics differ by at most {difference:.1e} (relative, {dtype}).",
        "ko": "빠른 경로와 풀어 쓴 계산의 차이는 최대 {difference:.1e}입니다 (상대값, {dtype}).",
    },
    "caution": {
        "en": "An attention weight says how much was read, not why the output came out so.",
        "ko": "어텐션 가중치는 얼마나 읽었는지를 말할 뿐, 출력의 이유 전체는 아닙니다.",
    },
    "heads": {
        "en": "How far each head moves this token, |(z−v)W_O|/|x|",
        "ko": "헤드마다 이 토큰을 옮기는 거리, |(z−v)W_O|/|x|",
    },
    "layer": {"en": "layer", "ko": "층"},
    "head": {"en": "head", "ko": "헤드"},
    "looks": {"en": "what each head of layer {layer} reads most", "ko": "층 {layer}의 헤드마다 가장 많이 읽는 토큰"},
    "repeated": {
        "en": "{token} occurs {n} times, at places {places}; shown is {shown}. Choose with --token {example}.",
        "ko": "{token}: {n}번 나옵니다(자리 {places}). 지금 보이는 것은 {shown}번이며 --token {example}처럼 고릅니다.",
    },
}


def say(word: str, lang: str, **values: object) -> str:
    """The text `word` in a language, with values filled in."""
    return WORDS[word][lang].format(**values)
