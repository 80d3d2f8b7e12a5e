// Where the page's numbers come from: the server while it runs, or the file itself when the page was saved.

import { saying } from "./edits";
import { pending, type Wait } from "./pending.svelte";
import type { Asked, AskedPage, Explanation, PageRun, PageValue, PageWriting, Said, Saved, SavedRun, SeenRun } from "./protocol";
import { parse, type Tensor } from "./safetensors";
import { say } from "./say.svelte";
import * as stream from "./stream";
import { part, type Value, type Where } from "./values";

export interface Source {
  /** Whether anything new can be computed. */
  readonly live: boolean;
  run(asked: Asked, how?: stream.How): Promise<PageRun>;
  /** A value of a run, or a part of it; the same promise for the same request. */
  value(run: PageRun, name: string, where?: Where): Promise<Value>;
  explanation(run: PageRun, name: string, settings?: Record<string, string | number>, how?: stream.How): Promise<Explanation>;
  document<T>(run: PageRun, name: string, settings?: Record<string, string | number>, how?: stream.How): Promise<T>;
  /** The requests of explanations of a run that can be answered; null: any. */
  requests(run: PageRun): readonly string[] | null;
  /** Whether an explanation of a run can be had. */
  has(run: PageRun, name: string, settings?: Record<string, string | number>): boolean;
  /** The runs that there are, the page's own first; null: any can be made. */
  readonly runs: readonly PageRun[] | null;
  /** What was written, the latest last. */
  readonly writings: readonly PageWriting[];
  /** Keep what was written. */
  wrote(one: PageWriting): void;
}

/** Whether a run is the one that is asked for. */
export function answers(run: PageRun, asked: Pick<Asked, "model" | "text" | "target" | "edits">): boolean {
  const texts = run.shape === "pair" ? [run.source, asked.target ?? run.text] : [run.text, run.text];
  const plain = (edits: Asked["edits"]) => JSON.stringify(edits.map(saying));
  return run.model === asked.model && texts[0] === asked.text && texts[1] === run.text && plain(run.edits) === plain(asked.edits);
}

/** How a request for an explanation or a document is written, in the address and in a saved page alike; there, settings
 * that are as usual are left out. */
export function request(name: string, settings: Record<string, string | number> = {}, usual: Record<string, unknown> = {}): string {
  const given = Object.entries(settings).filter(([key, value]) => value !== "" && String(value) !== String(usual[key] ?? ""));
  given.sort(([a], [b]) => (a < b ? -1 : 1));
  return given.length ? `${name}?${new URLSearchParams(given.map(([k, v]) => [k, String(v)]))}` : name;
}

/** What an explanation is called for a reader. */
const titleOf = (run: PageRun, name: string): Said => run.explains.find(([one]) => one === name)?.[1] ?? { en: name, ko: name };

export function described(run: PageRun, name: string): PageValue {
  const found = run.values.find((one) => one.name === name);
  if (!found) throw new Error(`no value named ${name}`);
  return found;
}

function whole(run: PageRun, tensor: Tensor): Value {
  const { name, axes } = described(run, tensor.name);
  return { name, axes, sizes: tensor.shape, data: tensor.data, where: {} };
}

const MOST_RUNS = 64; // as many as the server keeps
const SEEN_BYTES = 1.8e6; // of what was seen, in one request

/** Of all runs this one, those of the same text or picture, and those of two texts that were compared. */
function compared(run: PageRun, runs: PageRun[], requests: (run: PageRun) => string[]): PageRun[] {
  const seconds = (one: PageRun) => requests(one).filter((it) => it.startsWith("two?")).map((it) => new URLSearchParams(it.slice(4)).get("second"));
  const firsts = runs.filter((one) => one.model === run.model && seconds(one).length > 0);
  const others = new Set(firsts.flatMap(seconds));
  const found = runs.filter((one) => (one.text === run.text && one.source === run.source && one.picture?.pixels === run.picture?.pixels) || firsts.includes(one) || (one.model === run.model && others.has(one.text)));
  // A run that was made twice stands there twice; the server puts together what was seen of both.
  return [run, ...found.filter((one) => one !== run)];
}

/** As much of what was seen as goes into one request, the latest run first; what does not is named. */
function within(runs: PageRun[], explained: Map<string, Record<string, Explanation>>, values: Map<string, Set<string>>, writings: PageWriting[]): Omit<AskedPage, "lang" | "place"> {
  const left: string[] = [];
  let room = SEEN_BYTES;
  const fits = (one: unknown, name: string): boolean => {
    const size = new Blob([JSON.stringify(one)]).size;
    const has = size <= room;
    if (has) room -= size;
    else left.push(name);
    return has;
  };
  const kept = writings.filter((one) => fits(one, `${one.asked.model}: ${one.asked.text.slice(0, 40)}…`));
  const seen = runs.map((one): SeenRun => {
    const own = Object.entries(explained.get(one.id) ?? {}).filter(([request, found]) => fits(found, `${one.model}: ${request}`));
    return { id: one.id, explanations: Object.fromEntries(own), values: [...(values.get(one.id) ?? [])] };
  });
  return { seen: seen.filter((one, i) => i === 0 || Object.keys(one.explanations).length || one.values.length), writings: kept, left };
}

