// Builds the page into dist/, compressed. `--check` says whether dist/ is what would be built, and changes nothing.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gunzipSync, gzipSync } from "node:zlib";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { VIEWS } from "./src/views.js";

const here = dirname(fileURLToPath(import.meta.url));
const built = async (entry, more) => {
  const out = await build({
    absWorkingDir: here,
    entryPoints: entry,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    outdir: "dist",
    write: false,
    ...more,
  });
  return out.outputFiles.map((file) => [file.path.split("/").pop(), Buffer.from(file.contents)]);
};
// names stay, so their contents' hash says when a browser has to ask again
const version = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 12);
const files = new Map(await built({ uplot: "src/uplot.js" }));
// half of the code draws charts, and nobody needs it to log in
const charts = `/assets/uplot.js?${version(files.get("uplot.js"))}`;
const define = { CHARTS: JSON.stringify(charts) };
for (const [name, bytes] of await built({ app: "src/main.jsx" }, { define, external: ["/assets/*"] })) files.set(name, bytes);
// within the page, so that the first paint waits for nothing else; the policy has their hashes
const style = files.get("app.css").toString().trim();
files.delete("app.css");
const script = readFileSync(join(here, "src/first.js"), "utf8").trim();
const hashed = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const hashes = { "style.sha256": hashed(style), "script.sha256": hashed(script) };
const links = VIEWS.map(([path, name]) => `<a href="#/${path}">${name}</a>`).join("");
const index = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("app.js", `app.js?${version(files.get("app.js"))}`)
  .replace(/\n\s*/g, "")
  .replace("<style></style>", () => `<style>${style}</style>`)
  .replace("<script></script>", () => `<script>${script}</script>`)
  .replace("</nav>", `${links}</nav>`);
files.set("index.html", Buffer.from(index));
files.set("icon.svg", readFileSync(join(here, "src/icon.svg")));

let total = 0;
let stale = [];
for (const [name, hash] of Object.entries(hashes)) {
  const path = join(here, "dist", name);
  if (!process.argv.includes("--check")) writeFileSync(path, hash);
  else if (!existsSync(path) || readFileSync(path, "utf8") !== hash) stale.push(name);
}
for (const [name, bytes] of files) {
  const path = join(here, "dist", `${name}.gz`);
  if (process.argv.includes("--check")) {
    // compressors differ from one version of node to another, what they compress does not
    let kept = Buffer.alloc(0);
    try {
      kept = gunzipSync(readFileSync(path));
    } catch {
      // missing or damaged: stale
    }
    if (!kept.equals(bytes)) stale.push(name);
    continue;
  }
  const packed = gzipSync(bytes, { level: 9 });
  // no time and no system in the head
  packed.fill(0, 4, 8);
  packed[9] = 255;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, packed);
  total += packed.length;
  console.log(`${name}: ${bytes.length} bytes, ${packed.length} compressed`);
}
if (stale.length > 0) {
  console.error(`dist/ is not what src/ builds: ${stale.join(", ")}; run \`npm ci && npm run build\` in crates/admin/web`);
  process.exit(1);
}
if (total > 0) console.log(`all: ${total} bytes compressed`);
