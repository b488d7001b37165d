import type { ApiError } from "./api";

/// The text with a capital letter at its start and a full stop at its end. The name "muster" keeps its small letter.
export const sentence = (text: string): string =>
  (text.startsWith("muster") ? text.charAt(0) : text.charAt(0).toUpperCase()) + text.slice(1).replace(/\.?$/, ".");

// A command with its arguments: "muster logs 7 --tail 50".
const COMMAND = /((?:muster [a-z]+|scontrol [a-z]+)(?: --?[a-z-]+(?: \d+)?| \d+)+)/;

/// A sentence in which a command stays on one line, so that a person can copy it.
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

/// An error beside contents that are already shown. The banner tells that musterd does not answer.
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
