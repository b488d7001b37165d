// Turns the output of a program for a terminal into lines of a page. A carriage return starts the line again, so a progress
// bar stays one line. The cursor moves over the last MAX_ROWS lines, so several bars stay several lines. Text that is
// written after such a move replaces that line. SGR colours and bold become classes. All other control sequences are left
// out. Text comes in pieces, and a piece may end within a line or a sequence.
export interface Span {
  text: string;
  look: string; // classes: "sgr-red sgr-bold"
}

export interface Line {
  key: number; // a line that a later piece continues keeps its key
  rank: number;
  spans: Span[];
  more: number; // characters beyond MAX_LINE
}

const MAX_LINE = 20_000;
const MAX_SEQUENCE = 4096;
const MAX_ROWS = 40;
const CONTROL = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;
const BEGUN = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;
const NAMES = ["", "red", "green", "yellow", "blue", "magenta", "cyan", ""]; // black and white are the colours of the page

// The nearest colour of the style sheet, which has both themes.
function nameOf(red: number, green: number, blue: number): string {
  const most = Math.max(red, green, blue);
  const least = Math.min(red, green, blue);
  if (most - least < 40) return most > 64 && most < 200 ? "grey" : "";
  const part = (a: number, b: number) => (a - b) / (most - least);
  const hue = 60 * (most === red ? (part(green, blue) + 6) % 6 : most === green ? part(blue, red) + 2 : part(red, green) + 4);
  const names: [number, string][] = [[20, "red"], [70, "yellow"], [165, "green"], [200, "cyan"], [260, "blue"], [330, "magenta"], [361, "red"]];
  return names.find(([to]) => hue < to)![1];
}

