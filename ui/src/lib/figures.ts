// The arithmetic of pictures of figures: axes, places of labels, lines of text. It draws nothing.

import { highest } from "./numbers";
import type { Edge, Graph, Node, Table } from "./protocol";
import { greatest } from "./values";

/** Round numbers that divide the way from low to high into about `count` steps. */
export function ticks(low: number, high: number, count = 5): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough * 0.999)!;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

/** A number beside an axis: no more digits than it needs. */
export function mark(x: number): string {
  const size = Math.abs(x);
  return (size !== 0 && (size >= 1e7 || size < 1e-4) ? x.toExponential() : x.toLocaleString("en-US", { maximumFractionDigits: 6 })).replace("-", "−");
}

/** From where to where numbers go, nothing included, so that heights can be compared. */
export function extent(values: Iterable<number | null>): [number, number] {
  let [low, high] = [0, 0];
  for (const one of values) if (one !== null && Number.isFinite(one)) [low, high] = [Math.min(low, one), Math.max(high, one)];
  return high > low ? [low, high] : [low, low + 1];
}

/** Places as near to the wanted ones as can be, with a gap between any two, in the same order. */
export function apart(wanted: readonly number[], gap: number, low: number, high: number): number[] {
  const order = wanted.map((y, i) => ({ y, i })).sort((a, b) => a.y - b.y);
  order.forEach((one, k) => (one.y = Math.max(one.y, k ? order[k - 1]!.y + gap : low)));
  for (let k = order.length - 1; k >= 0; k--) {
    const room = k === order.length - 1 ? high : order[k + 1]!.y - gap;
    if (order[k]!.y > room) order[k]!.y = room;
  }
  const found = wanted.slice();
  for (const { y, i } of order) found[i] = y;
  return found;
}

/** Every so many of `count` labels, so that those of this width do not touch. */
export function every(count: number, room: number, wide: number): number {
  return Math.max(1, Math.ceil((count * wide) / Math.max(1, room)));
}

/** A text shortened to a width, never within a character. */
export function clipped(text: string, most: number, measure: (text: string) => number): string {
  if (measure(text) <= most) return text;
  const letters = [...new Intl.Segmenter().segment(text)].map((one) => one.segment);
  while (letters.length && measure(`${letters.join("")}…`) > most) letters.pop();
  return `${letters.join("")}…`;
}

/** Boxes of these widths in lines of a width: where each begins, and how many lines there are. */
export function flowed(widths: readonly number[], room: number, gap: number): { x: number; line: number }[] {
  let [x, line] = [0, 0];
  return widths.map((wide) => {
    if (x > 0 && x + wide > room) [x, line] = [0, line + 1];
    const found = { x, line };
    x += wide + gap;
    return found;
  });
}

/** Where the nodes of a graph stand, and how wide its ribbons are: columns are layers, rows places. */
export function laid(graph: Graph, width: number, rise: number): { x: (node: Node) => number; y: (node: Node) => number; wide: (edge: Edge) => number; rows: number } {
  const columns = highest(graph.nodes.map((one) => one.layer + 1), Math.max(1, graph.layers.length));
  const rows = highest(graph.nodes.map((one) => one.place + 1), 1);
  const most = greatest(graph.edges.map((one) => one.value));
  return {
    x: (node) => ((node.layer + 0.5) * width) / columns,
    y: (node) => (node.place + 0.5) * rise,
    wide: (edge) => Math.max(0.5, (Math.abs(edge.value) / most) * rise * 0.6),
    rows,
  };
}

/** The column of a table by its English name in Python; −1: it has none of that name. */
export const column = (table: Pick<Table, "columns">, name: string): number => table.columns.findIndex((one) => one.en === name);

/** A Python-like path to a number in a figure, as the page writes it and the tests read it. */
export const path = (...parts: (string | number)[]) => parts.join(".");
