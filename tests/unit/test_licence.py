"""What the package says of its licences: that of the code, and that of the weights inside it."""

import json
import tomllib
from pathlib import Path

from fontTools.ttLib import TTFont

import glassformer as gf
from glassformer.figures.font import FILE
from page_build import PAGE, is_built

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, DATA = SETTINGS["project"], SETTINGS["tool"]["setuptools"]["package-data"]["glassformer"]


def test_the_package_names_its_licences_and_holds_their_texts():
    assert PROJECT["license"] == "MIT AND CC-BY-SA-4.0 AND Apache-2.0 AND OFL-1.1"
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in PROJECT["license-files"]]
    beginnings = [text.lstrip().splitlines()[0] for text in texts]
    ours = ["MIT License", "Glassformer", "Attribution-ShareAlike 4.0 International", "Apache License"]
    assert beginnings == [*ours, "(c) 2014-2021 Adobe (http://www.adobe.com/).", "MIT License"]
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


def test_what_the_page_holds_of_others_keeps_their_notice():
    """MIT asks for it in every copy: in the package, and in a saved page, whose script is the page's."""
    notice, licence = ((ROOT / name).read_text(encoding="utf-8") for name in ("NOTICE", "LICENSES/MIT-page.txt"))
    packages = json.loads((ROOT / "ui" / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in packages, "what is bundled is named here"
    for name, owner in (("Svelte", "Svelte Contributors"), ("clsx", "Luke Edwards")):
        assert all(owner in text and name in text for text in (notice, licence))
    assert "Permission is hereby granted" in licence and 'THE SOFTWARE IS PROVIDED "AS IS"' in licence
    assert "LICENSES/MIT-page.txt" in notice
    assert f"`{licence}`" in (ROOT / "ui" / "src" / "notice.ts").read_text(encoding="utf-8")
    scripts = [*PAGE.glob("assets/*.js")] if is_built() else []
    assert all(licence in script.read_text(encoding="utf-8") for script in scripts)


def test_the_pages_say_so_too():
    for page in ("README.md", "README.ko.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "MIT" in text and "CC BY-SA 4.0" in text and "NOTICE" in text
