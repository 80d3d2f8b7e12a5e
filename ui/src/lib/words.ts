// What Python calls by one name in every language, in words of the page's language: the marks of special tokens, the
// stations of a vector's way, the kinds of heads, what recurrent layers keep.

import type { Figure, Said } from "./protocol";
import { say } from "./say.svelte";
import { percent, shown } from "./values";

const MARKS: Record<string, Said> = {
  "⟨start⟩": { en: "⟨start⟩", ko: "⟨시작⟩" },
  "⟨end⟩": { en: "⟨end⟩", ko: "⟨끝⟩" },
};
const STATIONS: Record<string, Said> = {
  "embed.token": { en: "embedding", ko: "임베딩" },
  "embed.out": { en: "first block’s input", ko: "첫 블록 입력" },
};
const LAYER: Said = { en: "layer {n}", ko: "{n}층" };

const BYTES = /(?:⟨[0-9A-F]{2}⟩)+/g; // as data.display shows bytes that are no character
const BYTE: Said = { en: "byte {b}", ko: "바이트 {b}" };

/** A token's label; the model's own marks, and bytes that are no character, in words of the page's language. */
export const spelled = (label: string): string => (MARKS[label] ? say(MARKS[label]) : label.replace(BYTES, (all) => say(BYTE, { b: all.slice(1, -1).replaceAll("⟩⟨", " ") })));

/** A place on the way of a vector: "embed.token" and "embed.out" before the blocks, "0" behind the first. */
export const station = (name: string): string => (STATIONS[name] ? say(STATIONS[name]) : /^\d+$/.test(name) ? say(LAYER, { n: name }) : name);

/** A difference of two shares, in percentage points; one that two digits do not tell from nothing is written so. */
export function points(x: number): string {
  const size = Math.abs(100 * x);
  const text = x === 0 ? "0" : size < 0.01 ? "≈ 0" : `${x < 0 ? "−" : "+"}${size.toFixed(size >= 10 ? 1 : 2)}`;
  return `${text} ${say({ en: "pp", ko: "%p" })}`;
}

export type Written = "number" | "percent" | "points";

/** A number as it is written: as it is, as a share of a whole, or as a difference of two shares. */
export const written = (x: number | null, as: Written): string => (x === null ? shown(x) : { number: shown, percent, points }[as](x));

// What the server does (serve/app.py); what is fetched is told by its name.
const WORK: Record<string, Said> = {
  wait: { en: "waiting for others", ko: "다른 계산을 기다리는 중" },
  load: { en: "loading the model", ko: "모델을 읽는 중" },
  run: { en: "running the model", ko: "모델을 실행하는 중" },
  explain: { en: "computing", ko: "계산 중" },
  beside: { en: "computing what it is compared with", ko: "비교 대상을 계산하는 중" },
  pack: { en: "packing the file", ko: "파일로 묶는 중" },
  check: { en: "checking what was fetched", ko: "받은 파일을 확인하는 중" },
  convert: { en: "converting what was fetched", ko: "받은 파일을 변환하는 중" },
};

/** What is being done, in words. */
export const doing = (what: string): string => (WORK[what] ? say(WORK[what]) : say({ en: "fetching {what}", ko: "{what} 받는 중" }, { what }));

/** A mixer's name by itself: what a sentence calls "the recurrence" is "recurrence" in a list. */
export const bare = (called: Said): string => say(called).replace(/^the /, "");

/** A figure with its labels in the page's language; its numbers are the same. */
export function worded<F extends Figure>(figure: F): F {
  const all = (labels: string[]) => labels.map(spelled);
  if (figure.kind === "heat_map") return { ...figure, rows: all(figure.rows), columns: all(figure.columns) };
  if (figure.kind === "token_scores") return { ...figure, tokens: all(figure.tokens) };
  if (figure.kind === "graph") return { ...figure, nodes: figure.nodes.map((one) => ({ ...one, label: spelled(one.label) })) };
  if (figure.kind === "table") return { ...figure, rows: figure.rows.map((row) => row.map((one, c) => (typeof one === "string" ? coded(figure.columns[c]!.en, one) : one))) };
  if (figure.kind === "points") return { ...figure, points: figure.points.map((one) => ({ ...one, label: spelled(one.label) })) };
  if (!figure.x.includes("embed.token")) return { ...figure, x: all(figure.x) };
  return { ...figure, x: figure.x.map(station), raw: figure.x } as F; // raw: the names themselves
}

