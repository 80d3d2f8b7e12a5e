import { expect, test } from "vitest";
import { read, START, written, type Place } from "../src/lib/page.svelte";

test("a place comes back from its address, whatever its texts are", () => {
  const place: Place = {
    ...START, view: "steps", model: "a/b c", text: "값 & = # % + 🐈 \n\"<b>'", second: "고양이?#x=1", layer: 2, token: 17, key: 0, stack: 1, by: "word",
    edits: [{ kind: "scale", name: "blocks.0.mixer.z", where: { h: 1, t: [2, 3] }, value: -0.5 }], more: "explain=two%3Fa%3Db&x=1",
  };
  expect(read(`#${written(place)}`)).toEqual(place);
  expect(written(START)).toBe("");
  expect(read("")).toEqual({ ...START, edits: [] });
  expect(written(read("#layer=1"))).toBe("layer=1");
});

test("what makes no sense in an address is as at the start", () => {
  for (const odd of ["#layer=x", "#layer=1e9", "#token=12345678", "#layer=", "#edits=[{", "#edits={}", "#by=line", "#nothing=1", "#__proto__=1", "#constructor=2", "#%E0%A4%A", "#&&=&="]) expect(read(odd), odd).toEqual({ ...START, edits: [] });
  expect(read("#layer=1&layer=2").layer).toBe(2);
  expect(START.edits).toEqual([]);
});
