// What the page begins with, whatever is there.

import { afterEach, expect, test, vi } from "vitest";
import { choose, chosen, opened, toldOf, Unopened } from "../src/lib/begin";

afterEach(() => vi.unstubAllGlobals());

const packed = async (text: string) => {
  const bytes = await new Response(new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  return btoa(String.fromCharCode(...new Uint8Array(bytes)));
};
const SAVED = JSON.stringify({ runs: [{ run: { id: "saved" }, key: "", explanations: {}, documents: {} }], usual: {}, writings: [], left: ["x"], place: "" });
const NONE = "\x02\0\0\0\0\0\0\0{}"; // a safetensors file without a value

test("of what was chosen before that holds which makes sense, and what is chosen is kept beside it", () => {
  const kept = new Map<string, string>();
  vi.stubGlobal("localStorage", { getItem: (name: string) => kept.get(name) ?? null, setItem: (name: string, one: string) => kept.set(name, one) });
  vi.stubGlobal("sessionStorage", { removeItem: () => {} });
  expect(chosen()).toEqual({});
  for (const odd of ["null", "5", "[]", "{", "", '{"lang":"fr","theme":5}', '{"theme":null}']) {
    kept.set("glassformer", odd);
    expect(chosen(), odd).toEqual({});
    choose({ theme: "dark" });
    choose({ lang: "en" });
    expect(chosen(), odd).toEqual({ lang: "en", theme: "dark" });
  }
  vi.stubGlobal("localStorage", { getItem: () => { throw new DOMException("denied", "SecurityError"); } });
  expect(chosen()).toEqual({});
  choose({ lang: "ko" });
});

test("a saved page that cannot be read says why, and what to do", async () => {
  const [saved, none] = [await packed(SAVED), await packed(NONE)];
  const [found, source] = await opened(saved, none);
  expect([found.place, source.left]).toEqual(["", ["x"]]);
  const told = (...given: [string, string]) => opened(...given).then(() => "", (error: unknown) => (error instanceof Unopened ? toldOf(error) : error));
  const cut = (text: string) => text.slice(0, 4 * Math.floor(text.length / 8));
  for (const given of [[cut(saved), none], [saved, cut(none)], [saved, ""], ["", none], ["!", none], [await packed("{"), none], [await packed("{}"), none], [saved, await packed("x")]] as [string, string][]) expect(await told(...given)).toMatch(/^파일이 손상되었거나/);
  vi.stubGlobal("DecompressionStream", undefined);
  expect(await told(saved, none)).toMatch(/^이 브라우저는 오래되어/);
  expect(toldOf(new TypeError("x is null"))).toContain("(x is null)");
});
