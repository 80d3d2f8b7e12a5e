// What each view keeps of its own in the address, beside that of the others: page.place.more, "explain=…&families=…".

/** What a view has kept; "" for nothing. */
export function kept(more: string, view: string): string {
  return new URLSearchParams(more).get(view) ?? "";
}

/** The same with another text for this view. */
export function keeping(more: string, view: string, text: string): string {
  const all = new URLSearchParams(more);
  if (text) all.set(view, text);
  else all.delete(view);
  return all.toString();
}

export const SPOTS = "at"; // under which the places within figures stand, each under its figure's name
const OF_TEXT = [SPOTS, "hands"]; // what is said of one text: places in it, and what was changed in it

/** What is kept when another text is read. */
export const anew = (more: string): string => OF_TEXT.reduce((all, view) => keeping(all, view, ""), more);
