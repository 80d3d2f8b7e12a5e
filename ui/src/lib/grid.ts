// Grids of numbers drawn as colours: which colour a number has, and the cells of a grid as shapes of a file.

import { ink, shade, signed, signedInk } from "./colour.svelte";
import { UNSEEN, type Shape } from "./drawing";
import type { HeatMap } from "./protocol";
import { greatest } from "./values";

export type Scale = HeatMap["scale"];

/** One grid. values: in row-major order; null, or what `seen` says no to, is dark by construction. low: of a plain scale
 * the number that has no colour, 0 unless it is given, as black in a picture. */
export interface Grid {
  rows: number;
  columns: number;
  values: ArrayLike<number | null>;
  scale: Scale;
  most?: number;
  low?: number;
  seen?: (row: number, column: number) => boolean;
}

/** The scale of weights or other numbers of which nothing is known but themselves: those below 0 have a colour too. */
export function scaleOf(values: ArrayLike<number | null>, softmax = false): Scale {
  if (softmax) return "share";
  for (let i = 0; i < values.length; i++) if ((values[i] ?? 0) < 0) return "signed";
  return "plain";
}

/** The weight whose colour is the fullest: 1, as of a softmax, or the largest where one is above it. */
export const topOf = (scale: Scale, values: ArrayLike<number | null>): number => (scale === "share" ? 1 : Math.max(1, greatest(values)));

/** The colour of a number. */
export function coloured(x: number, scale: Scale, most: number, low = 0): string {
  return scale === "signed" ? signed(x / most) : shade(Math.max(0, x - low) / (scale === "share" ? 1 : most - low));
}

/** The colour of letters on it. */
export const readable = (x: number, scale: Scale, most: number) => (scale === "signed" ? signedInk(x / most) : ink(Math.max(0, x) / (scale === "share" ? 1 : most)));

/** The cells of a grid, those of one colour in one shape and neighbours in a row as one box. */
export function cells(one: Grid, x: number, y: number, cell: number): Shape[] {
  const byColour = new Map<string, [number, number, number, number][]>();
  const most = one.most ?? greatest(one.values);
  for (let t = 0; t < one.rows; t++)
    for (let s = 0; s < one.columns; s++) {
      const value = one.values[t * one.columns + s];
      const fill = value === null || value === undefined || one.seen?.(t, s) === false ? UNSEEN : coloured(value, one.scale, most, one.low);
      if (!byColour.has(fill)) byColour.set(fill, []);
      const own = byColour.get(fill)!;
      const before = own.at(-1);
      if (before && before[1] === y + t * cell && before[0] + before[2] === x + s * cell) before[2] += cell;
      else own.push([x + s * cell, y + t * cell, cell, cell]);
    }
  return [...byColour].map(([fill, boxes]) => ({ kind: "cells", fill, boxes }));
}