const KEPT_BYTES = 96 << 20; // of values in the page at a time
const FOUND_BYTES = 64 << 20; // of explanations, of which the latest stays whatever its size
const WRITTEN_BYTES = 8 << 20; // of what was written
const PER_CHARACTER = 2; // bytes in the page that a character of JSON stands for, about

const SETTINGS: Said = { en: "settings", ko: "설정" }; // the one document

const TOGETHER = 32; // values in one answer
const TOGETHER_BYTES = 1 << 20; // a larger one comes alone
const ALONE = [400, 413]; // an answer that says that one of them cannot be given, or that together they are too much

interface Waiting {
  asked: { name: string; where: Where };
  alone: () => Promise<Tensor>;
  found: (tensor: Tensor) => void;
  failed: (error: unknown) => void;
}

export class Live implements Source {
  readonly live = true;
  readonly runs = null;
  readonly writings: PageWriting[] = [];
  private written: number[] = []; // bytes of each
  private made = new Map<string, { run: PageRun; asked: Asked }>();
  private anew = new Map<string, Promise<string>>(); // by the id of a run that the server dropped: that of the same made again
  private kept = new Map<string, { promise: Promise<Value>; bytes: number }>();
  // join: by which one more waits for what is asked for
  private asked = new Map<string, { promise: Promise<unknown>; bytes: number; join: (signal?: AbortSignal) => unknown }>();
  private waiting = new Map<string, Waiting[]>();

  requests(): null {
    return null;
  }

  has(): boolean {
    return true;
  }

  async run(asked: Asked, how?: stream.How): Promise<PageRun> {
    const found = await stream.outcome<PageRun>("api/runs", asked, how);
    this.made.set(found.id, { run: found, asked: JSON.parse(JSON.stringify(asked)) as Asked });
    if (this.made.size > MOST_RUNS) this.made.delete(this.made.keys().next().value!);
    return found;
  }

  /** Ask for something of a run. The server keeps no run for ever: one that it has dropped is made again, once. */
  private async of<T>(run: string, ask: (id: string) => Promise<T>): Promise<T> {
    const id = await this.now(run);
    try {
      return await ask(id);
    } catch (error) {
      const made = this.made.get(run);
      if (!made || !(error instanceof stream.Refused) || error.status !== 410) throw error;
      if (!this.anew.has(id)) {
        const again = stream.outcome<PageRun>("api/runs", made.asked).then((found) => found.id);
        again.catch(() => this.anew.delete(id));
        this.anew.set(id, again);
      }
      return ask(await this.anew.get(id)!);
    }
  }

  /** The id under which the server keeps a run now. */
  private async now(run: string): Promise<string> {
    let id = run;
    for (let again = this.anew.get(id); again; again = this.anew.get(id)) id = await again;
    return id;
  }

  /** The run as one file, with what was looked at beside it. place: where it opens. */
  page(run: PageRun, lang: string, place: string, how?: stream.How): Promise<string> {
    return this.of(run.id, async (id) => stream.outcome<string>(`api/runs/${id}/page`, { lang, place, ...(await this.seen(run)) }, how));
  }

  /** What was looked at, of this run and of those that the page compares it with, as far as it goes into one request. */
  private async seen(run: PageRun): Promise<Omit<AskedPage, "lang" | "place">> {
    const explained = new Map<string, Record<string, Explanation>>();
    const late = new Promise<null>((over) => setTimeout(() => over(null))); // what is not there yet was not seen
    const brought = [...this.asked].map(async ([path, { promise }]) => [path, await Promise.race([promise.catch(() => null), late])] as const);
    for (const [path, found] of await Promise.all(brought)) {
      const [, id, asked] = /^api\/runs\/([^/]+)\/explanations\/(.+)$/.exec(path) ?? [];
      if (id && found) explained.set(id, { ...explained.get(id), [asked!]: found as Explanation });
    }
    const values = new Map<string, Set<string>>();
    for (const path of this.kept.keys()) {
      const [, id, query] = /^api\/runs\/([^/]+)\/values\?(.+)$/.exec(path) ?? [];
      if (id) values.set(id, (values.get(id) ?? new Set()).add(new URLSearchParams(query).get("name")!));
    }
    const made = [...this.made.values()].map((one) => one.run);
    const runs = compared(run, made, (one) => Object.keys(explained.get(one.id) ?? {}));
    const found = within(runs, explained, values, this.writings.filter((one) => one.asked.model === run.model));
    return { ...found, seen: await Promise.all(found.seen.map(async (one) => ({ ...one, id: await this.now(one.id) }))) };
  }

