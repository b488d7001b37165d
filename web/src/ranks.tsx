import { formatAge, formatBytes, formatCount, formatNumber } from "./format";
import { useConnection, useNow } from "./hooks";
import { Empty } from "./notice";
import { Badge, tone } from "./state";
import type { Job, Rank } from "./types";

const SLOW = 1.3;

function median(values: number[]): number {
  const sorted = values.filter((value) => value > 0).sort((a, b) => a - b);
  if (sorted.length === 0) return 0;
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

// The ranks there should be; one nobody has heard of is missing.
function withMissing(job: Job): Rank[] {
  const resources = job.spec?.resources;
  const world = Math.min(4096, (resources?.nodes || 1) * (resources?.ranks_per_node || 1));
  const known = new Map(job.ranks.map((rank) => [rank.rank, rank]));
  const absent = { node: "", pid: 0, state: "missing", section: "", step: 0, last_heartbeat_ms: null, memory_bytes: 0,
    memory_peak_bytes: 0, step_ms: 0, attempt: 0, exit_code: null, signal: null };
  const count = Math.max(world, ...job.ranks.map((rank) => rank.rank + 1));
  return Array.from({ length: count }, (_, number) => known.get(number) ?? { ...absent, rank: number });
}

function ended(rank: Rank): string {
  if (rank.signal) return `signal ${rank.signal}`;
  return rank.exit_code === null ? "" : `exit code ${rank.exit_code}`;
}

function StepTime({ rank, middle }: { rank: Rank; middle: number }) {
  if (!rank.step_ms || !middle) return <>–</>;
  const ratio = rank.step_ms / middle;
  return (
    <>
      {formatNumber(rank.step_ms, 3)} ms
      {ratio >= SLOW && <span class="slow"> ⚠ {ratio.toFixed(1)}× the median</span>}
    </>
  );
}

export function Ranks({ job, fetchedAt }: { job: Job; fetchedAt: number }) {
  const now = useNow(500);
  const lost = useConnection() === "lost";
  if (job.ranks.length === 0) return <Empty title="No rank has joined yet." />;
  const ranks = withMissing(job);
  const middle = median(ranks.map((rank) => rank.step_ms));
  const age = (rank: Rank) =>
    rank.last_heartbeat_ms === null || rank.state === "exited" ? "–" : lost ? "unknown" : formatAge(rank.last_heartbeat_ms + now - fetchedAt);
  return (
    <table class="cards ranks">
      <caption class="hidden">Ranks of the newest attempt</caption>
      <thead>
        <tr>
          <th scope="col" class="num">Rank</th><th scope="col">State</th><th scope="col" class="num">Heartbeat</th>
          <th scope="col">Section</th><th scope="col" class="num">Step</th><th scope="col" class="num">Step time</th>
          <th scope="col" class="num">Memory</th><th scope="col" class="num">Peak</th><th scope="col">Node, process</th>
        </tr>
      </thead>
      <tbody>
        {ranks.map((rank) => (
          <tr key={rank.rank} class={`rank ${tone(rank.state)} ${rank.state === "missing" ? "unheard" : ""}`}>
            <th scope="row" class="num"><span class="on-card">rank </span>{rank.rank}</th>
            <td class="state"><Badge word={rank.state} /> {rank.state === "exited" && <span class="muted">{ended(rank)}</span>}</td>
            <td class="num" data-label="heartbeat">{age(rank)}</td>
            <td data-label="section">{rank.section || "–"}</td>
            <td class="num" data-label="step">{rank.section ? formatCount(rank.step) : "–"}</td>
            <td class="num" data-label="step time"><StepTime rank={rank} middle={middle} /></td>
            <td class="num" data-label="memory">{formatBytes(rank.memory_bytes)}</td>
            <td class="num" data-label="peak">{formatBytes(rank.memory_peak_bytes)}</td>
            <td data-label="process">{rank.node || "–"}{rank.pid ? <span class="muted num"> {rank.pid}</span> : null}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
