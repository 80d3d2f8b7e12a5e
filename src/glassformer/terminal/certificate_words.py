"""The words of a certificate in both languages."""

from __future__ import annotations

CERTIFICATE: dict[str, dict[str, str]] = {
    "check_title": {
        "en": "Certificate of {model}: {verdict}   {dtype} on {device}",
        "ko": "{model} 검증서: {verdict}   {dtype}, {device}",
    },
    "check_quick": {"en": "only the quick half (--quick)", "ko": "빠른 검사만 실행 (--quick)"},
    "check_passed": {"en": "passed", "ko": "통과"},
    "check_failed": {"en": "FAILED", "ko": "실패"},
    "check_without": {"en": "n/a", "ko": "해당 없음"},
    "check_measured": {"en": "measured", "ko": "측정값"},
    "check_bound": {"en": "at most", "ko": "허용 한도"},
    "check_blocks": {"en": "the largest by block: {blocks}", "ko": "블록별 최댓값: {blocks}"},
    "check_ties": {
        "en": "{ties} where both logits are equal up to rounding",
        "ko": "두 로짓이 반올림 오차 안에서 같은 곳 {ties}개",
    },
    "check_units": {
        "en": "1e-05: the largest difference as a share of the largest number; 2×: an error as a multiple of that of "
        "the plain run in the same number format; 0 / 60: how many of them are wrong.",
        "ko": "1e-05: 가장 큰 수에 대한 최대 차이의 비율. 2×: 같은 수 형식의 기본 실행이 내는 오차에 대한 배수. "
        "0 / 60: 60개 가운데 틀린 것의 수.",
    },
    "check_again": {
        "en": "Measured before, for the same weights, versions and device; --again measures anew.",
        "ko": "같은 가중치, 버전, 장치로 앞서 측정한 결과입니다. 다시 측정하려면 --again을 사용하십시오.",
    },
    "check_kept": {"en": "Kept in:", "ko": "저장 위치:"},
    "check_unkept": {
        "en": "It could not be kept: no folder can be written to. Set GLASSFORMER_HOME to one.",
        "ko": "쓸 수 있는 폴더가 없어 저장하지 못했습니다. 환경 변수 GLASSFORMER_HOME에 폴더를 지정하십시오.",
    },
    "certified": {
        "en": "Its certificate passed, the quick half; all of it: glassformer check {name}",
        "ko": "빠른 검증을 통과했습니다. 전체 검증서: glassformer check {name}",
    },
    "certificate_passed": {"en": " certificate passed", "ko": " 검증 통과"},
    "certificate_failed": {"en": " certificate FAILED", "ko": " 검증 실패"},
    # what each line says
    "check_finite": {"en": "every weight is a finite number", "ko": "모든 가중치가 유한한 수"},
    "check_exact": {"en": "weights, bit by bit as in the file", "ko": "가중치가 파일과 비트까지 일치"},
    "check_names": {"en": "every value's name leads to its part", "ko": "모든 값의 이름이 제 부분을 가리킴"},
    "check_round_trip": {"en": "texts come back from their tokens", "ko": "토큰에서 텍스트가 그대로 복원됨"},
    "check_offsets": {"en": "every token's place in its text", "ko": "텍스트 안에서 각 토큰의 위치"},
    "check_glass": {"en": "fast path, against the one traced", "ko": "빠른 경로와 트레이스 경로"},
    "check_future": {"en": "no later token changes an earlier one", "ko": "뒤 토큰이 앞 토큰을 바꾸지 않음"},
    "check_batch": {"en": "a batch, against each row alone", "ko": "배치와 한 행씩의 실행"},
    "check_padding": {"en": "padded left, against padded right", "ko": "왼쪽 패딩과 오른쪽 패딩"},
    "check_chunks": {"en": "read in chunks, against at once", "ko": "나누어 읽기와 한 번에 읽기"},
    "check_cache": {"en": "with the cache, against without", "ko": "캐시 사용과 미사용"},
    "check_greedy": {"en": "64 tokens written, cache or not", "ko": "캐시 사용·미사용으로 쓴 64토큰"},
    "check_same": {"en": "for the same reason", "ko": "위와 같은 이유"},
    "check_original_ids": {"en": "ids and places, against transformers", "ko": "토큰 번호와 위치, transformers와 비교"},
    "check_original_fp32": {"en": "fp32, against transformers", "ko": "fp32, transformers와 비교"},
    "check_original_bf16": {"en": "bf16 error, beside transformers'", "ko": "bf16 오차, transformers와 비교"},
    "check_original_text": {"en": "64 tokens, against transformers", "ko": "쓴 64토큰, transformers와 비교"},
}