  value(run: PageRun, name: string, where: Where = {}): Promise<Value> {
    const places = Object.entries(where).map(([axis, k]): [string, string] => [axis, Array.isArray(k) ? k.join(",") : String(k)]);
    const query = new URLSearchParams([["name", name], ...places]);
    const path = (id: string) => `api/runs/${id}/values?${query}`;
    const known = this.kept.get(path(run.id));
    if (known) {
      this.kept.delete(path(run.id));
      this.kept.set(path(run.id), known);
      return known.promise;
    }
    const { axes, sizes } = described(run, name);
    const left = axes.filter((axis) => typeof where[axis] !== "number");
    const count = axes.reduce((all, axis, i) => all * (where[axis] === undefined ? sizes[i]! : Array.isArray(where[axis]) ? where[axis].length : 1), 4);
    const alone = () => this.of(run.id, (id) => stream.bytes(path(id))).then((found) => parse(found).get(name)!);
    const asked = count > TOGETHER_BYTES ? alone() : this.together(run.id, { name, where }, alone);
    const promise = asked.then((tensor) => ({ name, axes: left, sizes: tensor.shape, data: tensor.data, where }));
    this.keep(path(run.id), promise, count);
    return promise;
  }

  /** Small values that are asked for at the same time come in one answer; where one of them is refused, each alone. */
  private together(run: string, asked: Waiting["asked"], alone: Waiting["alone"]): Promise<Tensor> {
    return new Promise((found, failed) => {
      const waiting = this.waiting.get(run) ?? [];
      if (!waiting.length) setTimeout(() => void this.send(run));
      waiting.push({ asked, alone, found, failed });
      this.waiting.set(run, waiting);
      if (waiting.length >= TOGETHER) void this.send(run);
    });
  }

  private async send(run: string): Promise<void> {
    const some = this.waiting.get(run) ?? [];
    this.waiting.delete(run);
    const each = () => some.forEach((one) => one.alone().then(one.found, one.failed));
    if (some.length < 2) return each();
    const asked = some.map((one) => one.asked);
    try {
      const tensors = parse(await this.of(run, (id) => stream.sentBytes(`api/runs/${id}/values`, asked)));
      some.forEach((one, i) => one.found(tensors.get(String(i))!));
    } catch (error) {
      // Of a server that is busy or gone nothing is asked once more, and 32 times at that.
      if (error instanceof stream.Refused && ALONE.includes(error.status)) each();
      else some.forEach((one) => one.failed(error));
    }
  }

  private keep(path: string, promise: Promise<Value>, bytes: number): void {
    promise.catch(() => this.kept.delete(path));
    this.kept.set(path, { promise, bytes });
    let all = 0;
    for (const one of this.kept.values()) all += one.bytes;
    for (const [old, one] of this.kept) {
      if (all <= KEPT_BYTES || old === path) break;
      this.kept.delete(old);
      all -= one.bytes;
    }
  }

  explanation(run: PageRun, name: string, settings = {}, how?: stream.How): Promise<Explanation> {
    try {
      Object.values(settings).forEach(stream.checked); // an address would carry another text, and say nothing
    } catch (error) {
      return Promise.reject(error);
    }
    return this.once(run.id, `explanations/${request(name, settings)}`, titleOf(run, name), how);
  }

  document<T>(run: PageRun, name: string, settings = {}, how?: stream.How): Promise<T> {
    return this.once(run.id, `documents/${request(name, settings)}`, SETTINGS, how);
  }

  /** title: what a reader is told while it is waited for. */
  private once<T>(run: string, what: string, title: Said, how?: stream.How): Promise<T> {
    const path = `api/runs/${run}/${what}`;
    const known = this.asked.get(path);
    if (known) {
      known.join(how?.signal);
      if (this.asked.delete(path)) this.asked.set(path, known); // it is now the latest
      return known.promise as Promise<T>;
    }
    let bytes = 0;
    const ended = new AbortController();
    const forget = () => this.asked.get(path)?.promise === promise && this.asked.delete(path);
    const end = () => (forget(), ended.abort()); // forgotten at once: who asks again must not get what is ended
    // Who leaves ends it for nobody else: it ends when the last who asked for it has left.
    let wanted = 0;
    const leave = () => (wanted -= 1) === 0 && end();
    const join = (signal?: AbortSignal) => ((wanted += 1), signal?.aborted ? leave() : signal?.addEventListener("abort", leave));
    const over = () => (pending.drop(wait), (wanted = Infinity)); // what was found is kept
    // What shows no progress itself is shown with all the rest that the view waits for, and ends with it.
    const wait: Wait = { what: title, progress: null, end };
    const progress = how?.progress ?? ((state: stream.Progress) => pending.tell(wait, state));
    if (!how?.progress) queueMicrotask(() => pending.add(wait)); // it may be asked for while the page is drawn
    const stopped = (error: unknown) => {
      throw ended.signal.aborted ? new stream.Refused(say({ en: "stopped", ko: "멈추었습니다" }), 499) : error;
    };
    const size = (characters: number) => (bytes = PER_CHARACTER * characters);
    const ask = (id: string) => stream.outcome<T>(`api/runs/${id}/${what}`, undefined, { signal: ended.signal, progress, size });
    const promise = this.of(run, ask).catch(stopped);
    promise.then(() => (over(), this.weigh(path, promise, bytes)), () => (over(), forget()));
    this.asked.set(path, { promise, bytes: 0, join });
    join(how?.signal);
    return promise;
  }

