// What is asked for once and waited for by several.

import { afterEach, expect, test, vi } from "vitest";
import type { PageRun } from "../src/lib/protocol";
import { pending } from "../src/lib/pending.svelte";
import { Live } from "../src/lib/source";

afterEach(() => vi.unstubAllGlobals());

test("who leaves ends it for nobody else, and the last ends it", async () => {
  let answer = (_: Response) => {};
  const signals: AbortSignal[] = [];
  vi.stubGlobal("fetch", (_: string, how: RequestInit) => {
    signals.push(how.signal!);
    return new Promise<Response>((found, failed) => {
      answer = found;
      how.signal!.addEventListener("abort", () => failed(new DOMException("left", "AbortError")));
    });
  });
  const run = { id: "a", explains: [["flow", { en: "The flow", ko: "흐름" }]] } as unknown as PageRun;
  const [first, second] = [new AbortController(), new AbortController()];
  const source = new Live();
  const one = source.explanation(run, "flow", {}, { signal: first.signal });
  const two = source.explanation(run, "flow", {}, { signal: second.signal });
  await vi.waitFor(() => expect(signals).toHaveLength(1));
  expect(pending.list.map((it) => it.what)).toEqual([{ en: "The flow", ko: "흐름" }]); // as its title, not as its name
  first.abort();
  expect(signals.map((it) => it.aborted)).toEqual([false]);
  answer(new Response('{"done":{"name":"flow"}}\n'));
  expect(await two).toEqual({ name: "flow" });
  second.abort(); // what was found is kept
  expect(source.explanation(run, "flow")).toBe(two);
  expect(await one).toEqual({ name: "flow" });
  const alone = new AbortController();
  const other = source.explanation(run, "heads", {}, { signal: alone.signal });
  await vi.waitFor(() => expect(signals).toHaveLength(2));
  alone.abort();
  await expect(other).rejects.toThrow();
  expect(signals.map((it) => it.aborted)).toEqual([false, true]);
});

test("of values that were asked for together each is asked for alone where one is refused, and none where nobody answers", async () => {
  const values = Array.from({ length: 20 }, (_, i) => ({ name: `v${i}`, axes: ["t"], sizes: [3], card: "" }));
  const run = { id: "a", explains: [], values } as unknown as PageRun;
  const counted = async (answer: () => Promise<Response>): Promise<[number, string]> => {
    let count = 0;
    vi.stubGlobal("fetch", () => ((count += 1), answer()));
    const source = new Live();
    const told = await Promise.all(values.map((one) => source.value(run, one.name).then(() => "", (error: Error) => error.message)));
    return [count, [...new Set(told)].join(" | ")];
  };
  const refused = (status: number) => async () => new Response('{"refused": "no"}', { status });
  for (const status of [400, 413]) expect(await counted(refused(status))).toEqual([21, "no"]);
  for (const status of [401, 500, 503]) expect(await counted(refused(status))).toEqual([1, "no"]);
  expect((await counted(() => Promise.reject(new TypeError("failed to fetch"))))[0]).toBe(1);
  const [count, said] = await counted(async () => new Response("x")); // an answer that is none: all are told
  expect([count, said !== ""]).toEqual([1, true]);
});
