import { formatTime, plain } from "./format";
import { Empty } from "./notice";
import type { JobEvent } from "./types";

const SHOWN = 200;

export function Events({ events }: { events: JobEvent[] }) {
  if (events.length === 0) return <Empty title="No events yet." />;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Events, newest first">
      <table class="events">
        <caption class="hidden">Events, newest first</caption>
        <thead><tr><th scope="col">When</th><th scope="col">What</th></tr></thead>
        <tbody>
          {events.slice(-SHOWN).reverse().map((event) => (
            <tr key={event.id}>
              <td class="num">{formatTime(event.at)}</td>
              <td>{event.text || plain(event.type)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
