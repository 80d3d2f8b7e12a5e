// A choice that a view has of its own, such as an order or a zoom: it stands in the address beside those of the others.

import { kept, keeping } from "./more";
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
