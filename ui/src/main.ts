import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { chosen, damaged, opened, toldOf } from "./lib/begin";
import { greeted, kernel } from "./lib/kernel";
import { awaited, RANGES } from "./lib/letters.svelte";
import { page, read } from "./lib/page.svelte";
import { LANGS, setLang, type Lang } from "./lib/say.svelte";
import { bytes, through, unlock } from "./lib/stream";

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
  try {
    address.searchParams.delete(name);
    if (given !== null) history.replaceState(null, "", address);
  } catch {
    // a page in a frame of its own, or from disk, may have an address that stays as it is
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
  const before = chosen();
  const wanted = document.documentElement.lang as Lang;
  const asked = fromAddress("lang"); // of the command that opened the page; a choice made here comes after it
  setLang(LANGS.find((one) => one === asked) ?? before.lang ?? (kept && wanted ? wanted : navigator.language.startsWith("ko") ? "ko" : "en"));
  page.theme = before.theme ?? "system";
  page.place = read(location.hash);
  unlock(fromAddress("token"));
  if (kept) {
    const [saved, source] = await opened(kept.textContent!, document.getElementById("values")?.textContent ?? "");
    document.fonts.forEach(awaited); // the file's own letters
    page.keep(saved.runs[0]!.run, source);
    page.lead(location.hash.length > 1 ? location.hash : saved.place);
  } else if (document.getElementById("kernel")) {
    await within();
  } else if (location.protocol === "file:") {
    throw damaged(); // a server's page is none of these
  } else {
    // Letters for Hangul, where the system has none: asked for only when such a letter is shown. A saved page has its own.
    letters("url(api/font)");
    page.link = location.hash;
    void page.start();
  }
  mount(App, { target: document.getElementById("app")! });
}

/** A page that cannot begin says so, and what to do: nothing else would be seen. */
function failed(error: unknown): void {
  console.error(error);
  const note = Object.assign(document.createElement("p"), { role: "alert", textContent: toldOf(error) });
  note.style.padding = "1rem";
  (document.getElementById("app") ?? document.body).replaceChildren(note);
}

begin().catch(failed);
