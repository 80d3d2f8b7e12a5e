// What the page shows: one run, one view, one chosen place in it. All of it stands in the address, so that a link
// brings another person to the same picture.

import type { Asked, PageBlock, PageEdit, PageRun, PageStack } from "./protocol";
import { Live, type Source } from "./source";
import { Refused, type Progress } from "./stream";
import type { Where } from "./values";

export type Theme = "system" | "light" | "dark";
export type By = "token" | "character" | "word";

/** One number that the reader points at: what it is called, where it stands, and how large it is. */
export interface Address {
  name: string;
  where: Where;
  value: number;
  label?: string;
  run?: PageRun; // whose number it is, where it is not that of the page's own run
  figure?: { from: string; figure: string; path: string }; // of an explanation: its request, its figure, the place in it
}

/** What stands in the address of the page. */
export interface Place {
  view: string;
  model: string;
  text: string;
  second: string; // the other sentence, of the views that compare two
  stack: number;
  layer: number; // −1: the last
  head: number;
  token: number; // whose vector is looked at; −1: the last
  key: number; // the one it looks at; −1: none
  by: By; // how tokens are grouped, where that makes a difference
  part: number; // the word, of a model that reads one at a time
  image: string; // the picture's file in base64, where it is small
  edits: PageEdit[];
  more: string; // what a view keeps of its own
}

export const START: Place = {
  view: "flow", model: "small", text: "고양이가 생선을 먹었다", second: "", stack: -1, layer: -1, head: 0,
  token: -1, key: -1, by: "character", part: 0, image: "", edits: [], more: "",
};

class Page {
  place = $state<Place>({ ...START });
  source = $state.raw<Source>(new Live());
  run = $state.raw<PageRun | null>(null);
  theme = $state<Theme>("system");
  pointed = $state.raw<Address | null>(null);
  progress = $state.raw<Progress | null>(null);
  refused = $state("");
  silent = $state(false); // a notebook's kernel says nothing
  linked = true; // whether the address leads another person here: not within a notebook
  moved: (place: string) => void = () => {}; // told where the reader is, as in an address
  private going: AbortController | null = null;

  /** The stack that is looked at: the last one, unless another was chosen. */
  get stack(): PageStack | null {
    const stacks = this.run?.stacks ?? [];
    return stacks[this.place.stack] ?? stacks[stacks.length - 1] ?? null;
  }

  get block(): PageBlock | null {
    return this.stack?.blocks.at(Math.max(-1, this.place.layer)) ?? null;
  }

  /** The position whose vector is looked at. */
  get token(): number {
    const count = this.stack?.length ?? 0;
    return this.place.token >= 0 && this.place.token < count ? this.place.token : Math.max(0, count - 1);
  }

  async start(asked: Partial<Asked> = {}): Promise<void> {
    this.going?.abort();
    const mine = (this.going = new AbortController());
    this.refused = "";
    const { model, text, edits, part, image } = this.place;
    const whole: Asked = { model, text, target: null, image: image || null, ids: null, start: true, edits, part, ...asked };
    try {
      const how = { signal: mine.signal, progress: (state: Progress) => (this.progress = state) };
      const found = await this.source.run(whole, how);
      if (mine.signal.aborted) return;
      this.run = found;
      this.pointed = null;
      this.fit();
    } catch (error) {
      if (mine.signal.aborted) return;
      this.refused = error instanceof Refused ? error.message || "offline" : String(error);
    } finally {
      if (this.going === mine) {
        this.progress = null;
        this.going = null;
      }
    }
  }

  stop(): void {
    this.going?.abort();
    this.progress = null;
  }

  /** Bring a chosen place that this run does not have back into it. */
  private fit(): void {
    const layers = this.stack?.blocks.length ?? 0;
    if (this.place.layer >= layers) this.place.layer = -1;
    this.place.head = Math.min(this.place.head, Math.max(0, (this.block?.mixer.heads ?? 1) - 1));
    if (this.place.token >= (this.stack?.length ?? 0)) this.place.token = -1;
    if (this.place.key >= (this.stack?.length ?? 0)) this.place.key = -1;
  }

  /** Begin with a run that is there already. */
  keep(run: PageRun, source: Source = this.source): void {
    this.source = source;
    this.run = run;
    this.place.model = run.model;
    this.place.text = run.text;
    this.place.edits = [...run.edits];
  }
}

export const page = new Page();

/** The place as the part of an address behind #; what is as at the start is left out. */
export function written(place: Place): string {
  const given = Object.entries(place).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(START[name as keyof Place]));
  return new URLSearchParams(given.map(([name, value]) => [name, name === "edits" ? JSON.stringify(value) : String(value)])).toString();
}

/** The place that an address names; what is missing or makes no sense is as at the start. */
export function read(hash: string): Place {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const place: Record<string, unknown> = { ...START, edits: [] };
  for (const [name, value] of given) {
    if (!Object.hasOwn(START, name)) continue;
    const old = START[name as keyof Place];
    if (typeof old === "number") {
      if (/^-?\d{1,6}$/.test(value)) place[name] = Number(value);
    } else if (name === "edits") {
      try {
        const found: unknown = JSON.parse(value);
        if (Array.isArray(found)) place[name] = found;
      } catch {
        continue; // a cut link
      }
    } else place[name] = value;
  }
  if (!["token", "character", "word"].includes(String(place.by))) place.by = START.by;
  return place as unknown as Place;
}
