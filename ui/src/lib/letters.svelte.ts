// The page's own letters. A browser brings them when they are first shown, and what was painted on a canvas before that,
// or measured, holds the letters of another font: it is drawn again once they are there.

/** Hangul, and the signs by which blanks, line ends and bytes are shown; as page.saved.HANGUL. */
export const RANGES = "U+1100-11FF, U+21E5, U+23CE, U+2420-2423, U+25CC, U+27E8-27E9, U+3000-303F, U+3130-318F, U+A960-A97F, U+AC00-D7FF, U+FF00-FFEF";
export const LETTERS = new RegExp(`[${RANGES.replaceAll("U+", "\\u").replaceAll("-", "-\\u").replaceAll(", ", "")}]`, "g");

const now = $state({ come: 0 });

/** How many fonts have come; whoever asks draws again when one does. */
export const come = (): number => now.come;

/** Draw again once this font is there. It is not asked for by that. */
export function awaited(font: FontFace): void {
  void font.loaded.then(() => now.come++, () => {});
}
