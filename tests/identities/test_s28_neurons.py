"""S28: a neuron is not one feature. The best neuron of a layer against a linear probe on all, on properties of Hangul
that spelling tells, beside labels that say nothing. `python -m glassformer.bench.neurons TEXT.txt` prints the
numbers."""

import os
import unicodedata
from pathlib import Path

import pytest
import torch

import glassformer as gf
from glassformer.bench import neurons
from glassformer.bench.neurons import broken, ends_in_particle, final, tokens_of
from glassformer.explain.probing import Told

DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).parents[3] / "shared/data"))
PAIRS = DATA / "tatoeba_en_ko/kor.txt"


def test_what_spelling_tells():
    for syllable in ("가", "각", "뷁", "힣", "해", "핸", "쓰", "쑬"):
        assert final(syllable) == (len(unicodedata.normalize("NFD", syllable)) == 3)
    yes = {"책을 읽는다": 2, "영화는 길다": 3, "꽃이": 2, "나와 너": 2, "그가.": 2}
    no = {"책를 읽는다": 2, "아이 하나": 2, "을": 1, "a는": 2, "나라가요": 3, "책을 읽는다 ": 6, "고양이가": 3}
    for text, end in (*yes.items(), *no.items()):
        assert ends_in_particle(text, end) == (text in yes and yes[text] == end), (text, end)


def test_tokens_are_those_of_the_runs():
    model = gf.load()
    lines = ["고양이가 생선을 먹었다", "The cat, 별이 빛난다"]
    found = tokens_of(model, lines)
    words = [model.tokenizer.decode([i]).strip() for i in found.ids.tolist()]
    assert words == ["고", "양", "이가", "생", "선", "을", "먹", "었다", "별", "이", "빛", "난다"]
    assert found.lines.tolist() == [0] * 8 + [1] * 4
    assert found.has["particle"].tolist() == [i in (2, 5, 9) for i in range(12)]
    assert found.has["final"].tolist() == [i in (1, 3, 4, 5, 6, 8, 10) for i in range(12)]
    for layer in range(4):
        first = model.trace(lines[0])[f"blocks.{layer}.channel.hidden"][0, 1:].double()
        assert torch.equal(found.neurons[layer][:8], first)


def test_what_does_not_hold_is_told(monkeypatch, capsys, tmp_path):
    def one(neuron, whole, control):
        return Told(None, 7, neuron, whole, control)

    good = {("final", 0, "lines"): one(0.7, 0.9, 0.75), ("final", 0, "kinds"): one(0.9, 0.9, 0.5)}
    assert broken(good) == []
    assert len(broken(good | {("final", 1, "lines"): one(0.88, 0.9, 0.5)})) == 1
    alike = {("final", 1, "kinds"): one(0.5, 0.9, 0.88)}
    assert broken(alike) == ["final, layer 1, held kinds: the probe 0.900, the control 0.880"]
    monkeypatch.setattr(neurons, "measured", lambda tokens: alike)
    (tmp_path / "one.txt").write_text("no line of this\n꽃이 핀다 오늘\n", encoding="utf-8")
    assert neurons.main([str(tmp_path / "one.txt")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("3 Hangul tokens of 3 kinds; they have: particle 0.333") and "selectivity +0.020" in said


@pytest.mark.slow
@pytest.mark.skipif(not PAIRS.is_file(), reason="needs tatoeba_en_ko/kor.txt")
def test_s28_all_neurons_tell_more_than_the_best_and_more_than_by_heart(tmp_path):
    text = "\n".join(line.split("\t")[1] for line in PAIRS.read_text(encoding="utf-8").splitlines())
    (tmp_path / "ko.txt").write_text(text, encoding="utf-8")
    assert neurons.main([str(tmp_path / "ko.txt")]) == 0
