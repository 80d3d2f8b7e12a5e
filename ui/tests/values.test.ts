import { expect, test } from "vitest";
import { parse } from "../src/lib/safetensors";
import { request } from "../src/lib/source";
import { at, bytes, explained, greatest, part, percent, python, shown, type Value } from "../src/lib/values";
import { spaced, swapped } from "../src/lib/hands";
import { points } from "../src/lib/words";

const value: Value = { name: "x", axes: ["b", "t", "e"], sizes: [1, 3, 2], data: Float32Array.of(0, 1, 10, 11, 20, 21), where: {} };

test("a part of a value is where its places say, a whole number drops its axis", () => {
  expect(part(value, { b: 0, t: 1 })).toMatchObject({ axes: ["e"], sizes: [2], data: Float32Array.of(10, 11) });
  expect(part(value, { t: [2, 0], e: 1 })).toMatchObject({ axes: ["b", "t"], sizes: [1, 2], data: Float32Array.of(21, 1) });
  expect(part(value, { b: 0, t: 2, e: 0 })).toMatchObject({ axes: [], sizes: [], data: Float32Array.of(20) });
  expect(part(value, {}).data).toEqual(value.data);
});

test("a number is written with four digits, the same everywhere", () => {
  expect([0, 1234567, -3, 0.123456, 1234.5, 1.5e-7, -2.5e9 + 0.5, NaN, Infinity, -Infinity, null].map(shown)).toEqual(["0", "1,234,567", "−3", "0.1235", "1235", "1.500e−7", "−2.500e+9", "–", "∞", "−∞", "–"]);
  expect([0, -0.00001, 0.0123, -0.0838, 0.5].map(points)).toEqual(["0 %p", "≈ 0 %p", "+1.23 %p", "−8.38 %p", "+50.0 %p"]);
  expect([0, 0.00001, 0.0123, 0.5, 1].map(percent)).toEqual(["0.00 %", "<0.01 %", "1.23 %", "50.0 %", "100.0 %"]);
  expect([5, 2048, 3 << 20].map(bytes)).toEqual(["5 B", "2.00 KiB", "3.00 MiB"]);
});

test("the largest size of more numbers than a stack holds", () => {
  const many = new Float32Array(1_000_000);
  many[7] = -3;
  expect(greatest(many)).toBe(3);
  expect(greatest([null, 1, NaN, -Infinity])).toBe(1);
});

test("addresses and the lines of Python that give the same", () => {
  expect(at({ b: 0, t: [3, 5] })).toBe("b=0,t=3,5");
  expect(python("blocks.0.mixer.v", { b: 0, s: [1, 2] })).toBe('trace.part("blocks.0.mixer.v", b=0, s=[1, 2])');
  expect(python("embed.out", {})).toBe('trace["embed.out"]');
  expect(request("flow", { rows: "3,7", layer: 2, by: "" })).toBe("flow?layer=2&rows=3%2C7");
  expect(request("flow", { layer: 0, by: "word" }, { layer: 0, by: "token" })).toBe("flow?by=word");
  expect(explained({ from: "flow?layer=2&rows=3%2C7", figure: "mixing", path: "values.1.3" })).toBe('gf.explain("flow", trace, layer=2, rows="3,7").figure("mixing").values[1][3]');
  expect(explained({ from: "two?second=%22a%22", figure: "checks", path: "closure" })).toBe('{one.name: one.value for one in gf.explain("two", trace, second="\\"a\\"").checks}["closure"]');
});

/** A safetensors file of these tensors, its header padded to an odd length by so many blanks. */
function file(tensors: Record<string, { shape: number[]; data: number[]; dtype?: string }>, blanks = 0): ArrayBuffer {
  let end = 0;
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  for (const [name, { shape, data, dtype }] of Object.entries(tensors)) header[name] = { dtype: dtype ?? "F32", shape, data_offsets: [end, (end += 4 * data.length)] };
  const text = new TextEncoder().encode(JSON.stringify(header) + " ".repeat(blanks));
  const out = new Uint8Array(8 + text.length + end);
  new DataView(out.buffer).setBigUint64(0, BigInt(text.length), true);
  out.set(text, 8);
  out.set(new Uint8Array(Float32Array.from(Object.values(tensors).flatMap((one) => one.data)).buffer), 8 + text.length);
  return out.buffer;
}

test("the file of a trace is read wherever its numbers begin", () => {
  for (const blanks of [0, 1, 2, 3]) {
    const found = parse(file({ "가.0": { shape: [2], data: [1.5, -2] }, none: { shape: [0], data: [] }, one: { shape: [], data: [7] } }, blanks));
    expect([...found.keys()]).toEqual(["가.0", "none", "one"]);
    expect([...found.values()].map((one) => [...one.data])).toEqual([[1.5, -2], [], [7]]);
  }
  expect(() => parse(file({ half: { shape: [2], data: [1], dtype: "F16" } }))).toThrow("half: numbers of type F16");
});

test("a token is swapped between its blanks", () => {
  const at = (start: number, end: number) => ({ start, end });
  expect(swapped("The cat", at(3, 5), "dog")).toEqual(["The dogat", 7]);
  expect(swapped("🐈 ab", at(1, 3), " x")).toEqual(["🐈 xb", 3]);
  expect(swapped("a b", at(1, 2), "-")).toEqual(["a-b", 2]); // a blank alone is what is swapped
  expect([spaced("The cat", at(3, 5), "c"), spaced("The cat", at(0, 3), "The"), spaced("a b", at(1, 2), "␠"), spaced("The cat", at(3, 5), "␠c")]).toEqual(["␠c", "The", "␠", "␠c"]);
});
