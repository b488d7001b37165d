// The points of a plot as a table: one row for each step, one column for each line.
import { useState } from "preact/hooks";
import { formatCount } from "./format";
import type { Quantity, Value } from "./quantities";
import type { Row } from "./series";

const TABLE_ROWS = 500;

/// One row in `every`. Lines with few values keep all of them.
function sample(all: Row[], every: number, lines: Quantity["lines"]): { rows: Row[]; whole: string[] } {
  const counts = lines.map((_, i) => all.reduce((count, row) => count + (row.values[i] === undefined ? 0 : 1), 0));
  const isWhole = lines.map((line, i) => !line.smoothed && counts[i]! <= TABLE_ROWS && counts[i]! < all.length);
  const rows = all.filter((row, at) =>
    at % every === 0 || at === all.length - 1 || isWhole.some((whole, i) => whole && row.values[i] !== undefined));
  return { rows, whole: lines.filter((_, i) => isWhole[i]).map((line) => line.name) };
}

export function DataTable({ quantity, all }: { quantity: Quantity; all: Row[] }) {
  const [open, setOpen] = useState(false);
  const { id, title, lines, format } = quantity;
  const every = Math.max(1, Math.ceil(all.length / TABLE_ROWS));
  const { rows, whole } = open ? sample(all, every, lines) : { rows: [], whole: [] };
  const text = (value: Value) => (value === undefined ? "–" : value === null ? "no number" : format(value));
  const nameOf = (index: number) => (lines.length > 1 ? lines[index]!.name : title);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}: data table</summary>
      {open && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`${title}: data`}>
          {every > 1 && (
            <p class="muted small">
              One step in {every} of {formatCount(all.length)}{whole.length > 0 && `, and every step with ${whole.join(" or ")}`}.
            </p>
          )}
          <table data-plot={id}>
            <thead>
              <tr>
                <th scope="col" class="num">Attempt</th><th scope="col" class="num">Step</th>
                {lines.map((line, i) => (
                  <>
                    <th scope="col" class="num">{nameOf(i)}</th>
                    {line.smoothed && <th scope="col" class="num">{lines.length > 1 ? `${line.name}, smoothed` : "Smoothed"}</th>}
                  </>
                ))}
                <th scope="col">Note</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={`${row.attempt}/${row.step}`}>
                  <td class="num">{row.attempt}</td><td class="num">{formatCount(row.step)}</td>
                  {lines.map((line, i) => (
                    <>
                      <td class="num">{text(row.values[i])}</td>
                      {line.smoothed && <td class="num">{text(row.smooth[i] ?? undefined)}</td>}
                    </>
                  ))}
                  <td>{row.lost ? "repeated later" : ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
