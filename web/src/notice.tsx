import type { ApiError } from "./api";

/// With a capital at its start, unless that is a program's name, and a full stop at its end.
export const sentence = (text: string): string =>
  (text.startsWith("muster") ? text.charAt(0) : text.charAt(0).toUpperCase()) + text.slice(1).replace(/\.?$/, ".");

// "muster logs 7 --tail 50": a command with what it is given.
const COMMAND = /((?:muster [a-z]+|scontrol [a-z]+)(?: --?[a-z-]+(?: \d+)?| \d+)+)/;

/// A sentence in which a command stays on one line, to be read and copied as one.
export function WithCommands({ text }: { text: string }) {
  return <>{text.split(COMMAND).map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

export function ErrorNotice({ error }: { error: ApiError }) {
  return (
    <div class="notice bad" role="alert">
      <strong>{sentence(error.message)}</strong>
      {error.remedy && <span> {sentence(error.remedy)}</span>}
    </div>
  );
}

/// Beside contents that are there already: that musterd does not answer is said by the banner.
export function LaterError({ error }: { error: ApiError | null }) {
  return error && error.status !== 0 ? <ErrorNotice error={error} /> : null;
}

export function Empty({ title, children }: { title: string; children?: preact.ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}
