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

/** How light the colour of x from −1 to 1 is, from 0 to 1. */
function lightness(x: number): number {
  const [low, end] = now.dark ? [0.25, 0.85] : [0.975, 0.5];
  return low + (end - low) * Math.sqrt(Math.min(1, Math.abs(x)));
}

/** Blue below zero, orange above, by the size of x from −1 to 1: told apart with every kind of colour vision. */
export function signed(x: number): string {
  return `oklch(${lightness(x).toFixed(3)} ${(0.15 * Math.sqrt(Math.min(1, Math.abs(x)))).toFixed(3)} ${x < 0 ? 255 : 55})`;
}

const LINES = [
  ["#1f4fd1", "#b4540a", "#1c7a4a", "#8a3ab0", "#56616f", "#a8323e"],
  ["#8fb0ff", "#ffb26b", "#7fd6a4", "#d9a5f5", "#b5bfcb", "#ff9d9d"],
];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 4", "12 4"];

/** The colour of the i-th line of a series, and its dashes, so that they can be told apart without colours too. */
export function lined(i: number): { colour: string; dash: string } {
  return { colour: LINES[now.dark ? 1 : 0]![i % 6]!, dash: DASHES[i % 6]! };
}

/** The relative luminance of #rrggbb, as contrast is measured. */
export function luminance(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}

/** Black or white, whichever can be read better on the colour of a share: at a contrast of 4.5 or more. */
export function ink(share: number): string {
  return luminance(shade(share)) > 0.179 ? "#000" : "#fff";
}

/** The same on the colour of x from −1 to 1. */
export function signedInk(x: number): string {
  return lightness(x) > 0.6 ? "#000" : "#fff";
}
