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
