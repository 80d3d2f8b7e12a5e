// Where a vector came from, over all layers: drawn only, from the exact parts of each single layer.

import type { Explanation, HeatMap, TokenScores } from "./protocol";

/** What one token takes in one layer, and where these numbers stand: of which request, in which row of its figures. */
export interface Row {
  /** The length of what each token hands over; null where there is no way. */
  values: readonly (number | null)[];
  /** ‖x_t‖ before the layer; 0 where nothing of it goes past the layer. */
  before: number | null;
  of: Explanation;
  from: string;
  at: number;
}

/** The rows of one layer by token, as far as they were asked for. */
export type Layer = readonly (Row | undefined)[];

const LONG = 64; // tokens; of a longer text only the rows that are looked at are asked for
const LEAST = 0.05; // of a vector: what carries less of it is not followed further down
const FOLLOWED = 12; // tokens in a layer

export const figure = <T>(of: Explanation | undefined, name: string): T | undefined => of?.figures.find((one) => one.name === name) as T | undefined;

/** Whether a text is too long for whole maps of every layer. */
export const long = (tokens: number): boolean => tokens > LONG;

/** The rows of an explanation "flow": of all tokens, or of those that were asked for. residual: whether the vector goes past the layer. */
export function rowsOf(of: Explanation, from: string, tokens: readonly number[] | null, residual = true): Map<number, Row> {
  const map = figure<HeatMap>(of, "mixing")!;
  const before = figure<TokenScores>(of, "before")?.values ?? [];
  return new Map(map.values.map((values, at) => [tokens?.[at] ?? at, { values, before: residual ? (before[at] ?? null) : 0, of, from, at }]));
}

/** For each layer below, how much of the node (layer, token) comes through each token: shares that add up to 1, the
 * residual as large as the vector that goes straight on. lit[l][t]: at the entry of layer l. What comes through a token
 * whose row was not asked for is not followed further. */
export function lit(layers: readonly (Layer | undefined)[], layer: number, token: number): Map<number, Map<number, number>> {
  const found = new Map<number, Map<number, number>>([[layer, new Map([[token, 1]])]]);
  let now = found.get(layer)!;
  for (let l = layer - 1; l >= 0; l--) {
    const one = layers[l];
    if (!one) break;
    const below = new Map<number, number>();
    const give = (s: number, share: number) => below.set(s, (below.get(s) ?? 0) + share);
    for (const [t, share] of now) {
      const row = one[t];
      if (!row) continue;
      const stays = row.before ?? 0;
      const all = row.values.reduce((sum: number, x) => sum + (x ?? 0), stays) || 1;
      give(t, (share * stays) / all);
      row.values.forEach((x, s) => x && give(s, (share * x) / all));
    }
    now = new Map([...below].filter(([, share]) => share > 0.004));
    if (!now.size) break;
    found.set(l, now);
  }
  return found;
}

/** The tokens whose rows are wanted in a layer, of the shares at its exit: those that carry enough, the first ones most. */
export function followed(shares: ReadonlyMap<number, number> | undefined): number[] {
  const most = [...(shares ?? [])].filter(([, share]) => share >= LEAST).sort((a, b) => b[1] - a[1]);
  return most.slice(0, FOLLOWED).map(([t]) => t).sort((a, b) => a - b);
}
