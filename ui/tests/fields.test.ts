import { expect, test, vi } from "vitest";
import { inFields, namedIn } from "../src/lib/fields";
import { setLang } from "../src/lib/say.svelte";

const said = (en: string, ko = en) => ({ en, ko });
vi.stubGlobal("document", { documentElement: {} });
const fields = [
  { name: "rows", title: said("these rows alone (3,7)", "이 행들만(예: 3,7)") },
  { name: "row", title: said("one row alone") },
  { name: "what", title: said("what is explained", "설명할 수"), choices: [["vector", said("vector", "벡터")]] as [string, { en: string; ko: string }][] },
  { name: "max_new_tokens", title: said("new tokens", "새 토큰") },
  { name: "second", title: said("the other text", "다른 텍스트") },
];

test("a refusal names the fields of the page, not the settings of Python", () => {
  setLang("en");
  expect(inFields("second: it is empty; give another text", fields)).toBe("“the other text”: it is empty; give another text");
  expect(inFields("too large; say which rows, as rows=3,7", fields)).toBe("too large; say which rows, as “these rows alone” = 3,7");
  expect(inFields("what: this model gives no logits; use what=vector", fields)).toBe("“what is explained”: this model gives no logits; use “what is explained” = vector");
  expect(inFields("8 tokens and max_new_tokens are too many", fields)).toBe("8 tokens and “new tokens” are too many");
  setLang("ko");
  expect(inFields("what: 로짓이 없습니다. what=vector를 사용하십시오.", fields)).toBe("‘설명할 수’: 로짓이 없습니다. ‘설명할 수’ = 벡터를 사용하십시오.");
  expect(inFields("토큰의 지도는 너무 큽니다. rows=3,7처럼 볼 행을 지정하십시오.", fields)).toBe("토큰의 지도는 너무 큽니다. ‘이 행들만’ = 3,7처럼 볼 행을 지정하십시오.");
});

test("a setting is named where it begins a refusal or has a value, and not where its name is a word or a part of one", () => {
  expect(namedIn("say which rows, as rows=3,7", fields).map((one) => one.name)).toEqual(["rows"]);
  expect(namedIn("the second text has other rows: none", fields).map((one) => one.name)).toEqual(["rows"]);
  expect(namedIn("blocks.rows: what is it", fields)).toEqual([]);
  expect(namedIn("", fields)).toEqual([]);
});
