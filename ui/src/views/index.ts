// The views of the page: one file and one line each.

import type { Component } from "svelte";
import type { PageRun, Said } from "../lib/protocol";
import Align from "./Align.svelte";
import Explain from "./Explain.svelte";
import Families from "./Families.svelte";
import Film from "./Film.svelte";
import Flow from "./Flow.svelte";
import Heads from "./Heads.svelte";
import Hands from "./Hands.svelte";
import HandsKept from "./HandsKept.svelte";
import Image from "./Image.svelte";
import Steps from "./Steps.svelte";
import Two from "./Two.svelte";
import Write from "./Write.svelte";

interface View {
  id: string;
  title: Said;
  component: Component<{ run: PageRun }>;
  /** In its place in a saved page, where most of it could only compute. */
  kept?: Component<{ run: PageRun }>;
  /** Whether it shows the model as it is, whatever was changed by hand. */
  plain?: boolean;
  /** Whether it has something to show of this run; in a saved page it says what of it the file does not hold. */
  fits(run: PageRun): boolean;
}

const explained = (run: PageRun, name: string) => run.explains.some(([one]) => one === name);

export const VIEWS: View[] = [
  { id: "flow", title: { en: "Flow", ko: "흐름" }, component: Flow, fits: (run) => explained(run, "flow") },
  { id: "steps", title: { en: "Four steps", ko: "네 단계" }, component: Steps, fits: (run) => run.stacks.some((stack) => stack.blocks.length > 0) },
  { id: "heads", title: { en: "Heads", ko: "헤드" }, component: Heads, fits: (run) => run.stacks.some((stack) => stack.blocks.some((block) => block.mixer.axis === "h")) },
  { id: "align", title: { en: "Alignment", ko: "정렬" }, component: Align, fits: (run) => explained(run, "alignment") },
  { id: "image", title: { en: "Picture", ko: "그림" }, component: Image, fits: (run) => run.picture !== null },
  { id: "hands", title: { en: "Hands on", ko: "직접 바꾸기" }, component: Hands, kept: HandsKept, fits: (run) => run.shape !== "image" || run.stacks.some((stack) => stack.blocks.length > 0) },
  { id: "write", title: { en: "Writing", ko: "쓰기" }, component: Write, fits: (run) => run.next },
  { id: "families", title: { en: "Families", ko: "계열 비교" }, component: Families, plain: true, fits: (run) => run.shape !== "image" && run.text !== "" },
  { id: "two", title: { en: "Two contexts", ko: "두 문맥" }, component: Two, plain: true, fits: (run) => explained(run, "two") },
  { id: "explain", title: { en: "Explanations", ko: "설명" }, component: Explain, fits: (run) => run.explains.length > 0 },
  { id: "film", title: { en: "Film of the training", ko: "학습 필름" }, component: Film, fits: (run) => explained(run, "film") },
];
