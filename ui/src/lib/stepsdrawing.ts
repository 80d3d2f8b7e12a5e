// The four steps and an alignment's as drawings: one row for each token that is looked at, at the foot their sum.

import { coloured } from "./grid";
import { titled, type Pen } from "./pictures";
import type { Drawing, Shape } from "./drawing";
import { clipped } from "./figures";
import { highest } from "./numbers";
import { greatest, percent, shown, type Value } from "./values";

export interface Steps {
  title: string;
  q: Value;
  dots: Value;
  scores: Value;
  pattern: Value;
  z: Value;
  listed: readonly number[];
  keys: readonly Value[];
  values: readonly Value[];
  mostK: number;
  mostV: number;
  sink: { said: string; weight: number | null } | null; // a learned score in the softmax: what it is called, the weight it takes
}

const [LINE, SIZE, STRIP] = [26, 13, 190];
const [NAME, KEY, DOT, SCORE, WEIGHT, VALUE] = [16, 130, 400, 480, 500, 640];

/** What both drawings are made of, begun with the title: words, a vector as a strip of cells, a weight as a bar. */
function hand(title: string, pen: Pen) {
  const shapes: Shape[] = [{ kind: "text", at: [16, 28], text: title, size: 16, fill: pen.ink, anchor: "start", bold: true, formula: true }];
  const text = (x: number, y: number, said: string, anchor: "start" | "end" = "start", bold = false, fill = pen.ink, formula = false) => shapes.push({ kind: "text", at: [x, y], text: said, size: SIZE, fill, anchor, bold, formula });
  const strip = (x: number, y: number, value: Value, most: number, strong = 1) => {
    const wide = STRIP / value.data.length;
    value.data.forEach((one, i) => shapes.push({ kind: "cells", fill: coloured(strong * one, "signed", most), boxes: [[x + i * wide, y - 12, wide, 16]] }));
  };
  const bar = (x: number, y: number, wide: number) => shapes.push({ kind: "cells", fill: pen.accent, boxes: [[x, y - 9, wide, 10]] });
  return { shapes, text, strip, bar };
}
/** How strongly the value of a weight is drawn. */
export const strength = (weight: number) => 0.15 + 0.85 * Math.sqrt(weight);

/** heads: what stands over keys, products, scores, weights and values; label: of a token; unseen: why one is not seen. */
export function stepsDrawing(found: Steps, heads: readonly string[], label: (s: number) => string, token: string, unseen: string, pen: Pen): Drawing {
  const { shapes, text, strip, bar } = hand(found.title, pen);
  const ends = [KEY, DOT, SCORE, WEIGHT, VALUE];
  heads.forEach((head, i) => text(ends[i]!, 58, head, i === 1 || i === 2 ? "end" : "start", false, pen.faint, true));
  text(NAME, 84, `q  ${token}`, "start", true);
  strip(KEY, 84, found.q, greatest(found.q.data));
  const weights = Math.max(highest(found.pattern.data, 1e-30), found.sink?.weight ?? 0);
  found.listed.forEach((s, i) => {
    const y = 84 + LINE * (i + 1);
    text(NAME, y, clipped(label(s), KEY - NAME - 8, (one) => pen.measure(one, SIZE)));
    if (!Number.isFinite(found.scores.data[s]!)) return text(KEY, y, unseen, "start", false, pen.faint);
    strip(KEY, y, found.keys[i]!, found.mostK);
    text(DOT, y, shown(found.dots.data[s]!), "end");
    text(SCORE, y, shown(found.scores.data[s]!), "end");
    bar(WEIGHT, y, (60 * found.pattern.data[s]!) / weights);
    text(VALUE - 14, y, percent(found.pattern.data[s]!), "end");
    strip(VALUE, y, found.values[i]!, found.mostV, strength(found.pattern.data[s]!));
  });
  const rows = found.listed.length + (found.sink ? 1 : 0);
  if (found.sink) {
    const y = 84 + LINE * rows;
    text(NAME, y, found.sink.said, "start", false, pen.faint);
    if (found.sink.weight !== null) {
      bar(WEIGHT, y, (60 * found.sink.weight) / weights);
      text(VALUE - 14, y, percent(found.sink.weight), "end");
    }
  }
  const foot = 84 + LINE * (rows + 1);
  shapes.push({ kind: "line", points: [[NAME, foot - 18], [VALUE + STRIP, foot - 18]], stroke: pen.line, width: 1 });
  text(VALUE - 14, foot, "z = Σ α v", "end", true);
  strip(VALUE, foot, found.z, greatest(found.z.data));
  const width = Math.max(VALUE + STRIP, 16 + pen.measure(found.title, 16) * 1.12) + 16;
  return { width, height: foot + 20, paper: pen.paper, hatch: pen.hatch, shapes };
}

