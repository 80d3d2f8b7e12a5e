import { expect, test } from "vitest";
import { laid } from "../src/lib/figures";
import { allowed, countOf, fits, highest, meant, rangeOf } from "../src/lib/numbers";
import { series, type Pen } from "../src/lib/pictures";
import type { Graph, PageSetting, Series } from "../src/lib/protocol";
import { greatest } from "../src/lib/values";

const MANY = 300_000; // a spread of so many into Math.max throws a RangeError

test("the largest of more numbers than a stack holds", () => {
  const values = Float32Array.from({ length: MANY }, (_, i) => i % 1000);
  values[7] = 5000;
  expect(() => Math.max(...values)).toThrow(RangeError);
  expect(highest(values)).toBe(5000);
  expect(highest(Array.from(values), 6000)).toBe(6000);
  expect(highest([])).toBe(-Infinity);
  expect(highest([], 1)).toBe(1);
  expect(greatest(values)).toBe(5000);
});

test("a graph and a series of so many are laid out", () => {
  const nodes = Array.from({ length: MANY }, (_, i) => ({ id: String(i), label: "", layer: i % 3, place: Math.floor(i / 3), value: null }));
  expect(laid({ nodes, edges: [], layers: [] } as unknown as Graph, 300, 1).rows).toBe(MANY / 3);
  const pen = { paper: "#fff", ink: "#000", faint: "#888", line: "#ccc", hatch: "#ccc", accent: "#00f", say: (one: { en: string }) => one.en, measure: (text: string, size: number) => text.length * size } as unknown as Pen;
  const said = { en: "x", ko: "x" };
  const values = Array.from({ length: MANY }, (_, i) => (i % 2 ? null : i));
  const figure: Series = { kind: "series", name: "a", title: said, x: values.map(String), x_title: said, unit: said, lines: [{ label: said, values, errors: null }] };
  expect(series(figure, pen, 600, 300).shapes.length).toBeGreaterThan(3);
});

test("what a number may be", () => {
  expect([0, 1, 5, 6, 2.5, NaN, Infinity].map((one) => fits(one, { least: 1, most: 5 }))).toEqual([false, true, true, false, true, false, false]);
  expect([2.5, 3].map((one) => fits(one, { whole: true }))).toEqual([false, true]);
  expect([null, undefined].map((one) => fits(one, {}))).toEqual([false, false]);
  expect(fits(null, { least: 1, empty: true })).toBe(true);
  expect(["", " ", "x", "0.05", "2"].map((one) => meant(one, { least: 0.1, most: 100 }))).toEqual([null, null, null, null, 2]);
  expect(allowed({ least: 1, most: 9, whole: true })).toEqual({ en: "Use a whole number from 1 to 9.", ko: "1 이상 9 이하의 정수를 쓰십시오." });
  expect(allowed({ least: 0 }).en).toBe("Use a number, 0 or more.");
  expect(allowed({ most: 3 }).ko).toBe("3 이하의 수를 쓰십시오.");
  expect(allowed({}).ko).toBe("수를 쓰십시오.");
  expect([0, 0.01].map((one) => fits(one, { above: 0 }))).toEqual([false, true]);
  expect(allowed({ above: 0 })).toEqual({ en: "Use a number above 0.", ko: "0보다 큰 수를 쓰십시오." });
});

test("a place may be one of those that the chosen stack and grouping have", () => {
  const setting: PageSetting = { name: "token", title: { en: "", ko: "" }, kind: "whole", usual: -1, choices: [], least: null, most: null, above: null, places: { token: [8, 3], word: [1, 2] } };
  const ends = (by: string, stack: string, of = setting) => [rangeOf(of, by, stack).least, rangeOf(of, by, stack).most];
  expect([ends("token", ""), ends("token", "0"), ends("word", "0"), ends("word", "-1"), ends("character", "1")]).toEqual([[-3, 2], [-8, 7], [-1, 0], [-2, 1], [-3, 2]]);
  expect(ends("token", "", { ...setting, least: 0 })).toEqual([0, 2]);
  expect(ends("token", "", { ...setting, places: {}, most: 128 })).toEqual([undefined, 128]);
  expect(countOf({}, "token", "")).toBeUndefined();
});
