#!/usr/bin/env python3
"""Attacks a relay, on loopback, within bounds of time and count, and says what held.

    scripts/attack/attack.py rates addresses memory sockets log logins initials ring floods tls syns    # or some of them

Takes ekiden from $EKIDEN, otherwise target/release. As root: `memory` needs a control group, `sockets` sets
`net.ipv4.tcp_mem`, and `syns` makes network namespaces, with `ip`. `initials` needs aioquic (pip).

Each part says what was wanted, what was seen, and "held" or "did not hold", one line a figure. Its figures go to standard
error, as JSON. `--json FILE` writes figures and verdicts with the command, the machine, the version and the commit.

Ends with 1 where a required figure did not hold. Times (2 ×, 2 s) are judged and said, too. They end with 1 with
`--strict` alone: attackers, relay and clients share the processors here, and two noisy ones stretch each time.
A part that cannot run here is said. It ends with 1 where it was named.
The pages results/attack.md and operate/security.md say what each shows.
"""

import argparse
import dataclasses
import importlib
import json
import subprocess
import sys
import time
import traceback

import relay
from verdicts import NotRun, Verdict

ALL = ["rates", "addresses", "memory", "sockets", "log", "logins", "initials", "ring", "floods", "tls", "syns"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all without any")
    parser.add_argument("--strict", action="store_true", help="end with 1 where a required time did not hold, too")
    parser.add_argument("--json", metavar="FILE", help="write figures and verdicts there")
    options = parser.parse_args()
    for name in options.parts:
        if name not in ALL:
            parser.error(f"{name} is none of {', '.join(ALL)}")
    return options


def tried(name, required):
    """A part's figures and verdicts. What stops it is a verdict, so that the others have their turn."""
    figures = {}
    try:
        part = importlib.import_module(name)
        figures = part.run()
        return figures, list(part.verdicts(figures))
    except (ModuleNotFoundError, NotRun) as missing:
        verdict = Verdict("the part", "that it runs", f"not run: {missing}", False, required=required)
        return {"not_run": str(missing)}, [verdict]
    except Exception as error:
        traceback.print_exc()
        return figures or {"error": repr(error)}, [Verdict("the part", "that it runs to its end", repr(error), False)]


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def main():
    options = arguments()
    relay.allow_descriptors()
    version = subprocess.run([relay.EKIDEN, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    shown = {
        "command": sys.argv,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": relay.machine(),
        "program": relay.EKIDEN,
        "version": version,
        # of these scripts, and of the program where `make attack` built it
        "commit": output("git", "-C", str(relay.HERE), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"),
        "figures": {},
        "verdicts": [],
    }
    failed = []
    for name in options.parts or ALL:
        figures, verdicts = tried(name, name in options.parts)
        shown["figures"][name] = figures
        print(json.dumps({name: figures}), file=sys.stderr, flush=True)
        for verdict in verdicts:
            line, fails = verdict.line(name), verdict.fails(options.strict)
            print(line, flush=True)
            failed += [line] * fails
            shown["verdicts"].append({"part": name, **dataclasses.asdict(verdict), "fails": fails})
        # after each: what a later part would lose is kept
        if options.json:
            with open(options.json, "w") as file:
                file.write(json.dumps(shown, indent=1) + "\n")
    sys.exit("\n".join(["failed:", *failed]) if failed else 0)


main()
