// The plots of a job: how they are drawn, and which of them are shown.
import { useMemo, useState } from "preact/hooks";
import { wholeRange, type Range, type View } from "./curves";
import { formatCount } from "./format";
import { Empty } from "./notice";
import { Plot } from "./plot";
import { numberless, quantities, type Found } from "./quantities";
import type { XAxis } from "./series";
import { ENDED, type Curves, type Job } from "./types";

const FIRST_PLOTS = 12;
const NAMES = 8;

function listed(names: string[]): string {
  const more = names.length - NAMES;
  return names.slice(0, NAMES).join(", ") + (more > 0 ? ` and ${formatCount(more)} more` : "");
}

interface Props {
  curves: Curves | null; // null: they have not come yet
  found: Found;
  job: Job;
  view: View;
  onView: (view: View) => void;
}

/** What a program does to have curves here; docs/report.md is the contract. */
function HowToReport() {
  return (
    <details class="how">
      <summary>How to report steps</summary>
      <p>In Python, with the package in the folder python/ of muster:</p>
      <pre>{"run = muster.init()\nrun.log(step, loss=loss)"}</pre>
      <p>In any other language, one line of JSON for each step:</p>
      <pre>{`echo '{"step":120,"loss":2.31}' >> "$MUSTER_REPORT"`}</pre>
      <p>docs/report.md lists all lines: checkpoints, sections, errors. The log below holds what the program prints.</p>
    </details>
  );
}

export function Plots({ curves, found, job, view, onView }: Props) {
  const [axis, setAxis] = useState<XAxis>("step");
  const [logY, setLogY] = useState(false);
  const [smoothing, setSmoothing] = useState(0.6);
  const [every, setEvery] = useState(false);
  const known = useMemo(() => quantities(job.series, found), [job.series, found]);
  if (!curves) return <p class="muted">Loading…</p>;
  const whole = wholeRange(curves);
  if (!whole)
    return job.kind === "command" ? <Empty title="This job runs a program that reports no steps."><HowToReport /></Empty>
      : <Empty title={ENDED.includes(job.state) ? "This job made no step." : "No steps yet."} />;
  const without = numberless(found);
  const aged = curves.attempts.some((one) => one.rows_from_step > 0);
  const withoutNote = without.length > 0 && `Series without a number so far: ${listed(without)}.`;
  if (known.length === 0) return <Empty title="This job reports steps without a number to draw.">{withoutNote && <p>{withoutNote}</p>}</Empty>;
  const resumed = curves.attempts.length > 1;
  const look = (axisNow: XAxis, log: boolean) => {
    setAxis(axisNow);
    if (view.log !== log) onView({ ...view, log });
  };
  // A range that holds all steps is no zoom, so that new steps appear.
  const zoomTo = (zoom: Range | null) => {
    const wide = !zoom || (zoom.from <= whole.from && zoom.to >= whole.to);
    if (!wide || view.zoom) onView({ ...view, zoom: wide ? null : zoom });
  };
  const lines = known.flatMap((quantity) => quantity.lines);
  const shown = every ? known : known.slice(0, FIRST_PLOTS);
  const rest = known.length - FIRST_PLOTS;
  return (
    <>
      <div class="tools">
        <label>By <select value={axis} onChange={(event) => look(event.currentTarget.value as XAxis, false)}>
          <option value="step">step</option><option value="time">time</option>
        </select></label>
        <label><input type="checkbox" checked={logY} onChange={(event) => setLogY(event.currentTarget.checked)} />log values</label>
        {axis === "step" && <label><input type="checkbox" checked={view.log} onChange={(event) => look(axis, event.currentTarget.checked)} />log steps</label>}
        <label class="smoothing">Smoothing <input type="range" min={0} max={0.999} step={0.001} value={smoothing}
          onInput={(event) => setSmoothing(Number(event.currentTarget.value))} />
          <span class="num">{smoothing.toFixed(3)}</span></label>
        {view.zoom && (
          <span class="zoom"><span class="num">Steps {formatCount(view.zoom.from)} to {formatCount(view.zoom.to)}</span>{" "}
            <button onClick={() => zoomTo(null)}>Show the whole run</button></span>
        )}
      </div>
      <div class="plots">
        {shown.map((quantity, i) => (
          <Plot key={quantity.id} quantity={quantity} curves={curves} lazy={i >= FIRST_PLOTS} whole={whole} onZoom={zoomTo}
            options={{ axis, logX: view.log, logY, smoothing, zoom: view.zoom }} />
        ))}
      </div>
      {rest > 0 && (
        <p class="more"><button onClick={() => setEvery(!every)}>
          {every ? `Show the first ${FIRST_PLOTS} plots` : `Show ${formatCount(rest)} more ${rest === 1 ? "plot" : "plots"}`}
        </button></p>
      )}
      <p class="muted small">
        {lines.some((line) => line.smoothed) && "Thick lines are smoothed. Thin lines show the reported values."}
        {lines.some((line) => !line.smoothed) && " Lines with dots show the reported values."}
        {resumed && " Each attempt has its own line. Dashed lines are steps that a later attempt repeated."}
        {curves.bucket_steps > 1 && ` The lowest, the highest and the last value of ${view.log ? "up to" : "every"} ${formatCount(curves.bucket_steps)} steps are drawn.${aged ? "" : " All values:"}`}
        {aged && " Values of single steps have aged out, but for the newest ones. Those that are left:"}
        {(curves.bucket_steps > 1 || aged) && <> <code>muster metrics {job.id} --csv</code>.</>}
        {" Drag across a plot to see fewer steps; a double click shows the whole run."}
        {withoutNote && ` ${withoutNote}`}
      </p>
    </>
  );
}
