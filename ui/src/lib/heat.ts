// The temperature by which logits are divided: what may be chosen in the page.

export const LEAST = 0.1;
export const MOST = 100;

/** The temperature that a text means; null where it is none that may be chosen. */
export function heat(given: string): number | null {
  const value = given.trim() === "" ? NaN : Number(given);
  return value >= LEAST && value <= MOST ? value : null;
}
