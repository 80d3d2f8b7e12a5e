// A choice that a view or a figure has of its own, such as an order, a zoom or a cell: it stands in the address beside
// those of the others.

import { kept, keeping, SPOTS } from "./more";
import { page } from "./page.svelte";

/** The choice under this name; as usual it is left out of the address. One that makes no sense is as usual. */
export function chosen(name: string, usual: number): { now: number };
export function chosen(name: string, usual: string): { now: string };
export function chosen<T extends number | string>(name: string, usual: T): { now: T } {
  return {
    get now(): T {
      const text = kept(page.place.more, name);
      if (text === "") return usual;
      if (typeof usual === "string") return text as T;
      return (Number.isFinite(Number(text)) ? Number(text) : usual) as T;
    },
    set now(next: T) {
      const text = typeof next === "number" ? String(Math.round(next * 1000) / 1000) : String(next);
      page.place.more = keeping(page.place.more, name, next === usual ? "" : text);
    },
  };
}

/** The place that is chosen within a figure, as whole numbers (a row and a column, a line …); none: as at first. Figures
 * of one name share it, so that the same place is seen of each; another text begins without (more.anew). */
export function spot(name: () => string): { now: readonly number[] } {
  return {
    get now() {
      const text = kept(kept(page.place.more, SPOTS), name());
      return /^\d+(\.\d+)*$/.test(text) ? text.split(".").map(Number) : [];
    },
    set now(next) {
      page.place.more = keeping(page.place.more, SPOTS, keeping(kept(page.place.more, SPOTS), name(), next.join(".")));
    },
  };
}
