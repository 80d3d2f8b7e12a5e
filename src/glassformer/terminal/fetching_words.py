"""The words of fetching models, in both languages."""

FETCHING: dict[str, dict[str, str]] = {
    "fetch": {"en": "Fetching {what}", "ko": "받는 중: {what}"},
    "check": {"en": "Checking the files", "ko": "파일 확인 중"},
    "convert": {"en": "Converting the weights", "ko": "가중치 변환 중"},
    "pulled": {
        "en": "{name} lies in {folder}. In Python: gf.load({read}); here: -m {name}",
        "ko": "{name} 모델의 폴더: {folder}. 파이썬에서는 gf.load({read}), 여기에서는 -m {name}",
    },
    "stopped_pull": {
        "en": "Interrupted. What was fetched whole is kept; the same command goes on from there.",
        "ko": "중단되었습니다. 다 받은 파일은 남아 있으므로, 같은 명령을 다시 내리면 이어서 받습니다.",
    },
    "pulled_before": {"en": "(fetched)", "ko": "(받음)"},
    "can_be_pulled": {
        "en": "Published models that glassformer pull NAME fetches, and others of the Hugging Face hub by their id, "
        "ORGANISATION/MODEL:",
        "ko": "glassformer pull 이름으로 받을 수 있는 공개 모델. Hugging Face 허브의 다른 모델은 조직/모델 형식의 ID로 "
        "받습니다.",
    },
}
