"""What stands in the page's sources and in Python too: numbers and names that must be the same in both."""

import math
import re
from pathlib import Path

import pytest

from glassformer.errors import SettingError
from glassformer.explain import explainer
from glassformer.explain.explainer import MOST, SEEDS, Limit
from glassformer.explain.kinds.effect import EffectSpec
from glassformer.explain.kinds.film import COLUMNS as SNAPSHOTS
from glassformer.explain.kinds.heads import COLUMNS as HEADS
from glassformer.explain.kinds.maps import LONG
from glassformer.explain.kinds.next import COLUMNS as NEXT
from glassformer.explain.kinds.two import COLUMNS as OCCURRENCES
from glassformer.generate import GenerateSpec
from glassformer.page.beside import WHOLE
from glassformer.serve.writing import MOST_TOKENS
from glassformer.sources import SIBLINGS

UI = Path(__file__).parents[2] / "ui" / "src"


def written(file, pattern):
    """What stands once in a source of the page."""
    [found] = re.findall(pattern, (UI / file).read_text(encoding="utf-8"))
    return found


def ranges(text):
    """The least and the most of each name."""
    found = re.findall(r"(\w+)(?:: Range =|:) \{ least: ([\d_.]+), most: ([\w.]+)", text)
    return {
        name: (float(least), SEEDS if most == "Number.MAX_SAFE_INTEGER" else float(most.replace("_", "")))
        for name, least, most in found
    }


def test_the_families_and_the_sizes_of_the_page_are_pythons():
    names = written("lib/families.ts", r"SIBLINGS = \[([^\]]*)\]")
    assert tuple(re.findall(r'"(\w+)"', names)) == SIBLINGS
    sizes = {name: int(written("lib/window.ts", rf"export const {name} = (\d+);")) for name in ("LONG", "MAP", "WHOLE")}
    assert sizes == {"LONG": LONG, "MAP": math.isqrt(MOST), "WHOLE": WHOLE}


def test_columns_that_the_page_looks_up_by_name_are_columns_of_pythons_tables():
    views = {file.stem: file.read_text(encoding="utf-8") for file in UI.rglob("*.svelte")}
    heads = {one.en for one in HEADS}
    asked = {
        "Next": {one.en for one in NEXT},
        "Flow": {one.en for one in NEXT},
        "HandsKept": {one.en for one in NEXT},
        "Film": {one.en for one in SNAPSHOTS},
    }
    for view, columns in asked.items():
        named = set(re.findall(r'column\([\w.]+(?:\(\w+\))?, "([^"]+)"\)', views[view]))
        named |= set(re.findall(r'\b(?:names|numbers)="([^"]+)"', views[view]))  # of what Bars shows
        assert named and named <= columns, view
    listed = re.search(r"\[([^\]]*)\]\.map\(\(name\) => column\(", views["Two"])[1]
    assert set(re.findall(r'"([^"]+)"', listed)) == {one.en for one in OCCURRENCES} - {"occurrence"}
    own = re.search(r"\[LAYER, HEAD, DOES\] = \[([^\]]*)\]", views["Heads"])[1]
    text = (UI / "lib" / "words.ts").read_text(encoding="utf-8")
    meant = re.findall(r'^  "?([^":]+)"?: \{ en:', text[text.index("export const MEANT") :], re.M)
    assert set(re.findall(r'"([^"]+)"', own)) | set(meant) == heads and set(meant) == heads - {"layer", "head"}
    coded = re.findall(r'"(\w+)"', written("lib/words.ts", r"const CODED = \[([^\]]*)\]"))
    kinds = "".join(one.read_text(encoding="utf-8") for one in Path(explainer.__file__).parent.rglob("*.py"))
    assert coded and [one for one in coded if f'Said("{one}"' not in kinds] == []


def test_what_can_be_chosen_in_the_page_is_allowed_in_python():
    text = (UI / "views" / "Write.svelte").read_text(encoding="utf-8")
    found = ranges(text[text.index("const RANGES") : text.index("const ENDS")])
    assert set(found) == {"max_new_tokens", "temperature", "top_k", "seed"}
    assert found["max_new_tokens"] == (1, MOST_TOKENS) and found["seed"] == (0, SEEDS)
    for name, (least, most) in found.items():
        for one in {least, most} - ({0} if name == "top_k" else set()):  # no top-k is asked for as none
            GenerateSpec(**{name: one if name == "temperature" else int(one)})
    with pytest.raises(SettingError):
        GenerateSpec(max_new_tokens=0)
    [heat] = ranges((UI / "lib" / "heat.ts").read_text(encoding="utf-8")).values()
    assert all(one > 0 for one in heat) and EffectSpec.LIMITS["temperature"] == Limit(positive=True)
