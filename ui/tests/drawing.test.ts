import { expect, test } from "vitest";
import { bend, boxes, paint, svg, UNSEEN, type Drawing } from "../src/lib/drawing";
import { cells, coloured, scaleOf, topOf } from "../src/lib/grid";
import { mapsDrawing } from "../src/lib/maps";
import { alignedDrawing, stripsDrawing } from "../src/lib/stepsdrawing";
import { frame, graph, picture, plane, points, series, type Pen } from "../src/lib/pictures";
import type { Figure, Graph, HeatMap, Points, Series, Table, TokenScores } from "../src/lib/protocol";

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

const cloud: Points = { kind: "points", name: "p", title: said("Cloud"), x_title: said("x"), y_title: said("y"), points: [{ label: "far", group: "b", x: 4, y: 1 }, { label: "near", group: "a", x: 0, y: 0 }, { label: "other", group: "b", x: 2, y: -1 }] };

test("a map of points has one scale for both axes, and a colour for each group", () => {
  const box = plane(cloud, pen, 700, 480);
  const [one, other] = [box.x(4) - box.x(2), box.y(-1) - box.y(1)];
  expect(one).toBeCloseTo(other, 6);
  expect(box.x(4)).toBeLessThanOrEqual(box.right);
  expect(box.x(0)).toBeGreaterThanOrEqual(box.left);
  const shapes = points(cloud, pen, 700, 480).shapes;
  const dots = shapes.filter((one) => one.kind === "dot");
  expect(dots).toHaveLength(2 + 3);
  const fill = (i: number) => (dots[i] as { fill: string }).fill;
  expect([fill(2), fill(3), fill(4)]).toEqual([fill(0), fill(1), fill(0)]);
  expect(fill(0)).not.toBe(fill(1));
  expect(dots.slice(2).map((one) => (one as { at: number[] }).at)).toEqual(cloud.points.map((one) => [box.x(one.x), box.y(one.y)]));
  for (const name of ["far", "near", "other", "a", "b"]) expect(shapes.some((one) => one.kind === "text" && one.text === name)).toBe(true);
  expect(svg(picture(cloud, pen))).toContain("Cloud</text>");
});

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

test("indices of a formula are lowered and raised in a file, and nothing else is", () => {
  const text = (said: string, formula: boolean) => svg({ width: 10, height: 10, paper: "#fff", hatch: "#ccc", shapes: [{ kind: "text", at: [0, 0], text: said, size: 10, fill: "#000", anchor: "start", formula }] });
  expect(text("x_t + <y>^2", true)).toContain('>x<tspan dy="2" font-size="7.2">t</tspan><tspan dy="-2" font-size="10"> + &#60;y&#62;^2</tspan></text>');
  expect(text("w_s^h", true)).toContain('>w<tspan dy="2" font-size="7.2">s</tspan><tspan dy="-5.5" font-size="7.2">h</tspan></text>');
  expect(text("x_t", false)).toContain(">x_t</text>");
});

test("indices of a formula are painted beside their letter, however it is aligned", () => {
  const painted: [string, number, number][] = [];
  const pen = { font: "", save() {}, restore() {}, fillRect() {}, translate() {}, measureText: (text: string) => ({ width: text.length * Number.parseFloat(pen.font) }), fillText: (text: string, x: number, y: number) => void painted.push([text, x, y]) };
  const drawn = (anchor: "start" | "middle" | "end") => {
    painted.length = 0;
    paint(pen as unknown as CanvasRenderingContext2D, { width: 10, height: 10, paper: "#fff", hatch: "#ccc", shapes: [{ kind: "text", at: [0, 0], text: "ab x_t", size: 10, fill: "#000", anchor, formula: true }] }, "sans");
    return painted.map((one) => one.slice());
  };
  expect(drawn("start")).toEqual([["ab x", 0, 0], ["t", 40, 2]]);
  expect(drawn("middle").map(([, x]) => x)).toEqual([-23.6, 16.4]);
  expect(drawn("end").map(([, x]) => x)).toEqual([-47.2, 40 - 47.2]);
});

test("a file has a title, and a picture in it is pixels", () => {
  const image = { kind: "image" as const, at: [1, 2] as [number, number], width: 28, height: 14, href: "data:image/png;base64,AAAA", source: null };
  const text = svg({ width: 30, height: 20, paper: "#fff", hatch: "#ccc", shapes: [image] }, (one) => one, "", "그림 <1>");
  expect(text).toContain("<title>그림 &#60;1&#62;</title>");
  expect(text).toContain('<image x="1" y="2" width="28" height="14" preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,AAAA"/>');
});

