import { plain } from "./format";
import type { Job } from "./types";

// Every colour comes with a sign and a word.
const SIGNS: Record<string, string> = {
  pending: "○", queued: "…", running: "▶", stopping: "◼", waiting: "↻", succeeded: "✓", failed: "✕", cancelled: "⊘", held: "‖",
  starting: "○", draining: "◼", ended: "●", silent: "✕", exited: "●", missing: "?",
  completed: "✓", preempted: "⇤", node_failed: "⚡", timed_out: "◔", rank_silent: "⚠", rank_hung: "✕",
  out_of_memory: "✕", controller_lost: "⚠", requeued: "↻",
};

// States that need a person stand out. States that the cluster handles itself stay calm.
const TONES: Record<string, string> = {
  running: "busy", starting: "busy", succeeded: "good", completed: "good", failed: "bad", rank_hung: "bad",
  out_of_memory: "bad", silent: "bad", missing: "bad", waiting: "mild", preempted: "mild", node_failed: "mild",
  timed_out: "mild", rank_silent: "mild", controller_lost: "mild", requeued: "mild", stopping: "mild", draining: "mild", suspected: "mild",
};

export const tone = (word: string): string => TONES[word] ?? "calm";

export function Badge({ word }: { word: string }) {
  return (
    <span class={`badge ${tone(word)}`}>
      <span aria-hidden="true">{SIGNS[word] ?? "●"}</span> {plain(word)}
    </span>
  );
}

/// The controller's words for the state of a job: "held", or "running, held".
export function StateOf({ job }: { job: Job }) {
  return <>{job.status.split(", ").map((word, i) => <span key={word}>{i > 0 && " "}<Badge word={word} /></span>)}</>;
}
