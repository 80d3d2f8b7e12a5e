"""Make the font inside the package, whose glyphs the figures carry, from Noto Sans KR 2.004 (Open Font License 1.1).

    python runs/font/hangul.py NotoSansKR-Regular.otf

The font is that of https://github.com/notofonts/noto-cjk (Sans, Korean subset, regular); SHA256 below is that of the
copy which was read. Kept: all 11,172 syllables, all jamo with what joins old ones, Latin, Greek, Cyrillic, signs. Left
out: hanja, kana, hinting, vertical forms. Added: four signs that every view of tokens needs and the font lacks, with
the glyphs of their likes. Written the same byte for byte at every run with the same fontTools.
"""

import hashlib
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

SHA256 = "69975a0ac8472717870aefeab0a4d52739308d90856b9955313b2ad5e0148d68"
INTO = Path(__file__).parents[2] / "src/glassformer/figures/NotoSansKR-Hangul.woff"
KEPT = (
    (0x20, 0x7E), (0xA0, 0x17F), (0x2B0, 0x2FF), (0x370, 0x3FF), (0x400, 0x45F),
    (0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF),
    (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20BF), (0x2100, 0x218F), (0x2190, 0x21FF), (0x2200, 0x22FF),
    (0x2300, 0x23FF), (0x2400, 0x2426), (0x2460, 0x24FF), (0x2500, 0x26FF), (0x3000, 0x303F), (0xFF00, 0xFFEF),
)  # fmt: skip
LIKE = {0x27E8: 0x2039, 0x27E9: 0x203A, 0x2420: 0x2423, 0x21E5: 0x2192}  # ⟨ as ‹, ⟩ as ›, ␠ as ␣, ⇥ as →
JOINING = ["ccmp", "ljmo", "vjmo", "tjmo"]
NAMES = [0, 1, 2, 3, 4, 5, 6, 7, 13, 14]  # copyright, names, version, trademark, licence


def main(source: Path) -> None:
    """Write the package's font."""
    found = hashlib.sha256(source.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{source} is another font than the one this was written for: SHA256 {found}")
    options = subset.Options(
        layout_features=JOINING, hinting=False, desubroutinize=True, name_IDs=NAMES, notdef_outline=True
    )
    options.drop_tables += ["vhea", "vmtx", "VORG", "BASE", "DSIG", "GPOS"]
    font = TTFont(source, recalcTimestamp=False)
    part = subset.Subsetter(options)
    part.populate(unicodes=[code for first, last in KEPT for code in range(first, last + 1)])
    part.subset(font)
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap |= {new: table.cmap[old] for new, old in LIKE.items()}
    font.flavor = "woff"
    font.save(INTO)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
