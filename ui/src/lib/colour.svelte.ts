// Colours of numbers: the figures' own scale (even steps of lightness), light and dark.

import { DARK, LIGHT } from "./ramp";

const now = $state({ dark: false });

export function dark(): boolean {
  return now.dark;
}

export function setDark(given: boolean): void {
  now.dark = given;
}

/** The colour of a share from 0 to 1; along its square root, so that small ones can be told from none. */
export function shade(share: number): string {
  const ramp = now.dark ? DARK : LIGHT;
  return ramp[Math.round(Math.sqrt(Math.min(1, Math.max(0, share))) * (ramp.length - 1))]!;
}

/** Blue below zero, orange above, by the size of x from −1 to 1: told apart with every kind of colour vision. */
export function signed(x: number): string {
  const size = Math.sqrt(Math.min(1, Math.abs(x)));
  const [l, end] = now.dark ? [0.25, 0.85] : [0.975, 0.5];
  return `oklch(${(l + (end - l) * size).toFixed(3)} ${(0.15 * size).toFixed(3)} ${x < 0 ? 255 : 55})`;
}

/** Black or white, whichever can be read on the colour of a share. */
export function ink(share: number): string {
  return Math.sqrt(share) > 0.55 !== now.dark ? "#fff" : "#14171c";
}
