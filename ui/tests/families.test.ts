import { expect, test } from "vitest";
import { compared, same, SIBLINGS } from "../src/lib/families";
import { PAIRS, shared } from "../src/lib/pairs";
import type { PageCell } from "../src/lib/protocol";

const cell = (start: number, end: number, special = false): PageCell => ({ label: "", tokens: [0], start, end, special, form: "", parts: [] });

test("models are compared once each, the siblings where none were chosen", () => {
  expect(compared("")).toEqual(SIBLINGS);
  expect(compared("mlp,small,mlp,")).toEqual(["mlp", "small"]);
});

test("the same characters are found in other tokens", () => {
  const own = [cell(0, 0, true), cell(0, 1), cell(1, 4), cell(4, 6)];
  expect(own.map((one, i) => same(own, one, i))).toEqual([0, 1, 2, 3]);
  const finer = [cell(0, 1), cell(1, 2), cell(2, 4), cell(4, 5), cell(5, 6)];
  expect(same(finer, own[2], 2)).toBe(2); // its last characters: the token that has seen all of it
  expect(same(finer, own[3], 3)).toBe(4);
  const coarse = [cell(0, 0, true), cell(0, 6)];
  expect(same(coarse, own[2], 2)).toBe(1);
  expect(same(finer, undefined, 9)).toBe(4);
});

test("examples have their word in common, and other words before it", () => {
  for (const { word, first, second } of [...PAIRS.ko, ...PAIRS.en]) {
    expect(first.slice(0, first.indexOf(word))).not.toBe(second.slice(0, second.indexOf(word)));
    expect(first.includes(word) && second.includes(word)).toBe(true);
  }
});

test("words that two texts share, the longest first", () => {
  expect(shared("a star, the night", "the star")).toEqual(["star", "the"]);
  expect(shared("하나", "둘")).toEqual([]);
});
