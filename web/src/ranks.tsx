// The ranks of the newest attempt. An attempt may have thousands of ranks, so the page holds only the rows in view and
// asks only for their ranks.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get } from "./api";
import { formatAge, formatBytes, formatCount, formatNumber, plain } from "./format";
import { useConnection, useNow } from "./hooks";
import { Empty } from "./notice";
import { Badge, tone } from "./state";
import { ENDED, type Job, type Rank, type RankPage } from "./types";

const ASK_MS = 1000;
// The page asks for ranks once a reader has stopped scrolling for this long.
const SCROLLED_MS = 60;
// An older answer tells nothing of a rank's heartbeat.
const STALE_MS = 3500;
// The page holds all rows of an attempt with at most this number of ranks.
const FEW = 100;
// The page holds this many rows above those in view, and twice as many below them. It asks for others after as many rows.
const SPARE = 20;
const ROW_PX = 33;

function Ended({ rank }: { rank: Rank }) {
  const how = rank.signal ? `signal ${rank.signal}` : rank.exit_code === null ? "" : `exit code ${rank.exit_code}`;
  return (
    <span class="muted end">
      <span class="piece">{how}</span>
      {rank.stopped_by_muster && ", stopped by muster"}
    </span>
  );
}

function StepTime({ rank }: { rank: Rank }) {
  if (!rank.step_ms) return <>–</>;
  return (
    <>
      {formatNumber(rank.step_ms, 3)} ms
      {rank.slowness && <span class="slow" title="Each of its last 50 steps or more took more than 1.2 times the median over all ranks."> ⚠ {rank.slowness.toFixed(1)}× the median</span>}
    </>
  );
}

const hasGpu = (rank: Rank) => rank.use != null && (rank.use.gpu_percent != null || rank.use.gpu_memory_bytes != null);

// Before the first sample the page shows what the rank has said of itself.
function Row({ rank, age, index, gpus }: { rank: Rank; age: string; index: number; gpus: boolean }) {
  const { use } = rank;
  return (
    <tr class={`rank ${tone(rank.state)} ${rank.state === "missing" ? "unheard" : ""}`} aria-rowindex={index + 2}>
      <th scope="row" class="num"><span class="on-card">rank </span>{rank.rank}</th>
      <td class="state"><Badge word={rank.state} /> {rank.state === "exited" && <Ended rank={rank} />}</td>
      <td class="num" data-label="heartbeat">{age}</td>
      <td data-label="section">{rank.section || "–"}</td>
      <td class="num" data-label="step">{rank.section ? formatCount(rank.step) : "–"}</td>
      <td class="num" data-label="step time"><StepTime rank={rank} /></td>
      <td class="num" data-label="cores">{use?.cores == null ? "–" : use.cores.toFixed(use.cores < 10 ? 2 : 1)}</td>
      <td class="num" data-label="memory">{formatBytes(use?.memory_bytes ?? rank.memory_bytes)}</td>
      <td class="num" data-label="peak">{formatBytes(Math.max(use?.memory_peak_bytes ?? 0, rank.memory_peak_bytes))}</td>
      {gpus && <td class="num" data-label="GPU">{use?.gpu_percent == null ? "–" : `${use.gpu_percent.toFixed(0)} %`}</td>}
      {gpus && <td class="num" data-label="GPU memory">{use?.gpu_memory_bytes == null ? "–" : formatBytes(use.gpu_memory_bytes)}</td>}
      <td data-label="process">{rank.node || "–"}{rank.pid ? <span class="muted num"> {rank.pid}</span> : null}
        {rank.gpus && <span class="muted"> GPU {rank.gpus}</span>}</td>
    </tr>
  );
}

interface Known {
  page: RankPage;
  show: string;
  at: number; // when it came
  ranks: Map<number, Rank>; // by their row in the table
}

/// The page asks for the ranks every second until the job has ended. The page shows the heartbeats' ages as the controller
/// told them. An age that ticked here would be wrong, because other heartbeats have come since.
function useRanks(job: Job, show: string, from: number, limit: number): Known | null {
  const [known, setKnown] = useState<Known | null>(null);
  const newest = useRef(known);
  const active = !ENDED.includes(job.state);
  useEffect(() => {
    let stop = false;
    let timer = 0;
    const ask = async () => {
      if (!document.hidden || !newest.current) {
        const page = await get<RankPage>(`jobs/${job.id}/ranks?from=${from}&limit=${limit}${show && `&show=${show}`}`).catch(() => null);
        if (stop) return;
        if (page) {
          const old = newest.current;
          const same = old?.page.attempt === page.attempt && old.show === show && old.page.total === page.total;
          const ranks = new Map(same ? old.ranks : []);
          page.ranks.forEach((rank, i) => ranks.set(from + i, rank));
          newest.current = { page, show, at: Date.now(), ranks };
          setKnown(newest.current);
        }
      }
      if (active) timer = window.setTimeout(() => void ask(), ASK_MS);
    };
    if (newest.current?.show === show) timer = window.setTimeout(() => void ask(), SCROLLED_MS);
    else void ask();
    return () => {
      stop = true;
      clearTimeout(timer);
    };
  }, [active, job.id, job.version, show, from, limit]);
  return known;
}