function nameOf256(index: number): string {
  if (index < 8) return NAMES[index]!;
  if (index < 16) return index === 8 ? "grey" : NAMES[index - 8]!;
  if (index >= 232) return nameOf(8 + 10 * (index - 232), 8 + 10 * (index - 232), 8 + 10 * (index - 232));
  const level = (at: number) => (at === 0 ? 0 : 55 + 40 * at);
  const cube = index - 16;
  return nameOf(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

class Look {
  private front = "";
  private back = "";
  private bold = false;

  classes(): string {
    return [this.front && `sgr-${this.front}`, this.back && `sgr-on-${this.back}`, this.bold && "sgr-bold"].filter(Boolean).join(" ");
  }

  // The numbers of one SGR sequence: "1;31", "38;5;208", "38:2::255:0:0".
  apply(parameters: string): void {
    const codes = parameters.split(/[;:]/).map(Number);
    for (let i = 0; i < codes.length; ++i) {
      const code = codes[i]!;
      if (code === 0) [this.front, this.back, this.bold] = ["", "", false];
      else if (code === 1) this.bold = true;
      else if (code === 22) this.bold = false;
      else if (code === 7) this.back = "grey";
      else if (code === 27 || code === 49) this.back = "";
      else if (code === 39) this.front = "";
      else if (code === 38 || code === 48) {
        const wide = parameters.includes(":") && codes.length > 5 ? 1 : 0; // an empty colour space before the colour
        const at = i + 2 + (codes[i + 1] === 2 ? wide : 0);
        const name = codes[i + 1] === 5 ? nameOf256(codes[at] ?? 0) : nameOf(codes[at] ?? 0, codes[at + 1] ?? 0, codes[at + 2] ?? 0);
        if (code === 38) this.front = name;
        else this.back = name;
        i = codes[i + 1] === 5 ? at : at + 2;
      } else if (code >= 30 && code <= 37) this.front = NAMES[code - 30]!;
      else if (code >= 90 && code <= 97) this.front = code === 90 ? "grey" : NAMES[code - 90]!;
      else if (code >= 40 && code <= 47) this.back = NAMES[code - 40]!;
      else if (code >= 100 && code <= 107) this.back = code === 100 ? "grey" : NAMES[code - 100]!;
    }
  }
}

let nextKey = 0;

/// Reads one rank's log, piece by piece.
export class TerminalReader {
  private readonly look = new Look();
  private begun = ""; // the start of a sequence at the end of the last piece
  private readonly rows: Line[]; // the last lines; they may still change
  private at = 0; // the row where the cursor is
  private returned = false; // the next text replaces the line
  private changed = new Set<number>(); // keys, since the last answer
  private told = 0; // the newest key that was in an answer

  constructor(private readonly rank: number) {
    this.rows = [this.fresh()];
  }

  /// The lines that are new or changed, in order.
  add(piece: string): Line[] {
    let text = this.begun + piece;
    const begun = BEGUN.exec(text)?.[0] ?? "";
    this.begun = begun.length < MAX_SEQUENCE ? begun : "";
    if (begun) text = text.slice(0, text.length - begun.length);
    const out: Line[] = [];
    let from = 0;
    for (const found of text.matchAll(CONTROL)) {
      this.put(text.slice(from, found.index));
      from = found.index + found[0].length;
      this.control(found[0], out);
    }
    this.put(text.slice(from));
    // The last line exists once it has text.
    out.push(...this.rows.filter((row) => this.changed.has(row.key) && (row !== this.rows.at(-1) || row.spans.length > 0 || row.key <= this.told)));
    this.changed.clear();
    this.told = Math.max(this.told, out.at(-1)?.key ?? 0);
    return out;
  }

  private control(sequence: string, out: Line[]): void {
    if (sequence === "\n") this.newLine(out);
    else if (sequence === "\r") this.returned = true;
    else if (sequence.startsWith("\x1b[") && sequence.endsWith("m")) this.look.apply(sequence.slice(2, -1));
    else if (/^\x1b\[[02]?K$/.test(sequence) && (this.returned || sequence.includes("2"))) this.clear();
    const move = /^\x1b\[(\d*)([ABEF])$/.exec(sequence);
    if (move) this.goTo(this.at + (/[AF]/.test(move[2]!) ? -1 : 1) * Math.max(1, Number(move[1])));
  }

  private newLine(out: Line[]): void {
    if (this.at + 1 < this.rows.length) return this.goTo(this.at + 1);
    this.changed.add(this.line.key);
    this.rows.push(this.fresh());
    this.at = this.rows.length - 1;
    this.returned = false;
    if (this.rows.length <= MAX_ROWS) return;
    const oldest = this.rows.shift()!;
    this.at -= 1;
    if (this.changed.delete(oldest.key)) out.push(oldest);
  }

  private goTo(row: number): void {
    const to = Math.max(0, Math.min(this.rows.length - 1, row));
    this.returned ||= to !== this.at;
    this.at = to;
  }

  private get line(): Line {
    return this.rows[this.at]!;
  }

  private set line(line: Line) {
    this.rows[this.at] = line;
    this.changed.add(line.key);
  }

  private fresh(): Line {
    return { key: ++nextKey, rank: this.rank, spans: [], more: 0 };
  }

  private clear(): void {
    if (this.line.spans.length > 0) this.line = { ...this.line, spans: [], more: 0 };
  }

  private put(text: string): void {
    if (text === "") return;
    if (this.returned) this.clear();
    this.returned = false;
    const length = textOf(this.line).length;
    const kept = text.slice(0, Math.max(0, MAX_LINE - length));
    const more = this.line.more + text.length - kept.length;
    const look = this.look.classes();
    const last = this.line.spans.at(-1);
    const spans = kept === "" ? this.line.spans
      : last?.look === look ? [...this.line.spans.slice(0, -1), { text: last.text + kept, look }] : [...this.line.spans, { text: kept, look }];
    this.line = { ...this.line, spans, more };
  }
}

export const textOf = (line: Line): string => line.spans.map((span) => span.text).join("");

/// The lines together with the new and changed ones. Only the newest `most` lines are kept.
export function withChanges(lines: Line[], changed: Line[], most: number): Line[] {
  const news = new Map(changed.map((line) => [line.key, line]));
  const kept = lines.map((line) => {
    const now = news.get(line.key);
    news.delete(line.key);
    return now ?? line;
  });
  return [...kept, ...news.values()].slice(-most);
}

/// The part of the spans from one character to another.
export function slice(spans: Span[], from: number, to: number): Span[] {
  const out: Span[] = [];
  let at = 0;
  for (const span of spans) {
    const text = span.text.slice(Math.max(0, from - at), Math.max(0, to - at));
    if (text) out.push({ text, look: span.look });
    at += span.text.length;
  }
  return out;
}
