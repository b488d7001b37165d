// Which job has which GPU of the controller's own machine. Absent where local jobs have no GPUs and no cores to share.
import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { useLive, useThrottled } from "./hooks";
import { Link } from "./link";
import type { Machine } from "./types";

const LOAD_MS = 1000;
const LOOK_AGAIN_MS = 10_000;

/// Before the first answer, and where the question fails, there is nothing to show: the list of jobs tells what is wrong.
export function useMachine(): Machine | null {
  const [machine, setMachine] = useState<Machine | null>(null);
  const load = useThrottled(async () => {
    try {
      setMachine(await get<Machine>("machine"));
    } catch {
      setMachine(null);
    }
  }, LOAD_MS);
  useEffect(() => {
    load();
    const timer = setInterval(() => !document.hidden && load(), LOOK_AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  useLive((message) => {
    if (message.kind === "refresh" || (message.kind === "event" && message.type === "job-changed")) load();
  });
  return machine;
}

const jobLink = (job: number) => <Link to={`/jobs/${job}`}>job {job}</Link>;

export function MachinePanel() {
  const machine = useMachine();
  const cores = machine?.holders.filter((holder) => holder.cores > 0) ?? [];
  if (!machine || (machine.gpus.length === 0 && cores.length === 0)) return null;
  return (
    <section class="machine" aria-label={`GPUs and cores of ${machine.name}`}>
      <ul>
        {machine.gpus.map((gpu) => (
          <li key={gpu.id} class={gpu.job_id ? "taken" : "free"} title={[gpu.name, gpu.id].filter(Boolean).join(", ")}>
            <span class="num">GPU {gpu.number}</span> {gpu.job_id ? <>{jobLink(gpu.job_id)}{gpu.held_back && " may have it"}</> : <span class="muted">free</span>}
          </li>
        ))}
        {cores.length > 0 && (
          <li class="taken">
            <span class="num">{machine.cores_taken} of {machine.cores} cores</span>{" "}
            {cores.map((holder, i) => <span key={holder.job_id}>{i > 0 && ", "}{jobLink(holder.job_id)} {holder.cores}</span>)}
          </li>
        )}
      </ul>
      {machine.waiting.length > 0 && (
        <p class="muted small">
          {machine.waiting.length === 1 ? "1 job waits" : `${machine.waiting.length} jobs wait`} for them; the next is {jobLink(machine.waiting[0]!)}.
        </p>
      )}
    </section>
  );
}