function Filter({ page, show, onShow }: { page: RankPage; show: string; onShow: (show: string) => void }) {
  const all = Object.values(page.states).reduce((sum, count) => sum + count, 0);
  const words = [...Object.entries(page.states), ...(page.slow > 0 ? [["slow", page.slow] as const] : [])];
  return (
    <div class="tools">
      <label>Show <select value={show} onChange={(event) => onShow(event.currentTarget.value)}>
        <option value="">all {formatCount(all)} ranks</option>
        {words.map(([word, count]) => <option key={word} value={word}>{plain(word)} ({formatCount(count)})</option>)}
        {show && !words.some(([word]) => word === show) && <option value={show}>{plain(show)} (0)</option>}
      </select></label>
    </div>
  );
}

export function Ranks({ job }: { job: Job }) {
  const [show, setShow] = useState("");
  const [top, setTop] = useState(0); // the first row in view
  const [rowPx, setRowPx] = useState(ROW_PX);
  const [rows, setRows] = useState(SPARE); // in view
  const box = useRef<HTMLDivElement>(null);
  const first = Math.max(0, Math.floor(top / SPARE - 1) * SPARE);
  const known = useRanks(job, show, first, Math.max(FEW, rows + 3 * SPARE));
  const now = useNow(500);
  const lost = useConnection() === "lost";
  const many = known !== null && Object.values(known.page.states).reduce((sum, count) => sum + count, 0) > FEW;
  // The style sheet makes all rows equally high.
  useLayoutEffect(() => {
    const height = box.current?.querySelector("tr.rank")?.getBoundingClientRect().height ?? 0;
    if (!many || !box.current || height === 0) return;
    setRowPx(height);
    setRows(Math.ceil(box.current.clientHeight / height));
  });
  if (!known) return <p class="muted">Loading…</p>;
  if (Object.keys(known.page.states).length === 0)
    return <Empty title={ENDED.includes(job.state) ? "No rank joined." : "No rank has joined yet."} />;
  const stale = lost || now - known.at > STALE_MS;
  const age = (rank: Rank) => {
    if (rank.last_heartbeat_ms === null || rank.state === "exited") return "–";
    return stale && !ENDED.includes(job.state) ? "unknown" : formatAge(rank.last_heartbeat_ms);
  };
  const { total } = known.page;
  const begin = many ? Math.min(first, Math.max(0, total - 1)) : 0;
  const end = many ? Math.min(total, first + rows + 3 * SPARE) : total;
  const gpus = [...known.ranks.values()].some(hasGpu);
  const columns = gpus ? 12 : 10;
  const inPage = Array.from({ length: Math.max(0, end - begin) }, (_, i) => begin + i);
  const space = (count: number) => count > 0 && <tr class="space" aria-hidden="true"><td colSpan={columns} style={{ height: `${count * rowPx}px` }} /></tr>;
  const table = (
    <table class={`cards ranks ${many ? "many" : ""}`} aria-rowcount={many ? total + 1 : undefined}>
      <caption class="hidden">Ranks of the newest attempt</caption>
      <thead>
        <tr>
          <th scope="col" class="num">Rank</th><th scope="col">State</th><th scope="col" class="num">Heartbeat</th>
          <th scope="col">Section</th><th scope="col" class="num">Step</th><th scope="col" class="num">Step time</th>
          <th scope="col" class="num">Cores</th><th scope="col" class="num">Memory</th><th scope="col" class="num">Peak</th>
          {gpus && <th scope="col" class="num">GPU</th>}{gpus && <th scope="col" class="num">GPU memory</th>}
          <th scope="col">Node, process</th>
        </tr>
      </thead>
      <tbody>
        {space(begin)}
        {inPage.map((index) => {
          const rank = known.ranks.get(index);
          return rank ? <Row key={index} rank={rank} age={age(rank)} index={index} gpus={gpus} />
            : <tr key={index} class="rank" aria-rowindex={index + 2}><th scope="row" class="num">…</th><td colSpan={columns - 1} /></tr>;
        })}
        {space(total - end)}
      </tbody>
    </table>
  );
  if (!many) return table;
  const choose = (word: string) => {
    setShow(word);
    box.current?.scrollTo(0, 0);
  };
  return (
    <>
      <Filter page={known.page} show={show} onShow={choose} />
      <div class="scroll" ref={box} tabIndex={0} role="region" aria-label="Ranks of the newest attempt"
        onScroll={(event) => setTop(Math.floor(event.currentTarget.scrollTop / rowPx))}>
        {table}
      </div>
    </>
  );
}
