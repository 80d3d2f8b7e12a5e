// What the page tells a test, as window.glassformer: the maps that are drawn, and how much it still waits for.

import type { Where } from "./values";

export interface Drawn {
  canvas: HTMLCanvasElement;
  name: string;
  figure: string; // of an explanation: "REQUEST/FIGURE", whose values these are; empty for a value of the trace
  where: Where;
  model: string; // whose numbers they are: of this model's run over this text
  text: string;
  rows: number;
  columns: number;
  values: ArrayLike<number | null>;
  colour: (i: number) => string;
  cell: [number, number];
}

export const told = { drawn: new Set<Drawn>(), asking: 0 };
(globalThis as unknown as { glassformer: typeof told }).glassformer = told;

/** The same promise, counted among what is waited for until a little after its end, when what it brought is drawn. */
export function waited<T>(promise: Promise<T>): Promise<T> {
  told.asking++;
  const over = () => setTimeout(() => told.asking--, 30);
  promise.then(over, over);
  return promise;
}
