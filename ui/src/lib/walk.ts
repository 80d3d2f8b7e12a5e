// The numbers of a view from the keyboard: one of them is in the order of tabs, the arrow keys go to the next one, up
// and down to the one over or under it. Whoever has the focus is pointed at.

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

/** Makes the numbers within a part of the page reachable. */
export function walk(part: HTMLElement): { destroy: () => void } {
  const free = () => [...part.querySelectorAll<HTMLElement>(NUMBERS)].filter((one) => !one.closest(WITHIN) && one.checkVisibility());
  let waiting = 0;

  function enter(one: HTMLElement | undefined): void {
    for (const old of part.querySelectorAll<HTMLElement>('data[tabindex="0"]')) if (old !== one) old.tabIndex = -1;
    if (one && one.tabIndex !== 0) one.tabIndex = 0;
  }

  /** One of them is in the order of tabs, also after the view has changed. */
  function renew(): void {
    waiting = 0;
    const old = [...part.querySelectorAll<HTMLElement>('data[tabindex="0"]')];
    if (old.length !== 1 || !old[0]!.checkVisibility() || old[0]!.closest(WITHIN)) enter(free()[0]);
  }
  const later = () => (waiting ||= requestAnimationFrame(renew));

  function key(event: KeyboardEvent): void {
    const one = event.target as HTMLElement;
    if (!/^Arrow/.test(event.key) || !one.matches(NUMBERS)) return;
    const next = towards(event.key, one, free());
    if (!next) return;
    event.preventDefault();
    enter(next);
    next.focus();
  }
  const entered = (event: FocusEvent) => (event.target as HTMLElement).matches(NUMBERS) && enter(event.target as HTMLElement);

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
