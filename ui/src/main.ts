import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { greeted, kernel } from "./lib/kernel";
import { awaited, RANGES } from "./lib/letters.svelte";
import { page, read } from "./lib/page.svelte";
import type { Saved } from "./lib/protocol";
import { LANGS, setLang, type Lang } from "./lib/say.svelte";
import { Kept } from "./lib/source";
import { bytes, through, unlock } from "./lib/stream";

/** The bytes behind base64 of gzip, as a saved page carries its values. */
async function unpacked(text: string): Promise<ArrayBuffer> {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

function letters(from: string | ArrayBuffer): void {
  const font = new FontFace("Glassformer Noto Sans KR", from, { unicodeRange: RANGES, display: "swap" });
  document.fonts.add(font);
  awaited(font);
}

/** The page in a frame of a notebook: it begins with the run of the widget, and its numbers come from the kernel. */
async function within(): Promise<void> {
  const [given, port] = await greeted();
  const theme = (now: "light" | "dark") => (page.theme = now);
  const silent = (is: boolean) => {
    page.silent = is;
    if (is) port.postMessage({ silent: is });
  };
  through(kernel(port, silent, theme));
  theme(given.theme);
  if (given.lang) setLang(given.lang);
  page.linked = false;
  page.moved = (place) => port.postMessage({ place });
  page.keep(given.run);
  const asked = () => JSON.stringify([page.place.model, page.place.text, page.place.target, page.place.edits]);
  const own = asked();
  // A notebook takes a frame that was scrolled away out of its page, and puts it in again as new.
  if (given.place) page.place = read(given.place);
  if (asked() !== own) void page.start();
  void bytes("api/font").then(letters, () => {});
}

/** What stands behind the ? of the address by this name: taken from there, and kept for this tab, so that it can be
 * loaded again. */
function fromAddress(name: string): string {
  const address = new URL(location.href);
  const given = address.searchParams.get(name);
  if (given !== null) {
    address.searchParams.delete(name);
    history.replaceState(null, "", address);
  }
  try {
    if (given !== null) sessionStorage.setItem(name, given);
    return given ?? sessionStorage.getItem(name) ?? "";
  } catch {
    return given ?? ""; // no storage
  }
}

async function begin(): Promise<void> {
  const kept = document.getElementById("saved");
  let chosen: { lang?: Lang; theme?: "system" | "light" | "dark" } = {};
  try {
    chosen = JSON.parse(localStorage.getItem("glassformer") ?? "{}") as typeof chosen;
  } catch {
    // a page opened from disk may have no storage
  }
  const wanted = document.documentElement.lang as Lang;
  const asked = fromAddress("lang"); // of the command that opened the page; a choice made here comes after it
  setLang(LANGS.find((one) => one === asked) ?? chosen.lang ?? (kept && wanted ? wanted : navigator.language.startsWith("ko") ? "ko" : "en"));
  page.theme = chosen.theme ?? "system";
  page.place = read(location.hash);
  unlock(fromAddress("token"));
  if (kept) {
    const decoder = new TextDecoder();
    const saved = JSON.parse(decoder.decode(await unpacked(kept.textContent!))) as Saved;
    const values = await unpacked(document.getElementById("values")!.textContent!);
    document.fonts.forEach(awaited); // the file's own letters
    page.keep(saved.runs[0]!.run, new Kept(saved, values));
    page.lead(location.hash.length > 1 ? location.hash : saved.place);
  } else if (document.getElementById("kernel")) {
    await within();
  } else {
    // Letters for Hangul, where the system has none: asked for only when such a letter is shown. A saved page has its own.
    letters("url(api/font)");
    page.link = location.hash;
    void page.start();
  }
  mount(App, { target: document.getElementById("app")! });
}

void begin();
