import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { formatBytes, formatCount, formatNumber, formatTicks } from "./format";
import { Empty } from "./notice";
import { columns, points, type Point, type XAxis } from "./series";
import { ENDED, type Job, type Metric } from "./types";

interface Kind {
  id: string;
  title: string;
  field: (metric: Metric) => number | null;
  format: (value: number) => string;
  mark?: (metric: Metric) => number | null;
  binary?: boolean; // of bytes: the axis steps in powers of two
}

const KINDS: Kind[] = [
  { id: "loss", title: "Loss", field: (m) => m.loss, format: (v) => formatNumber(v), mark: (m) => m.validation_loss },
  { id: "tokens", title: "Tokens/s", field: (m) => m.tokens_per_s || null, format: (v) => formatCount(v) },
  { id: "memory", title: "Peak memory of a rank", field: (m) => m.memory_peak_bytes || null, format: (v) => formatBytes(v), binary: true },
];
// Without any value but 0 nobody has measured it.
const isKnown = (kind: Kind, metrics: Metric[]): boolean => metrics.some((metric) => kind.field(metric));
const HEIGHT = 220;
const TABLE_ROWS = 500;
const BINARY_STEPS = Array.from({ length: 45 }, (_, power) => 2 ** power);

interface Options {
  axis: XAxis;
  logX: boolean;
  logY: boolean;
  smoothing: number;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function makeOptions(kind: Kind, width: number, options: Options): uPlot.Options {
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--muted"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
  const line = colour("--accent");
  const steps = (_: uPlot, at: number[]) => at.map((v) => (v !== null && Number.isInteger(v) ? formatCount(v) : ""));
  const times = (_: uPlot, at: number[]) => formatTicks(at);
  const bytes = (_: uPlot, at: number[], __: number, ___: number, step: number) => at.map((v) => (v === null ? "" : v === 0 ? "0" : formatBytes(v, step)));
  const alone = (u: uPlot) => u.data[0].length === 1; // one point makes no line
  const values = (_: uPlot, at: number[]) => at.map((v) => (v === null ? "" : v === 0 ? "0" : kind.format(v)));
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 7 } },
    scales: { x: { time: options.axis === "time", distr: options.logX ? 3 : 1 }, y: { distr: options.logY ? 3 : 1 } },
    axes: [
      { ...axis, ...(options.axis === "step" ? { values: steps } : { values: times, space: 62 }) },
      { ...axis, size: kind.binary ? 82 : 66, ...(kind.binary ? { incrs: BINARY_STEPS, values: bytes } : { values }) },
    ],
    series: [
      {},
      { stroke: line + "66", width: 1, points: { show: false } },
      { stroke: line, width: 2, points: { show: alone, size: 6, fill: line } },
      { stroke: colour("--muted"), width: 1, dash: [3, 4], points: { show: false } },
      { stroke: colour("--mild"), width: 0, points: { show: true, size: 8, fill: colour("--mild") } },
    ],
  };
}

function validation(kind: Kind, point: Point): string {
  return point.mark === null ? "" : `, validation ${kind.format(point.mark)}`;
}

function sentence(kind: Kind, point: Point): string {
  const smooth = point.smooth === null ? "" : `, smoothed ${kind.format(point.smooth)}`;
  return `step ${formatCount(point.step)}, attempt ${point.attempt}: ${kind.format(point.value)}${smooth}${validation(kind, point)}`;
}