test("maps stand beside each other with their names, and up to where their colours go", () => {
  const one = (label: string, scale: "share" | "signed", values: (number | null)[]) => ({ label, rows: 2, columns: 2, values, scale });
  const drawing = mapsDrawing("All", [{ title: "first", maps: [one("0.0", "share", [1, 1, 1, null]), one("0.1", "signed", [-2, 1, 0, 0])] }], 40, pen);
  const texts = drawing.shapes.flatMap((it) => (it.kind === "text" ? [it.text] : []));
  expect(texts).toEqual(["All", "first", "0.0", "0.1", "±2"]);
  const drawn = drawing.shapes.filter((it) => it.kind === "cells");
  const dark = drawn.filter((it) => it.fill === UNSEEN);
  expect(dark.map((it) => it.boxes.length)).toEqual([1]);
  const area = (it: (typeof drawn)[number]) => it.boxes.reduce((sum, [, , w, h]) => sum + w * h, 0);
  expect(drawn.reduce((sum, it) => sum + area(it), 0)).toBe(2 * 40 * 40); // each cell once
  expect(drawn[0]!.boxes[0]!.slice(2)).toEqual([40, 20]); // neighbours of one colour are one box
  expect(mapsDrawing("A", [{ title: "", maps: [one("", "share", [0, 1, 1, 0])] }], 40, pen, () => ({ href: "data:,", source: null })).shapes.some((it) => it.kind === "image")).toBe(true);
  expect(cells({ ...one("", "share", [1, 1, 1, 1]), seen: (t, s) => s <= t }, 0, 0, 1).find((it) => it.kind === "cells" && it.fill === UNSEEN)).toBeDefined();
});

test("weights below 0 have a colour of their own", () => {
  expect([scaleOf([0.5, null, -0.1]), scaleOf([0.5, 3]), scaleOf([0.5, 0.5], true)]).toEqual(["signed", "plain", "share"]);
  expect([topOf("signed", [-2.5, 1]), topOf("plain", [0.2]), topOf("share", [3])]).toEqual([2.5, 1, 1]);
  const of = (values: number[]) => new Set(values.map((x) => coloured(x, scaleOf(values), topOf(scaleOf(values), values))));
  expect(of([-2, 0, 2]).size).toBe(3);
  expect(new Set([-0.4, 0, 2.8].map((x) => coloured(x, "plain", 2.8, -0.4))).size).toBe(3); // of a picture black is the lowest
  const drawn = picture({ ...map, values: [[-1, 0], [1, null]], scale: scaleOf([-1, 0, 1]) }, pen).shapes.filter((it) => it.kind === "cells").slice(0, 4);
  expect(new Set(drawn.map((it) => it.fill)).size).toBe(4);
});

test("values as strips have their names and what a single number is", () => {
  const texts = stripsDrawing("Block", [{ symbol: "q_i", name: "blocks.0.q", data: [1, -4] }, { symbol: "r", name: "rate", data: [0.5] }], pen).shapes.flatMap((it) => (it.kind === "text" ? [it.text] : []));
  expect(texts).toEqual(["Block", "q_i", "blocks.0.q", "±4", "r", "rate", "0.5000"]);
});

test("numbers that are bars on the page are bars in a file, the longest of all as long as there is room", () => {
  const two: Table = { ...rows, columns: [said("word"), said("before"), said("after")], rows: [["a", 0.5, 0.25], ["b", 0.1, null]] };
  const plain = picture(two, pen).width;
  const drawn = picture(two, pen, { bars: [1, 2] });
  const bars = drawn.shapes.filter((it) => it.kind === "cells");
  expect(bars.map((it) => it.boxes.map((box) => Math.round(box[2])))).toEqual([[120, 24], [60, 0]]);
  expect(bars[0]!.fill).not.toBe(bars[1]!.fill);
  expect(drawn.width).toBe(plain + 240);
  // Shares that the page draws as so much of its bar are so much of the bar in a file.
  const shares = picture(two, pen, { bars: [1, 2], most: 1 }).shapes.filter((it) => it.kind === "cells");
  expect(shares.map((it) => it.boxes.map((box) => Math.round(box[2])))).toEqual([[60, 12], [30, 0]]);
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

test("of a map of nothing the colours go from 0 to no other number", () => {
  const written = svg(picture({ ...map, values: [[0, null], [0, 0]] }, pen));
  expect(written).not.toContain("e−30");
  expect(svg(picture(map, pen))).toContain(">1 u</text>");
});

test("an alignment's steps: each token with its score, weight and vector, at the foot their sum", () => {
  const value = (data: number[]) => ({ name: "n", axes: [], sizes: [], where: {}, data: Float32Array.from(data) });
  const found = { title: "“y” reads", scores: value([2, 1, 0]), pattern: value([0.75, 0.25, 0]), context: value([1, -1]), listed: [0, 1], vectors: [value([3, 0]), value([0, 2])], largest: 3 };
  const heads = ["e = v·tanh", "α = softmax(e)", "h"];
  const drawing = alignedDrawing(found, heads, (s) => ["<a>", "나", "c"][s]!, "c = Σ α h", pen);
  const texts = drawing.shapes.flatMap((one) => (one.kind === "text" ? [one.text] : []));
  expect(texts).toEqual([found.title, ...heads, "<a>", "2", "75.0 %", "나", "1", "25.0 %", "c = Σ α h"]);
  const bars = drawing.shapes.flatMap((one) => (one.kind === "cells" && one.fill === pen.accent ? [one.boxes[0]![2]] : []));
  expect(bars).toEqual([80, 80 / 3]);
  expect(drawing.shapes.filter((one) => one.kind === "cells")).toHaveLength(2 + 3 * 2);
  for (const shape of drawing.shapes) if (shape.kind === "text") expect(shape.at[1]).toBeLessThan(drawing.height);
  const bare = alignedDrawing({ ...found, vectors: [] }, heads.slice(0, 2), (s) => String(s), "c", pen);
  expect(bare.shapes.filter((one) => one.kind === "cells")).toHaveLength(2 + 2);
});
