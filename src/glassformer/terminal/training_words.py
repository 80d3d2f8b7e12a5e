"""The words of a training in both languages, a part of `words`."""

from __future__ import annotations

TRAINING: dict[str, dict[str, str]] = {
    "reading": {"en": "Reading {data} …", "ko": "텍스트를 읽습니다: {data} …"},
    "reading_images": {"en": "Reading {data} …", "ko": "이미지를 읽습니다: {data} …"},
    "training_on": {
        "en": "Training on {data}, {steps:,} steps, into {folder}. Ctrl-C saves and stops.",
        "ko": "학습 텍스트: {data} · {steps:,}단계 · 결과 폴더: {folder} (Ctrl-C: 저장하고 멈춤)",
    },
    "training_on_images": {
        "en": "Training on {data}, {steps:,} steps, into {folder}. Ctrl-C saves and stops.",
        "ko": "학습 이미지: {data} · {steps:,}단계 · 결과 폴더: {folder} (Ctrl-C: 저장하고 멈춤)",
    },
    "tokenizer": {
        "en": "Learning a {method} tokenizer from the text …",
        "ko": "텍스트에서 {method} 토크나이저를 학습합니다 …",
    },
    "encoding": {
        "en": "Turning {size} of text into tokens …",
        "ko": "텍스트를 토큰으로 바꿉니다: {size} …",
    },
    "encode": {"en": "tokens", "ko": "토큰"},
    "resume": {
        "en": "Going on from step {step:,} of {steps:,}.",
        "ko": "{step:,}단계에서 이어서 학습합니다(전체 {steps:,}단계).",
    },
    "complete": {
        "en": "This run is complete at step {step:,}. For more, give --set steps=N; --fresh starts anew.",
        "ko": "{step:,}단계까지 이미 마친 학습입니다. "
        "더 학습하려면 --set steps=N, 새로 시작하려면 --fresh를 지정하십시오.",
    },
    "overfitted": {
        "en": "The validation loss was lowest at step {step:,} ({best:.3f}); after that the text was learnt by heart. "
        "Give more text, fewer steps (--set steps={step}) or dropout (--set model.blocks.*.dropout=0.1), with --fresh "
        "or another --out.",
        "ko": "검증 손실은 {step:,}단계({best:.3f})에서 가장 낮았고 그 뒤로는 텍스트를 외웠습니다(과적합). "
        "텍스트를 늘리거나 단계를 줄이거나(--set steps={step}) 드롭아웃을 쓰십시오(--set model.blocks.*.dropout=0.1). "
        "이때 --fresh나 다른 --out을 함께 지정하십시오.",
    },
    "training": {"en": "training", "ko": "학습"},
    "numbers": {
        "en": "loss {loss:.3f} · {speed:,.0f} tokens/s · {left} left",
        "ko": "손실 {loss:.3f} · 초당 토큰 {speed:,.0f}개 · 남은 시간 {left}",
    },
    "numbers_images": {
        "en": "loss {loss:.3f} · {speed:,.0f} images/s · {left} left",
        "ko": "손실 {loss:.3f} · 초당 이미지 {speed:,.0f}장 · 남은 시간 {left}",
    },
    "validation_images": {
        "en": "step {step:,}: {error:.2%} of the held-out images wrong, loss {validation:.4f}",
        "ko": "{step:,}단계: 검증 이미지 오류율 {error:.2%}, 손실 {validation:.4f}",
    },
    "validation": {
        "en": "step {step:,}: validation loss {validation:.4f} ({bits:.3f} bits per byte)",
        "ko": "{step:,}단계: 검증 손실 {validation:.4f} (바이트당 {bits:.3f}비트)",
    },
    "sample": {"en": "sample", "ko": "생성 예"},
    "done": {
        "en": "{steps:,} steps in {seconds}, loss {loss:.3f}",
        "ko": "{steps:,}단계를 {seconds} 만에 마쳤습니다. 손실 {loss:.3f}",
    },
    "written": {
        "en": "The model is in {folder}. Look inside: glassformer trace TEXT -m {folder}",
        "ko": "모델을 저장한 폴더: {folder}. 모델 안을 보려면: glassformer trace 문장 -m {folder}",
    },
    "written_images": {
        "en": "The model is in {folder}. Show it an image: glassformer classify IMAGE -m {folder}",
        "ko": "모델을 저장한 폴더: {folder}. 이미지를 분류하려면: glassformer classify 이미지 -m {folder}",
    },
    # several runs
    "run": {"en": "{name}: run {number} of {count}", "ko": "{name}: 학습 {count}개 중 {number}번째"},
    "runs": {"en": "Runs: {count}", "ko": "학습 {count}개의 결과"},
    "runs_parameters": {"en": "parameters", "ko": "매개변수"},
    "runs_bytes": {"en": "weights", "ko": "가중치"},
    "runs_token": {"en": "tokens/s", "ko": "초당 토큰"},
    "runs_image": {"en": "images/s", "ko": "초당 이미지"},
    "runs_time": {"en": "time", "ko": "시간"},
    "runs_validation": {"en": "validation loss", "ko": "검증 손실"},
    "runs_bits": {"en": "bits per byte", "ko": "바이트당 비트"},
    "runs_error": {"en": "errors", "ko": "오류율"},
}
