// Formulas within texts, as the cards and claims write them ("x_l", "h_{t−1}", "w_ts^h"): in pieces, indices raised or
// lowered. It makes no markup: whoever draws the pieces writes each as text.

export interface Piece {
  text: string;
  as?: "sub" | "sup";
}

// What can bear an index: one letter that stands by itself (with its arrow), a function's name, or a closing bracket.
const BASE = /(?<![\p{L}\p{N}_.])(?:[A-Za-zΑ-ωΣΠ∂ℓ]['’→←]?|softmax|logit|argmax|max|min|mean|log)$|[)\]‖]$/u;
const INDEX = /([_^])(?:\{([^{}]*)\}|([ijkuvcstx]{3,4}|[A-Za-z0-9Α-ω]{1,2})(?![A-Za-z0-9_]))/gu;

export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let plain = 0; // up to here the text is in pieces
  let end = -1; // where an index ended: another may follow at once
  for (const one of text.matchAll(INDEX)) {
    const at = one.index;
    if (at !== end && !BASE.test(text.slice(0, at))) continue;
    if (at > plain) found.push({ text: text.slice(plain, at) });
    found.push({ text: one[2] ?? one[3]!, as: one[1] === "_" ? "sub" : "sup" });
    plain = end = at + one[0].length;
  }
  if (plain < text.length || !found.length) found.push({ text: text.slice(plain) });
  return found;
}
