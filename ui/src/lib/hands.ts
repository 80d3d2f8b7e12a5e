// What Hands on keeps of its own in the address, live and in a saved page: the temperature, the text as it was before a
// token was swapped, and of a pair the token whose outcome is looked at.

import { heat } from "./heat";
import { kept, keeping } from "./more";
import { page } from "./page.svelte";
import type { PageRun } from "./protocol";

const VIEW = "hands";
const own = () => new URLSearchParams(kept(page.place.more, VIEW));

/** Whether what a run ends in are logits, which a temperature divides. */
export const hasHeat = (run: PageRun): boolean => run.scores === "softmax" || run.scores === "sigmoid";

/** What is kept by a name: "temperature", "before"; "" for nothing. */
export const keptOf = (name: string): string => own().get(name) ?? "";

/** The temperature that was chosen, of a run that has one. */
export const temperatureOf = (run: PageRun): number => (hasHeat(run) && heat(keptOf("temperature"))) || 1;

/** Whether what is changed and where the outcome is looked at are two places: what is chosen in an encoder, to be
 * changed, is no place of the decoder. */
const apart = (run: PageRun): boolean => run.stacks.length > 1;

/** The token of the last stack whose outcome is looked at; −1: none was chosen. */
export function lookedAt(run: PageRun): number {
  const at = apart(run) ? Number(keptOf("token") || -1) : page.place.token;
  return at >= 0 && at < run.stacks.at(-1)!.length ? at : -1;
}

/** Look at another token. */
export function lookAt(run: PageRun, token: number): void {
  if (apart(run)) keep({ token: String(token) });
  else page.place.token = token;
}

/** Keep some of it; "" for nothing. */
export function keep(what: Record<string, string>): void {
  const all = own();
  for (const [name, value] of Object.entries(what)) value ? all.set(name, value) : all.delete(name);
  page.place.more = keeping(page.place.more, VIEW, all.toString());
}
