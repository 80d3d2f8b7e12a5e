import { expect, test } from "vitest";
import { ink, luminance, setDark, shade, signed, signedInk } from "../src/lib/colour.svelte";

test("letters can be read on every colour of the scale, light and dark", () => {
  for (const dark of [false, true]) {
    setDark(dark);
    for (let i = 0; i <= 100; i++) {
      const [one, other] = [luminance(shade(i / 100)), ink(i / 100) === "#fff" ? 1 : 0].map((l) => l + 0.05).sort((a, b) => b - a);
      expect(one! / other!).toBeGreaterThanOrEqual(4.5);
    }
  }
  setDark(false);
});

/** How light a colour is to the eye (CIE L*, 0 to 100). */
const lightness = (colour: string) => {
  const y = luminance(colour);
  return y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
};

test("the scale goes from light to dark (from dark to light) without a turn: it reads without colours, too", () => {
  for (const dark of [false, true]) {
    setDark(dark);
    const steps = Array.from({ length: 21 }, (_, i) => lightness(shade((i / 20) ** 2))); // along the square root that it follows
    const falls = steps.slice(1).map((one, i) => (dark ? one - steps[i]! : steps[i]! - one));
    expect(Math.min(...falls)).toBeGreaterThan(1);
    expect(Math.max(...falls)).toBeLessThan(3 * Math.min(...falls));
  }
  setDark(false);
});

/** Linear red, green, blue of oklch(l c h). */
function linear(colour: string): [number, number, number] {
  const [l, c, h] = colour.slice(6, -1).split(" ").map(Number) as [number, number, number];
  const [a, b] = [c * Math.cos((h * Math.PI) / 180), c * Math.sin((h * Math.PI) / 180)];
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map((one) => one ** 3) as [number, number, number];
  return [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z, -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z].map((one) => Math.min(1, Math.max(0, one))) as [number, number, number];
}

// What is left of linear colours without the cones for long, middle and short waves (Machado, Oliveira, Fernandes 2009).
const BLIND = {
  protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritan: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};

test("letters can be read on every colour below and above zero, light and dark", () => {
  for (const dark of [false, true]) {
    setDark(dark);
    for (let i = -500; i <= 500; i++) {
      const [r, g, b] = linear(signed(i / 500));
      const [one, other] = [0.2126 * r + 0.7152 * g + 0.0722 * b, signedInk(i / 500) === "#fff" ? 1 : 0].map((l) => l + 0.05).sort((a, b) => b - a);
      expect(one! / other!, `${i / 500} dark: ${dark}`).toBeGreaterThanOrEqual(4.5);
    }
  }
  setDark(false);
});

test("below and above zero are told apart with every kind of colour vision", () => {
  for (const dark of [false, true]) {
    setDark(dark);
    for (const m of Object.values(BLIND))
      for (const x of [0.1, 0.4, 1]) {
        const [one, other] = [-x, x].map((sign) => linear(signed(sign))).map(([r, g, b]) => [0, 3, 6].map((i) => Math.sqrt(Math.max(0, m[i]! * r + m[i + 1]! * g + m[i + 2]! * b))));
        expect(Math.hypot(...one!.map((part, i) => part - other![i]!))).toBeGreaterThan(0.08 + 0.1 * x);
      }
  }
  setDark(false);
});
