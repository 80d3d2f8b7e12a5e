// Digits in a few strokes, and strokes as the file of a picture: something to show to a model of images.

const SIDE = 28;
const STROKES = [
  "M14 5 C8 5 7 10 7 14 S8 23 14 23 S21 18 21 14 S20 5 14 5", "M10 9 L15 5 L15 23", "M8 10 C8 3 20 3 20 10 C20 15 10 18 8 23 L21 23",
  "M8 7 C12 3 20 5 19 10 C18 13 14 13 13 13 C20 13 22 21 15 23 C12 24 9 22 8 20", "M17 23 L17 5 L7 17 L22 17", "M20 5 L10 5 L9 13 C15 10 21 14 20 19 C19 24 10 24 8 20",
  "M18 5 C11 7 8 14 8 18 C8 25 20 25 20 18 C20 13 11 12 8 18", "M7 6 L21 6 L12 23", "M14 13 C8 11 9 5 14 5 S20 11 14 13 C7 15 7 23 14 23 S21 15 14 13", "M19 11 C19 4 9 4 9 11 C9 17 19 16 19 10 C19 16 18 20 15 23",
];

/** A digit as base64 of a PNG, white on black. */
export function digit(n: number): string {
  return drawn((pen) => pen.stroke(new Path2D(STROKES[n] ?? STROKES[0]!)));
}

/** What a pen draws on a small black square, as base64 of a PNG. */
export function drawn(draw: (pen: CanvasRenderingContext2D) => void): string {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const pen = canvas.getContext("2d")!;
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, SIDE, SIDE);
  pen.strokeStyle = "#fff";
  pen.lineWidth = 2.4;
  pen.lineCap = pen.lineJoin = "round";
  draw(pen);
  return canvas.toDataURL("image/png").split(",")[1]!;
}
