import { useState } from "preact/hooks";
import { post, type ApiError } from "./api";
import { Confirm } from "./confirm";
import { asApiError } from "./hooks";
import { ErrorNotice, sentence } from "./notice";
import type { Job } from "./types";

type Asked = "cancel" | "requeue"; // these ask for a confirmation

const QUESTIONS: Record<Asked, { title: string; yes: string; no: string }> = {
  cancel: { title: "Cancel", yes: "Cancel the job", no: "Keep it" },
  requeue: { title: "Requeue", yes: "Requeue the job", no: "Leave it" },
};

/// The buttons of a job. The controller decides what may be asked of the job, why not, and what a request would do.
export function Actions({ job, onChanged }: { job: Job; onChanged: (job: Job) => void }) {
  const [asking, setAsking] = useState<Asked | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const act = async (action: Asked | "hold" | "release") => {
    setAsking(null);
    try {
      onChanged(await post<Job>(`jobs/${job.id}/${action}`));
      setError(null);
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  const { controls } = job;
  if (!controls) return null;
  // A hold and a release undo each other, so they happen at once.
  const buttons = [
    { action: "cancel", label: "Cancel job…", refusal: controls.cancel_refusal, press: () => setAsking("cancel") },
    { action: "requeue", label: "Requeue…", refusal: controls.requeue_refusal, press: () => setAsking("requeue") },
    controls.release_refusal === "" ? { action: "release", label: "Release", refusal: "", press: () => void act("release") }
      : { action: "hold", label: "Hold", refusal: controls.hold_refusal, press: () => void act("hold") },
  ];
  return (
    <div class="actions">
      <div class="buttons">
        {buttons.map(({ action, label, refusal, press }) => (
          <button key={action} aria-disabled={refusal !== ""} title={refusal && sentence(refusal)}
            aria-describedby={refusal ? `why-not-${action}` : undefined} onClick={() => refusal === "" && press()}>
            {label}
          </button>
        ))}
      </div>
      {/* The reason against a hold repeats the reasons of the other two. */}
      {buttons.map(({ action, refusal }) => refusal && (
        <p key={action} id={`why-not-${action}`} class={action === "hold" ? "hidden" : "muted small"}>{sentence(refusal)}</p>
      ))}
      {error && <ErrorNotice error={error} />}
      {asking && (
        <Confirm title={`${QUESTIONS[asking].title} job ${job.id}, ${job.name}?`} text={controls[`${asking}_effect`]} yes={QUESTIONS[asking].yes}
          no={QUESTIONS[asking].no} danger={asking === "cancel"} onYes={() => void act(asking)} onNo={() => setAsking(null)} />
      )}
    </div>
  );
}
