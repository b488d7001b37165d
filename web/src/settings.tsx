import { formatDuration } from "./format";
import type { Job } from "./types";

type Tree = { [key: string]: unknown };
type Row = [key: string, value: string];

// The page shows these elsewhere.
const ELSEWHERE = ["name", "command", "sweep", "env", "submitted_env"];

const isTree = (value: unknown): value is Tree => typeof value === "object" && value !== null && !Array.isArray(value);

function text(key: string, value: unknown): string {
  if (key.endsWith("_ms") && typeof value === "number") return formatDuration(value);
  return Array.isArray(value) ? value.map((one) => (isTree(one) ? JSON.stringify(one) : String(one))).join(", ") : String(value);
}

// The keys of a job file: "train.steps", "resources.stop_grace". An empty value was not set.
function rowsOf(tree: Tree, prefix = ""): Row[] {
  return Object.entries(tree).flatMap(([key, value]): Row[] => {
    if (prefix === "" && ELSEWHERE.includes(key)) return [];
    if (isTree(value)) return rowsOf(value, prefix === "" && key === "recipe" ? "" : `${prefix}${key}.`);
    const never = value === false || (value === 0 && key.endsWith("_ms"));
    const empty = never || value === null || value === "" || (Array.isArray(value) && value.length === 0);
    return empty ? [] : [[prefix + key.replace(/_ms$/, ""), text(key, value)]];
  });
}

const variables = (tree: unknown): Row[] => (isTree(tree) ? Object.entries(tree).map(([name, value]): Row => [name, String(value)]) : []);

/// The argument as a shell reads it.
export const quoted = (argument: string): string =>
  /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`;

function Table({ title, rows }: { title: string; rows: Row[] }) {
  if (rows.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <table>
        <caption class="hidden">{title}</caption>
        <tbody>{rows.map(([key, value]) => <tr key={key}><th scope="row">{key.split(/(?<=[._])/).map((part, i) => <>{i > 0 && <wbr />}{part}</>)}</th><td>{value}</td></tr>)}</tbody>
      </table>
    </>
  );
}

/// The settings that the job was submitted with. The controller has masked the secrets. The list is long and seldom read,
/// so it is folded.
export function Settings({ job }: { job: Job }) {
  const spec = job.spec as Tree | null;
  if (!spec) return null;
  const argv = isTree(spec.command) && Array.isArray(spec.command.argv) ? spec.command.argv.map(String) : [];
  return (
    <details class="settings">
      <summary><h2>Settings</h2></summary>
      {argv.length > 0 && <><h3>Command</h3><pre tabIndex={0} aria-label="Command">{argv.map(quoted).join(" ")}</pre></>}
      <Table title="Environment" rows={variables(spec.env)} />
      <Table title="Job file" rows={rowsOf(spec)} />
      <Table title="Environment of the submitter" rows={variables(spec.submitted_env)} />
    </details>
  );
}
