import { useState } from "preact/hooks";
import { post, type ApiError } from "./api";
import { Confirm } from "./confirm";
import { asApiError } from "./hooks";
import { ErrorNotice } from "./notice";
import { ENDED, type Job } from "./types";

type Action = "cancel" | "requeue";

// Why a button cannot be used now; empty if it can.
function obstacle(action: Action, job: Job): string {
  if (action === "cancel") {
    if (ENDED.includes(job.state)) return `Nothing to cancel: the job has ended (${job.state}).`;
    return "";
  }
  if (job.state === "succeeded") return "Nothing to requeue: the job has succeeded.";
  if (job.state === "cancelled") return "A cancelled job never comes back; submit it again.";
  if (job.state === "pending") return "Nothing to requeue: the job has not started yet.";
  if (job.state === "queued") return "Nothing to requeue: the job waits in the scheduler's queue.";
  if (job.state === "stopping") return "Nothing to requeue: the job is stopping.";
  return "";
}

function start(job: Job): string {
  if (job.kind === "command") return "starts";
  return job.last_checkpoint_step > 0 ? `starts from the checkpoint of step ${job.last_checkpoint_step}` : "starts from the beginning";
}

const QUESTIONS: Record<Action, { title: (job: Job) => string; text: (job: Job) => string; yes: string; no: string }> = {
  cancel: {
    title: (job) => `Cancel job ${job.id}, ${job.name}?`,
    text: () => "Its ranks are asked to save and leave, then stopped. A cancelled job never comes back.",
    yes: "Cancel the job",
    no: "Keep it",
  },
  requeue: {
    title: (job) => `Requeue job ${job.id}, ${job.name}?`,
    text: (job) =>
      job.state === "running"
        ? `The running attempt is stopped and a new one ${start(job)}.`
        : `A new attempt ${start(job)} and every budget is refilled.`,
    yes: "Requeue the job",
    no: "Leave it",
  },
};

export function Actions({ job, onChanged }: { job: Job; onChanged: (job: Job) => void }) {
  const [asking, setAsking] = useState<Action | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  // Holding can be taken back, so nobody is asked.
  const act = async (action: Action | "hold" | "release") => {
    setAsking(null);
    try {
      onChanged(await post<Job>(`jobs/${job.id}/${action}`));
      setError(null);
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  const notes = (["cancel", "requeue"] as const).map((action) => obstacle(action, job));
  return (
    <div class="actions">
      <div class="buttons">
        {(["cancel", "requeue"] as const).map((action, i) => (
          <button key={action} aria-disabled={notes[i] !== ""} title={notes[i]}
            aria-describedby={notes[i] ? `why-not-${action}` : undefined}
            onClick={() => notes[i] === "" && setAsking(action)}>
            {action === "cancel" ? "Cancel job…" : "Requeue…"}
          </button>
        ))}
        {(job.held_by || (!ENDED.includes(job.state) && job.state !== "stopping")) && (
          <button onClick={() => void act(job.held_by ? "release" : "hold")}>{job.held_by ? "Release" : "Hold"}</button>
        )}
      </div>
      {notes.map((note, i) => note && <p key={i} id={`why-not-${i ? "requeue" : "cancel"}`} class="muted small">{note}</p>)}
      {error && <ErrorNotice error={error} />}
      {asking && (
        <Confirm title={QUESTIONS[asking].title(job)} text={QUESTIONS[asking].text(job)} yes={QUESTIONS[asking].yes}
          no={QUESTIONS[asking].no} onYes={() => void act(asking)} onNo={() => setAsking(null)} />
      )}
    </div>
  );
}
