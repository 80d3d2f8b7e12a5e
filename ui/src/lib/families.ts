// Several models side by side: which ones, and which of their tokens stand for the same characters.

import type { PageCell, Said } from "./protocol";

/** The shipped siblings: trained alike, on the same text, with the same tokens and budget. */
export const SIBLINGS = ["mlp", "cnn", "lstm", "transformer", "ssm"];

/** What a mixer keeps of the past, by its tag. */
export const KEEPS: Record<string, Said> = {
  "window-mlp": { en: "keeps the last few tokens as they are: its window", ko: "마지막 토큰 몇 개를 그대로 간직합니다(윈도)" },
  conv: { en: "keeps the last few inputs of each convolution", ko: "합성곱마다 마지막 입력 몇 개를 간직합니다" },
  tcn: { en: "keeps the last few inputs of each convolution", ko: "합성곱마다 마지막 입력 몇 개를 간직합니다" },
  rnn: { en: "keeps one vector, of one size for any text", ko: "텍스트 길이와 상관없이 벡터 하나를 간직합니다" },
  gru: { en: "keeps one vector, of one size for any text", ko: "텍스트 길이와 상관없이 벡터 하나를 간직합니다" },
  lstm: { en: "keeps two vectors, of one size for any text", ko: "텍스트 길이와 상관없이 벡터 두 개를 간직합니다" },
  attention: { en: "keeps every key and value: it grows with the text", ko: "모든 키와 값을 간직하므로 텍스트와 함께 늘어납니다" },
  "linear-attention": { en: "keeps one matrix for each head, of one size for any text", ko: "텍스트 길이와 상관없이 헤드마다 행렬 하나를 간직합니다" },
  mamba: { en: "keeps one state for each channel, of one size for any text", ko: "텍스트 길이와 상관없이 채널마다 상태 하나를 간직합니다" },
  mamba2: { en: "keeps one matrix for each head, of one size for any text", ko: "텍스트 길이와 상관없이 헤드마다 행렬 하나를 간직합니다" },
  s4d: { en: "keeps one state for each channel, of one size for any text", ko: "텍스트 길이와 상관없이 채널마다 상태 하나를 간직합니다" },
};

/** The models that are compared: those kept in the address, else the siblings; each once. */
export function compared(kept: string): string[] {
  const names = kept.split(",").filter((one) => one);
  return names.length ? [...new Set(names)] : [...SIBLINGS];
}

/** Which cell of another model's text holds the characters of this one: by its place in the text; the start by itself. */
export function same(cells: readonly PageCell[], of: PageCell | undefined, index: number): number {
  const alike = cells[index];
  if (!of || (alike && alike.start === of.start && alike.end === of.end && alike.special === of.special)) return Math.min(index, cells.length - 1);
  const found = cells.findIndex((one) => one.special === of.special && one.start < Math.max(of.end, of.start + 1) && one.end >= Math.max(of.end, of.start + 1));
  return found >= 0 ? found : Math.max(0, Math.min(index, cells.length - 1));
}
