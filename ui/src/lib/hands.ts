// What Hands on does, and what it keeps of its own in the address, live and in a saved page: the temperature, the text as
// it was before a token was swapped, and of a pair the token whose outcome is looked at.

import { alike } from "./edits";
import { heat } from "./heat";
import { kept, keeping } from "./more";
import { page } from "./page.svelte";
import type { PageEdit, PageRun } from "./protocol";

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

/** Run it with these edits. */
export function change(run: PageRun, edits: PageEdit[]): void {
  page.place.edits = edits;
  if (run.shape === "pair") page.place.target = run.text; // what was written stays, whatever would be written now
  void page.start();
}

/** Whether what is changed can be left out: what the page cannot ask for, as a tensor of a notebook, it cannot. */
export const known = (run: PageRun): boolean => run.edits.length === run.changes.length;

/** Edits with one more, in the place of those of which one would undo the other: what was done to the same values, or
 * inside a part whose output is replaced as a whole. */
export const withEdit = (edits: PageEdit[], one: PageEdit): PageEdit[] => [...edits.filter((other) => spot(other) !== spot(one) && !covers(one, other) && !covers(other, one)), one];

/** Edits with a change switched on, in the place of another of the same values, or off where it is on. */
export const toggled = (edits: PageEdit[], one: PageEdit): PageEdit[] => (edits.some((other) => alike(one, other)) ? edits.filter((other) => !alike(one, other)) : withEdit(edits, one));

const covers = (one: PageEdit, other: PageEdit): boolean =>
  ["zero", "mean"].includes(one.kind) && one.name.endsWith(".out") && !Object.keys(one.where ?? {}).length && other.name.startsWith(one.name.slice(0, -"out".length));
const spot = ({ name, where }: PageEdit): string => JSON.stringify([name, Object.entries(where ?? {}).sort()]);

/** A text with a word in the place of the characters [start, end), and where that ends; the blanks around them stay. */
export function swapped(text: string, { start, end }: { start: number; end: number }, word: string): [string, number] {
  const all = Array.from(text);
  const [, before, after] = blanks(all.slice(start, end).join(""));
  const put = [...all.slice(0, start), ...(/^\s/.test(word) ? "" : before), ...word];
  return [[...put, /\s$/.test(word) ? "" : after, ...all.slice(end)].join(""), put.length];
}

/** The token of the text that holds the character before this place, the last of several that spell it; −1: none. */
export const pieceBefore = (run: PageRun, end: number): number => run.stacks.at(-1)?.cells.token?.findLast((one) => !one.special && one.start < end && one.end >= end)?.tokens.at(-1) ?? -1;

/** A token's label with a mark for each blank around it, which the label leaves out. */
export function spaced(text: string, { start, end }: { start: number; end: number }, label: string): string {
  const [, before, after] = blanks(Array.from(text).slice(start, end).join(""));
  const marks = (some: string) => "␠".repeat(Array.from(some.replace(/[^ ]/g, "")).length);
  return marks(before) + label.replace(/^␠+(?=[^␠])|(?<=[^␠])␠+$/g, "") + marks(after);
}

/** The blanks before and behind what is not blank; of blanks alone, none. */
const blanks = (text: string): [string, string, string] => (text.trim() === "" ? [text, "", ""] : [text, /^\s*/.exec(text)![0], /\s*$/.exec(text)![0]]);
