// What the page shows: one run, one view, one chosen place in it. All of it stands in the address, so that a link
// brings another person to the same picture.

import type { Asked, PageBlock, PageEdit, PageMixer, PageRun, PageStack } from "./protocol";
import { Live, type Source } from "./source";
import { digit } from "./digits";
import { briefly, saying, whole } from "./edits";
import { Refused, type Progress } from "./stream";
import type { Where } from "./values";

export type Theme = "system" | "light" | "dark";
export type By = "token" | "character" | "word";

/** One number that the reader points at: what it is called, where it stands, and how large it is. */
interface Address {
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
  target: string; // what a pair's model is given to have written; "": what it writes itself
  second: string; // the other sentence, of the views that compare two
  stack: number;
  cross: number; // 1: of a layer that reads the source too, that reading
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
  view: "flow", model: "small", text: "고양이가 생선을 먹었다", target: "", second: "", stack: -1, cross: 0, layer: -1, head: 0,
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
  stopped = $state(false); // the last run, by the reader
  stale = $state(false); // the run is of another text or picture than the one that was asked for last
  elsewhere = $state(""); // what the address asks of a saved page and its file does not hold
  link = $state.raw<string | null>(null); // the address by which one came, until its run is there
  unused = $state(""); // what of it cannot be used
  silent = $state(false); // a notebook's kernel says nothing
  linked = true; // whether the address leads another person here: not within a notebook
  moved: (place: string) => void = () => {}; // told where the reader is, as in an address
  private going: AbortController | null = null;
  private of = { model: "", text: "", target: "", image: "" }; // what the run that is shown was asked for with
  private asked: [Partial<Asked>, (run: PageRun) => void] = [{}, () => {}];
  private large = { model: "", image: "" }; // the picture that was asked for last, where it is too large for an address
  private shownLarge = this.large; // and the one that is shown

  /** The stack that is looked at: the last one, unless another was chosen. */
  get stack(): PageStack | null {
    const stacks = this.run?.stacks ?? [];
    return stacks[this.place.stack] ?? stacks[stacks.length - 1] ?? null;
  }

  get block(): PageBlock | null {
    const blocks = this.stack?.blocks ?? [];
    return blocks[this.place.layer] ?? blocks.at(-1) ?? null;
  }

  /** What the chosen layer mixes with: its reading of the source, where that was chosen. */
  get mixer(): PageMixer | null {
    return (this.place.cross === 1 && this.block?.cross) || (this.block?.mixer ?? null);
  }

  /** The stack whose tokens that mixer looks at. */
  get looked(): PageStack | null {
    return this.mixer && this.mixer === this.block?.cross ? this.run!.stacks[0]! : this.stack;
  }

  /** The position whose vector is looked at. */
  get token(): number {
    const count = this.stack?.length ?? 0;
    return this.place.token >= 0 && this.place.token < count ? this.place.token : Math.max(0, count - 1);
  }

  /** Run what was chosen. made: is told the run before anything of it is shown, as to look at another place in it. */
  async start(asked: Partial<Asked> = {}, made: (run: PageRun) => void = () => {}): Promise<void> {
    this.going?.abort();
    const mine = (this.going = new AbortController());
    this.asked = [asked, made];
    [this.refused, this.stopped, this.unused] = ["", false, ""];
    const { model, text, target, edits, part, image } = this.place;
    this.replaced();
    if (asked.image && !image) this.large = { model, image: asked.image };
    else if (image || this.large.model !== model) this.large = { model: "", image: "" };
    const whole: Asked = { model, text, target: target || null, image: image || this.large.image || null, ids: null, start: true, edits, part, called: "", ...asked };
    try {
      const how = { signal: mine.signal, progress: (state: Progress) => this.going === mine && (this.progress = state) };
      const found = await this.source.run(whole, how).catch((error) => {
        // A model of images that is opened without one begins with a picture that is always there. Nothing else is asked
        // for: a link that somebody opened must not fetch a model.
        if (whole.image !== null || mine.signal.aborted || !(error instanceof Refused && error.reads === "image")) throw error;
        const { view } = this.place;
        this.pictured();
        if (view !== START.view) this.place.view = view;
        return this.source.run({ ...whole, image: this.place.image }, how);
      });
      if (mine.signal.aborted) return;
      this.run = found;
      this.named();
      this.pointed = null;
      made(found);
      this.fit();
    } catch (error) {
      if (mine.signal.aborted) return;
      this.link = null; // there is nothing of which it could be said what the link asks for in vain
      this.refused = error instanceof Refused ? error.message : String(error);
    } finally {
      if (this.going === mine) {
        this.progress = null;
        this.going = null;
      }
    }
  }

  /** Of a picture that could not be read the one before stays, and others can be chosen. */
  restored(): void {
    this.place.image = this.of.image;
    this.large = this.shownLarge;
    this.stale = false;
  }

  stop(): void {
    this.stopped = this.going !== null;
    this.going?.abort();
    this.progress = null;
  }

  /** Run once more what was stopped. */
  again(): void {
    void this.start(...this.asked);
  }

  /** Show a ready-made picture, where pictures are shown. */
  pictured(): void {
    this.place.image = digit(3);
    this.place.view = "image";
  }

