// Requests to the server, or to a notebook's kernel. What computes answers with lines of JSON: progress as it goes, at last the outcome.

import { waited } from "./told";

export interface Progress {
  what: string;
  done: number;
  all: number;
}

/** What the server refused, in its own words, which name the way out. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly reads = "", // "image": of a model that reads images and was given none
  ) {
    super(message);
  }
}

export interface How {
  signal?: AbortSignal;
  progress?: (state: Progress) => void;
  size?: (characters: number) => void; // of the outcome, as JSON
}

type Line<T> = { progress: Progress } | { event: T } | { done: T } | { refused: string; status?: number; reads?: string };

/** How a request leaves the page: to its server, unless the page stands in a notebook (kernel.ts). */
export type Send = (path: string, init: RequestInit) => Promise<Response>;

let send: Send = (path, init) => fetch(path, init);
let key = "";
let language = "ko";

const GONE: Record<string, string> = {
  en: "The server does not answer: it was stopped, or the connection is gone. Start it again and reload.",
  ko: "서버가 응답하지 않습니다. 멈추었거나 연결이 끊어졌습니다. 다시 시작한 뒤 새로 고치십시오.",
};
/** What is said where nobody answers. */
const gone = () => new Refused(GONE[language] ?? GONE.en!, 0);

export function through(other: Send): void {
  send = other;
}

/** The word with which a page of another machine asks; kept out of the address as soon as it was read. */
export function unlock(token: string): void {
  key = token;
}

export function speak(lang: string): void {
  language = lang;
}

const HALF: Record<string, string> = {
  en: "position {i}: a lone surrogate ({code}) is no character; leave it out",
  ko: "위치 {i}: 짝이 없는 서로게이트({code})는 글자가 아닙니다. 빼고 입력하십시오.",
};

/** Refuse a text that holds half of a character, as Python does: a request cannot carry it. */
export function checked<T>(text: T): T {
  const found = typeof text === "string" ? /\p{Surrogate}/u.exec(text) : null;
  if (!found) return text;
  const code = `U+${found[0].charCodeAt(0).toString(16).toUpperCase()}`;
  const at = Array.from((text as string).slice(0, found.index)).length;
  throw new Refused((HALF[language] ?? HALF.en!).replace("{i}", String(at)).replace("{code}", code), 400);
}

/** How a body is sent. */
const sent = (body: unknown): RequestInit => ({ method: "POST", headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body, (_, one: unknown) => checked(one)) });

function headers(more: Record<string, string> = {}): Record<string, string> {
  const own: Record<string, string> = { "accept-language": language, ...more };
  return key ? { ...own, authorization: `Bearer ${key}` } : own;
}

async function answered(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await send(path, { ...init, cache: "no-store", credentials: "omit" });
  } catch (error) {
    return cut(error);
  }
  if (response.ok) return response;
  const said = (await response.json().catch(() => ({}))) as { refused?: string };
  throw new Refused(said.refused ?? response.statusText, response.status);
}

/** A connection that ends within an answer. */
function cut(error: unknown): never {
  throw error instanceof DOMException && error.name === "AbortError" ? error : gone();
}

export function bytes(path: string, how: How = {}): Promise<ArrayBuffer> {
  return waited(answered(path, { headers: headers(), signal: how.signal }).then((found) => found.arrayBuffer().catch(cut)));
}

/** Bytes that are asked for with a body, as many things at once are. */
export async function sentBytes(path: string, body: unknown): Promise<ArrayBuffer> {
  return waited(answered(path, sent(body)).then((found) => found.arrayBuffer().catch(cut)));
}

export function json<T>(path: string, how: How = {}): Promise<T> {
  return waited(answered(path, { headers: headers(), signal: how.signal }).then((found) => found.json().catch(cut) as Promise<T>));
}

/** The lines of a streamed answer, one at a time, to its outcome; where it ends without one, nobody answers any more.
 * body: sent as JSON with POST; without one it is a GET. */
export async function* lines<T>(path: string, body?: unknown, how: How = {}): AsyncGenerator<Line<T>> {
  const init: RequestInit = body === undefined ? { headers: headers() } : sent(body);
  const response = await answered(path, { ...init, signal: how.signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let over = false;
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(cut);
      const pieces = (value ?? "").split("\n"); // what came before is not looked through again: a line may be very long
      const last = pieces.pop()!;
      const whole = pieces.length ? [rest + pieces[0], ...pieces.slice(1)] : [];
      rest = pieces.length ? last : rest + last;
      for (const one of whole.filter((one) => one)) {
        const line = JSON.parse(one) as Line<T>;
        over ||= "done" in line || "refused" in line;
        yield (how.size?.(one.length), line);
      }
      if (done && !over) throw gone();
      if (done) break;
    }
  } finally {
    void reader.cancel().catch(() => {}); // whoever stopped reading does not wait any more
  }
}

/** The outcome of a streamed answer; progress is told on the way. */
export function outcome<T>(path: string, body?: unknown, how: How = {}): Promise<T> {
  return waited(last<T>(path, body, how));
}

async function last<T>(path: string, body: unknown, how: How): Promise<T> {
  let found: { done: T } | undefined;
  let size = 0;
  for await (const line of lines<T>(path, body, { ...how, size: (characters) => (size = characters) })) {
    if ("progress" in line) how.progress?.(line.progress);
    else if ("refused" in line) throw new Refused(line.refused, line.status ?? 400, line.reads);
    else if ("done" in line) [found] = [line, how.size?.(size)]; // the stream is read to its end, else it would be cut
  }
  return found!.done;
}