export interface AlignedSteps {
  title: string;
  scores: Value;
  pattern: Value;
  context: Value;
  listed: readonly number[];
  vectors: readonly Value[]; // of the source, of each token that is listed; none where they were not kept
  largest: number;
}

/** The steps of an alignment; heads: what stands over scores, weights and vectors; context: what their sum is called. */
export function alignedDrawing(found: AlignedSteps, heads: readonly string[], label: (s: number) => string, context: string, pen: Pen): Drawing {
  const { shapes, text, strip, bar } = hand(found.title, pen);
  const score = Math.max(230, KEY + pen.measure(heads[0]!, SIZE)); // the end of that column
  const [weight, vector] = [score + 24, score + 190];
  heads.forEach((head, i) => text([score, weight, vector][i]!, 58, head, i === 0 ? "end" : "start", false, pen.faint, true));
  const most = highest(found.pattern.data, 1e-30);
  found.listed.forEach((s, i) => {
    const y = 84 + LINE * i;
    text(NAME, y, clipped(label(s), KEY - NAME - 8, (one) => pen.measure(one, SIZE)));
    text(score, y, shown(found.scores.data[s]!), "end");
    bar(weight, y, (80 * found.pattern.data[s]!) / most);
    text(vector - 14, y, percent(found.pattern.data[s]!), "end");
    if (found.vectors[i]) strip(vector, y, found.vectors[i]!, found.largest, strength(found.pattern.data[s]!));
  });
  const foot = 84 + LINE * found.listed.length;
  shapes.push({ kind: "line", points: [[NAME, foot - 18], [vector + STRIP, foot - 18]], stroke: pen.line, width: 1 });
  text(vector - 14, foot, context, "end", true, pen.ink, true);
  strip(vector, foot, found.context, greatest(found.context.data));
  const ends = [vector + STRIP, 16 + pen.measure(found.title, 16) * 1.12, vector + pen.measure(heads[2] ?? "", SIZE)];
  return { width: Math.max(...ends) + 16, height: foot + 20, paper: pen.paper, hatch: pen.hatch, shapes };
}

/** Values as strips, one under the other: what each is called, and up to where its colours go. */
export function stripsDrawing(title: string, rows: readonly { symbol: string; name: string; data: ArrayLike<number> }[], pen: Pen): Drawing {
  const shapes: Shape[] = [];
  const widest = (of: readonly string[]) => highest(of.map((one) => pen.measure(one, SIZE)), 0);
  const [symbols, names] = [rows.map((one) => one.symbol), rows.map((one) => one.name)];
  const left = [0, widest(symbols) + 18, widest(symbols) + widest(names) + 36];
  const wide = 2 * STRIP;
  rows.forEach(({ data }, i) => {
    const y = LINE * i + 16;
    shapes.push({ kind: "text", at: [left[0]!, y], text: symbols[i]!, size: SIZE, fill: pen.ink, anchor: "start", bold: true, formula: true });
    shapes.push({ kind: "text", at: [left[1]!, y], text: names[i]!, size: SIZE, fill: pen.faint, anchor: "start" });
    const most = greatest(data);
    const cell = wide / data.length;
    if (data.length > 1) Array.from(data).forEach((one, k) => shapes.push({ kind: "cells", fill: coloured(one, "signed", most), boxes: [[left[2]! + k * cell, y - 12, cell, 16]] }));
    const said = data.length > 1 ? `±${shown(most)}` : shown(data[0] ?? null);
    shapes.push({ kind: "text", at: [left[2]! + (data.length > 1 ? wide + 10 : 0), y], text: said, size: SIZE, fill: pen.ink, anchor: "start" });
  });
  return titled({ width: left[2]! + wide + 90, height: LINE * rows.length + 8, paper: pen.paper, hatch: pen.hatch, shapes }, title, pen);
}
