// Which piece of a long axis is shown around a chosen place.

export const LONG = 128; // places; an axis of fewer is shown whole
export const MAP = 1448; // tokens; a map with more on both sides is refused by the server
export const WHOLE = 32; // cells; of more the families estimate the influence on one at a time, as in page/beside.py
const PIECE = 96;
const STEP = 48; // the piece stays where it is while the place is within these of its middle

/** The first place of the piece around `at`, and the end behind its last one. */
export function around(at: number, count: number): [number, number] {
  if (count <= LONG) return [0, count];
  const first = Math.max(0, Math.min(count - PIECE, Math.floor(at / STEP) * STEP - (PIECE - STEP) / 2));
  return [first, first + PIECE];
}

export const ROWS = 64; // tokens that a table or a row shows at once: those with the largest weights, or a piece

/** The places of the largest weights, as many as are shown at once, in the order of the text. */
export function heaviest(weights: ArrayLike<number>): number[] {
  const order = Array.from(weights, (_, s) => s).sort((a, b) => weights[b]! - weights[a]!);
  return order.slice(0, ROWS).sort((a, b) => a - b);
}

/** The most room that names beside a map take, in pixels. */
export const ROOM = 72;
