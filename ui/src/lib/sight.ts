// Which tokens a layer may look at by construction, and why not at the others: as Python has it.

import { page } from "./page.svelte";
import type { HeatMap, PageMixer, PageRun } from "./protocol";
import { LONG } from "./window";

/** Why a row sees nothing of a column; "" where it sees it. */
export type Why = (t: number, s: number) => string;

const everything: Why = () => "";
const before: Why = (t, s) => (s > t ? "future" : "");

/** What a mixer lets these rows see; null where that is not known here. */
export async function sightOf(run: PageRun, mixer: PageMixer, rows: readonly number[]): Promise<Why | null> {
  if (mixer.plain) return mixer.causal ? before : everything;
  const stack = run.stacks.find((one) => one.blocks.some((block) => block.mixer.path === mixer.path));
  const layer = stack?.blocks.find((block) => block.mixer.path === mixer.path)?.index;
  if (!stack || layer === undefined || !run.explains.some(([name]) => name === "sight")) return null;
  const of = { layer, ...(stack === run.stacks.at(-1) ? {} : { stack: run.stacks.indexOf(stack) }) };
  // Of a long text those rows alone: the map of all has as many cells as the square of its tokens.
  const some = page.source.live && stack.length > LONG;
  const how = some ? { ...of, rows: rows.join(",") } : of;
  if (!page.source.has(run, "sight", how)) return null;
  try {
    const { reasons } = (await page.source.explanation(run, "sight", how)).figures[0] as HeatMap;
    return (t, s) => reasons?.[some ? rows.indexOf(t) : t]?.[s] ?? "";
  } catch {
    return null; // nothing is hatched
  }
}
