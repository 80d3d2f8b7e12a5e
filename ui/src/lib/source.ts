// Where the page's numbers come from: the server while it runs, or the file itself when the page was saved.

import type { Asked, Explanation, PageRun, PageValue, Saved } from "./protocol";
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
  /** The requests of explanations that can be answered; null: any. */
  readonly requests: readonly string[] | null;
}

/** How a request for an explanation or a document is written, in the address and in a saved page alike; there, settings
 * that are as usual are left out. */
export function request(name: string, settings: Record<string, string | number> = {}, usual: Record<string, unknown> = {}): string {
  const given = Object.entries(settings).filter(([key, value]) => value !== "" && String(value) !== String(usual[key] ?? ""));
  given.sort(([a], [b]) => (a < b ? -1 : 1));
  return given.length ? `${name}?${new URLSearchParams(given.map(([k, v]) => [k, String(v)]))}` : name;
}

export function described(run: PageRun, name: string): PageValue {
  const found = run.values.find((one) => one.name === name);
  if (!found) throw new Error(`no value named ${name}`);
  return found;
}

function whole(run: PageRun, tensor: Tensor): Value {
  const { name, axes } = described(run, tensor.name);
  return { name, axes, sizes: tensor.shape, data: tensor.data, where: {} };
}

const KEPT_BYTES = 96 << 20; // of values in the page at a time

const TOGETHER = 32; // values in one answer
const TOGETHER_BYTES = 1 << 20; // a larger one comes alone

interface Waiting {
  asked: { name: string; where: Where };
  alone: () => Promise<Tensor>;
  found: (tensor: Tensor) => void;
  failed: (error: unknown) => void;
}

export class Live implements Source {
  readonly live = true;
  readonly requests = null;
  private kept = new Map<string, { promise: Promise<Value>; bytes: number }>();
  private asked = new Map<string, Promise<unknown>>();
  private waiting = new Map<string, Waiting[]>();

  run(asked: Asked, how?: stream.How): Promise<PageRun> {
    return stream.outcome<PageRun>("api/runs", asked, how);
  }

  value(run: PageRun, name: string, where: Where = {}): Promise<Value> {
    const places = Object.entries(where).map(([axis, k]): [string, string] => [axis, Array.isArray(k) ? k.join(",") : String(k)]);
    const query = new URLSearchParams([["name", name], ...places]);
    const path = `api/runs/${run.id}/values?${query}`;
    const known = this.kept.get(path);
    if (known) {
      this.kept.delete(path);
      this.kept.set(path, known);
      return known.promise;
    }
    const { axes, sizes } = described(run, name);
    const left = axes.filter((axis) => typeof where[axis] !== "number");
    const count = axes.reduce((all, axis, i) => all * (where[axis] === undefined ? sizes[i]! : Array.isArray(where[axis]) ? where[axis].length : 1), 4);
    const alone = () => stream.bytes(path).then((found) => parse(found).get(name)!);
    const asked = count > TOGETHER_BYTES ? alone() : this.together(run.id, { name, where }, alone);
    const promise = asked.then((tensor) => ({ name, axes: left, sizes: tensor.shape, data: tensor.data, where }));
    this.keep(path, promise, count);
    return promise;
  }

  /** Small values that are asked for at the same time come in one answer; where one of them is refused, each alone. */
  private together(run: string, asked: Waiting["asked"], alone: Waiting["alone"]): Promise<Tensor> {
    return new Promise((found, failed) => {
      const waiting = this.waiting.get(run) ?? [];
      if (!waiting.length) setTimeout(() => this.send(run));
      waiting.push({ asked, alone, found, failed });
      this.waiting.set(run, waiting);
      if (waiting.length >= TOGETHER) this.send(run);
    });
  }

  private send(run: string): void {
    const some = this.waiting.get(run) ?? [];
    this.waiting.delete(run);
    const each = () => some.forEach((one) => one.alone().then(one.found, one.failed));
    if (some.length < 2) return each();
    stream.sentBytes(`api/runs/${run}/values`, some.map((one) => one.asked)).then((bytes) => {
      const tensors = parse(bytes);
      some.forEach((one, i) => one.found(tensors.get(String(i))!));
    }, each);
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
    return this.once(`api/runs/${run.id}/explanations/${request(name, settings)}`, how);
  }

  document<T>(run: PageRun, name: string, settings = {}, how?: stream.How): Promise<T> {
    return this.once(`api/runs/${run.id}/documents/${request(name, settings)}`, how);
  }

  private once<T>(path: string, how?: stream.How): Promise<T> {
    const known = this.asked.get(path) as Promise<T> | undefined;
    if (known) return known;
    const promise = stream.outcome<T>(path, undefined, how);
    promise.catch(() => this.asked.delete(path));
    this.asked.set(path, promise);
    if (this.asked.size > 200) this.asked.delete(this.asked.keys().next().value!);
    return promise;
  }
}

/** A saved page: everything is in the file, nothing is asked for. */
export class Kept implements Source {
  readonly live = false;
  readonly requests: readonly string[];
  private tensors: Map<string, Tensor>;

  constructor(
    private saved: Saved,
    values: ArrayBuffer,
  ) {
    this.tensors = parse(values);
    this.requests = Object.keys(saved.explanations);
  }

  async run(): Promise<PageRun> {
    return this.saved.run;
  }

  async value(run: PageRun, name: string, where: Where = {}): Promise<Value> {
    const tensor = this.tensors.get(name);
    if (!tensor) throw this.missing(name);
    return part(whole(run, tensor), where);
  }

  async explanation(_: PageRun, name: string, settings = {}): Promise<Explanation> {
    return this.found(this.saved.explanations, name, settings);
  }

  async document<T>(_: PageRun, name: string, settings = {}): Promise<T> {
    return this.found(this.saved.documents, name, settings) as T;
  }

  private found<T>(kept: Record<string, T>, name: string, settings: Record<string, string | number>): T {
    const asked = request(name, settings, this.saved.usual[name]);
    const found = kept[asked];
    if (found === undefined) throw this.missing(asked);
    return found;
  }

  private missing(what: string): stream.Refused {
    const said = { en: "{what} is not in this file. Live: {command}", ko: "이 파일에는 {what} 항목이 없습니다. 직접 보려면: {command}" };
    return new stream.Refused(say(said, { what, command: this.saved.run.command.replace("trace", "explore") }), 404);
  }
}
