// Figures as drawings: the same for the screen and for the files that can be taken along.

import { lined, signed } from "./colour.svelte";
import { UNSEEN, type Drawing, type Point, type Shape } from "./drawing";
import { apart, clipped, every, extent, flowed, laid, mark, ticks } from "./figures";
import { cells, coloured, readable } from "./grid";
import { highest } from "./numbers";
import type { Figure, Graph, HeatMap, Points, Said, Series, Table, TokenScores } from "./protocol";
import { greatest, NOTHING, shown } from "./values";
import { written, type Written } from "./words";

/** What a drawing is made with: colours of the page, its language, and how wide a text of a size is. */
export interface Pen {
  paper: string;
  ink: string;
  faint: string;
  line: string;
  nothing: string;
  hatch: string;
  accent: string;
  say: (said: Said) => string;
  measure: (text: string, size: number) => number;
}

const SIZE = 13;

/** What the page shows of a figure that the figure does not say: the number whose colour is the fullest or whose bar
 * the longest, where that is not its own largest; the columns of a table whose numbers are bars too, and how a
 * column's numbers are written. */
export interface Shown {
  most?: number;
  bars?: readonly number[];
  as?: Record<number, Written>;
}

/** A figure with its title over it, as a file has it. */
export function picture(figure: Figure, pen: Pen, how: Shown = {}): Drawing {
  const own = { heat_map: heatMap, series: (f: Series, p: Pen) => series(f, p, 720, 360), token_scores: tokenScores, graph: (f: Graph, p: Pen) => graph(f, p), table, points: (f: Points, p: Pen) => points(f, p, 720, 480) }[figure.kind] as (f: Figure, p: Pen, how: Shown) => Drawing;
  return titled(own(figure, pen, how), pen.say(figure.title), pen);
}

/** A drawing with a title over it and room around it. */
export function titled(drawing: Drawing, title: string, pen: Pen): Drawing {
  const width = Math.max(drawing.width, pen.measure(title, 16) * 1.12); // its letters are bold
  const shapes = drawing.shapes.map((one) => moved(one, 16, 44));
  shapes.unshift({ kind: "text", at: [16, 28], text: title, size: 16, fill: pen.ink, anchor: "start", bold: true, formula: true });
  return { ...drawing, width: width + 32, height: drawing.height + 56, shapes };
}

function moved(one: Shape, dx: number, dy: number): Shape {
  const move = ([x, y]: Point): Point => [x + dx, y + dy];
  if (one.kind === "cells") return { ...one, boxes: one.boxes.map(([x, y, w, h]) => [x + dx, y + dy, w, h]) };
  if (one.kind === "line" || one.kind === "area") return { ...one, points: one.points.map(move) };
  if (one.kind === "ribbon") return { ...one, from: move(one.from), to: move(one.to) };
  return { ...one, at: move(one.at) };
}

// ---------------------------------------------------------------- maps

