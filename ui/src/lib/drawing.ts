// Pictures as data: a few shapes, written as SVG or painted on a canvas, so that the file is what the page shows.

import { pieces, type Piece } from "./formula";

export type Point = [number, number];

export type Shape =
  | { kind: "cells"; fill: string; boxes: [number, number, number, number][] } // x, y, width, height
  | { kind: "line"; points: Point[]; stroke: string; width: number; dash?: string }
  | { kind: "area"; points: Point[]; fill: string; opacity: number }
  | { kind: "ribbon"; from: Point; to: Point; stroke: string; width: number; opacity: number }
  | { kind: "dot"; at: Point; radius: number; fill: string; stroke?: string }
  | { kind: "image"; at: Point; width: number; height: number; href: string; source: CanvasImageSource | null } // href: its file, as data:
  | { kind: "text"; at: Point; text: string; size: number; fill: string; anchor: "start" | "middle" | "end"; bold?: boolean; turned?: boolean; formula?: boolean }; // formula: with formulas in it

export interface Drawing {
  width: number;
  height: number;
  paper: string;
  hatch: string; // the colour of the lines in what is "unseen"
  shapes: Shape[];
}

export const UNSEEN = "unseen"; // the fill of a cell that is dark by construction
export const LETTERS = "Glassformer Noto Sans KR, Noto Sans KR, Noto Sans CJK KR, Apple SD Gothic Neo, Malgun Gothic, NanumGothic, system-ui, sans-serif";

const short = (x: number) => String(Math.round(x * 100) / 100);
const pairs = (points: Point[]) => points.map(([x, y]) => `${short(x)},${short(y)}`).join(" ");
/** What may stand in a file: letters that mean something in it are written out, and those that no file may hold left out. */
// eslint-disable-next-line no-control-regex
export const plain = (text: string) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "").replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

const INDEX = 0.72; // the size of an index beside its letter's
/** How far below its line a piece of a text stands. */
const below = ({ as }: Piece, size: number) => (as ? (as === "sub" ? 0.2 : -0.35) * size : 0);

/** A text with formulas in it, as an SVG holds it: indices lowered and raised. */
function inPieces(text: string, size: number): string {
  let down = 0;
  return pieces(text)
    .map((piece) => {
      const from = down;
      down = below(piece, size);
      const written = plain(piece.text);
      return down === from ? written : `<tspan dy="${short(down - from)}" font-size="${short(piece.as ? INDEX * size : size)}">${written}</tspan>`;
    })
    .join("");
}

/** The way of a ribbon, from left to right. */
export function bend([x, y]: Point, [to, down]: Point): string {
  const half = (x + to) / 2;
  return `M${short(x)} ${short(y)}C${short(half)} ${short(y)} ${short(half)} ${short(down)} ${short(to)} ${short(down)}`;
}

/** The boxes of cells as one path. */
export function boxes(of: [number, number, number, number][]): string {
  return of.map(([x, y, w, h]) => `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}z`).join("");
}

function element(one: Shape, colour: (given: string) => string): string {
  switch (one.kind) {
    case "cells":
      return `<path d="${boxes(one.boxes)}" fill="${one.fill === UNSEEN ? "url(#unseen)" : colour(one.fill)}"/>`;
    case "line":
      return `<polyline points="${pairs(one.points)}" fill="none" stroke="${colour(one.stroke)}" stroke-width="${one.width}"${one.dash ? ` stroke-dasharray="${one.dash}"` : ""}/>`;
    case "area":
      return `<polygon points="${pairs(one.points)}" fill="${colour(one.fill)}" fill-opacity="${one.opacity}"/>`;
    case "ribbon":
      return `<path d="${bend(one.from, one.to)}" fill="none" stroke="${colour(one.stroke)}" stroke-width="${short(one.width)}" stroke-opacity="${short(one.opacity)}"/>`;
    case "dot":
      return `<circle cx="${short(one.at[0])}" cy="${short(one.at[1])}" r="${short(one.radius)}" fill="${colour(one.fill)}"${one.stroke ? ` stroke="${colour(one.stroke)}"` : ""}/>`;
    case "image":
      return `<image x="${short(one.at[0])}" y="${short(one.at[1])}" width="${short(one.width)}" height="${short(one.height)}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${plain(one.href)}"/>`;
    case "text": {
      const [x, y] = one.at.map(short);
      const turn = one.turned ? ` transform="rotate(-90 ${x} ${y})"` : "";
      return `<text x="${x}" y="${y}" font-size="${one.size}"${one.bold ? ' font-weight="bold"' : ""} fill="${colour(one.fill)}" text-anchor="${one.anchor}" xml:space="preserve"${turn}>${one.formula ? inPieces(one.text, one.size) : plain(one.text)}</text>`;
    }
  }
}

