import { formatBytes, formatCount, formatTime } from "./format";
import type { Job } from "./types";

/// The settings that the program itself has told. The controller has masked the secrets.
export function Configuration({ job }: { job: Job }) {
  const rows = Object.entries(job.config ?? {}).sort(([a], [b]) => a.localeCompare(b));
  if (rows.length === 0) return null;
  return (
    <section class="configuration">
      <h2>Configuration</h2>
      <dl>{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

/// The newest checkpoints of which the program has told the path, newest first.
export function Checkpoints({ job }: { job: Job }) {
  const saved = job.checkpoints ?? [];
  if (saved.length === 0) return null;
  return (
    <section class="checkpoints">
      <h2>Checkpoints</h2>
      <table>
        <caption class="hidden">Checkpoints</caption>
        <thead><tr><th scope="col" class="num">Step</th><th scope="col" class="num">Attempt</th><th scope="col" class="num">Size</th><th scope="col">Saved</th><th scope="col">Path</th></tr></thead>
        <tbody>
          {saved.map((one) => (
            <tr key={`${one.attempt} ${one.step} ${one.path}`}>
              <td class="num">{formatCount(one.step)}</td>
              <td class="num">{one.attempt}</td>
              <td class="num">{one.bytes === null || one.bytes === undefined ? "–" : formatBytes(one.bytes)}</td>
              <td>{formatTime(one.saved_at)}</td>
              <td><code>{one.path}</code></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/// The trace that the program reported with the error that ended its newest attempt.
export function Trace({ job }: { job: Job }) {
  const trace = job.attempts.at(-1)?.trace;
  if (!trace) return null;
  return (
    <section class="trace">
      <h2>Trace</h2>
      <pre tabIndex={0} aria-label="Trace">{trace}</pre>
    </section>
  );
}
