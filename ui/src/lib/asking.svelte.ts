// One explanation that a view waits for: how far it is, and its end. What is asked for next ends what was before.

import { page } from "./page.svelte";
import type { Explanation, PageRun } from "./protocol";
import type { Progress } from "./stream";

export class Asking {
  found = $state.raw<Explanation | null>(null);
  progress = $state.raw<Progress | null>(null);
  refused = $state("");
  stopped = $state(false);
  busy = $state(false);
  private going: AbortController | null = null;

  async ask(run: PageRun, name: string, settings: Record<string, string | number>): Promise<void> {
    this.stop();
    const mine = (this.going = new AbortController());
    [this.refused, this.stopped, this.busy] = ["", false, true];
    try {
      const found = await page.source.explanation(run, name, settings, { signal: mine.signal, progress: (state) => this.going === mine && (this.progress = state) });
      if (this.going === mine) this.found = found;
    } catch (error) {
      if (this.going === mine) [this.found, this.refused] = [null, error instanceof Error ? error.message : String(error)];
    } finally {
      if (this.going === mine) [this.going, this.progress, this.busy] = [null, null, false];
    }
  }

  /** End it; what was found before stays. */
  stop(): void {
    if (!this.going) return;
    this.going.abort();
    [this.going, this.progress, this.stopped, this.busy] = [null, null, true, false];
  }
}
