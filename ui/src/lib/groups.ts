// How the tokens of a text are grouped: by themselves, by character (those that spell one together), by word (어절).

import { page, type By } from "./page.svelte";
import type { PageCell, PageRun, PageStack } from "./protocol";

const ALL: By[] = ["token", "character", "word"]; // each puts together what the one before it keeps apart

const count = (stack: PageStack, by: By): number => stack.cells[by]?.length ?? 0;

/** The groupings of a stack that differ from one another, the finest first. */
export const groupings = (stack: PageStack): By[] => ALL.filter((by, k) => k === 0 || (count(stack, by) > 0 && count(stack, by) < count(stack, ALL[k - 1]!)));

/** The grouping in which a stack is shown: the one that was chosen, or the finest that is the same. */
export const byOf = (stack: PageStack, by: By = page.place.by): By => groupings(stack).findLast((one) => ALL.indexOf(one) <= ALL.indexOf(by)) ?? "token";

/** The stack that can be grouped in most ways, of several that are shown beside each other. */
export const mostGrouped = (...runs: PageRun[]): PageStack => runs.flatMap((run) => run.stacks).reduce((best, one) => (groupings(one).length > groupings(best).length ? one : best));

/** The setting of an explanation for a grouping; by token it has none. */
export const grouped = (by: By): { by?: By } => (by === "token" ? {} : { by }) as { by?: By };

/** The grouping in which an explanation of a stack is asked for: of a saved page one that its file holds. */
export function byIn(run: PageRun, stack: PageStack, name: string, settings: Record<string, string | number> = {}): By {
  const by = byOf(stack);
  return by === "token" || page.source.has(run, name, { ...settings, by }) ? by : "token";
}

export const cellsOf = (stack: PageStack, by: By = byOf(stack)): readonly PageCell[] => stack.cells[by] ?? [];

/** Which of the cells holds a token; −1: none. */
export const placeOf = (cells: readonly PageCell[], token: number): number => cells.findIndex((cell) => cell.tokens.includes(token));

/** The token that speaks for a cell: its last, the first one that has seen all of it. */
export const speaker = (cell: PageCell | undefined): number => cell?.tokens.at(-1) ?? -1;
