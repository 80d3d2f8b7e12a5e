"""Put a trained run into the package, with its card: what it was made of, how well it predicts, what it cannot do.

    python runs/shipped/card.py --run out/shipped-run --corpus out/shipped --into src/glassformer/shipped/small

Scores are bits per byte of UTF-8 text on documents that were never trained on, each read behind the end-of-document
token. The same text is scored by a Kneser-Ney 5-gram over the same tokens and by `xz -9`. Weights are stored in half
precision; the scores are those of the stored weights.
"""

import argparse
import json
import math
import shutil
from pathlib import Path

import numpy as np
import torch
from corpus import order

from glassformer.api import Loaded, load
from glassformer.bench.compression import xz_bits_per_byte, xz_bits_per_byte_after
from glassformer.bench.ngram import fit
from glassformer.checkpoint import read_about, save_model
from glassformer.classifier import Classifier
from glassformer.data.tokenizer import Tokenizer
from glassformer.files import write_json
from glassformer.train.evaluate import sliding_loss

CANNOT = {
    "en": "It is small and was trained for {minutes} minutes on a processor of two cores: film reviews, technical "
    "pages, short dialogues, Shakespeare, a little of Wikipedia. It knows no facts, does not answer or "
    "translate, loses the thread after a sentence or two, and writes opinions as reviewers do, also about real films "
    "and people. Its English is weaker than its Korean. It must not be scored on WikiText-2, whose validation and "
    "test parts it was trained on.",
    "ko": "작은 모델이며 코어가 두 개인 프로세서에서 {minutes}분 동안 학습했습니다. 학습 텍스트는 영화 평, "
    "기술 문서, 짧은 대화, 셰익스피어, 약간의 위키백과입니다. 사실을 알지 못하고, 질문에 답하거나 번역하지 못하며, "
    "한두 문장이 지나면 흐름을 잃습니다. 실제 영화와 사람에 대해서도 평을 쓰듯 의견을 지어냅니다. 영어는 한국어보다 "
    "약합니다. WikiText-2의 검증·시험 부분으로 학습했으므로 그것으로 평가하면 안 됩니다.",
}
MADE = {
    "en": "The command makes a model close to this one, not the same one: its run was stopped on the way and continued "
    "with another number of steps. The recipe was chosen by the loss on the held-out text, so the scores on it are a "
    "little better than on a text that chose nothing.",
    "ko": "이 명령으로는 이 모델과 비슷한 모델이 만들어지며, 똑같은 모델이 되지는 않습니다. 이 모델의 학습은 도중에 "
    "멈추었다가 단계 수를 바꾸어 이어서 했습니다. 평가용으로 떼어 둔 텍스트의 손실로 레시피를 골랐으므로, 점수는 "
    "그렇지 않은 텍스트에서보다 조금 좋게 나옵니다.",
}
SUMMARY = {
    "en": "Korean and English, {millions:.1f} million parameters, {layers} layers of {heads} heads",
    "ko": "한국어와 영어, 매개변수 약 {myriads:,}만 개, 층 {layers}개, 층마다 헤드 {heads}개",
}


def documents(corpus: Path) -> dict[str, list[str]]:
    """The documents that were trained on once each, and the held-out ones of each language, as texts."""
    texts = {"train": [path.read_text(encoding="utf-8") for path in sorted((corpus / "train").glob("*.txt"))]}
    texts["train"] = sorted(set(texts["train"]), key=lambda text: order(text, "unique"))
    for language in ("ko", "en"):
        folder = corpus / f"held_{language}"
        texts[language] = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    return texts


