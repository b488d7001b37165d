import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { formatAge, formatBytes, formatCount, formatNumber } from "./format";
import { useConnection, useNow } from "./hooks";
import { Empty } from "./notice";
import { Badge, tone } from "./state";
import { ENDED, type Heartbeats, type Job, type Rank } from "./types";

const ASK_MS = 1000;
// Without an answer for so long, nobody knows.
const STALE_MS = 3500;

// The ranks there should be; one nobody has heard of is missing.
function withMissing(job: Job): Rank[] {
  const resources = job.spec?.resources;
  const world = Math.min(4096, (resources?.nodes || 1) * (resources?.ranks_per_node || 1));
  const known = new Map(job.ranks.map((rank) => [rank.rank, rank]));
  const absent = { node: "", pid: 0, state: "missing", section: "", step: 0, last_heartbeat_ms: null, memory_bytes: 0,
    memory_peak_bytes: 0, step_ms: 0, slowness: null, attempt: 0, exit_code: null, signal: null };
  const count = Math.max(world, ...job.ranks.map((rank) => rank.rank + 1));
  return Array.from({ length: count }, (_, number) => known.get(number) ?? { ...absent, rank: number });
}

const ASKED = ["cancelled", "requeued", "rank_silent", "rank_hung"]; // muster ends every rank of such an attempt
const SIGTERM = 15;
const SIGKILL = 9;

// After a failure muster asks the other ranks to leave. Who sends them anything else is not known: a kernel out of
// memory kills several.
function stoppedByMuster(job: Job, rank: Rank): boolean {
  const attempt = job.attempts.find((one) => one.number === rank.attempt);
  if (!attempt || !attempt.cause) return false;
  if (ASKED.includes(attempt.cause)) return rank.signal === SIGTERM || rank.signal === SIGKILL;
  const others = attempt.cause === "failed" || attempt.cause === "out_of_memory";
  return others && rank.signal === SIGTERM && attempt.rank !== null && attempt.rank !== rank.rank;
}

function Ended({ job, rank }: { job: Job; rank: Rank }) {
  const how = rank.signal ? `signal ${rank.signal}` : rank.exit_code === null ? "" : `exit code ${rank.exit_code}`;
  return (
    <span class="muted end">
      <span class="piece">{how}</span>
      {stoppedByMuster(job, rank) && ", stopped by muster"}
    </span>
  );
}

function StepTime({ rank }: { rank: Rank }) {
  if (!rank.step_ms) return <>–</>;
  return (
    <>
      {formatNumber(rank.step_ms, 3)} ms
      {/* Who is slow is for the controller to say. */}
      {rank.slowness && <span class="slow" title="In each of its last 50 steps or more: above 1.2× the median over all ranks."> ⚠ {rank.slowness.toFixed(1)}× the median</span>}
    </>
  );
}

// Heartbeats' ages, by the controller's clock. They are shown as they were told and asked for again every second: an age
// that went on ticking here would be that of a heartbeat which has long been followed by others.
function useHeartbeats(job: Job): (rank: Rank) => number | null | "unknown" {
  const [newest, setNewest] = useState<{ beats: Heartbeats; at: number } | null>(null);
  const now = useNow(500);
  const active = !ENDED.includes(job.state) && job.ranks.length > 0;
  useEffect(() => {
    if (!active) return;
    let stop = false;
    let timer = 0;
    const ask = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        const beats = await get<Heartbeats>(`jobs/${job.id}/heartbeats`).catch(() => null);
        if (stop) return;
        if (beats) setNewest({ beats, at: Date.now() });
      }
      timer = window.setTimeout(() => void ask(), ASK_MS);
    };
    void ask();
    return () => {
      stop = true;
      clearTimeout(timer);
    };
  }, [active, job.id]);
  return (rank) => {
    if (!newest || newest.beats.attempt !== rank.attempt) return rank.last_heartbeat_ms;
    if (now - newest.at > STALE_MS) return "unknown";
    return newest.beats.ages_ms[rank.rank] ?? null;
  };
}

export function Ranks({ job }: { job: Job }) {
  const heartbeat = useHeartbeats(job);
  const lost = useConnection() === "lost";
  if (job.ranks.length === 0) return <Empty title={ENDED.includes(job.state) ? "No rank joined." : "No rank has joined yet."} />;
  const ranks = withMissing(job);
  const age = (rank: Rank) => {
    const ms = heartbeat(rank);
    if (ms === null || rank.state === "exited") return "–";
    return lost || ms === "unknown" ? "unknown" : formatAge(ms);
  };
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
            <td class="state"><Badge word={rank.state} /> {rank.state === "exited" && <Ended job={job} rank={rank} />}</td>
            <td class="num" data-label="heartbeat">{age(rank)}</td>
            <td data-label="section">{rank.section || "–"}</td>
            <td class="num" data-label="step">{rank.section ? formatCount(rank.step) : "–"}</td>
            <td class="num" data-label="step time"><StepTime rank={rank} /></td>
            <td class="num" data-label="memory">{formatBytes(rank.memory_bytes)}</td>
            <td class="num" data-label="peak">{formatBytes(rank.memory_peak_bytes)}</td>
            <td data-label="process">{rank.node || "–"}{rank.pid ? <span class="muted num"> {rank.pid}</span> : null}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
