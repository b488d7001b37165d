// Bundles src/ into dist/: index.html, and one script and one style sheet whose names hold their hash.
import { build } from "esbuild";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";

await rm("dist", { recursive: true, force: true });
await mkdir("dist");
const result = await build({
  entryPoints: { app: "src/main.tsx" },
  entryNames: "[name]-[hash]",
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  metafile: true,
  logLevel: "warning",
});
const outputs = Object.keys(result.metafile.outputs).map((path) => basename(path));
const script = outputs.find((name) => name.endsWith(".js"));
const style = outputs.find((name) => name.endsWith(".css"));
const page = await readFile("src/index.html", "utf8");
await writeFile("dist/index.html", page.replace("%SCRIPT%", `/${script}`).replace("%STYLE%", `/${style}`));
await writeFile("dist/icon.svg", await readFile("src/icon.svg"));
