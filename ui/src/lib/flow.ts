// Where a vector came from, over all layers: drawn only, from the exact parts of each single layer.

export interface Layer {
  /** values[t][s]: the length of what s hands to t in this layer; null where there is no way. */
  values: (number | null)[][];
  /** ‖x_t‖ before the layer. */
  before: (number | null)[];
}

/** For each layer below, how much of the node (layer, token) comes through each token: shares that add up to 1, the
 * residual as large as the vector that goes straight on. lit[l][t]: at the entry of layer l. */
export function lit(layers: (Layer | undefined)[], layer: number, token: number): Map<number, Map<number, number>> {
  const found = new Map<number, Map<number, number>>([[layer, new Map([[token, 1]])]]);
  let now = found.get(layer)!;
  for (let l = layer - 1; l >= 0; l--) {
    const one = layers[l];
    if (!one) break;
    const below = new Map<number, number>();
    const give = (s: number, share: number) => below.set(s, (below.get(s) ?? 0) + share);
    for (const [t, share] of now) {
      const row = one.values[t] ?? [];
      const stays = one.before[t] ?? 0;
      const all = row.reduce((sum: number, x) => sum + (x ?? 0), stays) || 1;
      give(t, (share * stays) / all);
      row.forEach((x, s) => x && give(s, (share * x) / all));
    }
    now = new Map([...below].filter(([, share]) => share > 0.004));
    found.set(l, now);
  }
  return found;
}
