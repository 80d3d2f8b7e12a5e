// Several maps as one drawing, each with its name under it: the channels of a picture, the heads of a model.

import { highest } from "./numbers";
import { cells, coloured, type Grid } from "./grid";
import { titled, type Pen } from "./pictures";
import { type Drawing, type Shape } from "./drawing";
import { clipped, flowed } from "./figures";
import { greatest, shown } from "./values";

/** One map: a grid with its name. */
export interface Labelled extends Grid {
  label: string;
}

/** Maps that stand together under a title of their own. */
export interface Together {
  title: string;
  maps: readonly Labelled[];
}

/** Makes pixels of numbers: what is a picture goes into a file as one. */
export type Pixels = (rows: number, columns: number, fill: (i: number) => string) => { href: string; source: CanvasImageSource | null };

const [WIDE, GAP, SIZE] = [760, 14, 12];

/** What the colours of a map go to, where it is no share: "±2.5", "0–0.8". */
export function reach({ scale, most, values }: Grid): string {
  if (scale === "share") return "";
  const top = shown(most ?? greatest(values));
  return scale === "signed" ? `±${top}` : `0–${top}`;
}

/** side: of the longer side of a map, in pixels, about; pixels: where these are pictures. */
export function mapsDrawing(title: string, groups: readonly Together[], side: number, pen: Pen, pixels?: Pixels): Drawing {
  const shapes: Shape[] = [];
  let [y, wide] = [0, 0];
  const text = (x: number, at: number, said: string, fill = pen.ink, bold = false) => said && shapes.push({ kind: "text", at: [x, at], text: said, size: SIZE, fill, anchor: "start", bold });
  for (const group of groups) {
    if (group.title) text(0, (y += 20) - 6, group.title, pen.ink, true);
    const cell = group.maps.map((one) => Math.max(1, Math.round(side / Math.max(one.rows, one.columns))));
    const named = group.maps.map((one) => [one.label, reach(one)].filter((it) => it !== ""));
    const widths = group.maps.map((one, i) => highest(named[i]!.map((it) => Math.min(160, pen.measure(it, SIZE))), one.columns * cell[i]!));
    const tall = highest(group.maps.map((one, i) => one.rows * cell[i]! + 16 * named[i]!.length + GAP), 0);
    const places = flowed(widths, WIDE, GAP);
    group.maps.forEach((one, i) => {
      const [x, top] = [places[i]!.x, y + places[i]!.line * tall];
      const [w, h] = [one.columns * cell[i]!, one.rows * cell[i]!];
      if (pixels) {
        const most = one.most ?? greatest(one.values);
        shapes.push({ kind: "image", at: [x, top], width: w, height: h, ...pixels(one.rows, one.columns, (k) => coloured(one.values[k] ?? 0, one.scale, most, one.low)) });
      } else shapes.push(...cells(one, x, top, cell[i]!));
      shapes.push({ kind: "line", points: [[x, top], [x + w, top], [x + w, top + h], [x, top + h], [x, top]], stroke: pen.hatch, width: 1 });
      named[i]!.forEach((it, k) => text(x, top + h + 14 + 16 * k, clipped(it, 160, (of) => pen.measure(of, SIZE)), k ? pen.faint : pen.ink));
      wide = Math.max(wide, x + widths[i]!);
    });
    y += ((places.at(-1)?.line ?? -1) + 1) * tall;
  }
  return titled({ width: wide, height: y, paper: pen.paper, hatch: pen.hatch, shapes }, title, pen);
}
