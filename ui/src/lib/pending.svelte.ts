// What the page waits for that shows no bar of its own, so that one line can say how far it is and end it.

import type { Said } from "./protocol";
import type { Progress } from "./stream";

export interface Wait {
  what: Said; // the title of an explanation
  progress: Progress | null;
  end: () => void;
}

class Pending {
  list = $state.raw<readonly Wait[]>([]);
  /** Whether the reader ended what the view waited for. */
  stopped = $state(false);

  add(one: Wait): void {
    this.list = [...this.list, one];
  }

  tell(one: Wait, progress: Progress): void {
    one.progress = progress;
    this.list = [...this.list];
  }

  drop(one: Wait): void {
    this.list = this.list.filter((other) => other !== one);
  }

  /** End all of it: another view is shown, or another run. */
  leave(): void {
    this.stopped = false;
    for (const one of this.list) one.end();
    this.list = [];
  }

  /** End all of it, since the reader wants no more of it. */
  stop(): void {
    this.leave();
    this.stopped = true;
  }
}

export const pending = new Pending();
