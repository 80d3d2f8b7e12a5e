import { expect, test } from "vitest";
import { followed, lit, long, rowsOf, type Row } from "../src/lib/flow";
import type { Explanation } from "../src/lib/protocol";
import { around, LONG } from "../src/lib/window";

const said = { en: "", ko: "" };
const explanation = (values: (number | null)[][], before: number[]): Explanation => ({
  name: "flow", title: said, claim: said, checks: [], python: "", command: "",
  figures: [
    { kind: "heat_map", name: "mixing", title: said, rows: [], columns: [], values, row_title: said, column_title: said, unit: said, scale: "plain", reasons: null, errors: null, value: "", where: {} },
    { kind: "token_scores", name: "before", title: said, tokens: [], values: before, unit: said, chosen: null, scale: "plain", errors: null },
  ],
});
const layer = (values: (number | null)[][], before: number[]): Row[] => [...rowsOf(explanation(values, before), "flow", null).values()];

test("rows belong to the tokens that were asked for, and know their place", () => {
  const some = rowsOf(explanation([[1, null], [2, 3]], [5, 7]), "flow?rows=4%2C9", [4, 9]);
  expect([...some.keys()]).toEqual([4, 9]);
  expect(some.get(9)).toMatchObject({ values: [2, 3], before: 7, at: 1, from: "flow?rows=4%2C9" });
  expect([...rowsOf(explanation([[1]], [1]), "flow", null).keys()]).toEqual([0]);
});

test("what comes through the tokens below adds up to the whole", () => {
  const one = layer([[1, null, null], [1, 2, null], [1, 1, 2]], [4, 3, 4]);
  const shares = lit([one, one], 2, 2);
  expect(shares.get(2)).toEqual(new Map([[2, 1]]));
  expect(shares.get(1)!.get(2)).toBeCloseTo(6 / 8);
  expect(shares.get(1)!.get(0)).toBeCloseTo(1 / 8);
  for (const l of [0, 1]) expect([...shares.get(l)!.values()].reduce((a, b) => a + b)).toBeCloseTo(1);
});

test("where nothing goes past a layer, all of a vector came through what its mixer took", () => {
  const one = [...rowsOf(explanation([[1, null], [1, 3]], [9, 9]), "flow", null, false).values()];
  expect(lit([one], 1, 1).get(0)).toEqual(new Map([[1, 3 / 4], [0, 1 / 4]]));
});

test("a row that was not asked for ends its way, a layer without any ends all", () => {
  const one: (Row | undefined)[] = layer([[1, null], [1, 1]], [1, 2]);
  const below: (Row | undefined)[] = [undefined, one[1]];
  expect([...lit([below, one], 2, 1).get(0)!.values()].reduce((a, b) => a + b)).toBeCloseTo(0.75);
  expect([...lit([undefined, one], 2, 1).keys()].sort()).toEqual([1, 2]);
  expect(lit([[], []], 2, 1).size).toBe(1);
});

test("only what carries enough is followed, at most twelve, in the order of the text", () => {
  expect(followed(new Map([[7, 0.5], [3, 0.2], [5, 0.04]]))).toEqual([3, 7]);
  expect(followed(new Map(Array.from({ length: 15 }, (_, i) => [i, 0.05 + i / 1000])))).toEqual(Array.from({ length: 12 }, (_, i) => i + 3));
  expect(followed(undefined)).toEqual([]);
  expect([long(64), long(65)]).toEqual([false, true]);
});

test("a piece of a long axis holds the chosen place, and never leaves the axis", () => {
  expect(around(5, LONG)).toEqual([0, LONG]);
  for (let at = 0; at < 500; at++) {
    const [first, end] = around(at, 500);
    expect(end - first).toBe(96);
    expect(first >= 0 && end <= 500 && first <= at && at < end).toBe(true);
    if (at >= 24 && at < 476) expect(at - first >= 24 && end - at > 24).toBe(true);
  }
});
