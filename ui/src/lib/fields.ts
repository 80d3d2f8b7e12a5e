// What Python refuses names its settings as Python does, "rows: …" or "rows=3,7"; on the page they are fields with names of their own.

import type { Said } from "./protocol";
import { say } from "./say.svelte";

export interface Field {
  name: string;
  title: Said;
  choices?: readonly [string, Said][];
}

const QUOTED: Said = { en: "“{name}”", ko: "‘{name}’" };

/** A field's name without what explains it: "token (−1: the last)". */
const called = ({ title }: Field) => say(QUOTED, { name: say(title).replace(/ ?\(.*\)$/, "") });

/** Where a refusal names a setting: at its beginning, with a value, or, where it can be no word of a language, anywhere. */
const named = (name: string) => new RegExp(`(?<![\\p{L}\\p{N}_.])${name}(?:(?<colon>: )|=(?<value>[A-Za-z0-9_-]+)?${name.includes("_") ? "|(?![\\p{L}\\p{N}_=])" : ""})`, "gu");

/** The fields that a refusal names. */
export const namedIn = <F extends Field>(refusal: string, fields: readonly F[]): F[] => fields.filter(({ name }) => named(name).test(refusal));

/** A refusal with the fields of the page for the settings of Python. */
export function inFields(refusal: string, fields: readonly Field[]): string {
  return fields.reduce((text, field) => {
    const choice = (value: string) => say(field.choices?.find(([one]) => one === value)?.[1] ?? { en: value, ko: value });
    return text.replace(named(field.name), (found, colon?: string, value?: string) => called(field) + (colon ?? (found.includes("=") ? ` = ${choice(value ?? "")}` : "")));
  }, refusal);
}