function DataTable({ kind, all }: { kind: Kind; all: Point[] }) {
  const [open, setOpen] = useState(false);
  const every = Math.ceil(all.length / TABLE_ROWS);
  const rows = open ? all.filter((_, i) => i % every === 0 || i === all.length - 1) : [];
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{kind.title}: data table</summary>
      {open && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`${kind.title}: data`}>
          {every > 1 && <p class="muted small">One step in {every} of {formatCount(all.length)}.</p>}
          <table data-plot={kind.id}>
            <thead><tr><th scope="col" class="num">Attempt</th><th scope="col" class="num">Step</th>
              <th scope="col" class="num">{kind.title}</th><th scope="col" class="num">Smoothed</th><th scope="col">Note</th></tr></thead>
            <tbody>
              {rows.map((point) => (
                <tr key={`${point.attempt}/${point.step}`}>
                  <td class="num">{point.attempt}</td><td class="num">{formatCount(point.step)}</td>
                  <td class="num">{kind.format(point.value)}</td>
                  <td class="num">{point.smooth === null ? "–" : kind.format(point.smooth)}</td>
                  <td>{point.lost ? "repeated later" : validation(kind, point).slice(2)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

function Plot({ kind, metrics, options }: { kind: Kind; metrics: Metric[]; options: Options }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [picked, setPicked] = useState<Point | null>(null);
  const all = useMemo(() => points(metrics, kind.field, options.smoothing, kind.mark), [metrics, options.smoothing]);
  const kept = useMemo(() => all.filter((point) => !point.lost), [all]);
  const x = (point: Point) => (options.axis === "step" ? point.step : point.at_ms / 1000);
  const data = useMemo(() => columns(all, options.axis, options.logX, options.logY), [all, options.axis, options.logX, options.logY]);
  const newest = useRef({ data, kept, x });
  newest.current = { data, kept, x };

  useEffect(() => {
    const build = () => {
      plot.current?.destroy();
      const made = makeOptions(kind, box.current!.clientWidth, options);
      made.hooks = {
        setCursor: [(u) => {
          // By mouse: the kept point nearest to the cursor. The keyboard moves by itself.
          if (u.cursor.event == null || u.cursor.idx == null) return;
          const at = newest.current.data[0][u.cursor.idx]!;
          const nearest = newest.current.kept.reduce<Point | null>((best, point) =>
            !best || Math.abs(newest.current.x(point) - at) < Math.abs(newest.current.x(best) - at) ? point : best, null);
          setPicked(nearest);
        }],
      };
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
  }, [options.axis, options.logX, options.logY]);
  useEffect(() => plot.current?.setData(data as uPlot.AlignedData), [data]);

  const move = (event: KeyboardEvent) => {
    const jump = event.shiftKey ? 10 : 1;
    const at = picked ? kept.findIndex((point) => point.step === picked.step && point.attempt === picked.attempt) : kept.length;
    const to = { ArrowLeft: at - jump, ArrowRight: at + jump, Home: 0, End: kept.length - 1 }[event.key];
    if (to === undefined || kept.length === 0) return;
    event.preventDefault();
    const point = kept[Math.max(0, Math.min(kept.length - 1, to))]!;
    setPicked(point);
    const u = plot.current;
    u?.setCursor({ left: u.valToPos(x(point), "x"), top: u.valToPos(point.value, "y") }, false);
  };
  return (
    <section class="plot" aria-labelledby={`plot-${kind.id}`}>
      <div class="plot-head">
        <h3 id={`plot-${kind.id}`}>{kind.title}</h3>
        <output class="num" aria-live="polite">{picked ? sentence(kind, picked) : ""}</output>
      </div>
      <div class="plot-box" ref={box} tabIndex={0} role="img" onKeyDown={move}
        aria-label={`${kind.title} by ${options.axis}. Arrow keys read single steps; the table below holds all of them.`} />
      <DataTable kind={kind} all={all} />
    </section>
  );
}

export function Plots({ metrics, job }: { metrics: Metric[]; job: Job }) {
  const [axis, setAxis] = useState<XAxis>("step");
  const [logX, setLogX] = useState(false);
  const [logY, setLogY] = useState(false);
  const [smoothing, setSmoothing] = useState(0.6);
  if (metrics.length === 0)
    return job.kind === "command" ? <Empty title="This job runs a program of its own, which reports no steps."><p>What it writes is in its log.</p></Empty>
      : <Empty title={ENDED.includes(job.state) ? "It came to no step." : "No steps yet."} />;
  const known = KINDS.filter((kind) => isKnown(kind, metrics));
  if (known.length === 0) return <Empty title="This job reports its steps, and nothing that could be drawn." />;
  const resumed = metrics[0]!.attempt !== metrics.at(-1)!.attempt;
  const validated = metrics.some((metric) => metric.validation_loss !== null);
  return (
    <>
      <div class="tools">
        <label>By <select value={axis} onChange={(event) => setAxis(event.currentTarget.value as XAxis)}>
          <option value="step">step</option><option value="time">time</option>
        </select></label>
        <label><input type="checkbox" checked={logY} onChange={(event) => setLogY(event.currentTarget.checked)} />log values</label>
        {axis === "step" && <label><input type="checkbox" checked={logX} onChange={(event) => setLogX(event.currentTarget.checked)} />log steps</label>}
        <label class="smoothing">Smoothing <input type="range" min={0} max={0.999} step={0.001} value={smoothing}
          onInput={(event) => setSmoothing(Number(event.currentTarget.value))} />
          <span class="num">{smoothing.toFixed(3)}</span></label>
      </div>
      <div class="plots">
        {known.map((kind) => <Plot key={kind.id} kind={kind} metrics={metrics} options={{ axis, logX: logX && axis === "step", logY: logY && !kind.binary, smoothing }} />)}
      </div>
      <p class="muted small">
        Thick: smoothed. Thin: as reported.{validated && " Dots: validation loss."}{resumed && " Each attempt is a line of its own; dashed: steps that a later attempt repeated."}
      </p>
    </>
  );
}