/** A drawing as an SVG file; colour: as other programs can read it. style: with the letters that not every system has;
 * other fonts go by their names. */
export function svg(drawing: Drawing, colour: (given: string) => string = (given) => given, style = "", title = ""): string {
  const { width, height } = drawing;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${short(width)}" height="${short(height)}" viewBox="0 0 ${short(width)} ${short(height)}" font-family="${LETTERS}">`,
    title && `<title>${plain(title)}</title>`,
    style && `<style>${style}</style>`,
    `<defs><pattern id="unseen" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0v6" stroke="${colour(drawing.hatch)}" stroke-width="1.5"/></pattern></defs>`,
    `<rect width="100%" height="100%" fill="${colour(drawing.paper)}"/>`,
    ...drawing.shapes.map((one) => element(one, colour)),
    "</svg>\n",
  ].join("\n");
}

/** Paint a drawing on a canvas's pen that is already scaled. */
export function paint(pen: CanvasRenderingContext2D, drawing: Drawing, letters: string): void {
  pen.fillStyle = drawing.paper;
  pen.fillRect(0, 0, drawing.width, drawing.height);
  for (const one of drawing.shapes) {
    pen.save();
    stroke(pen, one, drawing, letters);
    pen.restore();
  }
}

function stroke(pen: CanvasRenderingContext2D, one: Shape, drawing: Drawing, letters: string): void {
  if (one.kind === "cells") {
    if (one.fill === UNSEEN) return hatched(pen, one.boxes, drawing.hatch);
    pen.fillStyle = one.fill;
    pen.fill(new Path2D(boxes(one.boxes)));
  } else if (one.kind === "line" || one.kind === "ribbon") {
    pen.strokeStyle = one.stroke;
    pen.lineWidth = one.width;
    if (one.kind === "ribbon") pen.globalAlpha = one.opacity;
    else pen.setLineDash(one.dash ? one.dash.split(" ").map(Number) : []);
    pen.stroke(new Path2D(one.kind === "ribbon" ? bend(one.from, one.to) : `M${pairs(one.points).split(" ").join("L")}`));
  } else if (one.kind === "area") {
    pen.globalAlpha = one.opacity;
    pen.fillStyle = one.fill;
    pen.fill(new Path2D(`M${pairs(one.points).split(" ").join("L")}Z`));
  } else if (one.kind === "image") {
    pen.imageSmoothingEnabled = false; // its pixels are numbers
    if (one.source) pen.drawImage(one.source, ...one.at, one.width, one.height);
  } else if (one.kind === "dot") {
    pen.beginPath();
    pen.arc(...one.at, one.radius, 0, 7);
    pen.fillStyle = one.fill;
    pen.fill();
    if (one.stroke) {
      pen.strokeStyle = one.stroke;
      pen.stroke();
    }
  } else {
    pen.fillStyle = one.fill;
    pen.translate(...one.at);
    if (one.turned) pen.rotate(-Math.PI / 2);
    const font = (share: number) => (pen.font = `${one.bold ? "bold " : ""}${share * one.size}px ${letters}`);
    const parts = one.formula ? pieces(one.text) : [];
    if (parts.length > 1) return formula(pen, parts, one, font);
    font(1);
    pen.textAlign = ({ start: "left", middle: "center", end: "right" } as const)[one.anchor];
    pen.fillText(one.text, 0, 0);
  }
}

/** A text in pieces, one behind the other. */
function formula(pen: CanvasRenderingContext2D, parts: Piece[], { size, anchor }: { size: number; anchor: "start" | "middle" | "end" }, font: (share: number) => void): void {
  const each = (does: (piece: Piece) => void) => parts.forEach((piece) => (font(piece.as ? INDEX : 1), does(piece)));
  let wide = 0;
  each(({ text }) => (wide += pen.measureText(text).width));
  let x = { start: 0, middle: -wide / 2, end: -wide }[anchor];
  pen.textAlign = "left";
  each((piece) => {
    pen.fillText(piece.text, x, below(piece, size));
    x += pen.measureText(piece.text).width;
  });
}

/** Slanted lines within boxes. */
function hatched(pen: CanvasRenderingContext2D, of: [number, number, number, number][], colour: string): void {
  pen.clip(new Path2D(boxes(of)));
  let [left, top, right, foot] = [Infinity, Infinity, 0, 0];
  for (const [x, y, w, h] of of) [left, top, right, foot] = [Math.min(left, x), Math.min(top, y), Math.max(right, x + w), Math.max(foot, y + h)];
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (let x = left - (foot - top); x < right; x += 8) {
    pen.moveTo(x, foot);
    pen.lineTo(x + foot - top, top);
  }
  pen.stroke();
}
