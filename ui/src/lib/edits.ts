// Changes of a run, as the page asks for them: what makes one, when two are the same, how they stand in an address.

import type { PageEdit } from "./protocol";

const USUAL = { seed: 0, renormalise: true, run: null, there: {} };

/** A change of a value at places by axis letter. */
export const edit = (kind: PageEdit["kind"], name: string, where: PageEdit["where"] = {}, more: Partial<PageEdit> = {}): PageEdit => ({ kind, name, where, value: null, ...USUAL, ...more });

const places = (where: unknown) => Object.entries(where ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));

/** All that a change says, the same text for the same change, however it was written; of a link anything. */
export function saying(one: Partial<PageEdit> | null | undefined): string {
  const { kind, name, where, value, seed, renormalise, run, there } = { ...USUAL, ...one };
  return JSON.stringify([kind, name, places(where), value ?? null, seed, renormalise, run ?? null, places(there)]);
}

export const alike = (one: PageEdit, other: PageEdit): boolean => saying(one) === saying(other);

/** What an address says of one, which leaves out what is as usual; of a link anything. */
export const whole = (one: unknown): PageEdit => (one !== null && typeof one === "object" && !Array.isArray(one) ? { ...USUAL, ...one } : one) as PageEdit;

/** As it stands in an address: what is as usual is left out. */
export const briefly = (one: PageEdit): Partial<PageEdit> => Object.fromEntries(Object.entries(one ?? {}).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(USUAL[name as keyof typeof USUAL])));
