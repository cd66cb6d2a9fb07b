#!/usr/bin/env python3
"""Fuzzes parsers for a while each, and ends with a table: inputs, coverage, new seeds, crashes.

    make fuzz SECONDS=60                   all of them
    fuzz/run.py http_request --seconds 600

Needs a stable Rust and a C++ compiler (libFuzzer is built by the libfuzzer-sys crate); cargo-fuzz and a nightly Rust are
not needed. There is no address sanitizer: the parsers hold no unsafe. Coverage is that of libFuzzer's edges in the
parser's own files, of those that there are; it needs llvm-symbolizer and readelf.

Every run begins with fuzz/seeds/TARGET and fuzz/corpus/TARGET. Inputs that widen coverage are kept in the corpus and
crashes in fuzz/artifacts/TARGET, both ignored by git. The corpus grows from run to run in the same clone; a fresh clone
has the seeds alone. `--keep` makes seeds of the corpus by libFuzzer's merge: the fewest inputs that reach all that it
reaches, the shortest first, up to 200 kB a target. Seeds that are named by hand stay, as those of make_seeds.py.

`--record` writes each target's row into experiments/results/suites/fuzz.json, and the table of the book's page from all
rows there. Exits with 1 where an input crashes a target.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import coverage

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parent / "experiments/results/suites/fuzz.json"
PAGE = HERE.parent / "docs/book/src/results/suites.md"
# what each target is for: its coverage is that of these files
TARGETS = {
    "http_request": ["proxy/src/wire/http/head.rs", "proxy/src/wire/http/target.rs", "proxy/src/wire/http/fields.rs", "proxy/src/wire/http/body.rs"],
    "http_response": ["proxy/src/wire/http/head.rs", "proxy/src/wire/http/fields.rs", "proxy/src/wire/http/body.rs"],
    "chunked": ["proxy/src/wire/http/chunked.rs"],
    "capsule": ["proxy/src/wire/http/capsule/"],
    "h2_head": ["proxy/src/wire/http/h2.rs"],
    "h2_frames": ["proxy/src/inbound/tls/h2/", "proxy/src/wire/http/h2.rs"],
    "socks": ["proxy/src/wire/socks.rs"],
    "destination": ["proxy/src/destination.rs"],
    "config": ["config/src/"],
    "link_text": ["model/src/network/link/"],
    "capture": ["record/src/", "lab/src/classify/"],
    "acknowledgement": ["model/src/network/link/"],
    "tunnel_frames": ["tunnel/src/frame/"],
    "tunnel_peer": ["tunnel/src/core/tunnel/", "tunnel/src/core/reassembly.rs", "tunnel/src/core/packet_queue.rs", "tunnel/src/core/flow.rs"],
    "repair": ["model/src/control/repair/"],
    "dns_message": ["proxy/src/wire/dns/"],
    "first_bytes": ["proxy/src/wire/first_bytes.rs"],
    "quic_initial": ["proxy/src/wire/quic_initial/"],
    "tunnel_packet": ["wireguard/src/inspect.rs", "wireguard/src/segments.rs"],
    "proxy_header": ["proxy/src/wire/proxy_header.rs"],
}
FLAGS = """-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
-Cllvm-args=-sanitizer-coverage-trace-compares"""
SEEDS_AT_MOST = 200_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--keep", action="store_true", help="make seeds of the corpus afterwards")
    parser.add_argument("--record", action="store_true", help="write the kept results and the page's table")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {unknown[0]}: it is one of {', '.join(TARGETS)}")
    return options


def build(targets):
    """The programs' folder."""
    host = next(line for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines() if line.startswith("host: "))[6:]
    # the flags cargo-fuzz gives, but for the sanitizer; with --target they do not reach build scripts
    environment = {**os.environ, "RUSTFLAGS": " ".join(FLAGS.split())}
    command = ["cargo", "build", "--locked", "--release", "--target", host]
    if "capture" not in targets:
        command += ["--no-default-features", "--features=runtime"]
    subprocess.run([*command, *(f"--bin={name}" for name in targets)], cwd=HERE, env=environment, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / host / "release"


def size(folder):
    files = list(folder.iterdir())
    return len(files), sum(file.stat().st_size for file in files)


def fuzz(program, name, seconds):
    corpus, seeds, artifacts = (HERE / kind / name for kind in ("corpus", "seeds", "artifacts"))
    for folder in (corpus, seeds, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    before = size(corpus)[0]
    command = ["nice", "-n", "19", program, f"-max_total_time={seconds}", "-timeout=30", "-rss_limit_mb=2048", "-print_final_stats=1"]
    command.append(f"-artifact_prefix={artifacts}/")
    dictionary = HERE / "dictionaries" / name
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    begun = time.monotonic()
    done = subprocess.run([*map(str, command), str(corpus), str(seeds)], capture_output=True, text=True, errors="replace")
    took = time.monotonic() - begun
    # the statistics, or where it was ended the last line that counts
    inputs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.stderr) or re.findall(r"^#(\d+)\s", done.stderr, re.M)
    crash = re.search(r"Test unit written to (\S+)", done.stderr)
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    covered = coverage.of(program, [corpus, seeds], TARGETS[name])
    return {
        "target": name,
        "seconds": round(took),
        "inputs": int(inputs[-1]) if inputs else 0,
        "edges": covered and covered["covered"],
        "of_edges": covered and covered["all"],
        "files": covered and covered["files"],
        "corpus": size(corpus)[0],
        "new": size(corpus)[0] - before,
        # libFuzzer also keeps inputs that were slow, on a busy machine any, and goes on
        "crash": (crash.group(1) if crash else f"exit {done.returncode}") if done.returncode else None,
    }


def keep(program, name):
    """The fewest and shortest inputs of corpus and seeds that reach as much, if they are small."""
    seeds = HERE / "seeds" / name
    with tempfile.TemporaryDirectory(prefix="ekiden-seeds-") as folder:
        folders = [folder, str(seeds), str(HERE / "corpus" / name)]
        subprocess.run([str(program), "-merge=1", "-timeout=30", *folders], capture_output=True, check=True)
        inputs = sorted(pathlib.Path(folder).iterdir(), key=lambda file: (file.stat().st_size, file.name))
        # seeds that were named by hand stay
        named = [file for file in seeds.iterdir() if not re.fullmatch("[0-9a-f]{40}", file.name)]
        for file in set(seeds.iterdir()) - set(named):
            file.unlink()
        left = SEEDS_AT_MOST - sum(file.stat().st_size for file in named)
        for file in inputs:
            # a file takes a block of the disk, too
            left -= file.stat().st_size + 64
            if left < 0:
                break
            shutil.copyfile(file, seeds / file.name)
    return size(seeds)


def table(rows):
    lines = [f"{'target':<18}{'inputs':>13}{'a second':>10}{'edges covered':>18}{'corpus':>9}{'new':>7}  crash"]
    for row in rows:
        edges = f"{row['edges']} of {row['of_edges']}" if row["of_edges"] else "not known"
        rate = row["inputs"] // max(row["seconds"], 1)
        lines.append(f"{row['target']:<18}{row['inputs']:>13,}{rate:>10,}{edges:>18}{row['corpus']:>9}{row['new']:>7}  {row['crash'] or '-'}")
    lines.append(f"{'all':<18}{sum(row['inputs'] for row in rows):>13,}")
    return "\n".join(lines)


def record(rows):
    """Keeps the rows of targets that did not crash, and writes the page's table from all that are kept."""
    kept = {row["target"]: row for row in json.loads(RESULTS.read_text())["targets"]}
    fields = ("target", "seconds", "inputs", "edges", "of_edges", "corpus", "files")
    kept |= {row["target"]: {key: row[key] for key in fields} for row in rows if not row["crash"]}
    rows = [kept[name] for name in TARGETS if name in kept]
    RESULTS.write_text(json.dumps({"targets": rows}, indent=1) + "\n")
    text = PAGE.read_text()
    begin = text.index("| target | ")
    end = text.index("\n\n", begin)
    PAGE.write_text(text[:begin] + page_table(kept) + text[end:])


def page_table(kept):
    lines = ["| target | seconds | inputs | edges of the parser | corpus |", "|---|---|---|---|---|"]
    for name in TARGETS:
        row = kept.get(name)
        if row is None:
            lines.append(f"| {name} | | none kept | | |")
            continue
        edges = f"{row['edges']} of {row['of_edges']}" if row["of_edges"] else "not known"
        # how a row came about that was not written by a run
        note = f" ({row['note']})" if "note" in row else ""
        lines.append(f"| {name} | {row.get('seconds', '')} | {row['inputs']:,} | {edges}{note} | {row['corpus']:,} |")
    lines.append(f"| all | | {sum(row['inputs'] for row in kept.values()):,} | | |")
    return "\n".join(lines)


def main():
    options = arguments()
    names = options.targets or list(TARGETS)
    programs, rows = build(names), []
    for name in names:
        print(f"fuzz: {name}, {options.seconds} s", file=sys.stderr, flush=True)
        rows.append(fuzz(programs / name, name, options.seconds))
        if options.keep and not rows[-1]["crash"]:
            rows[-1]["seeds"] = keep(programs / name, name)
    if options.record:
        record(rows)
    print(json.dumps({"targets": rows}) if options.json else table(rows))
    sys.exit(1 if any(row["crash"] for row in rows) else 0)


if __name__ == "__main__":
    main()
