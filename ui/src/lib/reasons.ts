// Why a cell is dark (mask.Reason), in words.

import type { Said } from "./protocol";

const WORDS: Record<string, Said> = {
  padding: { en: "there is no token at this place", ko: "이 자리에는 토큰이 없습니다" },
  "other document": { en: "it belongs to another document", ko: "다른 문서에 속합니다" },
  future: { en: "it comes later, and this model looks back only", ko: "뒤에 오는 위치이고, 이 모델은 앞쪽만 봅니다" },
  "outside the window": { en: "it lies outside the window that can be seen", ko: "볼 수 있는 범위를 벗어났습니다" },
  "off the stride": { en: "it falls between the places that are looked at", ko: "건너뛰며 보는 위치 사이에 있습니다" },
  "before the memory": { en: "it lies before what the memory holds", ko: "기억에 남은 것보다 앞에 있습니다" },
  "not among the largest": { en: "its score is not among the largest that are kept", ko: "점수가 남길 만큼 크지 않습니다" },
};
const NONE: Said = { en: "there is no way from it by construction", ko: "구조상 경로가 없습니다" };

/** What is said of a dark cell; a reason without words of its own as it is. */
export function why(reason: string | undefined): Said {
  return reason ? (WORDS[reason] ?? { en: reason, ko: reason }) : NONE;
}