/** The kinds of heads (explain.kinds.heads.kind): what takes at least half of a head's weight. */
export const KINDS: Record<string, { short: Said; heads: Said }> = {
  previous: { short: { en: "previous token", ko: "바로 앞 토큰" }, heads: { en: "Heads that look at the previous token", ko: "바로 앞 토큰을 보는 헤드" } },
  first: { short: { en: "first token", ko: "첫 토큰" }, heads: { en: "Heads that rest on the first token", ko: "첫 토큰에 머무는 헤드" } },
  self: { short: { en: "itself", ko: "자기 자신" }, heads: { en: "Heads that look at the token itself", ko: "자기 자신을 보는 헤드" } },
  equal: { short: { en: "equal tokens", ko: "같은 토큰" }, heads: { en: "Heads that look at equal tokens", ko: "같은 토큰을 보는 헤드" } },
  behind: { short: { en: "after an equal token", ko: "같은 토큰의 다음" }, heads: { en: "Heads that look at what followed an equal token (induction)", ko: "같은 토큰의 다음을 보는 헤드(귀납 헤드)" } },
  spread: { short: { en: "spread", ko: "여러 곳" }, heads: { en: "Heads that spread their weight over several tokens", ko: "여러 토큰에 나누어 보는 헤드" } },
};

// Codes that stand in columns of these names, as Python writes them in any language.
const CODED = ["kind", "part", "run", "measure"];
const CODES: Record<string, Said> = {
  embedding: { en: "embedding", ko: "임베딩" },
  position: { en: "position", ko: "위치" },
  head: { en: "head", ko: "헤드" },
  mixer: { en: "token mixer", ko: "토큰 믹서" },
  cross: { en: "source", ko: "원문" },
  channel: { en: "channel mixer", ko: "채널 믹서" },
  start: { en: "first state", ko: "첫 상태" },
  bias: { en: "bias", ko: "편향" },
  edit: { en: "edit", ko: "편집" },
  constant: { en: "constant", ko: "상수" },
  none: { en: "none", ko: "없음" },
  induction: { en: "induction", ko: "귀납" },
  duplicate: { en: "duplicate token", ko: "같은 토큰" },
  sink: { en: "first token", ko: "첫 토큰" },
  offset: { en: "fixed distance", ko: "고정된 거리" },
  clean: { en: "clean", ko: "원래" },
  spoilt: { en: "spoilt", ko: "망가뜨림" },
  difference: { en: "difference", ko: "차이" },
  comprehensiveness: { en: "comprehensiveness", ko: "포괄성" },
  sufficiency: { en: "sufficiency", ko: "충분성" },
  deletion: { en: "deletion", ko: "삭제" },
  insertion: { en: "insertion", ko: "삽입" },
  spearman: { en: "spearman", ko: "스피어만 순위 상관" },
  kendall: { en: "kendall", ko: "켄달 순위 상관" },
  "all edges": { en: "all edges", ko: "모든 연결" },
  "the circuit": { en: "the circuit", ko: "회로" },
  "all but the circuit": { en: "all but the circuit", ko: "회로를 뺀 나머지" },
  "random circuits": { en: "random circuits", ko: "무작위 회로" },
  "no edge": { en: "no edge", ko: "연결 없음" },
};
const coded = (column: string, text: string): string => {
  const said = CODED.includes(column) ? (KINDS[text]?.short ?? CODES[text]) : undefined;
  return said ? say(said) : spelled(text);
};

/** What the columns of the table of heads mean, by their English names. */
export const MEANT: Record<string, Said> = {
  "entropy (bits)": { en: "How widely the weights spread: 0 on a single token, log₂ n evenly over n tokens.", ko: "가중치가 퍼진 정도입니다. 한 토큰에 몰리면 0, n개에 고르게 퍼지면 log₂ n입니다." },
  "mean distance": { en: "How many tokens away it looks on average.", ko: "평균적으로 토큰 몇 개만큼 떨어진 곳을 보는지입니다." },
  "on the previous token": { en: "The share of its weight on the token just before.", ko: "바로 앞 토큰에 두는 가중치의 비율입니다." },
  "on the first token": { en: "The share on the first token, where many heads rest when there is nothing to gather.", ko: "첫 토큰에 두는 비율입니다. 가져올 것이 없을 때 많은 헤드가 여기에 머뭅니다." },
  "on itself": { en: "The share on the token itself.", ko: "토큰 자신에 두는 비율입니다." },
  "on equal tokens": { en: "The share on equal tokens elsewhere in the text; – where no token stands twice.", ko: "텍스트에 있는 같은 토큰에 두는 비율입니다. 두 번 나오는 토큰이 없으면 –입니다." },
  "behind an equal token": { en: "The share on what followed an equal token before: a head that continues repetitions (an induction head) looks there.", ko: "앞에 나온 같은 토큰의 바로 다음에 두는 비율입니다. 반복을 이어 가는 헤드(귀납 헤드)가 이곳을 봅니다." },
  kind: { en: "Called by what takes at least half of its weight in this text.", ko: "이 텍스트에서 가중치의 절반 이상을 차지하는 것으로 부릅니다." },
};
