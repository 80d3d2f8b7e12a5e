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

/** The colour of x from −1 to 1 as oklch has it: lightness, chroma, hue in degrees. */
function polar(x: number): [number, number, number] {
  return [lightness(x), 0.15 * Math.sqrt(Math.min(1, Math.abs(x))), x < 0 ? 255 : 55];
}

/** Blue below zero, orange above, by the size of x from −1 to 1: told apart with every kind of colour vision. */
export function signed(x: number): string {
  const [light, chroma, hue] = polar(x);
  return `oklch(${light.toFixed(3)} ${chroma.toFixed(3)} ${hue})`;
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

/** The relative luminance of linear red, green and blue, as contrast is measured. */
const bright = ([r, g, b]: readonly number[]) => 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;

/** The relative luminance of #rrggbb. */
export function luminance(colour: string): number {
  return bright([1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)));
}

/** Linear red, green and blue of an oklch colour (Ottosson 2020), as far as a screen has it. */
function linear([light, chroma, hue]: readonly [number, number, number]): number[] {
  const [a, b] = [chroma * Math.cos((hue * Math.PI) / 180), chroma * Math.sin((hue * Math.PI) / 180)];
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const found = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  return found.map((one) => Math.min(1, Math.max(0, one)));
}

/** Black or white, whichever can be read better on a colour of this luminance: at a contrast of 4.58 = √(1.05 / 0.05) or
 * more, since the contrasts with both, (L + 0.05) / 0.05 and 1.05 / (L + 0.05), have the product 21. */
const letters = (luminance: number) => (luminance > Math.sqrt(1.05 * 0.05) - 0.05 ? "#000" : "#fff");

/** The colour of letters on the colour of a share. */
export function ink(share: number): string {
  return letters(luminance(shade(share)));
}

/** The same on the colour of x from −1 to 1: by luminance, since at one lightness the hues are not of one contrast. */
export function signedInk(x: number): string {
  return letters(bright(linear(polar(x))));
}
