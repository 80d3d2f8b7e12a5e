// The temperature by which logits are divided: what may be chosen in the page.

import { meant, type Range } from "./numbers";

export const HEAT: Range = { least: 0.1, most: 100 };

/** The temperature that a text means; null where it is none that may be chosen. */
export const heat = (given: string): number | null => meant(given, HEAT);
