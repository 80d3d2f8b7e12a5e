import { beforeEach, expect, test } from "vitest";
import type { PageRun, PageWriting } from "../src/lib/protocol";
import { Live } from "../src/lib/source";
import { bytes, json, lines as read, outcome, Refused, sentBytes, speak, through } from "../src/lib/stream";

const run = { id: "x", explains: [], values: [] } as unknown as PageRun;
let asked: string[] = [];
const lines = (...all: unknown[]) => new Response(all.map((one) => `${JSON.stringify(one)}\n`).join(""));

beforeEach(() => {
  asked = [];
  (globalThis as unknown as { document: unknown }).document ??= { documentElement: {} };
});

test("explanations are kept by their bytes, not their number: the latest, and what one comes back to", async () => {
  const big = "1".repeat(1 << 20); // a map of a long text, in short
  through(async (path) => (asked.push(path), lines({ progress: { what: "explain", done: 0, all: 1 } }, { done: { figures: [big] } })));
  const source = new Live();
  for (let i = 0; i < 60; i++) {
    await source.explanation(run, "flow", { layer: i });
    await source.explanation(run, "flow", { layer: 0 }); // looked at all the while
  }
  expect(asked.length).toBe(60);
  await source.explanation(run, "flow", { layer: 59 });
  expect(asked.length).toBe(60);
  await source.explanation(run, "flow", { layer: 1 }); // forgotten long ago
  expect(asked.length).toBe(61);
});

test("so is what was written", () => {
  const source = new Live();
  const one = { asked: { model: "m", text: "1".repeat(1 << 20), top: 8, settings: {} }, tokens: [], written: null } as unknown as PageWriting;
  for (let i = 0; i < 20; i++) source.wrote(one);
  expect(source.writings.length).toBeGreaterThan(0);
  expect(source.writings.length).toBeLessThan(6);
});

test("of two writings that are called the same the one that has room is saved, and the other is named", async () => {
  let sent = { writings: [] as PageWriting[], left: [] as string[] };
  through(async (_, init) => ((sent = JSON.parse(init.body as string) as typeof sent), lines({ done: "" })));
  const source = new Live();
  const called = { ...run, model: "m" };
  const writing = (length: number) => ({ asked: { model: "m", text: "1".repeat(50), top: 8, settings: {} }, tokens: ["x".repeat(length)], written: null }) as unknown as PageWriting;
  [writing(1e6), writing(2e6), writing(10)].forEach((one) => source.wrote(one)); // a request takes 1.8e6
  await source.page(called, "en", "");
  expect(sent.writings.map((one) => (one.tokens[0] as unknown as string).length)).toEqual([1e6, 10]);
  expect(sent.left).toEqual([`m: ${"1".repeat(40)}…`]);
});

test("a page that is saved says how far it is, and ends with its signal", async () => {
  const [source, told, ended] = [new Live(), [] as number[], new AbortController()];
  const signals: unknown[] = [];
  through(async (_, init) => (signals.push(init.signal), lines({ progress: { what: "explain", done: 3, all: 7 } }, { done: "<html>" })));
  expect(await source.page({ ...run, model: "m" }, "ko", "", { signal: ended.signal, progress: ({ done, all }) => told.push(done, all) })).toBe("<html>");
  expect([told, signals]).toEqual([[3, 7], [ended.signal]]);
});

test("half of a character is refused wherever a text is sent, and nothing is asked", async () => {
  through(async (path) => (asked.push(path), lines({ done: {} })));
  speak("en");
  const [half, source] = ["🐈 ab\ud83d!", new Live()];
  const all = [outcome("api/runs", { model: "small", text: half }), sentBytes("api/x", [{ name: half }]), source.explanation(run, "two", { second: half }), (async () => { for await (const one of read("api/generate", { settings: { stop: [half] } })) void one; })()];
  for (const one of all) await expect(one).rejects.toThrow("position 4: a lone surrogate (U+D83D) is no character; leave it out");
  expect(asked).toEqual([]);
  await outcome("api/runs", { model: "small", text: "🐈 \\ud83d" }); // a whole one, and letters that look like it
  expect(asked).toEqual(["api/runs"]);
});

test("a server that is gone is said in a sentence, and nothing as an outcome is one", async () => {
  const told = async () => outcome("api/x").then(() => "", (error: Refused) => `${error.status} ${error.message}`);
  speak("en");
  through(() => Promise.reject(new TypeError("failed to fetch")));
  expect(await told()).toMatch(/^0 The server does not answer/);
  through(async () => lines({ progress: { what: "run", done: 0, all: 1 } })); // cut off
  expect(await told()).toMatch(/^0 The server does not answer/);
  const broken = () => new Response(new ReadableStream({ start: (control) => (control.enqueue(new TextEncoder().encode('{"event": 1}\n')), control.error(new TypeError("network error"))) }));
  through(async () => broken()); // the connection is cut within the answer, whatever is read of it
  for (const asking of [told, ...[json, bytes].map((read) => () => read("api/x").then(String, (error: Refused) => error.message))]) expect(await asking()).toMatch(/The server does not answer/);
  const written = async () => { for await (const line of read("api/generate", {})) void line; };
  await expect(written()).rejects.toThrow(/does not answer/);
  through(async () => lines({ event: 1 })); // a writing that is cut off
  await expect(written()).rejects.toThrow(/does not answer/);
  speak("ko");
  through(async () => lines({ progress: { what: "run", done: 0, all: 1 } }));
  expect(await told()).toMatch(/^0 서버가 응답하지 않습니다/);
  through(async () => lines({ done: null }));
  expect(await outcome("api/x")).toBe(null);
});

test("a refusal within a stream has the status that the server gave it", async () => {
  const status = () => outcome("api/x").then(() => null, (error: Refused) => [error.status, error.message]);
  through(async () => lines({ progress: { what: "run", done: 0, all: 1 } }, { refused: "too much", status: 413 }));
  expect(await status()).toEqual([413, "too much"]);
  through(async () => lines({ refused: "no" }));
  expect(await status()).toEqual([400, "no"]);
});

test("lines come whole however they are cut, and a long one is read in a time that grows with its length", async () => {
  const cut = (text: string, size: number) => {
    const bytes = new TextEncoder().encode(text);
    let at = 0;
    return new Response(new ReadableStream({ pull: (control) => (at < bytes.length ? control.enqueue(bytes.slice(at, (at += size))) : control.close()) }));
  };
  const all = ["가나다", "", "\n", "x".repeat(9)].map((event) => ({ event }));
  for (const size of [1, 2, 5, 16, 1000]) {
    through(async () => cut([...all, { done: 7 }].map((one) => `${JSON.stringify(one)}\n`).join("\n"), size)); // and empty lines
    const found: unknown[] = [];
    for await (const line of read("api/x")) found.push(line);
    expect(found, String(size)).toEqual([...all, { done: 7 }]);
  }
  const took = async (length: number) => {
    through(async () => cut(`${JSON.stringify({ done: "1".repeat(length) })}\n`, 4096));
    const began = performance.now();
    expect((await outcome<string>("api/x")).length).toBe(length);
    return performance.now() - began;
  };
  await took(1e6);
  const short = await took(1e6);
  expect(await took(16e6)).toBeLessThan(Math.max(2000, 16 * 5 * short)); // quadratic it is 256 times as long: half a minute
});
