// Numbers and times as people read them.
export function formatNumber(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, 1), useGrouping: true });
}

export function formatCount(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
}

/// `step` is the smallest difference that the text must show, such as the distance of two ticks of an axis.
export function formatBytes(bytes: number, step = 0): string {
  if (!bytes) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), units.length - 1);
  const value = bytes / 1024 ** power;
  const digits = step > 0 ? Math.max(0, Math.ceil(-Math.log10(step / 1024 ** power) + 0.7)) : value < 10 ? 1 : 0;
  return `${value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 6) })} ${units[power]}`;
}

const BYTES = ["B", "byte", "bytes"];

export function isBytes(unit: string): boolean {
  return BYTES.includes(unit);
}

/// Bytes of a series, which may be less than one and no whole number.
export function formatSomeBytes(value: number): string {
  return value >= 1 ? formatBytes(value) : formatNumber(value);
}

/// A value of a series with that unit.
export function formatValue(value: number, unit: string): string {
  return isBytes(unit) ? formatSomeBytes(value) : formatNumber(value);
}

export function formatDuration(ms: number | null): string {
  if (ms === null || Number.isNaN(ms)) return "–";
  if (ms > 0 && ms < 1000) return `${Math.ceil(ms)} ms`;
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function formatAge(ms: number): string {
  return ms < 10000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : formatDuration(ms);
}

export function formatTime(rfc3339: string): string {
  if (!rfc3339) return "–";
  const at = new Date(rfc3339);
  const day = at.toLocaleDateString("en-CA");
  const time = at.toLocaleTimeString("en-GB");
  return new Date().toLocaleDateString("en-CA") === day ? time : `${day} ${time}`;
}

/// A text of musterd with its times in the time zone of the browser.
export function withLocalTimes(text: string): string {
  return text.replace(/(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z| UTC)/g, (_, day, time) => formatTime(`${day}T${time}Z`));
}

/// Nodes as Slurm writes many of them: "gpu[01-03,07], login".
export function formatNodes(nodes: string[]): string {
  const groups = new Map<string, string[]>(); // the name before the number -> the numbers as written
  for (const node of nodes) {
    const [, stem, digits] = /^(.*?)(\d*)$/.exec(node)!;
    groups.set(stem!, [...(groups.get(stem!) ?? []), digits!]);
  }
  return [...groups].map(([stem, all]) => (all.length === 1 ? stem + all[0] : `${stem}[${formatRanges(all)}]`)).join(", ");
}

function formatRanges(digits: string[]): string {
  const runs: string[][] = [];
  for (const one of [...digits].sort((a, b) => a.length - b.length || Number(a) - Number(b))) {
    const last = runs.at(-1)?.at(-1);
    if (last !== undefined && last.length === one.length && Number(one) === Number(last) + 1) runs.at(-1)!.push(one);
    else runs.push([one]);
  }
  return runs.map((run) => (run.length > 1 ? `${run[0]}-${run.at(-1)}` : run[0])).join(",");
}

/// The settings in which an element of a sweep differs from the others: "learning_rate=1e-3, seed=2".
export function formatSettings(settings: Record<string, string> | undefined): string {
  return Object.entries(settings ?? {}).map(([key, value]) => `${key.split(".").at(-1)}=${value}`).join(", ");
}

/// Texts for the ticks of a time axis, given in seconds. A tick shows the date if the tick before it has another date.
export function formatTicks(at: number[]): string[] {
  const days = at.map((seconds) => new Date(seconds * 1000).toLocaleDateString("en-CA"));
  return at.map((seconds, i) => {
    const time = new Date(seconds * 1000).toLocaleTimeString("en-GB");
    return i > 0 && days[i] !== days[i - 1] ? `${time}\n${days[i]}` : time;
  });
}

/// Milliseconds from one time to another, or to `now` if there is no second one. null: there is no first one.
export function between(from: string, to: string, now: number): number | null {
  return from ? (to ? Date.parse(to) : now) - Date.parse(from) : null;
}

export const plain = (word: string): string => word.replaceAll("_", " ");
