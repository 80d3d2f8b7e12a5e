// The language of the page, and texts in both.

import type { Said } from "./protocol";
import { speak } from "./stream";

export const LANGS = ["en", "ko"] as const;
export type Lang = (typeof LANGS)[number];

const spoken = $state({ lang: "ko" as Lang });

export function lang(): Lang {
  return spoken.lang;
}

export function setLang(given: Lang): void {
  spoken.lang = given;
  document.documentElement.lang = given;
  speak(given);
}

/** A text in the page's language, with values for its {places}. */
export function say(said: Said, values: Record<string, string | number> = {}): string {
  return said[spoken.lang].replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ""));
}
