import { between, formatCount, formatDuration, formatNodes, formatTime } from "./format";
import { useNow } from "./hooks";
import { Empty } from "./notice";
import { Badge, tone } from "./state";
import type { Attempt, Job } from "./types";

const SHOWN = 50;

function culprit(attempt: Attempt): string {
  const parts = [];
  if (attempt.rank !== null) parts.push(`rank ${attempt.rank}`);
  if (attempt.signal) parts.push(`signal ${attempt.signal}`);
  else if (attempt.exit_code !== null) parts.push(`exit code ${attempt.exit_code}`);
  return parts.join(", ");
}

// Why the attempt was started. The submission of the job is no news.
function whyStarted(reason: string): string {
  if (reason === "" || reason === "submitted") return "";
  return /^attempt \d+: /.test(reason) ? `Started after ${reason}.` : `Started because: ${reason}.`;
}

function Entry({ attempt, now }: { attempt: Attempt; now: number }) {
  const word = attempt.cause || attempt.state;
  const why = whyStarted(attempt.reason_started);
  return (
    <li class={tone(word)}>
      <div class="entry-head">
        <strong>Attempt {attempt.number}</strong> <Badge word={word} />
        {culprit(attempt) && <span class="muted">{culprit(attempt)}</span>}
        <span class="muted num">
          {formatTime(attempt.started_at || attempt.queued_at || "")}
          {attempt.started_at && ` · ${formatDuration(between(attempt.started_at, attempt.ended_at, now))}`}
        </span>
      </div>
      <p>
        {attempt.resumed_from_step === null ? "" : attempt.resumed_from_step > 0
          ? `Resumed from step ${formatCount(attempt.resumed_from_step)}.` : "From the beginning."}
        {why && <span class="muted"> {why}</span>}
      </p>
      {attempt.scheduler_job && (
        <p class="muted">Slurm job {attempt.scheduler_job}{attempt.nodes?.length ? ` on ${formatNodes(attempt.nodes)}` : ""}.</p>
      )}
      {attempt.reason && attempt.reason !== attempt.state && <p>{attempt.reason}</p>}
    </li>
  );
}

/// The attempts, newest first. A coloured bar marks those that need a person.
export function Timeline({ job }: { job: Job }) {
  const now = useNow();
  if (job.attempts.length === 0) return <Empty title="No attempt yet." />;
  const newest = job.attempts.slice(-SHOWN).reverse();
  return (
    <>
      <ol class="timeline" tabIndex={0} aria-label="Attempts, newest first" reversed start={newest[0]!.number}>
        {newest.map((attempt) => <Entry key={attempt.number} attempt={attempt} now={now} />)}
      </ol>
      {job.attempts.length > SHOWN && <p class="muted small log-note">The newest {SHOWN} of {job.attempts.length} attempts.</p>}
    </>
  );
}
