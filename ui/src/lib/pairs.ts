// Pairs of sentences with one word in common, whose contexts part it. What stands before the word must differ: a model
// that looks back only knows nothing of what comes behind.

interface Pair {
  word: string;
  first: string;
  second: string;
}

export const PAIRS: Record<"en" | "ko", Pair[]> = {
  ko: [
    { word: "별", first: "어두운 하늘에 별이 빛난다", second: "이 영화는 별이 하나다" },
    { word: "배", first: "따뜻한 배를 먹었다", second: "작은 배를 탔다" },
  ],
  en: [
    { word: "star", first: "In the night sky I saw a star", second: "I gave the film a star" },
    { word: "bank", first: "He sat on the river bank", second: "She put the money in the bank" },
  ],
};

/** The words that both texts have, the longest first. */
export function shared(first: string, second: string): string[] {
  const words = (text: string) => new Set(text.split(/[\s.,!?;:"'()]+/u).filter((one) => one));
  const other = words(second);
  return [...words(first)].filter((one) => other.has(one)).sort((a, b) => b.length - a.length);
}
