import { expect, test } from "vitest";
import { towards } from "../src/lib/walk";

const PLACES: [number, number][] = [[10, 10], [60, 10], [12, 30], [55, 31], [90, 30], [10, 50]];
const all = PLACES.map((_, i) => ({ i })) as unknown as HTMLElement[];
const place = (one: Element) => PLACES[(one as unknown as { i: number }).i]!;
const to = (key: string, from: number) => all.indexOf(towards(key, all[from]!, all, place)!);

test("right and left go through the numbers in their order, up and down to the nearest one of the next line", () => {
  expect([to("ArrowRight", 0), to("ArrowLeft", 3), to("ArrowLeft", 0)]).toEqual([1, 2, -1]);
  expect([to("ArrowDown", 0), to("ArrowDown", 1), to("ArrowDown", 4), to("ArrowUp", 4), to("ArrowUp", 0), to("ArrowDown", 5)]).toEqual([2, 3, 5, 1, -1, -1]);
});
