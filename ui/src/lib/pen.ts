// What drawings are made with in this page: its colours, its language, the widths of its letters.

import { dark } from "./colour.svelte";
import { come, LETTERS } from "./letters.svelte";
import { type Drawing, paint, svg } from "./drawing";
import type { Pen } from "./pictures";
import { Recorder } from "./recorder";
import { say } from "./say.svelte";
import { bytes } from "./stream";

let ruler: CanvasRenderingContext2D | null = null;
const widths = new Map<string, number>();
let measured = 0; // when so many fonts had come

function letters(): string {
  return getComputedStyle(document.documentElement).getPropertyValue("--letters") || "sans-serif";
}

function measure(text: string, size: number): number {
  const key = `${size} ${text}`;
  if (measured !== come()) widths.clear();
  measured = come();
  let wide = widths.get(key);
  if (wide === undefined) {
    ruler ??= document.createElement("canvas").getContext("2d")!;
    ruler.font = `${size}px ${letters()}`;
    wide = ruler.measureText(text).width;
    if (widths.size > 20_000) widths.clear();
    widths.set(key, wide);
  }
  return wide;
}

/** The pen of the page as it is now; whoever asks for it draws again when theme, language or letters change. */
export function pen(): Pen {
  void [dark(), come()];
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return {
    paper: colour("--paper"), ink: colour("--ink"), faint: colour("--faint"), line: colour("--line"), nothing: colour("--nothing"),
    hatch: colour("--hatch"), accent: colour("--accent"), say: (said) => say(said), measure,
  };
}

/** A colour as every program reads it: #rrggbb. */
function hex(given: string): string {
  if (/^#[0-9a-f]{6}$/i.test(given)) return given;
  const one = document.createElement("canvas").getContext("2d")!;
  one.fillStyle = given;
  one.fillRect(0, 0, 1, 1);
  return `#${[...one.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

function handed(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const MOST_LETTERS = 600; // that an address can hold

/** The style that brings these letters along; none where the file needs none. A saved page has its letters in itself. */
async function brought(texts: string): Promise<string> {
  const of = [...new Set(texts.match(LETTERS) ?? [])].sort().slice(0, MOST_LETTERS).join("");
  if (!of) return "";
  const own = [...document.styleSheets].flatMap((one) => [...one.cssRules]).find((one) => one instanceof CSSFontFaceRule);
  if (own) return own.cssText;
  return bytes(`api/letters?${new URLSearchParams({ of })}`).then((found) => new TextDecoder().decode(found), () => "");
}

/** Numbers as the pixels of an image, each in its colour. */
export function pixels(rows: number, columns: number, fill: (i: number) => string): { href: string; source: HTMLCanvasElement } {
  const source = document.createElement("canvas");
  [source.width, source.height] = [columns, rows];
  const brush = source.getContext("2d")!;
  for (let i = 0; i < rows * columns; i++) {
    brush.fillStyle = fill(i);
    brush.fillRect(i % columns, Math.floor(i / columns), 1, 1);
  }
  return { href: source.toDataURL("image/png"), source };
}

export async function saveSvg(drawing: Drawing, name: string, title: string): Promise<void> {
  const style = await brought(title + drawing.shapes.map((one) => (one.kind === "text" ? one.text : "")).join(""));
  handed(new Blob([svg(drawing, hex, style, title)], { type: "image/svg+xml" }), `${name}.svg`);
}

const DOTS = 8192; // pixels of an image's longer side, at most

/** An image with two pixels for each of what is painted, fewer where it would be too large for one. */
export async function savePaintedPng({ width, height, paint: by }: Painted, name: string): Promise<void> {
  await document.fonts?.ready;
  const dots = Math.min(2, DOTS / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * dots), Math.ceil(height * dots)];
  const brush = canvas.getContext("2d")!;
  brush.fillStyle = pen().paper; // also of the last pixels, where its size is none of whole pixels
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.scale(dots, dots);
  by(brush);
  canvas.toBlob((blob) => blob && handed(blob, `${name}.png`), "image/png");
}

export const savePng = (drawing: Drawing, name: string): Promise<void> =>
  savePaintedPng({ ...drawing, paint: (brush) => paint(brush, drawing, letters()) }, name);

/** What is painted by a pen of its own, without a list of shapes. */
export interface Painted {
  width: number;
  height: number;
  paint: (pen: CanvasRenderingContext2D) => void;
}

export async function savePaintedSvg({ width, height, paint: by }: Painted, name: string, title: string): Promise<void> {
  const one = new Recorder(document.createElement("canvas").getContext("2d")!, hex);
  by(one as unknown as CanvasRenderingContext2D);
  handed(new Blob([one.svg(width, height, pen().paper, await brought(title + one.texts.join("")), title)], { type: "image/svg+xml" }), `${name}.svg`);
}
