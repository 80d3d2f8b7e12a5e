"""Put the Korean grapheme-to-phoneme model of hama (PyPI, Apache-2.0) into the package, as a model like any other.

    pip download hama==1.3.13 --no-deps && unzip hama-1.3.13-py3-none-any.whl
    python runs/shipped/korean_g2p.py --assets hama/assets --into src/glassformer/shipped/korean-g2p

The weights are stored in half precision, as in the original; where two linear maps became one, the product is rounded.
"""

import argparse
from pathlib import Path

from glassformer.api import load

ABOUT = {
    "summary": "Korean grapheme-to-phoneme, 2.4 million parameters: GRUs with an additive alignment; writes IPA",
    "summary_ko": "한국어 발음 변환, 매개변수 약 236만 개: 덧셈 정렬 어텐션이 있는 GRU, IPA로 씁니다",
    "cannot": "It reads one word at a time, so that sounds which change across a space stay as they are, and knows no "
    "meaning: of words that are written alike it gives one pronunciation. Numbers and signs are not read. "
    "For letters that stand alone (ㅋㅋㅋ, ㅏ) and Chinese characters the original "
    "writes sounds of other languages, and so does this.",
    "cannot_ko": "낱말을 하나씩 읽으므로 띄어쓰기를 넘어 일어나는 소리의 변화는 반영하지 못합니다. 뜻을 알지 못하므로 "
    "철자가 같은 낱말에는 한 가지 발음만 내놓으며, 숫자와 기호는 읽지 못합니다. "
    "홀로 쓴 자모(ㅋㅋㅋ, ㅏ)와 한자는 원본이 다른 언어의 소리로 쓰며, 이 모델도 그렇습니다.",
    "licence": "Apache-2.0; credits in NOTICE",
    "licence_ko": "Apache-2.0, 출처는 NOTICE에 있습니다",
    "data": [
        {
            "name": "hama 1.3.13",
            "licence": "Apache-2.0",
            "credit": "Seongmin Park, https://github.com/hamanlp/hama; what it was trained on is not published",
            "credit_ko": "Seongmin Park, https://github.com/hamanlp/hama. 원본을 무엇으로 학습했는지는 "
            "공개되지 않았습니다",
        }
    ],
    "command": "python runs/shipped/korean_g2p.py --assets hama/assets --into src/glassformer/shipped/korean-g2p",
    "made": "Converted from the two ONNX files of the original, whose output it reproduces; not trained here.",
    "made_ko": "원본의 ONNX 파일 두 개를 변환한 것으로 원본과 같은 출력을 냅니다. 여기에서 학습하지 않았습니다.",
}


def main() -> None:
    """Read the original's files, write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--assets", type=Path, required=True, help="the folder with encoder.onnx")
    parser.add_argument("--into", type=Path, required=True, help="a new folder")
    given = parser.parse_args()
    model = load(given.assets)
    model.about = ABOUT
    model.save(given.into, dtype="float16")


if __name__ == "__main__":
    main()
