// Numbers that a person writes into a field: which are allowed, and what is said of others; and the largest of many.

import type { PageSetting, Said } from "./protocol";

/** What a number may be; without an end it goes on for ever. */
export interface Range {
  least?: number;
  most?: number;
  /** What it must be larger than. */
  above?: number;
  whole?: boolean;
  /** Whether nothing may stand there too. */
  empty?: boolean;
}

/** How many places there are to choose from in the grouping and the stack that are chosen; undefined: that is not known. */
export const countOf = (places: PageSetting["places"], by: string, stack: string): number | undefined => (places[by] ?? places.token)?.at(stack === "" ? -1 : Number(stack));

/** What a setting of an explanation may be, which is a number or nothing. by, stack: what is chosen beside it. */
export function rangeOf({ kind, least, most, above, places }: PageSetting, by: string, stack: string): Range {
  const count = countOf(places, by, stack);
  const range = { above: above ?? undefined, whole: kind === "whole", empty: true };
  if (count === undefined) return { ...range, least: least ?? undefined, most: most ?? undefined };
  return { ...range, least: least ?? -count, most: count - 1 };
}

/** Whether a number is one that is allowed. null: nothing stands there. */
export function fits(value: number | null | undefined, { least = -Infinity, most = Infinity, above = -Infinity, whole = false, empty = false }: Range): boolean {
  if (value === null || value === undefined) return empty;
  return value >= least && value > above && value <= most && Number.isFinite(value) && (!whole || Number.isInteger(value));
}

/** The number that a text means; null where it is none that is allowed. */
export function meant(given: string, range: Range): number | null {
  const value = given.trim() === "" ? null : Number(given);
  return fits(value, range) ? value : null;
}

/** What is said beside a field with a number that is not allowed. */
export function allowed({ least, most, above, whole = false }: Range): Said {
  const [a, number] = whole ? ["a whole number", "정수"] : ["a number", "수"];
  if (above !== undefined) return { en: `Use ${a} above ${above}.`, ko: `${above}보다 큰 ${number}를 쓰십시오.` };
  if (least !== undefined && most !== undefined) return { en: `Use ${a} from ${least} to ${most}.`, ko: `${least} 이상 ${most} 이하의 ${number}를 쓰십시오.` };
  if (least !== undefined) return { en: `Use ${a}, ${least} or more.`, ko: `${least} 이상의 ${number}를 쓰십시오.` };
  if (most !== undefined) return { en: `Use ${a}, ${most} or less.`, ko: `${most} 이하의 ${number}를 쓰십시오.` };
  return { en: `Use ${a}.`, ko: `${number}를 쓰십시오.` };
}

/** The smallest of numbers and `from`. */
export function lowest(values: ArrayLike<number>, from = Infinity): number {
  let least = from;
  for (let i = 0; i < values.length; i++) least = Math.min(least, values[i]!);
  return least;
}

/** The largest of numbers and `from`; a spread of hundreds of thousands into Math.max would overflow the stack. */
export function highest(values: Iterable<number>, from = -Infinity): number {
  let most = from;
  for (const one of values) most = Math.max(most, one);
  return most;
}