function heatMap(figure: HeatMap, pen: Pen, { most: given }: Shown): Drawing {
  const [rows, columns] = [figure.rows.length, figure.columns.length];
  const cell = Math.max(2, Math.min(28, Math.floor(640 / Math.max(rows, columns))));
  const most = given ?? greatest(figure.values.flat());
  const names = (labels: string[]) => Math.min(140, highest(labels.map((one) => pen.measure(one, SIZE)), 0)) + 8;
  const [left, foot] = [names(figure.rows) + 20, names(figure.columns)];
  const shapes = cells({ rows, columns, values: figure.values.flat(), scale: figure.scale, most }, left, 0, cell);
  const text = (at: Point, said: string, anchor: "start" | "middle" | "end", turned = false, fill = pen.ink, formula = false): Shape => ({ kind: "text", at, text: said, size: SIZE, fill, anchor, turned, formula });
  const clip = (label: string) => clipped(label, 132, (one) => pen.measure(one, SIZE));
  for (let t = 0, step = every(rows, rows * cell, 14); t < rows; t += step) shapes.push(text([left - 6, (t + 0.5) * cell + 4], clip(figure.rows[t]!), "end"));
  for (let s = 0, step = every(columns, columns * cell, 14); s < columns; s += step) shapes.push(text([left + (s + 0.5) * cell + 4, rows * cell + 6], clip(figure.columns[s]!), "end", true));
  shapes.push(text([10, (rows * cell) / 2], pen.say(figure.row_title), "middle", true, pen.faint));
  shapes.push(text([left, rows * cell + foot + 18], pen.say(figure.column_title), "start", false, pen.faint));
  const low = figure.scale === "signed" ? -1 : 0;
  const [from, to] = figure.scale === "share" ? ["0", "1"] : most <= NOTHING ? ["0", ""] : [low ? shown(-most) : "0", shown(most)];
  const [y, wide] = [rows * cell + foot + 30, 160];
  for (let i = 0; i < 40; i++) shapes.push({ kind: "cells", fill: coloured((low + ((1 - low) * (i + 0.5)) / 40) * most, figure.scale === "share" ? "plain" : figure.scale, most), boxes: [[left + (i * wide) / 40, y, wide / 40, 10]] });
  shapes.push(text([left, y + 25], from!, "start"), text([left + wide, y + 25], `${to} ${pen.say(figure.unit)}`, "start", false, pen.ink, true));
  const width = Math.max(left + columns * cell, left + wide + pen.measure(`${to} ${pen.say(figure.unit)}`, SIZE)) + 8;
  return { width, height: y + 32, paper: pen.paper, hatch: pen.hatch, shapes };
}

// ---------------------------------------------------------------- lines

/** How a series lies in a box: where a place and a number are, and what is beside them. */
export function frame(figure: Series, pen: Pen, width: number, height: number) {
  const names = figure.lines.map((one) => pen.say(one.label));
  const several = figure.lines.length > 1;
  const broad = highest(names.map((one) => pen.measure(one, SIZE)), 0);
  const beside = several && width >= 560 && broad < width * 0.3;
  const keys = several && !beside ? flowed(names.map((one) => 34 + Math.min(width - 40, pen.measure(one, SIZE))), width, 14) : [];
  const top = keys.length ? 22 * (keys.at(-1)!.line + 1) + 14 : 14;
  const [low, high] = extent(figure.lines.flatMap((one) => one.values.flatMap((x, i) => (x === null ? [] : [x - (one.errors?.[i] ?? 0), x + (one.errors?.[i] ?? 0)]))));
  const marks = ticks(low, high);
  const left = highest(marks.map((one) => pen.measure(mark(one), SIZE))) + 14;
  const right = width - (beside ? broad + 16 : 16);
  const count = figure.x.length;
  const wide = highest(figure.x.map((one) => Math.min(110, pen.measure(one, SIZE))), 1) + 8;
  const turned = every(count, right - left, wide) > 1 && count <= 64;
  const foot = height - (turned ? Math.min(90, wide) + 22 : 40);
  const x = (i: number) => (count < 2 ? (left + right) / 2 : left + 8 + (i * (right - left - 16)) / (count - 1));
  const y = (value: number) => foot - ((value - low) / (high - low)) * (foot - top);
  return { names, beside, keys, top, left, right, foot, marks, wide, turned, x, y, low, count };
}

