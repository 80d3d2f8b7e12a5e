// Values by the names of the trace: a part of one, at places given by axis letter, as in Python's trace.part.

export type Where = Record<string, number | number[]>;

/** A value, or a part of it: the axes that are left, their sizes, and the numbers in row-major order. */
export interface Value {
  name: string;
  axes: string[];
  sizes: number[];
  data: Float32Array;
  where: Where;
}

/** The places of `where` of a whole value, an integer dropping its axis. */
export function part(value: Value, where: Where): Value {
  const axes: string[] = [];
  const sizes: number[] = [];
  const lists = value.axes.map((axis, i) => {
    const given = where[axis];
    if (given === undefined) return Array.from({ length: value.sizes[i]! }, (_, k) => k);
    return typeof given === "number" ? [given] : given;
  });
  value.axes.forEach((axis, i) => {
    if (typeof where[axis] === "number") return;
    axes.push(axis);
    sizes.push(lists[i]!.length);
  });
  const strides = value.sizes.map((_, i) => value.sizes.slice(i + 1).reduce((a, b) => a * b, 1));
  let places = [0];
  lists.forEach((list, i) => {
    places = places.flatMap((place) => list.map((k) => place + k * strides[i]!));
  });
  return { name: value.name, axes, sizes, data: Float32Array.from(places, (k) => value.data[k]!), where };
}

/** Where all numbers are 0, the largest of them: so that it can be divided by. */
export const NOTHING = 1e-30;

/** The largest size of the finite ones of many numbers, above nothing; a spread of them would overflow the stack. */
export function greatest(values: ArrayLike<number | null>): number {
  let most = NOTHING;
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i] ?? 0);
    if (size > most && size < Infinity) most = size;
  }
  return most;
}

/** The address of one number, as the page writes it beside it: "b=0,h=1,t=5,s=3". */
export function at(where: Where): string {
  return Object.entries(where)
    .map(([axis, place]) => `${axis}=${place}`)
    .join(",");
}

/** The Python line that gives the number at an address, after `trace = model.trace(…)`. */
export function python(name: string, where: Where): string {
  const places = Object.entries(where)
    .map(([axis, place]) => `, ${axis}=${Array.isArray(place) ? `[${place.join(", ")}]` : place}`)
    .join("");
  return places ? `trace.part("${name}"${places})` : `trace["${name}"]`;
}

/** The Python line that gives an explanation, from its request: "flow?layer=2". */
export function explainedAs(from: string): string {
  const [name, query] = from.split("?");
  const settings = [...new URLSearchParams(query ?? "")].map(([key, value]) => `, ${key}=${/^-?\d+(\.\d+)?$/.test(value) ? value : JSON.stringify(value)}`);
  return `gf.explain("${name}", trace${settings.join("")})`;
}

/** The Python line that gives one number of an explanation's figure. path: "values.3.5", places by dots. */
export function explained(of: { from: string; figure: string; path: string }): string {
  if (of.figure === "checks") return `{one.name: one.value for one in ${explainedAs(of.from)}.checks}["${of.path}"]`;
  const place = of.path.split(".").map((one) => (/^\d+$/.test(one) ? `[${one}]` : `.${one}`));
  return `${explainedAs(of.from)}.figure("${of.figure}")${place.join("")}`;
}

/** A number with four significant digits, a whole one with all, the same everywhere on the page. */
export function shown(x: number | null): string {
  if (x === null || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x.toLocaleString("en-US").replace("-", "−");
  const size = Math.abs(x);
  const text = size >= 1e6 || size < 1e-4 ? x.toExponential(3) : size >= 1000 ? x.toFixed(0) : x.toPrecision(4);
  return text.replace("-", "−");
}

/** A share as per cent, with as many digits as tell. */
export function percent(x: number): string {
  const size = Math.abs(100 * x);
  if (size !== 0 && size < 0.01) return x < 0 ? ">−0.01 %" : "<0.01 %";
  return `${x < 0 ? "−" : ""}${size.toFixed(size >= 10 ? 1 : 2)} %`;
}

/** So many bytes as a person says it. */
export function bytes(count: number): string {
  for (const [unit, size] of [["GiB", 1 << 30], ["MiB", 1 << 20], ["KiB", 1 << 10]] as const) if (count >= size) return `${(count / size).toPrecision(3)} ${unit}`;
  return `${count} B`;
}
