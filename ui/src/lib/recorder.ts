// What is painted with a canvas's pen, written down as SVG: of the pen's words those that the page's pictures use.

import { LETTERS, plain } from "./drawing";

const short = (x: number) => String(Math.round(x * 100) / 100);

export class Recorder {
  fillStyle = "#000000";
  strokeStyle = "#000000";
  lineWidth = 1;
  globalAlpha = 1;
  font = "12px sans-serif";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "alphabetic";
  private parts: string[] = [];
  private path = "";
  readonly texts: string[] = [];

  /** ruler: a pen that knows how wide a text is; hex: a colour as every program reads it. */
  constructor(
    private ruler: CanvasRenderingContext2D,
    private hex: (given: string) => string,
  ) {}

  beginPath(): void {
    this.path = "";
  }

  moveTo(x: number, y: number): void {
    this.path += `M${short(x)} ${short(y)}`;
  }

  lineTo(x: number, y: number): void {
    this.path += `L${short(x)} ${short(y)}`;
  }

  bezierCurveTo(...at: [number, number, number, number, number, number]): void {
    this.path += `C${at.map(short).join(" ")}`;
  }

  /** A whole circle. */
  arc(x: number, y: number, radius: number): void {
    const r = short(radius);
    this.path += `M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 0 ${short(2 * radius)} 0a${r} ${r} 0 1 0 ${short(-2 * radius)} 0z`;
  }

  fill(): void {
    this.add(`<path d="${this.path}" fill="${this.hex(this.fillStyle)}"`, "/>");
  }

  stroke(): void {
    this.add(`<path d="${this.path}" fill="none" stroke="${this.hex(this.strokeStyle)}" stroke-width="${short(this.lineWidth)}"`, "/>");
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.add(`<rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, width))}" height="${short(Math.max(0, height))}" fill="${this.hex(this.fillStyle)}"`, "/>");
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    this.add(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="none" stroke="${this.hex(this.strokeStyle)}" stroke-width="${short(this.lineWidth)}"`, "/>");
  }

  measureText(text: string): TextMetrics {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  fillText(text: string, x: number, y: number, most = Infinity): void {
    const anchor = this.textAlign === "center" ? "middle" : this.textAlign === "right" || this.textAlign === "end" ? "end" : "start";
    const size = Number.parseFloat(/([\d.]+)px/.exec(this.font)?.[1] ?? "12");
    const squeezed = this.measureText(text).width > most ? ` textLength="${short(most)}" lengthAdjust="spacingAndGlyphs"` : "";
    const down = this.textBaseline === "middle" ? 0.35 * size : 0; // not every program knows dominant-baseline
    const bold = this.font.includes("bold") ? ' font-weight="bold"' : "";
    this.texts.push(text);
    this.add(`<text x="${short(x)}" y="${short(y + down)}" font-size="${short(size)}"${bold} fill="${this.hex(this.fillStyle)}" text-anchor="${anchor}" xml:space="preserve"${squeezed}`, `>${plain(text)}</text>`);
  }

  private add(element: string, end: string): void {
    this.parts.push(`${element}${this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : ""}${end}`);
  }

  svg(width: number, height: number, paper: string, style: string, title: string): string {
    const [w, h] = [short(width), short(height)];
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" font-family="${LETTERS}">`,
      `<title>${plain(title)}</title>`,
      style && `<style>${style}</style>`,
      `<rect width="100%" height="100%" fill="${this.hex(paper)}"/>`,
      ...this.parts,
      "</svg>\n",
    ].join("\n");
  }
}
