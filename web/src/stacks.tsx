// Where the ranks of an attempt stand: the stacks that muster has kept, and a button that asks for new ones.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post, type ApiError } from "./api";
import { formatCount, formatTime } from "./format";
import { asApiError } from "./hooks";
import { ErrorNotice, sentence } from "./notice";
import type { Job, RankStack, StackSet, StacksView } from "./types";

const ASK_AGAIN_MS = 500;
const RANKS_AT_ONCE = 16;
const ASKED: readonly string[] = ["starting", "running", "draining"];

const momentOf = (set: StackSet): string => formatTime(new Date(set.at_ms).toISOString());

/// "when it was suspected"
export function whyOf(set: StackSet): string {
  if (set.why === "suspected") return "when it was suspected";
  if (set.why === "before_end") return "when it was about to end";
  return set.user ? `when ${set.user} asked` : "when asked";
}

/// "rank 3", "ranks 0, 2 and 3", "64 ranks"
export function ranksText(ranks: readonly number[]): string {
  if (ranks.length > 8) return `${formatCount(ranks.length)} ranks`;
  if (ranks.length === 1) return `rank ${ranks[0]}`;
  return `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks.at(-1)}`;
}

// The ranks of a view, and those of a page that was asked for after it.
const withMore = (view: StacksView, more: StacksView): StacksView => ({ ...more, ranks: [...view.ranks, ...more.ranks] });

function useStacks(job: Job, attempt: number) {
  const [view, setView] = useState<StacksView | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [asking, setAsking] = useState(false);
  const timer = useRef(0);
  const latest = useRef(0); // the newest question; answers to others come too late
  const load = async (number: number, from = 0) => {
    const question = ++latest.current;
    clearTimeout(timer.current);
    try {
      const next = await get<StacksView>(`jobs/${job.id}/stacks?attempt=${attempt}&number=${number}&from=${from}&limit=${RANKS_AT_ONCE}`);
      if (question !== latest.current) return;
      setView((old) => (from > 0 && old?.shown?.number === next.shown?.number && old ? withMore(old, next) : next));
      setError(null);
      const waits = next.shown !== null && !next.shown.over;
      setAsking(waits);
      if (waits) timer.current = window.setTimeout(() => void load(next.shown!.number), ASK_AGAIN_MS);
    } catch (caught) {
      if (question !== latest.current) return;
      setAsking(false);
      setError(asApiError(caught));
    }
  };
  const ask = async () => {
    setAsking(true);
    try {
      const asked = await post<StacksView>(`jobs/${job.id}/stacks`);
      await load(asked.shown?.number ?? 0);
    } catch (caught) {
      setAsking(false);
      setError(asApiError(caught));
    }
  };
  // muster takes some by itself when the job is suspected, and before its attempt ends.
  const state = job.attempts.at(-1)?.state;
  useEffect(() => {
    void load(0);
    return () => {
      ++latest.current;
      clearTimeout(timer.current);
    };
  }, [job.id, attempt, job.status, state]);
  return { view, error, asking, load, ask };
}

function Differing({ view }: { view: StacksView }) {
  if (view.groups.length < 2) return view.summary ? <p>{sentence(view.summary)}</p> : null;
  return (
    <table class="differing">
      <caption class="hidden">Where the ranks stand</caption>
      <thead><tr><th scope="col">Ranks</th><th scope="col">Stand at</th><th scope="col">Innermost</th></tr></thead>
      <tbody>
        {/* The few that differ are what a reader looks for. */}
        {[...view.groups].reverse().map((group) => (
          <tr key={group.ranks[0]}>
            <th scope="row">{ranksText(group.ranks)}</th>
            <td><code>{group.parts_at}</code></td>
            <td><code>{group.innermost}</code></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Stack({ stack, open }: { stack: RankStack; open: boolean }) {
  if (!stack.text) return stack.problem ? <p class="muted">Rank {stack.rank} gave none: {stack.problem}.</p> : null;
  return (
    <details open={open}>
      <summary>rank {stack.rank}</summary>
      <pre tabIndex={0} aria-label={`Stack of rank ${stack.rank}`}>{stack.text}</pre>
    </details>
  );
}

// Ranks that stand elsewhere than most are open at first.
const oddRanks = (view: StacksView): Set<number> =>
  new Set(view.groups.length > 1 ? view.groups.slice(1).flatMap((group) => group.ranks) : []);

export function Stacks({ job }: { job: Job }) {
  const newest = job.attempts.at(-1)!;
  const [chosen, setChosen] = useState(0); // 0: the newest attempt
  const attempt = chosen || newest.number;
  const { view, error, asking, load, ask } = useStacks(job, attempt);
  const runs = ASKED.includes(newest.state);
  const shown = view?.shown ?? null;
  // A job without any has no such section, unless they can be asked for.
  if (!runs && !shown && chosen === 0 && job.attempts.length === 1) return null;
  const odd = view ? oddRanks(view) : new Set<number>();
  return (
    <section class="stacks">
      <h2>Stacks</h2>
      <div class="tools">
        {runs && attempt === newest.number && (
          <button disabled={asking} onClick={() => void ask()}>{asking ? "The ranks are asked…" : "Ask where the ranks stand"}</button>
        )}
        {job.attempts.length > 1 && (
          <label>Of <select value={attempt} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
            {[...job.attempts].reverse().map(({ number }) => <option key={number} value={number}>attempt {number}</option>)}
          </select></label>
        )}
        {view && view.sets.length > 1 && (
          <label>Taken <select value={shown?.number} onChange={(event) => void load(Number(event.currentTarget.value))}>
            {[...view.sets].reverse().map((set) => <option key={set.number} value={set.number}>{momentOf(set)}, {whyOf(set)}</option>)}
          </select></label>
        )}
      </div>
      {error && <ErrorNotice error={error} />}
      {view && !shown && <p class="muted">None are kept of attempt {attempt}. They are taken when it is suspected, and before it ends by a hang.</p>}
      {view && shown && (
        <>
          <p class="muted" aria-live="polite">
            {shown.over ? `${formatCount(shown.given)} of ${formatCount(shown.ranks)} ranks, at ${momentOf(shown)}, ${whyOf(shown)}.` : "The ranks are asked…"}
          </p>
          <Differing view={view} />
          {view.ranks.map((stack) => <Stack key={`${shown.number} ${stack.rank}`} stack={stack} open={odd.has(stack.rank)} />)}
          {view.ranks.length < shown.ranks && (
            <button onClick={() => void load(shown.number, view.ranks.length)}>Show more ranks</button>
          )}
        </>
      )}
    </section>
  );
}
