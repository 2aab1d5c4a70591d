// WebGPU's flag namespaces, which TypeScript's DOM library lacks.
declare const GPUBufferUsage: Readonly<
  Record<"MAP_READ" | "COPY_SRC" | "COPY_DST" | "UNIFORM" | "STORAGE" | "QUERY_RESOLVE", number>
>;
declare const GPUMapMode: Readonly<Record<"READ" | "WRITE", number>>;
declare const GPUShaderStage: Readonly<Record<"COMPUTE", number>>;
declare const GPUTextureUsage: Readonly<Record<"STORAGE_BINDING", number>>;

// Translated Python that the page's panels import; `webmm bundle` writes it.
declare module "*/bundle/core.js" {
  type RunRecord = import("./records.js").RunRecord;
  type Task = { m: number; n: number; k: number; op?: string };
  export type Table = { heads: string[]; html: (kind?: string) => string };
  export type Step = { label: string; summary: string; follows: string; branch: string; href: string };
  type Python = import("./bundle.js").Python;
  export type Subject = {
    op: string;
    steps: Step[];
    stages: string[];
    first: string;
    sizes: [value: string, words: string][];
    usual: (speed: number) => [ladder: number, stage: number];
    dtypes: string[];
    problem: (size: string, dtype: string) => Python;
    kernel: (stage: string, problem: Python) => Python;
    kernels: (problem: Python) => Python[];
    checked: boolean;
  };
  export function size_of(task: Task): string;
  export function speed_of(record: Task & { dtype: string; gflops: number | null }): number;
  export function unit_of(task: { op?: string }): string;
  export function check_random(rows: number, columns: number, device: import("./bundle.js").Python): void;
  export function duration(us: number | null): string;
  export function exponent(value: number | null): string;
  export function figures(value: number | null | undefined): string;
  export function nbytes(count: number): string;
  export function bars(
    records: RunRecord[],
    steps: Step[],
    state: "waiting" | "running" | "finished",
  ): { status: string; share: number; value: string; note: string }[];
  export function empty_bars(steps: Step[]): string;
  export function explained(records: RunRecord[]): string;
  export function fastest(records: RunRecord[]): RunRecord | null;
  export function found(records: RunRecord[], steps: Step[], stopped: boolean): string;
  export function results(records: RunRecord[]): Table;
  export function products(browser: Python): Subject;
}
declare module "*/bundle/drawings.js" {
  type Python = import("./bundle.js").Python;
  export function facts(kernel: Python, problem: Python): [string, string][];
  export function intensity(kernel: Python, problem: Python): number;
  export function legend(kernel: Python, itemsize: number, loaded: number): [string, string][];
  export function owner_of(kernel: Python): string;
  export function pictured(kernel: Python, borders: boolean): Python;
  export function place(name: string, intensity: number, gflops: number | null, reach: number): string;
  export function roof(gflops: number, gbytes: number): Python;
  export function roofline_of(records: import("./records.js").RunRecord[], gflops: number, gbytes: number): Python;
  export function walked(op: string, name: string): Python | null;
}
declare module "*/bundle/panels.js" {
  type Python = import("./bundle.js").Python;
  type RunRecord = import("./records.js").RunRecord;
  type Run = { name: string; records: RunRecord[] };
  type Table = import("./bundle/core.js").Table;
  export function ablation(
    changes: [words: string, alone: Python | null][],
    records: RunRecord[],
    label: string,
  ): Table;
  export function best_of(records: RunRecord[]): string;
  export function best_so_far(records: RunRecord[]): string;
  export function change(wgsl: string): string;
  export function compared(a: Run, b: Run): Table;
  export function gain(records: RunRecord[], op: string, stage: string, follows: string): string[];
  export function hint(runs: Run[]): string;
  export function likely(runs: Run[]): string;
  export function outcome(record: RunRecord, label: string): string;
  export function outcomes(records: RunRecord[]): string;
  export function outstanding(records: RunRecord[]): RunRecord[];
  export function speed_on(records: RunRecord[], kernel: Python, problem: Python): number | null;
  export function changes(kernel: Python, other: Python): [words: string, alone: Python | null][];
  export function nearest(kernel: Python, name: string, value: any, starts: Python[] | null): Python;
  export function excerpt(
    element: (i: number, j: number) => number,
    rows: number,
    columns: number,
    name: string,
  ): Table;
  export function searched(
    problem: Python,
    browser: Python,
    records: RunRecord[],
  ): Iterable<[kernel: Python, longest: number, turn: string]>;
  export function suited(kernel: Python, problem: Python): Python;
  export function choices(kernel: Python, name: string): any[];
  export function translation(
    found: import("./bundle.js").Translated | null,
    target: string,
    written: boolean,
  ): [code: string, words: string];
}
declare module "*/bundle/subjects.js" {
  type Python = import("./bundle.js").Python;
  type Subject = import("./bundle/core.js").Subject;
  export function exhibited(shown: Python, row: Python, browser: Python): Subject;
  export function prepared(problems: Python[], kernels: Python[][], others: string[], browser: Python): Subject;
}
declare module "*/bundle/foreign.js" {
  export const CHECKED: [number, number, number][];
}
declare module "*/bundle/ops.js" {
  export const FORMS: string[];
}
