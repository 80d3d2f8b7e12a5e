"""Put a trained classifier of handwritten digits into the package, with its card and its errors on the test images.

    glassformer train runs/lenet.toml --out out/lenet
    python runs/shipped/images.py --run out/lenet --into src/glassformer/shipped/lenet

Weights are stored in half precision; the errors are those of the stored weights.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from card import stored

from glassformer.checkpoint import read_about
from glassformer.classifier import Classifier
from glassformer.files import write_json

KINDS = {
    "lenet": ("LeNet-5 of convolutions and subsampling", "합성곱과 서브샘플링으로 된 LeNet-5"),
    "vit": ("a vision transformer of {layers} layers over patches", "패치를 읽는 비전 트랜스포머, {layers}층"),
    "mlp-image": ("an MLP over all pixels", "모든 픽셀을 한 줄로 읽는 MLP"),
}
SUMMARY = {
    "en": "Handwritten digits, {thousands:,.0f} thousand parameters: {kind}",
    "ko": "손글씨 숫자, 매개변수 약 {myriads:.1f}만 개: {kind}",
}
CANNOT = {
    "en": "It knows the digits 0 to 9, white on black and as large as in MNIST, and puts every other image into one of "
    "these classes too.",
    "ko": "MNIST처럼 검은 바탕에 흰색으로 쓴 숫자 0~9만 압니다. 다른 이미지도 모두 이 가운데 하나로 분류합니다.",
}
DATA = {
    "name": "mnist",
    "licence": "CC BY-SA 3.0",
    "credit": "Yann LeCun, Corinna Cortes; from NIST's databases",
    "credit_ko": "Yann LeCun, Corinna Cortes. 원자료는 NIST의 데이터베이스입니다",
}


def card(name: str, model: Classifier, made: dict[str, Any], error: float) -> dict[str, Any]:
    """What about.json of a classifier says. made: the run's own; error: the share of wrong test images."""
    count = sum(p.numel() for p in model.model.parameters())
    values = {"thousands": count / 1e3, "myriads": count / 1e4}
    kinds = [kind.format(layers=len(model.spec.blocks)) for kind in KINDS[name]]
    keep = ("made_by", "step", "tokens", "seconds", "training_images")
    return {
        "summary": SUMMARY["en"].format(kind=kinds[0], **values),
        "summary_ko": SUMMARY["ko"].format(kind=kinds[1], **values),
        "cannot": CANNOT["en"],
        "cannot_ko": CANNOT["ko"],
        "parameters": count,
        "licence": "CC BY-SA 4.0; credits in NOTICE",
        "licence_ko": "CC BY-SA 4.0, 출처는 NOTICE에 있습니다",
        "data": [DATA],
        "command": f"glassformer train runs/{name}.toml && python runs/shipped/images.py --run out/{name}",
        "test_error": error,
        "training": {key: made[key] for key in keep},
        "run": {"view": made["run"]["view"]},  # how `evaluate` and `classify` are to change an image
    }


def main() -> None:
    """Read the command line; store, score and describe the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="a run of runs/lenet.toml, vit.toml or mlp-image.toml")
    parser.add_argument("--into", type=Path, help="left out: the package's folder of that name")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GLASSFORMER_DATA", ".")) / "mnist/mnist.npz")
    given = parser.parse_args()
    into = given.into or Path("src/glassformer/shipped") / given.run.name
    model, made = stored(given.run, into), read_about(given.run)
    model.about = made
    found = card(into.name, model, made, model.evaluate(given.data).error)
    write_json(into / "about.json", found)
    size = sum(path.stat().st_size for path in into.iterdir())
    print(f"{into.name}: {found['test_error']:.2%} wrong, {size / 1e6:.2f} MB in {into}")


if __name__ == "__main__":
    main()
