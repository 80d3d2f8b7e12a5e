// Written by dev/protocol.py; change the Python file and run it again.


/** A text that a person reads, in both languages. */
export interface Said {
  en: string;
  ko: string;
}

/** A table of numbers drawn as colours. */
export interface HeatMap {
  kind: "heat_map";
  name: string;
  title: Said;
  rows: string[];
  columns: string[];
  values: ((number | null)[])[];
  row_title: Said;
  column_title: Said;
  unit: Said;
  scale: "share" | "plain" | "signed";
  reasons: string[][] | null;
  errors: ((number | null)[])[] | null;
  value: string;
  where: Record<string, number>;
}

/** One line of a series: a number for each place of its x axis. */
export interface Line {
  label: Said;
  values: (number | null)[];
  errors: (number | null)[] | null;
}

/** Lines over one axis: figure.lines[i].values[place]. */
export interface Series {
  kind: "series";
  name: string;
  title: Said;
  x: string[];
  x_title: Said;
  unit: Said;
  lines: Line[];
}

/** A number for each token or word of the text, drawn on the text itself: figure.values[token]. */
export interface TokenScores {
  kind: "token_scores";
  name: string;
  title: Said;
  tokens: string[];
  values: (number | null)[];
  unit: Said;
  chosen: number | null;
  scale: "share" | "plain" | "signed";
  errors: (number | null)[] | null;
}

/** A node of a graph: layers are drawn as columns, places within them as rows. */
export interface Node {
  id: string;
  label: string;
  layer: number;
  place: number;
  value: number | null;
}

/** A ribbon from one node to another, as wide as its value is large. */
export interface Edge {
  source: string;
  target: string;
  value: number;
}

/** Nodes in layers and weighted edges between them: figure.edges[i].value. */
export interface Graph {
  kind: "graph";
  name: string;
  title: Said;
  nodes: Node[];
  edges: Edge[];
  layers: string[];
  unit: Said;
}

/** Rows of texts and numbers: figure.rows[i][column]. */
export interface Table {
  kind: "table";
  name: string;
  title: Said;
  columns: Said[];
  rows: ((string | number | null)[])[];
}

/** A point of a map, the group that its colour tells, and what it is called. */
export interface Point {
  label: string;
  group: string;
  x: number;
  y: number;
}

/** A map of points in the plane, coloured by group: figure.points[i].x. */
export interface Points {
  kind: "points";
  name: string;
  title: Said;
  points: Point[];
  x_title: Said;
  y_title: Said;
}

/** How an explanation measured itself on this very input. */
export interface Check {
  name: string;
  said: Said;
  value: number | null;
  passed: boolean | null;
}

/** One explanation of one run. */
export interface Explanation {
  name: string;
  title: Said;
  claim: Said;
  figures: (HeatMap | Series | TokenScores | Graph | Table | Points)[];
  checks: Check[];
  python: string;
  command: string;
}

/** One cell of the text (data.display.Cell): what is shown, its tokens, where it begins and ends in the text, and a cell for each token where there are several. */
export interface PageCell {
  label: string;
  tokens: number[];
  start: number;
  end: number;
  special: boolean;
  form: string;
  parts: PageCell[];
}

/** A card (tap.Card): symbol, formula, a sentence in both languages, the article's statements. */
export interface PageCard {
  symbol: string;
  formula: string;
  said: Said;
  statements: string[];
}

/** A value that can be asked for: its name, axis letters and sizes, and the key of its card. */
export interface PageValue {
  name: string;
  axes: string[];
  sizes: number[];
  card: string;
}

/** A token mixer: its tag, its name, what it has. */
export interface PageMixer {
  path: string;
  kind: string;
  called: Said;
  softmax: boolean;
  weights: string;
  axis: string;
  heads: number;
  groups: number;
  causal: boolean;
  mask: Said;
  sink: boolean;
  plain: boolean;
}

/** One block: its path, its mixer, the mixer that reads the source, the path of its channel mixer ("" for none), and whether what these make is added to the vector (residual) or takes its place. */
export interface PageBlock {
  path: string;
  index: number;
  mixer: PageMixer;
  cross: PageMixer | null;
  channel: string;
  residual: boolean;
}

/** The picture that was read: bytes `c y x` in base64, 0 black, by which it is told from others. */
export interface PagePicture {
  channels: number;
  pixels: string;
  name: string;
}

