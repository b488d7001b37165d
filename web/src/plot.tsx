// One plot: a canvas, the names of its lines, the step under the cursor, and its data table.
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Range } from "./curves";
import { formatBytes, formatCount, formatTicks } from "./format";
import { DataTable } from "./plot_table";
import type { Line, Quantity } from "./quantities";
import { columns, dots, rows, type Row, type XAxis } from "./series";
import type { Curves } from "./types";

export interface Options {
  axis: XAxis;
  logX: boolean;
  logY: boolean;
  smoothing: number;
  zoom: Range | null;
}

const HEIGHT = 220;
const BINARY_STEPS = Array.from({ length: 45 }, (_, power) => 2 ** power);
// Colours of the style sheet, one for each line.
const COLOURS = ["--accent", "--mild", "--busy", "--magenta", "--good", "--bad"];
// Dots that are nearer to each other would look like a bar.
const DOT_ROOM = 9;
// A plot that is further from the view is not drawn again.
const NEAR = "800px 0px";
const NONE: Curves = { attempts: [], bucket_steps: 1, series: [], measures: [] };
// A drag over fewer pixels counts as a click.
const DRAGGED = 5;

export const colourOf = (line: number): string => COLOURS[line % COLOURS.length]!;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Reported values are a thin line below the smoothed one, or a line with dots if nothing is smoothed. Lost values are
// dashed.
function strokes(line: Line, index: number, alone: boolean): uPlot.Series[] {
  const own = colour(colourOf(index));
  const most = (u: uPlot) => (line.smoothed ? 0 : u.width / DOT_ROOM);
  const points = (size: number, fill: string): uPlot.Series.Points => ({
    show: false, size, fill, width: 1, stroke: fill,
    filter: (u, column) => dots(u.data[column]!, ...u.series[0]!.idxs!, most(u)),
  });
  const lost = alone ? colour("--muted") : own + "99";
  return [
    { show: line.smoothed, stroke: own + "66", width: 1, points: { show: false } },
    { stroke: own, width: 2, points: points(line.smoothed ? 6 : 8, own) },
    { stroke: lost, width: 1, dash: [3, 4], points: points(5, lost) },
  ];
}

function makeOptions(quantity: Quantity, width: number, options: Options): uPlot.Options {
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--muted"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
  const steps = (_: uPlot, at: number[]) => at.map((v) => (v !== null && Number.isInteger(v) ? formatCount(v) : ""));
  const times = (_: uPlot, at: number[]) => formatTicks(at);
  const bytes = (_: uPlot, at: number[], __: number, ___: number, step: number) => at.map((v) => (v === null ? "" : v === 0 ? "0" : formatBytes(v, step)));
  const values = (_: uPlot, at: number[]) => at.map((v) => (v === null ? "" : v === 0 ? "0" : quantity.format(v)));
  const { zoom } = options;
  const range: uPlot.Scale = zoom && options.axis === "step" ? { range: [Math.max(zoom.from, options.logX ? 1 : 0), zoom.to] } : {};
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    // A line without a value at the step under the cursor gets no mark.
    cursor: { y: false, points: { size: 7 }, hover: { skip: [] }, drag: { x: true, y: false, setScale: false, dist: DRAGGED } },
    scales: { x: { time: options.axis === "time", distr: options.logX ? 3 : 1, ...range }, y: { distr: options.logY ? 3 : 1 } },
    axes: [
      { ...axis, ...(options.axis === "step" ? { values: steps } : { values: times, space: 62 }) },
      { ...axis, size: quantity.bytes ? 82 : 66, ...(quantity.bytes ? { incrs: BINARY_STEPS, values: bytes } : { values }) },
    ],
    series: [{}, ...quantity.lines.flatMap((line, i) => strokes(line, i, quantity.lines.length === 1))],
  };
}

function sentence({ lines, format }: Quantity, row: Row): string {
  const parts = lines.flatMap((line, i) => {
    const value = row.values[i];
    if (value === undefined) return [];
    const name = lines.length > 1 ? `${line.name} ` : "";
    const smooth = row.smooth[i];
    if (value === null) return [`${name}no number`];
    return [`${name}${format(value)}${line.smoothed && typeof smooth === "number" ? `, smoothed ${format(smooth)}` : ""}`];
  });
  return `step ${formatCount(row.step)}, attempt ${row.attempt}: ${parts.join("; ")}`;
}

function Legend({ lines }: { lines: Line[] }) {
  return (
    <ul class="legend" aria-label="Lines">
      {lines.map(({ name, unit, smoothed }, i) => (
        <li key={name}>
          <span class={`swatch ${smoothed ? "" : "dotted"}`} style={{ color: `var(${colourOf(i)})` }} aria-hidden="true" />
          {name}{unit && <span class="muted"> ({unit})</span>}
        </li>
      ))}
    </ul>
  );
}

function useNear(place: RefObject<HTMLElement>, atFirst: boolean): boolean {
  const [near, setNear] = useState(atFirst);
  useEffect(() => {
    const watch = new IntersectionObserver((seen) => setNear(seen.at(-1)!.isIntersecting), { rootMargin: NEAR });
    watch.observe(place.current!);
    return () => watch.disconnect();
  }, []);
  return near;
}

interface Props {
  quantity: Quantity;
  curves: Curves;
  options: Options;
  lazy: boolean; // the plot is drawn only near the view
  whole: Range;
  onZoom: (zoom: Range | null) => void;
}