export function series(figure: Series, pen: Pen, width: number, height: number): Drawing {
  const box = frame(figure, pen, width, height);
  const { x, y, left, right, foot, count } = box;
  const shapes: Shape[] = [];
  for (const at of box.marks) {
    shapes.push({ kind: "line", points: [[left, y(at)], [right, y(at)]], stroke: pen.line, width: 1 });
    shapes.push({ kind: "text", at: [left - 6, y(at) + 4], text: mark(at), size: SIZE, fill: pen.faint, anchor: "end" });
  }
  const step = every(count, right - left, box.turned ? 15 : box.wide);
  for (let i = 0; i < count; i += step) {
    const text = clipped(figure.x[i]!, box.turned ? 90 : 110, (one) => pen.measure(one, SIZE));
    const half = pen.measure(text, SIZE) / 2 + 2;
    shapes.push({ kind: "text", at: box.turned ? [x(i) + 4, foot + 8] : [Math.min(width - half, Math.max(half, x(i))), foot + 18], text, size: SIZE, fill: pen.faint, anchor: box.turned ? "end" : "middle", turned: box.turned });
  }
  const title = `${pen.say(figure.x_title)} → · ${pen.say(figure.unit)} ↑`;
  shapes.push({ kind: "text", at: [right, height - 4], text: title, size: SIZE, fill: pen.faint, anchor: "end", formula: true });
  for (const i of figure.lines.keys()) for (const one of line(figure, i, box)) shapes.push(one);
  named(figure, pen, box, width, shapes);
  return { width, height, paper: pen.paper, hatch: pen.hatch, shapes };
}

type Frame = ReturnType<typeof frame>;

/** One line in pieces, where numbers are missing, with what it may be off by around it. */
function line(figure: Series, i: number, { x, y, count }: Frame): Shape[] {
  const { values, errors } = figure.lines[i]!;
  const { colour, dash } = lined(i);
  const shapes: Shape[] = [];
  let piece: number[] = [];
  const end = () => {
    if (errors && piece.length > 1) {
      const up = piece.map((k): Point => [x(k), y(values[k]! + (errors[k] ?? 0))]);
      const down = piece.map((k): Point => [x(k), y(values[k]! - (errors[k] ?? 0))]).reverse();
      shapes.push({ kind: "area", points: [...up, ...down], fill: colour, opacity: 0.18 });
    }
    if (piece.length > 1) shapes.push({ kind: "line", points: piece.map((k): Point => [x(k), y(values[k]!)]), stroke: colour, width: 2, dash });
    piece = [];
  };
  values.forEach((one, k) => (one === null || !Number.isFinite(one) ? end() : piece.push(k)));
  end();
  if (count <= 80) values.forEach((one, k) => one !== null && Number.isFinite(one) && shapes.push({ kind: "dot", at: [x(k), y(one)], radius: 3, fill: colour }));
  return shapes;
}

/** The names of the lines, at their ends where there is room, else over them. */
function named(figure: Series, pen: Pen, box: Frame, width: number, shapes: Shape[]): void {
  if (box.beside) {
    const ends = figure.lines.map((one) => box.y(one.values.findLast((x) => x !== null) ?? box.low));
    apart(ends, 17, box.top, box.foot).forEach((y, i) => shapes.push({ kind: "text", at: [box.right + 4, y + 4], text: box.names[i]!, size: SIZE, fill: lined(i).colour, anchor: "start" }));
  }
  box.keys.forEach(({ x, line: row }, i) => {
    const { colour, dash } = lined(i);
    shapes.push({ kind: "line", points: [[x, 22 * row + 10], [x + 24, 22 * row + 10]], stroke: colour, width: 2, dash });
    shapes.push({ kind: "text", at: [x + 30, 22 * row + 14], text: clipped(box.names[i]!, width - 40, (one) => pen.measure(one, SIZE)), size: SIZE, fill: pen.ink, anchor: "start" });
  });
}

// ---------------------------------------------------------------- texts, graphs, tables

