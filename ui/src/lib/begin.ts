// What the page begins with: what the reader chose before, and what a saved page holds. Both may be anything: storage is
// shared with whatever else stood at this address, and a file may have been cut off on its way.

import type { Theme } from "./page.svelte";
import type { Saved } from "./protocol";
import { LANGS, say, type Lang } from "./say.svelte";
import { Kept } from "./source";

const NAME = "glassformer"; // of what is kept in this browser
const THEMES = ["system", "light", "dark"] as const;

export interface Chosen {
  lang?: Lang;
  theme?: Theme;
}

/** What the reader chose here before, as far as it is there and makes sense. */
export function chosen(): Chosen {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "{}") as Chosen | null;
    return { lang: LANGS.find((one) => one === found?.lang), theme: THEMES.find((one) => one === found?.theme) };
  } catch {
    return {}; // within a notebook, or opened from disk, a page may have no storage
  }
}

/** Keep what was chosen for the next time, beside what was chosen before. */
export function choose(what: Chosen): void {
  try {
    localStorage.setItem(NAME, JSON.stringify({ ...chosen(), ...what }));
    if (what.lang) sessionStorage.removeItem("lang");
  } catch {
    // as above
  }
}

/** A page that cannot begin; the message names the way out. */
export class Unopened extends Error {}

/** A saved page's file is not whole. */
export const damaged = () => new Unopened(say({ en: "This file is damaged or was cut off. Copy it anew, or save the page once more.", ko: "파일이 손상되었거나 중간에서 잘렸습니다. 파일을 다시 복사하거나 페이지를 다시 저장하십시오." }));

/** The bytes behind base64 of gzip, as a saved page carries its values. */
async function unpacked(text: string): Promise<ArrayBuffer> {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** What a saved page holds, from the contents of its two elements. Raises Unopened where it cannot be read. */
export async function opened(saved: string, values: string): Promise<[Saved, Kept]> {
  if (typeof DecompressionStream === "undefined") {
    throw new Unopened(say({ en: "This browser is too old to unpack the file. Open it in a newer one (Chrome 80, Firefox 113, Safari 16.4 or later).", ko: "이 브라우저는 오래되어 파일의 압축을 풀 수 없습니다. 새 브라우저(Chrome 80, Firefox 113, Safari 16.4 이상)로 여십시오." }));
  }
  try {
    const found = JSON.parse(new TextDecoder().decode(await unpacked(saved))) as Saved;
    return [found, new Kept(found, await unpacked(values))];
  } catch {
    throw damaged();
  }
}

/** What is told where the page cannot begin. */
export function toldOf(error: unknown): string {
  if (error instanceof Unopened) return error.message;
  const said = { en: "The page could not begin ({why}). Reload it, or open it in another browser.", ko: "페이지를 시작하지 못했습니다({why}). 새로 고치거나 다른 브라우저로 여십시오." };
  return say(said, { why: error instanceof Error ? error.message : String(error) });
}