  /** Nothing of a run stands under the name of another: of another model it goes, of another text it cannot be used. */
  private replaced(): void {
    const { model, text, target, image } = this.place;
    if (this.of.model !== model) [this.run, this.pointed] = [null, null];
    this.stale = this.run !== null && (this.of.text !== text || (this.of.target !== target && target !== this.run.text) || this.of.image !== image);
  }

  private named(): void {
    const { model, text, target, image } = this.place;
    [this.of, this.stale, this.shownLarge] = [{ model, text, target, image }, false, this.large];
  }

  /** Bring a chosen place that this run does not have back into it. */
  fit(): void {
    if (!this.run) return;
    if (!this.run.stacks[this.place.stack]) this.place.stack = -1;
    if (!this.block?.cross) this.place.cross = 0;
    const layers = this.stack?.blocks.length ?? 0;
    if (this.place.layer >= layers) this.place.layer = -1;
    this.place.head = Math.min(this.place.head, Math.max(0, (this.mixer?.heads ?? 1) - 1));
    if (this.place.token >= (this.stack?.length ?? 0)) this.place.token = -1;
    if (this.place.key >= (this.looked?.length ?? 0)) this.place.key = -1;
  }

  /** Begin with a run that is there already. */
  keep(run: PageRun, source: Source = this.source): void {
    this.source = source;
    this.run = run;
    this.place.model = run.model;
    const pair = run.shape === "pair";
    Object.assign(this.place, { text: pair ? run.source : run.text, target: pair ? run.text : "", part: run.part });
    this.place.edits = [...run.edits];
    this.named();
    this.fit();
  }

  /** Go where an address leads. A saved page holds one run, and says what else the address asks for. */
  lead(hash: string): void {
    this.place = read(hash);
    [this.link, this.unused] = [hash, ""];
    if (this.source.live || !this.run) return;
    const asked = { ...this.place };
    this.keep(this.run);
    this.elsewhere = missed(hash, asked, this.place);
  }

  /** Say what of the address by which one came is not what is shown now; once, before anything else is chosen. */
  tell(): void {
    this.unused = this.link === null ? "" : unused(this.link, this.place).filter((one) => !this.elsewhere.includes(one)).join(", ");
    this.link = null;
  }
}

export const page = new Page();

const RUN = ["model", "text", "target", "part", "edits"] as const; // of a place, what makes a run

/** What of a place makes a run; a picture is one of many that are drawn and tried, and is left out. */
export const running = (place: Place): string => JSON.stringify(RUN.map((name) => place[name]));

/** A place within its run, as an address writes it. */
export const within = (place: Place): string => written({ ...place, ...Object.fromEntries([...RUN, "image" as const].map((name) => [name, START[name]])) });

const LONGEST = 60; // characters of a part of a link that is named

/** The parts of an address that are not what is shown in the place to which it led. */
export function unused(hash: string, place: Place): string[] {
  const given = [...new URLSearchParams(hash.replace(/^#/, ""))];
  const runs = new Set<string>(RUN); // whether the run is another one, `missed` says
  const same = (name: keyof Place, value: string): boolean => {
    if (name === "edits") return edits(value) !== null;
    const now = runs.has(name) ? read(new URLSearchParams([[name, value]]).toString())[name] : place[name];
    return typeof now === "number" ? value !== "" && Number(value) === now : value === now;
  };
  const left = given.filter(([name, value]) => !Object.hasOwn(START, name) || !same(name as keyof Place, value));
  return left.map(([name, value]) => `${name}=${value.length > LONGEST ? `${value.slice(0, LONGEST)}…` : value}`);
}

/** What an address names of a run that is another one than this; changes compared by what they do, not as they are written. */
export function missed(hash: string, asked: Place, held: Place): string {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const plain = (place: Place, name: (typeof RUN)[number]) => (name === "edits" ? JSON.stringify(place.edits.map(saying)) : String(place[name]));
  return RUN.filter((name) => given.has(name) && plain(asked, name) !== plain(held, name)).map((name) => `${name}=${given.get(name)}`).join(", ");
}

/** The place as the part of an address behind #; what is as at the start is left out. */
export function written(place: Place): string {
  const given = Object.entries(place).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(START[name as keyof Place]));
  return new URLSearchParams(given.map(([name, value]) => [name, name === "edits" ? JSON.stringify((value as PageEdit[]).map(briefly)) : String(value)])).toString();
}

/** The changes that are written in an address; null for what is none, as in a link that was cut. */
function edits(value: string): PageEdit[] | null {
  try {
    const found: unknown = JSON.parse(value);
    return Array.isArray(found) ? found.map(whole) : null;
  } catch {
    return null;
  }
}

/** The place that an address names; what is missing or makes no sense is as at the start. */
export function read(hash: string): Place {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const place: Record<string, unknown> = { ...START, edits: [] };
  for (const [name, value] of given) {
    if (!Object.hasOwn(START, name)) continue;
    const old = START[name as keyof Place];
    if (typeof old === "number") {
      if (/^-?\d{1,6}$/.test(value) && Number(value) >= old) place[name] = Number(value); // each starts at its least
    } else if (name === "edits") {
      place[name] = edits(value) ?? place[name];
    } else place[name] = value;
  }
  if (!["token", "character", "word"].includes(String(place.by))) place.by = START.by;
  return place as unknown as Place;
}