/** One stack: "" of a model of one, "encoder." and "decoder." of a pair. */
export interface PageStack {
  prefix: string;
  units: string;
  length: number;
  labels: string[];
  cells: Record<string, PageCell[]>;
  position: string;
  blocks: PageBlock[];
  signals: string[];
}

/** One change of a value (edit.Edit) in the form of its JSON (edit_json.EditData), without slices and tensors: what another run gives is named by that run's text or token ids. */
export interface PageEdit {
  kind: "zero" | "scale" | "add" | "replace" | "patch" | "mean" | "resample" | "noise" | "cut";
  name: string;
  where: Record<string, number | number[]>;
  value: number | null;
  seed: number;
  renormalise: boolean;
  run: string | number[] | null;
  there: Record<string, number | number[]>;
}

/** A setting of an explanation, as the page offers it. */
export interface PageSetting {
  name: string;
  title: Said;
  kind: "choice" | "whole" | "number" | "text" | "lines";
  usual: string | number | null;
  choices: [string, Said][];
  least: number | null;
  most: number | null;
  above: number | null;
  places: Record<string, number[]>;
}

/** One run of one model over one text, pair, image or sound, without its numbers. */
export interface PageRun {
  id: string;
  model: string;
  shape: "decoder" | "encoder" | "pair" | "image";
  text: string;
  source: string;
  python: string[];
  live: string;
  stacks: PageStack[];
  values: PageValue[];
  cards: Record<string, PageCard>;
  changes: string[];
  edits: PageEdit[];
  dtype: string;
  context: number;
  parameters: number;
  next: boolean;
  classes: string[];
  scores: "softmax" | "sigmoid" | "number" | null;
  explains: [string, Said][];
  picture: PagePicture | null;
  parts: string[];
  part: number;
}

/** A model that can be chosen. */
export interface PageModel {
  name: string;
  kind: "shipped" | "run" | "pulled" | "pullable";
  summary: Said;
  bytes: number;
  family: string;
  reads: string;
  why: Said | null;
}

/** A candidate for the next token (explain.rest.Next). */
export interface PageCandidate {
  token: number;
  label: string;
  probability: number;
}

/** One new token of a generation (generate.Event). */
export interface PageToken {
  token: number;
  label: string;
  text: string;
  special: boolean;
  probability: number;
  candidates: PageCandidate[];
  length: number;
  state_bytes: number;
  seconds: number;
  finished: "end" | "length" | "stop" | null;
}

/** What a generation ended in: its text, and the Python lines and the command line that write the same. */
export interface PageWritten {
  text: string;
  python: string[];
  command: string;
}

/** What a generation is asked for with. */
export interface AskedWriting {
  model: string;
  text: string;
  top: number;
  settings: Record<string, unknown>;
  edits: PageEdit[];
}

/** A model that is to be opened, and fetched where it is not on this machine. */
export interface AskedModel {
  name: string;
}

/** What a run is asked for with. */
export interface Asked {
  model: string;
  text: string;
  target: string | null;
  image: string | null;
  ids: number[] | null;
  start: boolean;
  edits: PageEdit[];
  part: number;
  called: string;
}

/** A value of a run that is asked for with others; where: places by axis letter. */
export interface AskedValue {
  name: string;
  where: Record<string, number | number[]>;
}

/** A generation that was watched: what was asked for, its tokens, and what it ended in (None: stopped). */
export interface PageWriting {
  asked: AskedWriting;
  tokens: PageToken[];
  written: PageWritten | null;
}

/** A run that a person has looked at, of which the saved page is to hold what was seen: explanations by their request, as they were given, and the names of values. */
export interface SeenRun {
  id: string;
  explanations: Record<string, Explanation>;
  values: string[];
}

/** What a saved page is asked for with. */
export interface AskedPage {
  lang: "en" | "ko";
  seen: SeenRun[];
  writings: PageWriting[];
  left: string[];
  place: string;
}

/** One run of a saved page, its explanations by their request ("flow?layer=2"), and other documents by theirs. */
export interface SavedRun {
  key: string;
  run: PageRun;
  explanations: Record<string, Explanation>;
  documents: Record<string, unknown>;
}

/** What a saved page carries beside the bytes of its values: its own run and those beside it, and what was written. */
export interface Saved {
  runs: SavedRun[];
  usual: Record<string, Record<string, unknown>>;
  writings: PageWriting[];
  left: string[];
  place: string;
}

export type Figure = HeatMap | Series | TokenScores | Graph | Table | Points;
