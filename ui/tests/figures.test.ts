import { expect, test } from "vitest";
import { apart, clipped, every, extent, flowed, laid, mark, ticks } from "../src/lib/figures";
import { kept, keeping } from "../src/lib/more";
import type { Graph } from "../src/lib/protocol";
import { greatest } from "../src/lib/values";
import { heaviest, ROWS } from "../src/lib/window";

test("marks of an axis are round and lie within it", () => {
  expect(ticks(0, 14.4)).toEqual([0, 5, 10]);
  expect(ticks(0, 1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(ticks(-0.3, 0.3, 4)).toEqual([-0.2, 0, 0.2]);
  expect(ticks(2, 2)).toEqual([2]);
});

test("a mark has no more digits than it needs", () => {
  expect([0.2, 0.6000000000001, -5, 20000, 1e9].map(mark)).toEqual(["0.2", "0.6", "−5", "20,000", "1e+9"]);
});

test("an extent holds zero, and what is no number does not count", () => {
  expect(extent([3, null, 7])).toEqual([0, 7]);
  expect(extent([-2, NaN, -1])).toEqual([-2, 0]);
  expect(extent([])).toEqual([0, 1]);
  expect(greatest([null, -4, 3, Infinity])).toBe(4);
});

test("of many weights the largest are shown, in the order of the text", () => {
  const weights = Float32Array.from({ length: 3 * ROWS }, (_, s) => (s % 3 === 1 ? 1 + s : 0));
  expect(heaviest(weights)).toEqual(Array.from({ length: ROWS }, (_, i) => 3 * i + 1));
  expect(heaviest([0.25, 0.5])).toEqual([0, 1]);
});

test("labels keep their order and their distance, as near to their lines as can be", () => {
  expect(apart([10, 12, 50], 10, 0, 100)).toEqual([10, 20, 50]);
  const found = apart([99, 98, 97], 10, 0, 100);
  expect(found).toEqual([100, 90, 80]);
});

test("as many labels as there is room for", () => {
  expect(every(10, 100, 10)).toBe(1);
  expect(every(10, 99, 10)).toBe(2);
});

test("a text is never cut within a character", () => {
  const wide = (text: string) => [...new Intl.Segmenter().segment(text)].length;
  expect(clipped("고양이", 3, wide)).toBe("고양이");
  expect(clipped("👩‍👩‍👧‍👦가나다", 3, wide)).toBe("👩‍👩‍👧‍👦가…");
  expect(clipped("가나", 0, wide)).toBe("…");
});

test("boxes flow into lines", () => {
  expect(flowed([40, 40, 40], 100, 10)).toEqual([{ x: 0, line: 0 }, { x: 50, line: 0 }, { x: 0, line: 1 }]);
});

test("nodes stand in the columns of their layers, ribbons are as wide as they are large", () => {
  const node = (id: string, layer: number, place: number) => ({ id, label: id, layer, place, value: null });
  const said = { en: "", ko: "" };
  const graph: Graph = { kind: "graph", name: "g", title: said, unit: said, layers: ["0", "1"], nodes: [node("a", 0, 0), node("b", 1, 2)], edges: [{ source: "a", target: "b", value: -2 }, { source: "a", target: "b", value: 1 }] };
  const { x, y, wide, rows } = laid(graph, 200, 10);
  expect(graph.nodes.map(x)).toEqual([50, 150]);
  expect(graph.nodes.map(y)).toEqual([5, 25]);
  expect(rows).toBe(3);
  expect(wide(graph.edges[0]!)).toBe(2 * wide(graph.edges[1]!));
});

test("what views keep in the address stands side by side", () => {
  const more = keeping(keeping("", "explain", "two?second=a%20b&word=별"), "families", "mlp,cnn");
  expect(kept(more, "explain")).toBe("two?second=a%20b&word=별");
  expect(kept(more, "families")).toBe("mlp,cnn");
  expect(kept(keeping(more, "families", ""), "families")).toBe("");
});
