import { expect, test, vi } from "vitest";
import { edit } from "../src/lib/edits";
import { heat } from "../src/lib/heat";
import { LETTERS } from "../src/lib/letters.svelte";
import { anew, keeping, kept } from "../src/lib/more";
import { spot } from "../src/lib/own.svelte";
import { missed, page, read, running, START, unused, within, written, type Place } from "../src/lib/page.svelte";
import type { Asked, PageRun } from "../src/lib/protocol";
import { through } from "../src/lib/stream";

test("a place comes back from its address, whatever its texts are", () => {
  const place: Place = {
    ...START, view: "steps", model: "a/b c", text: "값 & = # % + 🐈 \n\"<b>'", second: "고양이?#x=1", target: "a=b&c", layer: 2, token: 17, key: 0, stack: 1, by: "word",
    edits: [edit("scale", "blocks.0.mixer.z", { h: 1, t: [2, 3] }, { value: -0.5 }), edit("patch", "blocks.1.resid_out", { t: 1 }, { run: "a&b", there: { t: 2 } })], more: "explain=two%3Fa%3Db&x=1",
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

test("what an address asks for beside the run of a file is named", () => {
  const held: Place = { ...START, text: "The dog slept", edits: [edit("zero", "blocks.0.mixer.z", { h: 1, t: 2 })] };
  const told = (hash: string) => missed(hash, read(hash), held);
  expect(told("#view=heads&layer=1")).toBe("");
  expect(told(`#${written(held)}`)).toBe("");
  expect(told(`#edits=${encodeURIComponent('[{"where":{"t":2,"h":1},"name":"blocks.0.mixer.z","kind":"zero"}]')}`)).toBe(""); // the same, written otherwise
  expect(told("#text=The+cat+ate&model=lstm&view=heads")).toBe("model=lstm, text=The cat ate");
  expect(told("#edits=[]")).toBe("edits=[]");
  expect(told("#edits=[null]")).toBe("edits=[null]");
  const cut = { ...held, edits: [edit("cut", "blocks.0.mixer", { t: 2, s: 1 })] };
  expect(missed(`#${written(cut)}`, cut, cut)).toBe("");
  expect(missed(`#${written(cut)}`, cut, { ...cut, edits: [{ ...cut.edits[0]!, renormalise: false }] })).toContain("edits=");
  expect(written(cut)).not.toMatch(/seed|renormalise|there/); // what is as usual is left out
});

test("what of an address is not what is shown is named, each part as it stands there", () => {
  const told = (hash: string, shown: Partial<Place> = {}) => unused(hash, { ...read(hash), ...shown }).join(", ");
  for (const used of ["", "#", "#view=heads&layer=1&head=2&by=word&more=x&text=a%2C+b", "#edits=%5B%5D&layer=007"]) expect(told(used), used).toBe("");
  expect(told("#edits=notjson")).toBe("edits=notjson");
  expect(told("#edits={}&layer=x&part=-1&by=line&nothing=1&token=")).toBe("edits={}, layer=x, part=-1, by=line, nothing=1, token=");
  expect(told("#view=nosuch&layer=9&head=1", { view: "flow", layer: -1 })).toBe("view=nosuch, layer=9");
  expect(told(`#edits=${"x".repeat(500)}`)).toBe(`edits=${"x".repeat(60)}…`);
  page.place = read("#view=nosuch");
  page.link = "#view=nosuch";
  page.place.view = "flow";
  page.tell();
  expect([page.unused, page.link]).toEqual(["view=nosuch", null]);
  page.tell(); // what is chosen later is no link
  expect(page.unused).toBe("");
});

test("another sentence, other changes and another model make another run; a place in it does not", () => {
  const one: Place = { ...START, edits: [] };
  for (const other of [{ text: "a" }, { model: "lstm" }, { target: "b" }, { part: 1 }, { edits: [edit("zero", "x")] }]) expect(running({ ...one, ...other })).not.toBe(running(one));
  for (const same of [{ view: "heads" }, { layer: 1, head: 2, token: 3 }, { more: "x" }, { image: "y" }]) expect(running({ ...one, ...same })).toBe(running(one));
  expect(read(within({ ...one, model: "lstm", text: "a", image: "x", part: 1, view: "heads", layer: 2, more: "hands=before%3Db" }))).toEqual({ ...one, view: "heads", layer: 2, more: "hands=before%3Db" });
});

test("the letters of the page are asked for by the ranges of its font", () => {
  expect("a␠⟨시작⟩⏎ﬀ漢→".match(LETTERS)!.join("")).toBe("␠⟨시작⟩⏎");
});

test("a place that a run does not have is brought back into it, always", () => {
  const block = (index: number) => ({ index, cross: null, mixer: { heads: 2 } });
  page.run = { stacks: [{ length: 3, blocks: [block(0), block(1)] }] } as unknown as PageRun;
  for (const odd of ["layer=99", "layer=2&stack=7", "layer=-5", "head=9&key=50&token=40", "head=-3"]) {
    page.place = read(`#${odd}`);
    expect(page.block?.index, odd).toBe(1); // before anything was mended
    page.fit();
    expect([page.block?.index, page.token, page.place.key, page.place.layer, page.place.stack], odd).toEqual([1, 2, -1, -1, -1]);
    expect(page.place.head, odd).toBe(odd.startsWith("head=9") ? 1 : 0);
  }
  page.run = null;
});

test("a place within a figure stands in the address, and goes with its text", () => {
  page.place = read("#view=explain");
  const [one, other] = [spot(() => "sight.sight"), spot(() => "a&b=c.d")];
  expect(one.now).toEqual([]);
  [one.now, other.now] = [[3, 0], [7]];
  page.place = read(`#${written(page.place)}`);
  expect([one.now, other.now]).toEqual([[3, 0], [7]]);
  one.now = [];
  expect([one.now, other.now]).toEqual([[], [7]]);
  page.place.more = keeping(page.place.more, "explain", "sight");
  page.place.more = anew(page.place.more);
  expect([other.now, kept(page.place.more, "explain")]).toEqual([[], "sight"]);
  page.place.more = "at=sight.sight%3Dx.-1.9e9";
  expect(one.now).toEqual([]);
  page.place = { ...START };
});

test("a temperature is one of those that can be chosen", () => {
  expect(["0.1", "1", " 2.5 ", "100"].map(heat)).toEqual([0.1, 1, 2.5, 100]);
  expect(["", " ", "0", "-3", "1e9", "100.1", "x", "NaN", "Infinity"].map(heat)).toEqual(Array(9).fill(null));
});

vi.mock("../src/lib/digits", () => ({ digit: (of: number) => `a drawn ${of}` })); // a browser's canvas draws it
const told = (line: object) => new Response(`${JSON.stringify(line)}\n`);
const IMAGES = { refused: "lenet reads images; choose a picture", status: 400, reads: "image" };

test("a model of images begins with a picture, and a link to a model that is not there asks for nothing else", async () => {
  const asked: [string, Asked][] = [];
  let refusal: object = IMAGES;
  through(async (path, init) => {
    const body = JSON.parse(init.body as string) as Asked;
    asked.push([path, body]);
    return told(body.image ? { done: { id: "x", stacks: [], edits: [] } } : refusal);
  });
  page.place = { ...START, model: "lenet" };
  await page.start();
  expect(asked.map(([path, { image }]) => [path, image])).toEqual([["api/runs", null], ["api/runs", "a drawn 3"]]);
  expect([page.place.view, page.place.image, page.refused]).toEqual(["image", "a drawn 3", ""]);
  asked.length = 0;
  refusal = { refused: "a/b is not on this machine yet", status: 400 };
  page.place = { ...START, model: "a/b" };
  await page.start();
  expect(asked.map(([path]) => path)).toEqual(["api/runs"]);
  expect([page.place.view, page.place.image, page.refused]).toEqual(["flow", "", "a/b is not on this machine yet"]);
});

test("what comes of a model that nobody waits for any more changes nothing", async () => {
  const late: ((answer: Response) => void)[] = [];
  through(() => new Promise((answer) => late.push(answer)));
  page.place = { ...START, model: "lenet" };
  const first = page.start();
  late[0]!(told(IMAGES));
  await vi.waitFor(() => expect(late.length).toBe(2));
  page.place = { ...START, model: "small", text: "other" };
  const second = page.start();
  late[1]!(told({ done: { id: "x", image: true, stacks: [], edits: [] } }));
  await first;
  expect([page.place.view, page.place.image, late.length]).toEqual(["flow", "", 3]);
  late[2]!(told({ done: { id: "y", stacks: [], edits: [] } }));
  await second;
  expect([page.run?.id, page.refused, late.length]).toEqual(["y", "", 3]);
});
