import { useState } from "preact/hooks";
import { logIn, type ApiError } from "./api";
import { asApiError } from "./hooks";
import { ErrorNotice } from "./notice";

// `refused`: why the token of a link was refused.
export function Login({ refused, onDone }: { refused: ApiError | null; onDone: () => void }) {
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const problem = error ?? refused;
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const token = String(new FormData(event.target as HTMLFormElement).get("token")).trim();
    setBusy(true);
    try {
      await logIn(token);
      onDone();
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form class="panel" onSubmit={(event) => void submit(event)}>
        <h1>Log in</h1>
        <p>
          Type <code>muster dashboard</code> where you submit your jobs, and open the link that it prints. Or enter the
          token, which lies in the file <code>token</code> of musterd's data folder.
        </p>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required autofocus
          spellcheck={false} />
        <button class="primary" disabled={busy}>Log in</button>
        {problem && <ErrorNotice error={problem} />}
      </form>
    </main>
  );
}
