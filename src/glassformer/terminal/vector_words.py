"""The words of `glassformer embed`."""

from __future__ import annotations

VECTORS: dict[str, dict[str, str]] = {
    "embedded": {
        "en": "model {model} · texts: {count} · vectors of {width} numbers, the first of which are shown",
        "ko": "모델 {model} · 텍스트 {count}개 · 벡터마다 수 {width}개(앞의 몇 개만 표시)",
    },
    "tokens_of": {"en": "{count} tokens", "ko": "토큰 {count}개"},
    "similar": {
        "en": "How alike the texts are (the cosine of their vectors)",
        "ko": "텍스트 사이의 유사도(두 벡터의 코사인)",
    },
    "cut": {
        "en": "{count} of {of} texts are longer than the {longest} tokens that this model reads; their ends were cut "
        "off (numbers {which}).",
        "ko": "모델이 읽는 토큰 {longest}개보다 긴 텍스트가 {of}개 가운데 {count}개 있어 끝을 잘랐습니다(번호 "
        "{which}).",
    },
    "vectors_saved": {
        "en": "The vectors, {count} × {width}, are in {path}; read them with numpy.load({read}).",
        "ko": "벡터({count} × {width})를 저장했습니다: {path} (numpy.load({read})로 읽을 수 있습니다).",
    },
}