/// Half as many or twice as many steps, around one of them.
export function zoomed(now: Range, around: number, factor: number): Range {
  const reach = Math.max(1, Math.round(((now.to - now.from) * factor) / 2));
  return { from: Math.max(0, around - reach), to: around + reach };
}

export function Plot({ quantity, curves, options: wanted, lazy, whole, onZoom }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [picked, setPicked] = useState<Row | null>(null);
  const near = useNear(box, !lazy);
  const drawn = near || !lazy;
  const followed = useRef(NONE);
  if (near) followed.current = curves;
  // The parts that change how the plot looks. Every reading of the job makes new objects for the lines.
  const shape = JSON.stringify([quantity.title, quantity.bytes, quantity.lines]);
  const all = useMemo(() => rows(followed.current, quantity.lines, wanted.smoothing, wanted.zoom),
    [followed.current, shape, wanted.smoothing, wanted.zoom]);
  const kept = useMemo(() => all.filter((row) => !row.lost), [all]);
  // The axis stays linear if no value has a logarithm.
  const hasLog = useMemo(() => all.some((row) => row.values.some((value) => (value ?? 0) > 0)), [all]);
  const options = { ...wanted, logY: wanted.logY && !quantity.bytes && hasLog };
  const x = (row: Row) => (options.axis === "step" ? row.step : row.at_ms / 1000);
  const data = useMemo(() => columns(all, quantity.lines.length, options.axis, options.logX, options.logY),
    [all, options.axis, options.logX, options.logY]);
  const newest = useRef({ data, all, kept, x, onZoom });
  newest.current = { data, all, kept, x, onZoom };

  useEffect(() => {
    if (!drawn) return;
    const build = () => {
      plot.current?.destroy();
      const made = makeOptions(quantity, box.current!.clientWidth, options);
      made.hooks = {
        setCursor: [(u) => {
          // The mouse picks the nearest step that is not lost. The keyboard picks a step itself.
          if (u.cursor.event == null || u.cursor.idx == null) return;
          const at = newest.current.data[0][u.cursor.idx]!;
          const nearest = newest.current.kept.reduce<Row | null>((best, row) =>
            !best || Math.abs(newest.current.x(row) - at) < Math.abs(newest.current.x(best) - at) ? row : best, null);
          setPicked(nearest);
        }],
        setSelect: [(u) => {
          const [from, to] = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          const steps = newest.current.all.filter((row) => newest.current.x(row) >= from! && newest.current.x(row) <= to!).map((row) => row.step);
          if (steps.length === 0) return;
          const range = options.axis === "step" ? { from: Math.max(0, Math.floor(from!)), to: Math.ceil(to!) }
            : { from: Math.min(...steps), to: Math.max(...steps) };
          newest.current.onZoom({ from: range.from, to: Math.max(range.to, range.from + 1) });
        }],
      };
      made.cursor!.bind = { dblclick: () => () => (newest.current.onZoom(null), null) };
      plot.current = new uPlot(made, newest.current.data as uPlot.AlignedData, box.current!);
    };
    build();
    const resize = new ResizeObserver(() => {
      const width = box.current?.clientWidth ?? 0;
      if (width > 0 && plot.current && width !== plot.current.width) plot.current.setSize({ width, height: HEIGHT });
    });
    resize.observe(box.current!);
    addEventListener("themechange", build);
    return () => {
      removeEventListener("themechange", build);
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [drawn, shape, options.axis, options.logX, options.logY, options.zoom]);
  useEffect(() => plot.current?.setData(data as uPlot.AlignedData), [data]);

  const move = (event: KeyboardEvent) => {
    const factor = { "+": 0.5, "-": 2 }[event.key];
    if (factor && kept.length > 0) {
      event.preventDefault();
      return onZoom(zoomed(options.zoom ?? whole, picked?.step ?? kept.at(-1)!.step, factor));
    }
    const jump = event.shiftKey ? 10 : 1;
    const at = picked ? kept.findIndex((row) => row.step === picked.step && row.attempt === picked.attempt) : kept.length;
    const to = { ArrowLeft: at - jump, ArrowRight: at + jump, Home: 0, End: kept.length - 1 }[event.key];
    if (to === undefined || kept.length === 0) return;
    event.preventDefault();
    const row = kept[Math.max(0, Math.min(kept.length - 1, to))]!;
    setPicked(row);
    const u = plot.current;
    const top = u?.valToPos(row.values.find((value) => typeof value === "number") ?? 0, "y") ?? 0;
    u?.setCursor({ left: u.valToPos(x(row), "x"), top: Number.isFinite(top) ? top : 0 }, false);
  };
  const names = quantity.lines.map((line) => line.name).join(", ");
  return (
    <section class="plot" aria-labelledby={`plot-${quantity.id}`}>
      <div class="plot-head">
        <h3 id={`plot-${quantity.id}`}>{quantity.title}{quantity.unit && <span class="muted unit"> ({quantity.unit})</span>}</h3>
        <output class="num" aria-live="polite">{picked ? sentence(quantity, picked) : ""}</output>
      </div>
      <div class="plot-box" ref={box} tabIndex={0} role="img" onKeyDown={move}
        aria-label={`${quantity.title} by ${options.axis}${quantity.lines.length > 1 ? `: ${names}` : ""}. Arrow keys read single steps, plus and minus show fewer or more of them. The table below holds the same steps.`} />
      {quantity.lines.length > 1 && <Legend lines={quantity.lines} />}
      <DataTable quantity={quantity} all={all} />
    </section>
  );
}
