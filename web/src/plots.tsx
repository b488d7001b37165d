// The plots of a job: how they are drawn, and which of them are shown.
import { useMemo, useState } from "preact/hooks";
import { formatCount } from "./format";
import { Empty } from "./notice";
import { Plot } from "./plot";
import { numberless, quantities, type Found } from "./quantities";
import type { XAxis } from "./series";
import { ENDED, type Job, type Metric } from "./types";

const FIRST_PLOTS = 12;
const NAMES = 8;

function listed(names: string[]): string {
  const more = names.length - NAMES;
  return names.slice(0, NAMES).join(", ") + (more > 0 ? ` and ${formatCount(more)} more` : "");
}

export function Plots({ metrics, found, job }: { metrics: Metric[]; found: Found; job: Job }) {
  const [axis, setAxis] = useState<XAxis>("step");
  const [logX, setLogX] = useState(false);
  const [logY, setLogY] = useState(false);
  const [smoothing, setSmoothing] = useState(0.6);
  const [every, setEvery] = useState(false);
  const known = useMemo(() => quantities(job.series, found), [job.series, found]);
  if (metrics.length === 0)
    return job.kind === "command" ? <Empty title="This job runs a program of its own, which reports no steps."><p>What it writes is in its log.</p></Empty>
      : <Empty title={ENDED.includes(job.state) ? "It came to no step." : "No steps yet."} />;
  const without = numberless(found);
  const withoutNote = without.length > 0 && `Reported, and so far never a number: ${listed(without)}.`;
  if (known.length === 0) return <Empty title="This job reports its steps, and nothing that could be drawn.">{withoutNote && <p>{withoutNote}</p>}</Empty>;
  const resumed = metrics[0]!.attempt !== metrics.at(-1)!.attempt;
  const lines = known.flatMap((quantity) => quantity.lines);
  const shown = every ? known : known.slice(0, FIRST_PLOTS);
  const rest = known.length - FIRST_PLOTS;
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
        {shown.map((quantity, i) => (
          <Plot key={quantity.id} quantity={quantity} metrics={metrics} lazy={i >= FIRST_PLOTS}
            options={{ axis, logX: logX && axis === "step", logY, smoothing }} />
        ))}
      </div>
      {rest > 0 && (
        <p class="more"><button onClick={() => setEvery(!every)}>
          {every ? `Show the first ${FIRST_PLOTS} plots` : `Show ${formatCount(rest)} more ${rest === 1 ? "plot" : "plots"}`}
        </button></p>
      )}
      <p class="muted small">
        {lines.some((line) => line.smoothed) && "Thick: smoothed. Thin: as reported."}
        {lines.some((line) => !line.smoothed) && " With dots: as reported, not smoothed."}
        {resumed && " Each attempt is a line of its own; dashed: steps that a later attempt repeated."}
        {withoutNote && ` ${withoutNote}`}
      </p>
    </>
  );
}