function tokenScores(figure: TokenScores, pen: Pen, { most: given }: Shown): Drawing {
  const most = given ?? greatest(figure.values);
  const numbers = figure.values.map((x) => (x === null ? "–" : shown(x)));
  const widths = figure.tokens.map((one, i) => Math.max(pen.measure(one, 16), pen.measure(numbers[i]!, 11)) + 12);
  const places = flowed(widths, 720, 4);
  const shapes: Shape[] = places.flatMap(({ x, line: row }, i): Shape[] => {
    const [value, y, middle] = [figure.values[i]!, row * 52, x + widths[i]! / 2];
    const fill = value === null ? UNSEEN : coloured(value, figure.scale, most);
    return [
      { kind: "cells", fill, boxes: [[x, y, widths[i]!, 26]] },
      { kind: "text", at: [middle, y + 18], text: figure.tokens[i]!, size: 16, fill: value === null ? pen.ink : readable(value, figure.scale, most), anchor: "middle", bold: i === figure.chosen },
      { kind: "text", at: [middle, y + 40], text: numbers[i]!, size: 11, fill: pen.faint, anchor: "middle" },
    ];
  });
  const rows = (places.at(-1)?.line ?? 0) + 1;
  shapes.push({ kind: "text", at: [0, rows * 52 + 14], text: pen.say(figure.unit), size: SIZE, fill: pen.faint, anchor: "start", formula: true });
  return { width: highest(places.map(({ x }, i) => x + widths[i]!), 0) + 8, height: rows * 52 + 24, paper: pen.paper, hatch: pen.hatch, shapes };
}

export function graph(figure: Graph, pen: Pen, width = 720): Drawing {
  const rise = 30;
  const { x, y, wide, rows } = laid(figure, width, rise);
  const nodes = new Map(figure.nodes.map((one) => [one.id, one]));
  const shapes: Shape[] = [];
  figure.layers.forEach((name, i) => shapes.push({ kind: "text", at: [((i + 0.5) * width) / figure.layers.length, 16], text: name, size: SIZE, fill: pen.faint, anchor: "middle" }));
  for (const edge of figure.edges) {
    const [from, to] = [nodes.get(edge.source), nodes.get(edge.target)];
    if (from && to) shapes.push({ kind: "ribbon", from: [x(from), y(from) + 26], to: [x(to), y(to) + 26], stroke: edge.value < 0 ? signed(-1) : pen.accent, width: wide(edge), opacity: 0.45 });
  }
  const room = width / Math.max(1, figure.layers.length) - 16;
  for (const node of figure.nodes) {
    shapes.push({ kind: "dot", at: [x(node), y(node) + 26], radius: 4, fill: pen.ink });
    shapes.push({ kind: "text", at: [x(node), y(node) + 18], text: clipped(node.label, room, (one) => pen.measure(one, SIZE)), size: SIZE, fill: pen.ink, anchor: "middle" });
  }
  return { width, height: rows * rise + 44, paper: pen.paper, hatch: pen.hatch, shapes };
}

/** The groups of a map, in the order in which they come. */
export const groupsOf = (figure: Points): string[] => [...new Set(figure.points.map((one) => one.group))];

/** How the points of a map lie in a box: both axes have the same scale, so that distances are what they seem. */
export function plane(figure: Points, pen: Pen, width: number, height: number) {
  const keys = flowed(groupsOf(figure).map((one) => 20 + Math.min(width - 40, pen.measure(one, SIZE))), width, 14);
  const [left, right, top, foot] = [46, width - 14, 22 * ((keys.at(-1)?.line ?? 0) + 1) + 12, height - 44];
  const [x, y] = [figure.points.map((one) => one.x), figure.points.map((one) => one.y)];
  const middle = (of: number[]) => (highest(of, 0) - highest(of.map((one) => -one), 0)) / 2;
  const [atX, atY] = [middle(x), middle(y)];
  const reach = Math.max(1e-12, ...x.map((one) => Math.abs(one - atX) / ((right - left) / 2 - 12)), ...y.map((one) => Math.abs(one - atY) / ((foot - top) / 2 - 12)));
  return { keys, left, right, top, foot, x: (value: number) => (left + right) / 2 + (value - atX) / reach, y: (value: number) => (top + foot) / 2 - (value - atY) / reach };
}

const LABELLED = 40; // of more points only the chosen one's name is written