  /** Forget the explanations looked at longest ago as soon as there is too much of them. */
  private weigh(path: string, promise: Promise<unknown>, bytes: number): void {
    const one = this.asked.get(path);
    if (one?.promise === promise) one.bytes = bytes;
    let all = 0;
    for (const { bytes } of this.asked.values()) all += bytes;
    for (const [old, { bytes }] of this.asked) {
      if (all <= FOUND_BYTES || old === path) break;
      if (!bytes) continue; // it is waited for
      this.asked.delete(old);
      all -= bytes;
    }
  }

  wrote(one: PageWriting): void {
    this.writings.push(one);
    this.written.push(PER_CHARACTER * JSON.stringify(one).length);
    for (let all = this.written.reduce((sum, one) => sum + one, 0); all > WRITTEN_BYTES && this.writings.length > 1; this.writings.shift()) all -= this.written.shift()!;
  }
}

/** A saved page: everything is in the file, nothing is asked for. */
export class Kept implements Source {
  readonly live = false;
  readonly runs: readonly PageRun[];
  readonly writings: PageWriting[];
  private tensors: Map<string, Tensor>;
  private explained = new Map<string, Map<string, Explanation>>();

  constructor(
    private saved: Saved,
    values: ArrayBuffer,
  ) {
    this.tensors = parse(values);
    this.writings = [...saved.writings];
    this.runs = saved.runs.map((one) => one.run);
    for (const one of saved.runs) {
      this.explained.set(one.run.id, new Map(Object.entries(one.explanations).map(([asked, it]) => [this.usual(asked), it])));
    }
  }

  wrote(): void {} // nothing can be written

  /** What had no room in the file. */
  get left(): readonly string[] {
    return this.saved.left;
  }

  requests(run: PageRun): readonly string[] {
    return [...(this.explained.get(run.id)?.keys() ?? [])];
  }

  has(run: PageRun, name: string, settings = {}): boolean {
    return this.explained.get(run.id)?.has(request(name, settings, this.saved.usual[name])) ?? false;
  }

  async run(asked: Asked): Promise<PageRun> {
    const found = this.runs.find((one) => answers(one, asked));
    if (!found) throw this.missing(`${asked.model}: ${asked.text}`);
    return found;
  }

  async value(run: PageRun, name: string, where: Where = {}): Promise<Value> {
    const key = this.of(run)?.key;
    const tensor = this.tensors.get(key ? `${key}/${name}` : name);
    if (!tensor) throw this.missing(name);
    return part(whole(run, { ...tensor, name }), where);
  }

  async explanation(run: PageRun, name: string, settings = {}): Promise<Explanation> {
    const asked = request(name, settings, this.saved.usual[name]);
    const found = this.explained.get(run.id)?.get(asked);
    if (!found) throw this.missing(`${say(titleOf(run, name))}${asked.slice(name.length).replace("?", " · ")}`);
    return found;
  }

  async document<T>(run: PageRun, name: string, settings = {}): Promise<T> {
    const asked = request(name, settings, this.saved.usual[name]);
    const found = this.of(run)?.documents[asked];
    if (found === undefined) throw this.missing(asked);
    return found as T;
  }

  private of(run: PageRun): SavedRun | undefined {
    return this.saved.runs.find((one) => one.run.id === run.id);
  }

  /** A request with the settings left out that are as usual. */
  private usual(asked: string): string {
    const [name, query] = asked.split("?") as [string, string | undefined];
    return request(name, Object.fromEntries(new URLSearchParams(query ?? "")), this.saved.usual[name]);
  }

  private missing(what: string): stream.Refused {
    const command = this.saved.runs[0]!.run.live; // "" where no command opens the same
    const said = { en: "{what} is not in this file.", ko: "이 파일에는 {what} 항목이 없습니다." };
    const live = command ? ` ${say({ en: "Live: {command}", ko: "직접 보려면: {command}" }, { command })}` : "";
    return new stream.Refused(say(said, { what }) + live, 404);
  }
}
