"""Put the runs of runs/siblings.toml into the package, each with its card.

    python runs/shipped/siblings.py --runs out/siblings --corpus out/shipped

What is said of the text, and the 5-gram and xz beside which the models are scored, are those of the card of `small`:
it learnt from the same text with the same tokenizer. Weights are stored in half precision; the scores are those of the
stored weights.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from card import documents, model_bits, stored

from glassformer.api import Loaded, load
from glassformer.checkpoint import read_about
from glassformer.errors import InputError
from glassformer.files import write_json
from glassformer.sources import SHIPPED

KINDS = {
    "mlp": ("an MLP over the last {reach} tokens", "마지막 토큰 {reach}개를 한 줄로 이어 읽는 MLP"),
    "cnn": (
        "{layers} layers of causal convolutions over the last {reach} tokens",
        "인과 합성곱 {layers}층, 마지막 토큰 {reach}개까지",
    ),
    "lstm": ("{layers} layers of LSTM", "LSTM {layers}층"),
    "transformer": ("{layers} layers of attention", "어텐션 {layers}층"),
    "ssm": ("{layers} layers of Mamba-2, a state-space model", "상태 공간 모델 Mamba-2 {layers}층"),
}
SUMMARY = {
    "en": "Korean and English, {millions:.1f} million parameters: {kind}",
    "ko": "한국어와 영어, 매개변수 약 {myriads:,}만 개: {kind}",
}
CANNOT = {
    "en": "It is there to be set beside its siblings (mlp, cnn, lstm, transformer, ssm), which were trained alike: for "
    "{minutes} minutes on one core of a processor. It writes worse than `small`, whose text it was trained on, and can "
    "do nothing that `small` cannot do.",
    "ko": "똑같이 학습한 다른 계열의 모델(mlp, cnn, lstm, transformer, ssm)과 나란히 놓고 비교하기 위한 모델입니다. "
    "프로세서 코어 하나로 {minutes}분 동안 학습했습니다. `small`과 같은 텍스트로 학습했지만 글은 그보다 서툴고, "
    "`small`이 하지 못하는 일은 이 모델도 하지 못합니다.",
}
MADE = {
    "en": "Optimizer and schedule are those of `small`, found for a transformer; they were not tuned for each sibling. "
    "They were chosen by the loss on the held-out text, so the scores on it are a little better than on a text that "
    "chose nothing.",
    "ko": "최적화 방법과 학습률 일정은 트랜스포머인 `small`에서 찾은 값이며, 계열마다 따로 조정하지 않았습니다. "
    "평가용으로 떼어 둔 텍스트의 손실로 고른 값이므로, 점수는 그렇지 않은 텍스트에서보다 조금 좋게 나옵니다.",
}
MOST_BYTES = 3_000_000


def reach(model: Loaded) -> int:
    """How many tokens, the last included, decide what a model of windows and convolutions predicts; 0 for another."""
    back = 0
    for block in model.spec.blocks:
        mixer = block.mixer
        if not hasattr(mixer, "window") and not hasattr(mixer, "width"):
            return 0
        back += (getattr(mixer, "window", None) or mixer.width) * getattr(mixer, "dilation", 1)
        back -= getattr(mixer, "dilation", 1)
    return back + 1


def card(name: str, model: Loaded, made: dict[str, Any], bits: dict[str, float]) -> dict[str, Any]:
    """What about.json of a sibling says. made: the run's own; bits: per byte of the held-out text, by language."""
    small = read_about(SHIPPED / "small")
    count = sum(p.numel() for p in model.model.parameters())
    kinds = [kind.format(layers=len(model.spec.blocks), reach=reach(model)) for kind in KINDS[name]]
    values = {"millions": count / 1e6, "myriads": round(count / 1e4), "minutes": round(made["seconds"] / 60)}
    rows = {one: row | {"model": bits[one]} for one, row in small["bits_per_byte"].items()}
    keep = ("made_by", "step", "tokens", "seconds", "training_tokens")
    return {
        "summary": SUMMARY["en"].format(kind=kinds[0], **values),
        "summary_ko": SUMMARY["ko"].format(kind=kinds[1], **values),
        "cannot": CANNOT["en"].format(**values),
        "cannot_ko": CANNOT["ko"].format(**values),
        "parameters": count,
        "licence": small["licence"],
        "licence_ko": small["licence_ko"],
        "data": small["data"],
        "command": "python runs/shipped/corpus.py && glassformer train runs/siblings.toml && "
        "python runs/shipped/siblings.py",
        "made": MADE["en"],
        "made_ko": MADE["ko"],
        "bits_per_byte": rows,
        "training": {key: made[key] for key in keep},
        "run": made["run"],
    }


def main() -> None:
    """Read the command line; store, score and describe every run that is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("out/siblings"))
    parser.add_argument("--corpus", type=Path, default=Path("out/shipped"))
    parser.add_argument("--into", type=Path, default=SHIPPED)
    given = parser.parse_args()
    texts = documents(given.corpus)
    held = {"ko": texts["ko"], "en": texts["en"], "both": texts["ko"] + texts["en"]}
    sizes = {one: len("".join(found).encode()) for one, found in held.items()}
    small = load("small")
    if sizes != {one: row["bytes"] for one, row in small.about["bits_per_byte"].items()}:
        raise InputError(f"{given.corpus}: this is not the held-out text of the card of small; build it with corpus.py")
    for name in KINDS:
        run, into = given.runs / name, given.into / name
        if not (run / "about.json").is_file():
            print(f"{name}: no run in {run}")
            continue
        model = stored(run, into)
        if model.tokenizer.fingerprint != small.tokenizer.fingerprint:
            raise InputError(f"{run}: its tokenizer is not that of small; train it with runs/siblings.toml")
        bits = {one: model_bits(model, found) for one, found in held.items() if one != "both"}
        bits["both"] = bits["ko"] + bits["en"]
        found = card(name, model, read_about(run), {one: bits[one] / sizes[one] for one in bits})
        write_json(into / "about.json", found)
        size = sum(path.stat().st_size for path in into.iterdir())
        print(
            name, f"{size / 1e6:.2f} MB", json.dumps({one: row["model"] for one, row in found["bits_per_byte"].items()})
        )
        assert size <= MOST_BYTES, f"{into} is larger than {MOST_BYTES} bytes"


if __name__ == "__main__":
    main()
