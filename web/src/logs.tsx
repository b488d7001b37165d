import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, type ApiError } from "./api";
import { formatCount } from "./format";
import { asApiError } from "./hooks";
import { Empty, LaterError } from "./notice";
import { slice, TerminalReader, textOf, withChanges, type Line, type Span } from "./terminal";
import { ENDED, type Job, type LogPiece } from "./types";

const FIRST_LINES = 1000;
const MAX_LINES = 5000;
const MAX_SHOWN_CHARACTERS = 2000;
const MAX_MERGED_RANKS = 16;
const MAX_LISTED_RANKS = 100; // a list of more would be longer than the page
const POLL_MS = 1500;
const FULL_CHARACTERS = 16 * 1024; // an answer of 64 KiB has at least as many
const ALL = "all";
const BEHEADED = "(the beginning of this line is left out) … ";

// Follows the logs of some ranks of one attempt: first their last lines, then new text.
function useLog(job: number, attempt: number, ranks: number[], ended: boolean, paused: boolean) {
  const [lines, setLines] = useState<Line[] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [pending, setPending] = useState(0);
  const held = useRef<Line[]>([]);
  const pausedNow = useRef(paused);
  pausedNow.current = paused;
  const endedNow = useRef(ended);
  endedNow.current = ended;
  const which = ranks.join(",");

  useEffect(() => {
    setLines(null);
    held.current = [];
    let stop = false;
    let timer = 0;
    const offsets = new Map<number, number>();
    const readers = new Map(ranks.map((rank) => [rank, new TerminalReader(rank)]));
    let full = false; // an answer had the largest size, so there is more
    const tail = Math.ceil(FIRST_LINES / Math.max(1, ranks.length));
    const read = async (rank: number): Promise<Line[]> => {
      const from = offsets.has(rank) ? `offset=${offsets.get(rank)}` : `tail=${tail}`;
      const piece = await get<LogPiece>(`jobs/${job}/logs?attempt=${attempt}&rank=${rank}&${from}`);
      if (piece.exists) offsets.set(rank, piece.next_offset);
      full ||= piece.text.length >= FULL_CHARACTERS;
      return piece.text ? readers.get(rank)!.add((piece.cut ? BEHEADED : "") + piece.text) : [];
    };
    const poll = async () => {
      const wasEnded = endedNow.current;
      let added: Line[] = [];
      full = false;
      try {
        if (!document.hidden || offsets.size === 0) added = (await Promise.all(ranks.map(read))).flat();
        if (stop) return;
        setError(null);
      } catch (caught) {
        if (stop) return;
        setError(asApiError(caught));
      }
      if (pausedNow.current) held.current = withChanges(held.current, added, MAX_LINES);
      else setLines((old) => withChanges(old ?? [], added, MAX_LINES));
      setPending(held.current.length);
      // An ended attempt writes nothing more. Text beyond the size of one answer is still to be read.
      if (!wasEnded || added.length > 0) timer = window.setTimeout(() => void poll(), full || added.length > 500 ? 50 : POLL_MS);
    };
    if (attempt > 0) void poll();
    return () => {
      stop = true;
      clearTimeout(timer);
    };
  }, [job, attempt, which, ended]);

  useEffect(() => {
    if (paused || held.current.length === 0) return;
    const added = held.current;
    held.current = [];
    setPending(0);
    setLines((old) => withChanges(old ?? [], added, MAX_LINES));
  }, [paused]);
  return { lines, error, pending };
}

const looks = (spans: Span[]) => spans.map((span, i) => (span.look ? <span key={i} class={span.look}>{span.text}</span> : span.text));

// `from`: the first character that is shown. The page itself shows the rank that the line begins with.
function Text({ line, from, search }: { line: Line; from: number; search: string }) {
  const text = textOf(line);
  const end = Math.min(text.length, from + MAX_SHOWN_CHARACTERS);
  const more = text.length - end + line.more;
  const at = search ? text.toLowerCase().indexOf(search, from) : -1;
  const marked = at >= 0 && at + search.length <= end;
  return (
    <>
      {looks(slice(line.spans, from, marked ? at : end))}
      {marked && <><mark>{looks(slice(line.spans, at, at + search.length))}</mark>{looks(slice(line.spans, at + search.length, end))}</>}
      {more > 0 && ` … (at least ${formatCount(more)} more characters)`}
    </>
  );
}

// A running job shows all ranks, in the order in which they write. Log files hold no times, so the lines of several ranks
// of an ended job have no order, and one rank is shown. Of a failed job it is the rank that failed first.
function firstChoice(job: Job): string {
  if (!ENDED.includes(job.state)) return ALL;
  const rank = job.state === "failed" ? job.attempts.at(-1)?.rank : null;
  return String(rank ?? 0);
}

