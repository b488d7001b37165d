import { useState } from "preact/hooks";
import { post, type ApiError } from "./api";
import { Confirm } from "./confirm";
import { asApiError } from "./hooks";
import { ErrorNotice, sentence } from "./notice";
import type { Job } from "./types";

type Action = "cancel" | "requeue";

const QUESTIONS: Record<Action, { title: string; effect: (job: Job) => string; yes: string; no: string }> = {
  cancel: { title: "Cancel", effect: (job) => job.controls?.cancel_effect ?? "", yes: "Cancel the job", no: "Keep it" },
  requeue: { title: "Requeue", effect: (job) => job.controls?.requeue_effect ?? "", yes: "Requeue the job", no: "Leave it" },
};

/// What can be asked of the job, why not, and what it would do: all of it as the controller says.
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
  const controls = job.controls;
  const notes = [controls?.cancel_refusal ?? "", controls?.requeue_refusal ?? ""];
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
        {controls?.hold_refusal === "" && <button onClick={() => void act("hold")}>Hold</button>}
        {controls?.release_refusal === "" && <button onClick={() => void act("release")}>Release</button>}
      </div>
      {notes.map((note, i) => note && <p key={i} id={`why-not-${i ? "requeue" : "cancel"}`} class="muted small">{sentence(note)}</p>)}
      {error && <ErrorNotice error={error} />}
      {asking && (
        <Confirm title={`${QUESTIONS[asking].title} job ${job.id}, ${job.name}?`} text={QUESTIONS[asking].effect(job)} yes={QUESTIONS[asking].yes}
          no={QUESTIONS[asking].no} danger={asking === "cancel"} onYes={() => void act(asking)} onNo={() => setAsking(null)} />
      )}
    </div>
  );
}
