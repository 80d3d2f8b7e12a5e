// Many things of one kind from the keyboard: one of them is in the order of tabs, and keys lead from it to the others.

const NUMBERS = "data[data-name], data[data-figure]";
const WITHIN = "button, a, summary, label, [role=option]"; // which is reached by itself, and shows its number

const middle = (one: Element): [number, number] => {
  const box = one.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
};

/** The number that an arrow key leads to, none at the end. */
export function towards(key: string, from: HTMLElement, all: readonly HTMLElement[], place = middle): HTMLElement | undefined {
  const at = all.indexOf(from);
  if (key === "ArrowRight" || key === "ArrowLeft") return all[at + (key === "ArrowRight" ? 1 : -1)];
  const [sign, [x, y]] = [key === "ArrowDown" ? 1 : -1, place(from)];
  const beyond = all.map((one) => ({ one, at: place(one) })).filter((one) => sign * (one.at[1] - y) > 4);
  const line = beyond.reduce((least, one) => Math.min(least, sign * (one.at[1] - y)), Infinity);
  return beyond.filter((one) => sign * (one.at[1] - y) < line + 4).sort((a, b) => Math.abs(a.at[0] - x) - Math.abs(b.at[0] - x))[0]?.one;
}

/** One of what matches within a part of the page is in the order of tabs, also after the part has changed. all: those
 * that can be; next: to which of them a key leads. */
function oneStop(part: HTMLElement, which: string, all: () => HTMLElement[], next: (key: string, one: HTMLElement, all: HTMLElement[]) => HTMLElement | undefined): { destroy: () => void } {
  const stops = () => [...part.querySelectorAll<HTMLElement>(which)].filter((one) => one.tabIndex === 0);
  let waiting = 0;

  function enter(one: HTMLElement | undefined): void {
    for (const old of stops()) if (old !== one) old.tabIndex = -1;
    if (one && one.tabIndex !== 0) one.tabIndex = 0;
  }

  function renew(): void {
    waiting = 0;
    const [now, old] = [all(), stops()];
    if (old.length !== 1 || !now.includes(old[0]!)) enter(now.find((one) => one === document.activeElement) ?? now[0]);
  }
  const later = () => (waiting ||= requestAnimationFrame(renew));

  function key(event: KeyboardEvent): void {
    const one = event.target as HTMLElement;
    const found = one.matches(which) ? next(event.key, one, all()) : undefined;
    if (!found) return;
    event.preventDefault();
    enter(found);
    found.focus();
  }
  const entered = (event: FocusEvent) => (event.target as HTMLElement).matches(which) && enter(event.target as HTMLElement);

  const watcher = new MutationObserver(later);
  watcher.observe(part, { childList: true, subtree: true });
  part.addEventListener("keydown", key);
  part.addEventListener("focusin", entered);
  later();
  return {
    destroy: () => {
      cancelAnimationFrame(waiting);
      watcher.disconnect();
      part.removeEventListener("keydown", key);
      part.removeEventListener("focusin", entered);
    },
  };
}

/** The numbers of a view: the arrow keys go to the next one, up and down to the one over or under it. Whoever has the
 * focus is pointed at. */
export function walk(part: HTMLElement): { destroy: () => void } {
  const free = () => [...part.querySelectorAll<HTMLElement>(NUMBERS)].filter((one) => !one.closest(WITHIN) && one.checkVisibility());
  return oneStop(part, NUMBERS, free, (key, one, all) => (/^Arrow/.test(key) ? towards(key, one, all) : undefined));
}

/** What matches, such as the maps of a list: Page Up and Page Down lead to the next one, and where they do not move
 * something within it, the arrow keys up and down. */
export function rove(part: HTMLElement, which: string): { destroy: () => void } {
  const all = () => [...part.querySelectorAll<HTMLElement>(which)].filter((one) => one.hasAttribute("tabindex") || one.matches("button"));
  return oneStop(part, which, all, (key, one, now) => {
    const aside = { PageDown: 1, PageUp: -1 }[key];
    if (aside) return now[now.indexOf(one) + aside];
    const free = one.dataset.rows === "1" || one.matches("button");
    return free && /^Arrow(Up|Down)$/.test(key) ? towards(key, one, now) : undefined;
  });
}
