// Many things of one kind, of which one is in the order of tabs: Page Up and Page Down lead to the next one, and where
// they do not move something within it, the arrow keys up and down.

import { towards } from "./walk";

/** Makes what matches within a part of the page reachable with one stop of the Tab key. */
export function rove(part: HTMLElement, which: string): { destroy: () => void } {
  const all = () => [...part.querySelectorAll<HTMLElement>(which)].filter((one) => one.hasAttribute("tabindex") || one.matches("button"));
  let waiting = 0;

  function enter(one: HTMLElement | undefined): void {
    for (const other of all()) other.tabIndex = other === one ? 0 : -1;
  }

  /** One of them is in the order of tabs, also after the part has changed. */
  function renew(): void {
    waiting = 0;
    const now = all();
    if (now.filter((one) => one.tabIndex === 0).length !== 1) enter(now.find((one) => one === document.activeElement) ?? now[0]);
  }
  const later = () => (waiting ||= requestAnimationFrame(renew));

  function key(event: KeyboardEvent): void {
    const one = event.target as HTMLElement;
    if (!one.matches(which)) return;
    const now = all();
    const aside = { PageDown: 1, PageUp: -1 }[event.key];
    const free = one.dataset.rows === "1" || one.matches("button");
    const next = aside ? now[now.indexOf(one) + aside] : free && /^Arrow(Up|Down)$/.test(event.key) ? towards(event.key, one, now) : undefined;
    if (!next) return;
    event.preventDefault();
    enter(next);
    next.focus();
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
