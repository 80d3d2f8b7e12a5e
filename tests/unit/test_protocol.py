"""What the page knows of the server's documents is written from them."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_pages_protocol_and_colours_are_those_of_the_package():
    path = ROOT / "dev" / "protocol.py"
    if not path.is_file() or not (ROOT / "ui").is_dir():
        pytest.skip("the sources of the page are not here")
    made = importlib.util.spec_from_file_location("protocol", path)
    protocol = importlib.util.module_from_spec(made)
    made.loader.exec_module(protocol)
    for name, text in (("protocol.ts", protocol.protocol()), ("ramp.ts", protocol.ramp())):
        written = (ROOT / "ui" / "src" / "lib" / name).read_text(encoding="utf-8")
        assert written == text, f"{name} is not what `python dev/protocol.py` writes; run it"
    comments = re.findall(r"/\*\* (.*?) \*/", protocol.protocol())
    assert len(comments) > 30
    for one in comments:  # whole sentences
        assert one.endswith(".") and one.count("(") == one.count(")") and one.count('"') % 2 == 0, one
        assert not re.search(r"\b(a|an|the|and|or|of|for|by|to|in|their|its)\.$", one), one
    assert "export interface PageRun {" in protocol.protocol() and "picture: PagePicture | null;" in protocol.protocol()
