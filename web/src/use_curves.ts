// Asks for the curves of a job, and then for their new steps.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, type ApiError } from "./api";
import { append, POINTS, position, type View } from "./curves";
import { asApiError, useThrottled } from "./hooks";
import type { Curves } from "./types";

const FOLLOW_MS = 900;

/// The curves of a job in this view. The curves of the view before are given until the new ones come.
export function useCurves(id: number, view: View): { curves: Curves | null; error: ApiError | null; follow: () => void } {
  const [curves, setCurves] = useState<Curves | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const loaded = useRef<{ view: View; curves: Curves } | null>(null);
  const wanted = useRef(view);
  wanted.current = view;
  const asking = useRef<View | null>(null); // a question for all points of this view is on its way

  const load = async (from: { attempt: number; step: number } | null) => {
    const asked = wanted.current;
    if (!from) asking.current = asked;
    const parameters = new URLSearchParams({
      points: String(POINTS),
      ...(asked.zoom && { from_step: String(asked.zoom.from), to_step: String(asked.zoom.to) }),
      ...(asked.log && { spacing: "log" }),
      ...(from && { after_attempt: String(from.attempt), after_step: String(from.step) }),
    });
    const base = from && loaded.current;
    try {
      const answer = await get<Curves>(`jobs/${id}/metrics?${parameters}`);
      // The answer to another question came first.
      if (asked !== wanted.current || (base && loaded.current !== base)) return;
      const now = base ? append(base.curves, answer) : answer;
      loaded.current = { view: asked, curves: now };
      setCurves(now);
      setError(null);
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      if (!from && asking.current === asked) asking.current = null;
    }
  };
  const follow = useThrottled(async () => {
    if (loaded.current?.view === wanted.current) await load(position(loaded.current.curves));
    else if (asking.current !== wanted.current) await load(null);
  }, FOLLOW_MS);
  useEffect(() => void load(null), [id, view]);
  return { curves, error, follow };
}
