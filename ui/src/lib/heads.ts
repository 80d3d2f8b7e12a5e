// The weights of one head as a grid: the same numbers and colours on the page and in a file.

import { scaleOf, topOf, type Grid } from "./grid";
import { page } from "./page.svelte";
import type { PageMixer, PageRun } from "./protocol";
import { sightOf, type Why } from "./sight";
import { described } from "./source";
import type { Where } from "./values";

export interface Weights extends Grid {
  values: Float32Array;
  most: number;
  name: string;
  /** Where the head's own weights are, and where those of the grid are among them. */
  own: Where;
  where: Where;
  /** Why a row sees nothing of a column, by places in the text; null where that is not known. */
  reason: Why | null;
}

export const nameOf = (mixer: PageMixer): string => `${mixer.path}.${mixer.weights}`;

/** How many rows or columns such weights have. */
export function countOf(run: PageRun, mixer: PageMixer, axis: "t" | "s"): number {
  const { axes, sizes } = described(run, nameOf(mixer));
  return sizes[axes.indexOf(axis)]!;
}

/** All weights of a head, or those of some rows and columns (first and end of each). */
export async function weightsOf(run: PageRun, mixer: PageMixer, head: number, some: { t?: [number, number]; s?: [number, number] } = {}): Promise<Weights> {
  const name = nameOf(mixer);
  const all = (axis: "t" | "s"): [number, number] => [0, countOf(run, mixer, axis)];
  const [[row, endRow], [column, endColumn]] = [some.t ?? all("t"), some.s ?? all("s")];
  const list = (first: number, end: number) => Array.from({ length: end - first }, (_, i) => first + i);
  const own: Where = { b: 0, ...(described(run, name).axes.includes("h") ? { h: head } : {}) };
  const part = (axis: "t" | "s", first: number, end: number): Where => (end - first < all(axis)[1] ? { [axis]: list(first, end) } : {});
  const where = { ...own, ...part("t", row, endRow), ...part("s", column, endColumn) };
  const [value, reason] = await Promise.all([page.source.value(run, name, where), sightOf(run, mixer, list(row, endRow))]);
  const scale = scaleOf(value.data, mixer.softmax);
  const seen = reason ? (t: number, s: number) => !reason(row + t, column + s) : undefined;
  return { name, own, where, reason, rows: value.sizes.at(-2)!, columns: value.sizes.at(-1)!, values: value.data, scale, most: topOf(scale, value.data), seen };
}
