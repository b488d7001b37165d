import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { formatTime } from "./format";
import { useThrottled } from "./hooks";
import type { Job, Why } from "./types";

const ASK_MS = 5000;

/// What the scheduler says of a job in its queue, asked again as long as it waits there.
export function QueueNote({ job }: { job: Job }) {
  const [why, setWhy] = useState<Why | null>(null);
  const ask = useThrottled(async () => {
    // What is wrong with musterd is said by the banner; the last word stays.
    setWhy(await get<Why>(`jobs/${job.id}/why`).catch(() => why));
  }, 300);
  useEffect(() => {
    ask();
    const timer = setInterval(() => !document.hidden && ask(), ASK_MS);
    return () => clearInterval(timer);
  }, [job.id, job.version]);
  if (!why || !why.reason) return null;
  return (
    <p class="why" aria-live="polite">
      {why.reason} <span class="muted">{why.action}</span>
      {why.expected_start && <span class="muted"> Expected to start at {formatTime(why.expected_start)}.</span>}
      {why.scheduler_reason && <span class="muted"> Slurm says: {why.scheduler_reason}.</span>}
    </p>
  );
}
