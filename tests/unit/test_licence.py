"""What the package says of its licences: that of the code, and that of the weights inside it."""

import tomllib
from pathlib import Path

from fontTools.ttLib import TTFont

import glassformer as gf
from glassformer.figures.font import FILE

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, DATA = SETTINGS["project"], SETTINGS["tool"]["setuptools"]["package-data"]["glassformer"]


def test_the_package_names_its_licences_and_holds_their_texts():
    assert PROJECT["license"] == "MIT AND CC-BY-SA-4.0 AND Apache-2.0 AND OFL-1.1"
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in PROJECT["license-files"]]
    beginnings = [text.lstrip().splitlines()[0] for text in texts]
    ours = ["MIT License", "Glassformer", "Attribution-ShareAlike 4.0 International", "Apache License"]
    page = "The explorer's page holds code of these packages:"
    assert beginnings == [*ours, "(c) 2014-2021 Adobe (http://www.adobe.com/).", page]
    assert all(f"Section {number} -- " in texts[2] for number in range(1, 9)), "the whole text"
    assert all(f"\n   {number}. " in texts[3] for number in range(1, 10)), "the whole text"
    assert gf.load().about["licence"].startswith("CC BY-SA 4.0") and "LICENSES/CC-BY-SA-4.0.txt" in texts[1]
    assert gf.load("korean-g2p").about["licence"].startswith("Apache-2.0")
    assert "korean-g2p" in texts[1] and "LICENSES/Apache-2.0.txt" in texts[1] and "Seongmin Park" in texts[1]


def test_the_font_names_its_owner_and_its_licence_and_so_does_the_notice():
    notice, licence = ((ROOT / name).read_text(encoding="utf-8") for name in ("NOTICE", "LICENSES/OFL-1.1.txt"))
    assert f"glassformer/figures/{FILE.name}" in notice and "LICENSES/OFL-1.1.txt" in notice
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence and "TERMINATION" in licence and "DISCLAIMER" in licence
    with TTFont(FILE) as font:
        said = {number: font["name"].getDebugName(number) for number in (0, 13)}
    assert said[0].replace("©", "(c)") in notice and said[0].replace("©", "(c)") == licence.splitlines()[0]
    assert "SIL Open Font License, Version 1.1" in said[13]
    names = {path.suffix for path in FILE.parent.iterdir()} - {"", ".py"}
    assert names == {".woff"} and "figures/*.woff" in DATA


def test_the_code_of_others_in_the_page_is_named_with_its_licence():
    notice, licence = ((ROOT / name).read_text(encoding="utf-8") for name in ("NOTICE", "LICENSES/MIT-Svelte.txt"))
    given = "MIT License\n" + (ROOT / "LICENSE").read_text(encoding="utf-8").split("authors\n", 1)[1]
    assert licence.split("\n\n", 2)[2].split() == given.split(), "the whole text, word by word"
    assert "LICENSES/MIT-Svelte.txt" in notice and "glassformer/serve/page" in notice
    for name, owner in (("svelte", "2016-2025 Svelte Contributors"), ("clsx", "Luke Edwards")):
        assert f"\n{name}: Copyright (c) {owner}" in licence and f"    {name} " in notice and f"(c) {owner}" in notice


def test_the_pages_say_so_too():
    for page in ("README.md", "README.ko.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "MIT" in text and "CC BY-SA 4.0" in text and "NOTICE" in text
