// One model of those side by side: its run over the sentence, and its explanations as they arrive.

import { Asking } from "./asking.svelte";
import { page } from "./page.svelte";
import type { Explanation, PageRun } from "./protocol";
import { MAP } from "./window";

export class Panel {
  run = $state.raw<PageRun | null>(null);
  refused = $state("");
  influence = new Asking();
  method = $state<"estimate" | "exact">("estimate");
  others = $state.raw<Record<string, Explanation>>({});
  private going = new AbortController();

  constructor(
    readonly model: string,
    readonly text: string,
  ) {}

  async start(own: PageRun | null): Promise<void> {
    try {
      const mine = own?.model === this.model && own.edits.length === 0 ? own : null;
      this.run = mine ?? (await page.source.run({ model: this.model, text: this.text, target: null, image: null, ids: null, start: true, edits: [], part: 0 }, { signal: this.going.signal }));
      const there = new Set(this.run.explains.map(([name]) => name));
      const long = this.run.stacks.at(-1)?.length ?? 0;
      await Promise.all(["sight", "cost", "states"].filter((name) => there.has(name) && page.source.has(this.run!, name) && (name !== "sight" || long <= MAP)).map((name) => this.add(name)));
      const method = (["estimate", "exact"] as const).find((one) => this.can(one));
      if (method) await this.measure(method);
    } catch (error) {
      if (!this.going.signal.aborted) this.refused = error instanceof Error ? error.message : String(error);
    }
  }

  private async add(name: string): Promise<void> {
    const found = await page.source.explanation(this.run!, name, {}, { signal: this.going.signal });
    this.others = { ...this.others, [name]: found };
  }

  /** Whether the influence can be had in this way. */
  can(method: "estimate" | "exact"): boolean {
    return this.run !== null && this.run.explains.some(([name]) => name === "influence") && page.source.has(this.run, "influence", { method });
  }

  async measure(method: "estimate" | "exact"): Promise<void> {
    if (!this.run) return;
    await this.influence.ask(this.run, "influence", { method });
    if (this.influence.found && !this.influence.stopped && !this.influence.refused) this.method = method;
  }

  end(): void {
    this.going.abort();
    this.influence.stop();
  }
}
