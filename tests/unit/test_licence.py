"""What the package says of its licences: that of the code, and that of the weights inside it."""

import tomllib
from pathlib import Path

import glassformer as gf

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_names_both_licences_and_holds_their_texts():
    assert PROJECT["license"] == "MIT AND CC-BY-SA-4.0 AND Apache-2.0"
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in PROJECT["license-files"]]
    beginnings = [text.lstrip().splitlines()[0] for text in texts]
    assert beginnings == ["MIT License", "Glassformer", "Attribution-ShareAlike 4.0 International", "Apache License"]
    assert all(f"Section {number} -- " in texts[2] for number in range(1, 9)), "the whole text"
    assert all(f"\n   {number}. " in texts[3] for number in range(1, 10)), "the whole text"
    assert gf.load().about["licence"].startswith("CC BY-SA 4.0") and "LICENSES/CC-BY-SA-4.0.txt" in texts[1]
    assert gf.load("korean-g2p").about["licence"].startswith("Apache-2.0")
    assert "korean-g2p" in texts[1] and "LICENSES/Apache-2.0.txt" in texts[1] and "Seongmin Park" in texts[1]


def test_the_pages_say_so_too():
    for page in ("README.md", "README.ko.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "MIT" in text and "CC BY-SA 4.0" in text and "NOTICE" in text
