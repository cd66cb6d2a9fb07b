#!/usr/bin/env python3
"""Others' suites against Ekiden, and against squid and nginx in its place where that makes sense.

    make suites                     all of them; ekiden in target/quick or $EKIDEN
    scripts/suites/suites.py h2spec cache

Programs come from the registries (Go's module proxy, PyPI, npm, Debian) at pinned versions, into target/suites. Each
suite's result is written to experiments/results/suites/. Everything runs on loopback. Exits with 1 where a suite could
not run, and with --check also where a case fails that Ekiden passes in the result that is kept, which then stays.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import time

sys.dont_write_bytecode = True
import autobahn
import cache
import curl
import doors
import h2spec
import tls

SUITES = {"h2spec": h2spec, "autobahn": autobahn, "cache": cache, "curl": curl, "tls": tls}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}; all by default")
    parser.add_argument("--cases", action="append", help="these cases of autobahn or curl alone; nothing is written then")
    parser.add_argument("--check", action="store_true", help="compare with the kept results, and write none")
    parser.add_argument("--json", action="store_true", help="results as JSON, one line a suite, in place of tables")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"unknown suite {unknown[0]}: it is one of {', '.join(SUITES)}")
    if options.check and options.cases:
        parser.error("the kept results are of all cases: --check or --cases")
    return options


def machine():
    models = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {"processors": os.cpu_count(), "model": models[0] if models else platform.machine(), "kernel": platform.release()}


def versions():
    return {
        "ekiden": doors.version(str(doors.EKIDEN), "--version"),
        "squid": doors.version(doors.find("squid"), "-v"),
        "nginx": doors.version(doors.find("nginx"), "-v"),
    }


def table(name, result):
    lines = [f"{name}: {result['suite']}"]
    for row in result["rows"]:
        more = [f"{key} {value}" for key, value in row.items() if key not in ("door", "passed", "of", "failed") and not isinstance(value, list)]
        lines.append(f"  {row['door']:<20}{row['passed']:>6} of {row['of']:<6} {', '.join(more)}".rstrip())
        lines += [f"      {words[:150]}" for words in row["failed"][:12]]
        if len(row["failed"]) > 12:
            lines.append(f"      and {len(row['failed']) - 12} more")
    return "\n".join(lines)


def compared(result, kept):
    """By Ekiden's doors: what passes in the kept result and does not now, and what passes now alone; in words."""
    now = {row["door"]: row for row in result["rows"]}
    before = [row for row in json.loads(kept.read_text())["rows"] if row["door"].startswith("ekiden")] if kept.exists() else []
    lost, won = [], []
    for then in before:
        door = then["door"]
        row = now.get(door)
        if row is None:
            lost.append(f"{door}: not tried, and {then['passed']} of {then['of']} passed")
        elif "passes" in then:
            lost += [f"{door}: passed, and does not now: {name}" for name in then["passes"] if name not in row["passes"]]
            won += [f"{door}: passes now, and did not: {name}" for name in row["passes"] if name not in then["passes"]]
        elif row["passed"] < then["passed"]:
            # a kept result from before names were written
            lost.append(f"{door}: {row['passed']} of {row['of']} pass, and {then['passed']} of {then['of']} did")
    return lost, won


def main():
    options = arguments()
    tools = doors.ROOT / "target/suites"
    tools.mkdir(parents=True, exist_ok=True)
    kept = doors.ROOT / "experiments/results/suites"
    broken = False
    for name in options.suites or SUITES:
        begun = time.monotonic()
        try:
            result = SUITES[name].run(tools, options)
        except SystemExit as why:
            print(f"{name}: not run: {why}", file=sys.stderr)
            broken = True
            continue
        result = {**result, "seconds": round(time.monotonic() - begun), "machine": machine(), "versions": versions()}
        print(json.dumps(result) if options.json else table(name, result), flush=True)
        if options.check:
            lost, won = compared(result, kept / f"{name}.json")
            for words in lost + won:
                print(f"{name}: {words}", file=sys.stderr)
            broken |= bool(lost)
        elif not options.cases:
            kept.mkdir(parents=True, exist_ok=True)
            (kept / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
