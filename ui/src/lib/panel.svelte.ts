// One model of those side by side: its run over the sentence, and its explanations as they arrive.

import { Asking } from "./asking.svelte";
import { byIn, cellsOf, grouped, placeOf } from "./groups";
import { chosen } from "./own.svelte";
import { page, type By } from "./page.svelte";
import type { Explanation, PageRun } from "./protocol";
import { MAP, WHOLE } from "./window";

/** The models whose influence was asked for exactly. */
const exact = chosen("exact", "");
const models = () => exact.now.split(",").filter((one) => one);

export class Panel {
  run = $state.raw<PageRun | null>(null);
  refused = $state("");
  influence = new Asking();
  method = $state<"estimate" | "exact">("estimate");
  others = $state.raw<Record<string, Explanation>>({});
  by = $state<By>("token"); // how the tokens of its explanations are grouped
  row = $state(-1); // of a long text the one row of the influence that is shown; −1: all
  private going = new AbortController();

  constructor(
    readonly model: string,
    readonly text: string,
  ) {}

  async start(own: PageRun | null): Promise<void> {
    try {
      const mine = own?.model === this.model && own.edits.length === 0 ? own : null;
      this.run = mine ?? (await page.source.run({ model: this.model, text: this.text, target: null, image: null, ids: null, start: true, edits: [], part: 0, called: "" }, { signal: this.going.signal }));
      await this.explain();
    } catch (error) {
      if (!this.going.signal.aborted) this.refused = error instanceof Error ? error.message : String(error);
    }
  }

  /** Ask for its explanations, anew where tokens are to be grouped in another way. */
  async explain(): Promise<void> {
    const run = this.run!;
    this.by = byIn(run, run.stacks.at(-1)!, "sight");
    this.row = this.rowOf();
    [this.others, this.influence.found] = [{}, null];
    const there = new Set(run.explains.map(([name]) => name));
    const long = cellsOf(run.stacks.at(-1)!, this.by).length > MAP;
    await Promise.all(["sight", "cost", "states"].filter((name) => there.has(name) && page.source.has(run, name, this.how(name)) && !(name === "sight" && long)).map((name) => this.add(name)));
    await this.first();
  }

  private async first(): Promise<void> {
    // A file holds the exact one only where that was looked at, and shows it if its address does not say of which.
    const wished = models().includes(this.model) || (!page.source.live && !exact.now);
    const ways = wished ? (["exact", "estimate"] as const) : (["estimate", "exact"] as const);
    const method = ways.find((one) => this.can(one));
    if (method) await this.measure(method);
  }

  private rowOf(): number {
    const stack = this.run!.stacks.at(-1)!;
    const [cells, token] = [cellsOf(stack, this.by), page.place.token];
    return cells.length > WHOLE ? placeOf(cells, token >= 0 && token < stack.length ? token : stack.length - 1) : -1;
  }

  /** Another token is looked at: of a long text the influence on that one is asked for. */
  async look(): Promise<void> {
    if (!this.run || this.rowOf() === this.row) return;
    [this.row, this.influence.found] = [this.rowOf(), null];
    await this.first();
  }

  /** With what the influence is asked for. */
  asks(method: "estimate" | "exact"): Record<string, string | number> {
    return { method, ...grouped(this.by), ...(this.row < 0 ? {} : { row: this.row }) };
  }

  /** With what one of its explanations is asked for, beside a method. */
  how(name: string): { by?: By } {
    return name === "cost" || name === "states" ? {} : grouped(this.by);
  }

  private async add(name: string): Promise<void> {
    const by = this.by;
    const found = await page.source.explanation(this.run!, name, this.how(name), { signal: this.going.signal });
    if (by === this.by) this.others = { ...this.others, [name]: found };
  }

  /** Whether the influence can be had in this way. */
  can(method: "estimate" | "exact"): boolean {
    return this.run !== null && this.run.explains.some(([name]) => name === "influence") && page.source.has(this.run, "influence", this.asks(method));
  }

  async measure(method: "estimate" | "exact"): Promise<void> {
    if (!this.run) return;
    await this.influence.ask(this.run, "influence", this.asks(method));
    if (this.influence.found && !this.influence.stopped && !this.influence.refused) this.method = method;
  }

  /** Measure it exactly, and say so in the address. */
  async exactly(): Promise<void> {
    await this.measure("exact");
    if (this.method === "exact" && !models().includes(this.model)) exact.now = [...models(), this.model].join(",");
  }

  end(): void {
    this.going.abort();
    this.influence.stop();
  }
}
