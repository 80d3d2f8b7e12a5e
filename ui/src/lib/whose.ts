// Whose numbers a part of the page shows: the page's own run, or another that a view made beside it.

import { getContext, setContext } from "svelte";
import { page } from "./page.svelte";
import type { PageRun } from "./protocol";

const KEY = Symbol("run");

/** For a part: the run whose numbers stand in it. */
export function whose(): () => PageRun | null {
  return getContext<(() => PageRun) | undefined>(KEY) ?? (() => page.run);
}

/** For what surrounds parts: all numbers within are of this run. */
export function are(run: () => PageRun): void {
  setContext(KEY, run);
}

/** For a part with numbers of figures: points at one, by its explanation, its figure and the path to it. */
export function pointer(): (of: { from: string; figure: string; path: string }, value: number | null | undefined, label?: string) => void {
  const own = whose();
  return (of, value, label) => {
    if (value === null || value === undefined) return;
    const run = own();
    page.pointed = { name: `${of.from}/${of.figure}`, where: {}, value, label, figure: of, run: run && run !== page.run ? run : undefined };
  };
}

/** By what the places within a figure are kept: its explanation and its name, of another run with that run's model. */
export function spotOf(of: () => [from: string, name: string]): () => string {
  const run = whose();
  return () => {
    const [from, name] = of();
    const model = run()?.model;
    return [from.split("?")[0], name, ...(model && model !== page.run?.model ? [model] : [])].join(".");
  };
}
