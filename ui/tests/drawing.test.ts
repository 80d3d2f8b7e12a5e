import { expect, test } from "vitest";
import { bend, boxes, svg, UNSEEN, type Drawing } from "../src/lib/drawing";
import { frame, graph, picture, series, type Pen } from "../src/lib/pictures";
import type { Figure, Graph, HeatMap, Series, Table, TokenScores } from "../src/lib/protocol";

const said = (text: string) => ({ en: text, ko: text });
const pen: Pen = { paper: "#ffffff", ink: "#000000", faint: "#555555", line: "#dddddd", nothing: "#eeeeee", hatch: "#cccccc", accent: "#0000ff", say: (one) => one.en, measure: (text, size) => text.length * size * 0.6 };

const map: HeatMap = {
  kind: "heat_map", name: "m", title: said("Map"), rows: ["a", "b"], columns: ["a", "b"], values: [[1, null], [0.5, 0.25]],
  row_title: said("rows"), column_title: said("columns"), unit: said("u"), scale: "plain", reasons: null, errors: null, value: "", where: {},
};
const lines: Series = { kind: "series", name: "s", title: said("Lines"), x: ["0", "1", "2"], x_title: said("x"), unit: said("u"), lines: [{ label: said("one"), values: [0, null, 4], errors: null }, { label: said("two"), values: [1, 2, 3], errors: [0.5, 0.5, 0.5] }] };
const scores: TokenScores = { kind: "token_scores", name: "t", title: said("Text"), tokens: ["<b>", "나"], values: [2, null], unit: said("u"), chosen: 0, scale: "plain", errors: null };
const web: Graph = { kind: "graph", name: "g", title: said("Graph"), unit: said("u"), layers: ["x", "y"], nodes: [{ id: "p", label: "p", layer: 0, place: 0, value: 1 }, { id: "q", label: "q", layer: 1, place: 0, value: null }], edges: [{ source: "p", target: "q", value: 3 }] };
const rows: Table = { kind: "table", name: "r", title: said("Table"), columns: [said("word"), said("n")], rows: [["어절", 5803008], ["b", null]] };

test("paths of boxes and ribbons", () => {
  expect(boxes([[1, 2, 3, 4]])).toBe("M1 2h3v4h-3z");
  expect(bend([0, 0], [10, 4])).toBe("M0 0C5 0 5 4 10 4");
});

test("letters that mean something in a file are written out", () => {
  const drawing: Drawing = { width: 10, height: 10, paper: "#fff", hatch: "#ccc", shapes: [{ kind: "text", at: [0, 0], text: '<script>&"\u0001', size: 12, fill: "#000", anchor: "start" }] };
  const text = svg(drawing);
  expect(text).toContain("&#60;script&#62;&#38;&#34;</text>");
  expect(text).not.toContain("<script");
});

test("every kind of figure becomes a file with its title and its numbers", () => {
  const files = ([map, lines, scores, web, rows] as Figure[]).map((one) => svg(picture(one, pen)));
  files.forEach((text, i) => {
    expect(text).toContain(["Map", "Lines", "Text", "Graph", "Table"][i]);
    expect(text).not.toMatch(/NaN|undefined|Infinity/);
  });
  expect(files[2]).toContain("&#60;b&#62;");
  expect(files[4]).toContain("5,803,008");
});

test("dark cells are hatched, and cells of one colour are one path", () => {
  const cells = picture(map, pen).shapes.filter((one) => one.kind === "cells");
  const dark = cells.find((one) => one.fill === UNSEEN)!;
  expect(dark.boxes).toHaveLength(1);
  expect(cells.filter((one) => one.boxes[0]![2] > 10).flatMap((one) => one.boxes)).toHaveLength(4);
});

test("a line goes through its numbers and stops where there is none", () => {
  const box = frame(lines, pen, 720, 300);
  const drawn = series(lines, pen, 720, 300).shapes;
  const whole = drawn.filter((one) => one.kind === "line" && one.points.length === 3);
  expect(whole).toHaveLength(1);
  expect(whole[0]!.kind === "line" && whole[0]!.points[1]).toEqual([box.x(1), box.y(2)]);
  expect(box.y(4)).toBeLessThan(box.y(3));
  expect(drawn.filter((one) => one.kind === "dot")).toHaveLength(5);
  expect(drawn.filter((one) => one.kind === "area")).toHaveLength(1);
});

test("a ribbon joins its nodes", () => {
  const ribbon = graph(web, pen, 400).shapes.find((one) => one.kind === "ribbon")!;
  expect([ribbon.from[0], ribbon.to[0]]).toEqual([100, 300]);
});