def stream(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """All documents as one line of token ids, an end token before each."""
    parts = [part for ids in tokenizer.ids_arrays(texts) for part in ([tokenizer.end_id], ids)]
    return np.concatenate(parts)


def model_bits(loaded: Loaded, texts: list[str]) -> float:
    """Bits that the model needs for the documents, each behind the end token."""
    total = 0.0
    for ids in loaded.tokenizer.ids_arrays(texts):
        line = np.concatenate([[loaded.tokenizer.end_id], ids])
        total += sliding_loss(loaded.model, line, loaded.spec.context, 0.5)
    return total / math.log(2)


def scores(loaded: Loaded, texts: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """Bits per byte of every contestant, for each language and for both together."""
    tokenizer = loaded.tokenizer
    ngram = fit(stream(tokenizer, texts["train"]), tokenizer.vocab_size, 5)
    before = "".join(texts["train"]).encode()
    rows: dict[str, dict[str, float]] = {}
    for name, held in (("ko", texts["ko"]), ("en", texts["en"]), ("both", texts["ko"] + texts["en"])):
        data = "".join(held).encode()
        line = stream(tokenizer, held)
        bits = ngram.token_bits(line)
        rows[name] = {
            "bytes": len(data),
            "model": model_bits(loaded, held) / len(data),
            "kneser_ney_5": float(bits[line != tokenizer.end_id].sum()) / len(data),
            "xz_9": xz_bits_per_byte(data),
            "xz_9_after_the_training_text": xz_bits_per_byte_after(before, data),
        }
    return rows


def card(loaded: Loaded, made: dict, table: dict, corpus: Path) -> dict:
    """What about.json of the shipped model says."""
    spec = loaded.spec
    count = sum(p.numel() for p in loaded.model.parameters())
    values = {"layers": len(spec.blocks), "heads": spec.blocks[0].mixer.heads}
    values |= {"millions": count / 1e6, "myriads": round(count / 1e4)}  # Korean counts in ten thousands
    sources = json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))["sources"]
    minutes = round(made["seconds"] / 60)
    keep = ("made_by", "step", "tokens", "seconds", "training_tokens")
    return {
        "summary": SUMMARY["en"].format(**values),
        "summary_ko": SUMMARY["ko"].format(**values),
        "cannot": CANNOT["en"].format(minutes=minutes),
        "cannot_ko": CANNOT["ko"].format(minutes=minutes),
        "parameters": count,
        "licence": "CC BY-SA 4.0; credits in NOTICE",
        "licence_ko": "CC BY-SA 4.0, 출처는 NOTICE에 있습니다",
        "data": [{key: source[key] for key in ("name", "licence", "credit")} for source in sources],
        "command": "python runs/shipped/corpus.py && glassformer train runs/shipped.toml --out out/shipped-run && "
        "python runs/shipped/card.py",
        "made": MADE["en"],
        "made_ko": MADE["ko"],
        "bits_per_byte": table,
        "training": {key: made[key] for key in keep if key in made},
    }


def stored(run: Path, into: Path) -> Loaded | Classifier:
    """The model of a run as it is once it lies in `into`, in half precision; files there of these names go."""
    trained = load(run)
    if isinstance(trained, Loaded):  # it has never seen a longer text than a window
        trained.model.spec = trained.spec.changed(context=read_about(run)["run"]["block"])
    into.mkdir(parents=True, exist_ok=True)
    save_model(trained.model, into, dtype=torch.float16)
    if (run / "tokenizer.json").is_file():
        shutil.copy(run / "tokenizer.json", into)
    return load(into)


def main() -> None:
    """Read the command line, store the model, score it, write the card."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, default=Path("out/shipped-run"))
    parser.add_argument("--corpus", type=Path, default=Path("out/shipped"))
    parser.add_argument("--into", type=Path, default=Path("src/glassformer/shipped/small"))
    options = parser.parse_args()
    made = read_about(options.run)
    model = stored(options.run, options.into)
    table = scores(model, documents(options.corpus))
    write_json(options.into / "about.json", card(model, made, table, options.corpus))
    for name, row in table.items():
        print(name, " ".join(f"{key}={value:.4f}" for key, value in row.items()))
    size = sum(path.stat().st_size for path in options.into.iterdir())
    print(f"{size / 1e6:.2f} MB in {options.into}")
    assert size <= 12e6, "the shipped model must stay within 12 MB"


if __name__ == "__main__":
    main()
