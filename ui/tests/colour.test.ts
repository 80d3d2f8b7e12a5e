import { expect, test } from "vitest";
import { ink, luminance, setDark, shade } from "../src/lib/colour.svelte";

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
