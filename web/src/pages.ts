// The jobs that the table shows: a bounded stretch of all jobs, newest first, without gaps. Answers of the server are
// merged by id. So paging neither repeats nor skips a job when others are submitted or removed.
import type { Job } from "./types";

export const PAGE = 100;
export const MOST_ROWS = 500;

export interface Stretch {
  jobs: Job[];
  total: number; // of all jobs that match the filter
  atTop: boolean; // the stretch holds the newest job
  atEnd: boolean; // the stretch holds the oldest job
}

export interface Answer {
  jobs: Job[];
  total: number;
}

export const NOTHING: Stretch = { jobs: [], total: 0, atTop: true, atEnd: false };

/// Whether the answer decides if the job with this id is shown. The question was for PAGE jobs older than `before`; 0 asks
/// for the newest jobs.
const covers = (before: number, answer: Answer, id: number): boolean =>
  (before === 0 || id < before) && (answer.jobs.length < PAGE || id >= answer.jobs.at(-1)!.id);

/// `older`: a reader asked for older jobs, so the newest rows are dropped. Otherwise the oldest rows are dropped.
export function merge(now: Stretch, before: number, answer: Answer, older: boolean): Stretch {
  const jobs = [...now.jobs.filter((job) => !covers(before, answer, job.id)), ...answer.jobs].sort((a, b) => b.id - a.id);
  const reached = answer.jobs.length < PAGE;
  const oldest = now.jobs.at(-1)?.id ?? Infinity;
  const further = answer.jobs.length > 0 && answer.jobs.at(-1)!.id < oldest;
  const cut = jobs.length > MOST_ROWS;
  return {
    jobs: !cut ? jobs : older ? jobs.slice(-MOST_ROWS) : jobs.slice(0, MOST_ROWS),
    total: answer.total,
    atTop: now.atTop && !(cut && older),
    atEnd: (reached || (now.atEnd && !further)) && !(cut && !older),
  };
}

/// Ids of jobs that have changed and that belong to the stretch.
export class Changes {
  private readonly ids = new Set<number>();

  add(ids: Iterable<number>): void {
    for (const id of ids) this.ids.add(id);
  }

  /// The `before` of the next question. null: no job that is shown has changed.
  next(now: Stretch): number | null {
    const newest = now.jobs[0]?.id ?? 0;
    const oldest = now.jobs.at(-1)?.id ?? 0;
    for (const id of this.ids) {
      if ((id > newest && !now.atTop) || (id < oldest && !now.atEnd)) this.ids.delete(id);
    }
    if (this.ids.size === 0) return null;
    const highest = Math.max(...this.ids);
    return now.atTop && highest >= newest ? 0 : highest + 1;
  }

  /// Takes an answer. If the answer ends above the jobs that were shown before, the jobs between are still to be asked for.
  answered(now: Stretch, before: number, answer: Answer): void {
    for (const id of this.ids) if (covers(before, answer, id)) this.ids.delete(id);
    const last = answer.jobs.at(-1)?.id ?? 0;
    const meets = answer.jobs.length < PAGE || now.jobs.some((job) => job.id === last);
    if (!meets && now.jobs.some((job) => job.id < last)) this.ids.add(last - 1);
  }
}