export function points(figure: Points, pen: Pen, width: number, height: number): Drawing {
  const { keys, left, right, top, foot, x, y } = plane(figure, pen, width, height);
  const groups = groupsOf(figure);
  const text = (at: Point, said: string, anchor: "start" | "middle" | "end", fill: string, turned = false): Shape => ({ kind: "text", at, text: said, size: SIZE, fill, anchor, turned });
  const shapes: Shape[] = [{ kind: "line", points: [[left, top], [right, top], [right, foot], [left, foot], [left, top]], stroke: pen.line, width: 1 }];
  keys.forEach((at, i) => shapes.push({ kind: "dot", at: [at.x + 7, 22 * at.line + 10], radius: 5, fill: lined(i).colour }, text([at.x + 18, 22 * at.line + 14], clipped(groups[i]!, width - 40, (one) => pen.measure(one, SIZE)), "start", pen.ink)));
  const taken: [number, number, number, number][] = []; // boxes of the names that are written already
  for (const one of figure.points) {
    const [cx, cy] = [x(one.x), y(one.y)];
    shapes.push({ kind: "dot", at: [cx, cy], radius: 5, fill: lined(groups.indexOf(one.group)).colour });
    if (figure.points.length > LABELLED) continue;
    const name = clipped(one.label, Math.min(190, (right - left) / 3), (it) => pen.measure(it, SIZE));
    const wide = pen.measure(name, SIZE);
    const start = cx + 12 + wide > right ? cx - 12 - wide : cx + 12; // beside the ring of the chosen one
    const box: [number, number, number, number] = [start, cy - 8, start + wide, cy + 8];
    if (taken.some(([l, t, r, b]) => box[0] < r && box[2] > l && box[1] < b && box[3] > t)) continue;
    taken.push(box);
    shapes.push(text([start, cy + 4], name, "start", pen.ink));
  }
  shapes.push(text([(left + right) / 2, foot + 22], pen.say(figure.x_title), "middle", pen.faint));
  shapes.push(text([left - 14, (top + foot) / 2], pen.say(figure.y_title), "middle", pen.faint, true));
  return { width, height, paper: pen.paper, hatch: pen.hatch, shapes };
}

const BAR = 120; // the room of a table's bar

function table(figure: Table, pen: Pen, { bars = [], most: given, as = {} }: Shown): Drawing {
  const texts = [figure.columns.map(pen.say), ...figure.rows.map((row) => row.map((one, c) => (typeof one === "number" ? written(one, as[c] ?? "number") : (one ?? "–"))))];
  const widths = figure.columns.map((_, c) => Math.min(260, highest(texts.map((row) => pen.measure(row[c]!, SIZE)))) + 22 + (bars.includes(c) ? BAR : 0));
  const starts = widths.map((_, c) => widths.slice(0, c).reduce((a, b) => a + b, 0));
  const numeric = figure.columns.map((_, c) => figure.rows.some((row) => typeof row[c] === "number"));
  const shapes = texts.flatMap((row, r) =>
    row.flatMap((text, c): Shape[] => text === "" ? [] : [{
      kind: "text", at: [starts[c]! + (numeric[c] ? widths[c]! - 14 : 0), r * 22 + 14], text: clipped(text, 260, (one) => pen.measure(one, SIZE)),
      size: SIZE, fill: r ? pen.ink : pen.faint, anchor: numeric[c] ? "end" : "start", bold: false,
    }]),
  );
  const most = given ?? greatest(bars.flatMap((c) => figure.rows.map((row) => Number(row[c]))));
  bars.forEach((c, i) => {
    const fill = bars.length === 1 ? pen.accent : i ? lined(i - 1).colour : pen.faint; // of several the first is what was before
    shapes.push({ kind: "cells", fill, boxes: figure.rows.map((row, r) => [starts[c]!, (r + 1) * 22 + 5, (BAR * Math.max(0, Number(row[c]))) / most, 9]) });
  });
  const width = widths.reduce((a, b) => a + b, 0);
  shapes.push({ kind: "line", points: [[0, 21], [width, 21]], stroke: pen.line, width: 1 });
  return { width, height: texts.length * 22 + 8, paper: pen.paper, hatch: pen.hatch, shapes };
}