// A number that a person typed. No number means the first ranks.
function rankOf(text: string, world: number): string {
  return text === "" ? ALL : String(Math.max(0, Math.min(world - 1, Math.floor(Number(text)))));
}

export function Logs({ job }: { job: Job }) {
  const newest = job.attempts.at(-1)?.number ?? 0;
  const [chosen, setChosen] = useState(0); // 0: the newest attempt
  const [rank, setRank] = useState(() => firstChoice(job));
  const [typed, setTyped] = useState<string | null>(null); // a rank's number while a person types it; the page is drawn meanwhile
  const [search, setSearch] = useState("");
  const [paused, setPaused] = useState(false);
  const attempt = chosen || newest;
  const world = Math.max(1, job.ranks_total);
  const ranks = rank === ALL ? Array.from({ length: Math.min(world, MAX_MERGED_RANKS) }, (_, i) => i) : [Number(rank)];
  const ended = job.attempts.find((one) => one.number === attempt)?.state === "ended";
  const { lines, error, pending } = useLog(job.id, attempt, ranks, ended, paused);
  const wanted = search.toLowerCase();
  const shown = useMemo(
    () => (wanted ? lines?.filter((line) => textOf(line).toLowerCase().includes(wanted)) : lines), [lines, wanted]);
  const isTail = (lines?.length ?? 0) >= FIRST_LINES;
  const isCut = lines?.some((line) => line.more > 0 || textOf(line).length > MAX_SHOWN_CHARACTERS) ?? false;
  const view = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    if (atEnd.current && !paused && view.current) view.current.scrollTop = view.current.scrollHeight;
  }, [shown, paused]);

  if (newest === 0) return <Empty title="No log yet: no attempt has started." />;
  return (
    <>
      <div class="tools">
        <label>Attempt <select value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
          <option value={0}>newest ({newest})</option>
          {job.attempts.slice(0, -1).slice(-50).reverse().map((one) => <option value={one.number}>{one.number}</option>)}
        </select></label>
        {world > 1 && world <= MAX_LISTED_RANKS && <label>Rank <select value={rank} onChange={(event) => setRank(event.currentTarget.value)}>
          <option value={ALL}>{`${world > MAX_MERGED_RANKS ? `first ${MAX_MERGED_RANKS}` : "all"}${ended ? ", one after another" : ""}`}</option>
          {Array.from({ length: world }, (_, one) => <option value={String(one)}>{one}</option>)}
        </select></label>}
        {world > MAX_LISTED_RANKS && <label>Rank <input type="number" min={0} max={world - 1} value={typed ?? (rank === ALL ? "" : rank)}
          placeholder={`first ${MAX_MERGED_RANKS}`} onInput={(event) => setTyped(event.currentTarget.value)}
          onChange={(event) => { setRank(rankOf(event.currentTarget.value, world)); setTyped(null); }} /></label>}
        <label>Search <input type="search" value={search} size={14} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
        {(!ended || paused) && <button aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Resume" : "Pause"}</button>}
        <span class="muted small" role="status">
          {[wanted && shown ? `${shown.length} of ${lines?.length ?? 0} lines` : "", paused ? `paused, ${pending} new` : ""].filter(Boolean).join("; ")}
        </span>
      </div>
      <LaterError error={error} />
      <div class="log" ref={view} tabIndex={0} role="log" aria-live="off" aria-label="Log lines" onScroll={(event) => {
        const box = event.currentTarget;
        atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
      }}>
        {shown?.map((line) => {
          const named = rank === ALL && world > 1;
          // Workers begin their lines with their rank. The page shows the rank once.
          const own = `[rank ${line.rank}] `;
          return (
            <div class="line" key={line.key}>
              {named && <span class={`who who-${line.rank % 6}`}>r{line.rank}</span>}
              <Text line={line} from={named && textOf(line).startsWith(own) ? own.length : 0} search={wanted} />
            </div>
          );
        })}
        {lines?.length === 0 && <p class="log-empty">{ended ? "This attempt wrote nothing." : "Nothing written yet."}</p>}
        {wanted && shown?.length === 0 && lines !== null && lines.length > 0 && <p class="log-empty">No line holds “{search}”.</p>}
      </div>
      {ranks.length > 1 && !ended && (
        <p class="muted small log-note">Log files hold no times. Older lines are sorted by rank. New lines stand in the order in which they come.</p>
      )}
      {(isTail || isCut) && (
        <p class="muted small log-note">
          {isTail ? "The newest part." : "Long lines are cut."} The whole log: <code>muster logs {job.id} --attempt {attempt}</code>
        </p>
      )}
    </>
  );
}
