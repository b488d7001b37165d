// A log as a terminal would show it, whatever pieces it comes in.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";

const folder = await mkdtemp(join(tmpdir(), "muster-terminal-"));
await build({ entryPoints: ["src/terminal.ts"], outfile: join(folder, "terminal.mjs"), format: "esm", bundle: true });
const { TerminalReader, textOf, withChanges, slice } = await import(join(folder, "terminal.mjs"));
await rm(folder, { recursive: true });

// The lines after all pieces, as [text, look] of each part.
function read(...pieces) {
  const reader = new TerminalReader(0);
  let lines = [];
  for (const piece of pieces) lines = withChanges(lines, reader.add(piece), 1000);
  return lines.map((line) => line.spans.map((span) => (span.look ? [span.text, span.look] : span.text)));
}

test("a carriage return begins the line anew, and before a line's end it is nothing", () => {
  assert.deepEqual(read("  0%\r 50%\r100%\ndone\r\n"), [["100%"], ["done"]]);
  assert.deepEqual(read("\r  0%"), [["  0%"]]);
  assert.deepEqual(read("long line\r"), [["long line"]], "it is replaced only by what follows");
});

test("a line is one line, whatever pieces it comes in", () => {
  const text = "start\n\x1b[1;31mbad\x1b[0m \x1b[38;2;20;200;40mgood\x1b[39m\r\x1b[K 10%|\x1b[34m#\x1b[m|\r 20%|\x1b[34m##\x1b[m|\nend\x1b]8;;http://x\x07link\x1b]8;;\x1b\\\n";
  const whole = read(text);
  assert.deepEqual(whole, [["start"], [" 20%|", ["##", "sgr-blue"], "|"], ["endlink"]]);
  for (let at = 1; at < text.length; ++at) assert.deepEqual(read(text.slice(0, at), text.slice(at)), whole, `cut at ${at}`);
  assert.deepEqual(read(...text), whole, "character by character");
});

test("several progress bars stay several lines: the cursor goes up and down over the last of them", () => {
  // What tqdm writes for two nested bars.
  const bars = "outer: 0/2\n\rinner: 0/3\x1b[A\n\rinner: 2/3\x1b[A\n\rinner: 3/3\x1b[A\router: 1/2\n\rinner: 1/3\x1b[A\router: 2/2\n\n";
  const whole = read("start\n" + bars + "end\n");
  assert.deepEqual(whole, [["start"], ["outer: 2/2"], ["inner: 1/3"], ["end"]]);
  for (let at = 1; at < bars.length; ++at) assert.deepEqual(read("start\n" + bars.slice(0, at), bars.slice(at) + "end\n"), whole, `cut at ${at}`);
  assert.deepEqual(read("a\nb\nc\x1b[2A\rA\x1b[2B\rC\n"), [["A"], ["b"], ["C"]]);
  assert.deepEqual(read("a\nb\n\x1b[1F\x1b[2KB\x1b[E"), [["a"], ["B"]]);
  assert.deepEqual(read("a\x1b[9A\rA\x1b[9B\n"), [["A"]], "not beyond what there is");
  const far = read(`${"x\n".repeat(100)}\x1b[200A\rtop`).map(String);
  assert.equal(far.length, 100);
  assert.ok(far.indexOf("top") > 50, "only the last lines can change");
});

test("a line that goes on keeps its key, so a page changes it in its place", () => {
  const reader = new TerminalReader(3);
  const [first] = reader.add(" 1%");
  const [again] = reader.add("\r 2%");
  assert.equal(again.key, first.key);
  assert.equal(again.rank, 3);
  const [finished, next] = reader.add(" more\nnext");
  assert.equal(finished.key, first.key);
  assert.equal(textOf(finished), " 2% more");
  assert.notEqual(next.key, first.key);
});

test("colours of every kind become the nearest that both themes have", () => {
  const look = (codes) => read(`\x1b[${codes}mx`)[0][0]?.[1] ?? "";
  for (const [codes, name] of [["31", "red"], ["91", "red"], ["32", "green"], ["33", "yellow"], ["34", "blue"], ["35", "magenta"], ["36", "cyan"],
    ["90", "grey"], ["38;5;196", "red"], ["38;5;46", "green"], ["38;5;208", "yellow"], ["38;5;21", "blue"], ["38;5;201", "magenta"],
    ["38;5;51", "cyan"], ["38;5;244", "grey"], ["38;5;9", "red"], ["38;2;255;0;0", "red"], ["38;2;0;128;255", "blue"],
    ["38:2::0:255:0", "green"], ["38:2:0:255:0", "green"]])
    assert.equal(look(codes), `sgr-${name}`, codes);
  for (const codes of ["30", "37", "97", "38;5;231", "38;5;16", "38;2;255;255;255", "39", "0", "", "3", "4"]) assert.ok(!look(codes).includes("sgr"), `${codes}: the page's own`);
  assert.equal(look("41"), "sgr-on-red");
  assert.equal(look("7"), "sgr-on-grey");
  assert.equal(look("1;31;44"), "sgr-red sgr-on-blue sgr-bold");
  assert.equal(look("38;5;208;1"), "sgr-yellow sgr-bold");
});

test("reset, normal weight and default colours end what they end; a colour goes on in the next line", () => {
  assert.deepEqual(read("\x1b[1;31ma\x1b[22mb\x1b[39mc\x1b[42md\x1b[49me"),
    [[["a", "sgr-red sgr-bold"], ["b", "sgr-red"], "c", ["d", "sgr-on-green"], "e"]]);
  assert.deepEqual(read("\x1b[32ma\nb\x1b[mc"), [[["a", "sgr-green"]], [["b", "sgr-green"], "c"]]);
});

test("other control sequences leave nothing behind", () => {
  assert.deepEqual(read("a\x1b[2Jb\x1b[10;20Hc\x1b[?25ld\x1b(Be\x07f\bg\x9bh\x1b]0;title\x07i\x00j\n"), [["abcdefghij"]]);
  assert.deepEqual(read("a\tb"), [["a\tb"]]);
  assert.deepEqual(read("first\x1b[2Kafter"), [["after"]], "the line is erased");
});

test("what would never end is bounded: a line, and a sequence", () => {
  const reader = new TerminalReader(0);
  let line;
  for (let i = 0; i < 100; ++i) [line] = reader.add("x".repeat(10_000));
  assert.equal(textOf(line).length + line.more, 1_000_000);
  assert.ok(textOf(line).length <= 20_000);
  assert.deepEqual(read("\x1b]0;" + "x".repeat(5000), "\nnext\n").at(-1), ["next"]);
});

test("changes replace lines in their place, the rest follows, and the newest stay", () => {
  const line = (key, text) => ({ key, rank: 0, spans: [{ text, look: "" }], more: 0 });
  const now = withChanges([line(1, "a"), line(2, "b")], [line(2, "B"), line(3, "c"), line(3, "C")], 10);
  assert.deepEqual(now.map(textOf), ["a", "B", "C"]);
  assert.deepEqual(withChanges(now, [line(4, "d")], 2).map(textOf), ["C", "d"]);
});

test("a part of a line keeps its colours", () => {
  const spans = [{ text: "abc", look: "" }, { text: "def", look: "sgr-red" }];
  assert.deepEqual(slice(spans, 2, 4), [{ text: "c", look: "" }, { text: "d", look: "sgr-red" }]);
  assert.deepEqual(slice(spans, 3, 3), []);
});
