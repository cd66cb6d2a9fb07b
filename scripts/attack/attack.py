#!/usr/bin/env python3
"""Attacks a relay, on loopback, within bounds of time and count, and prints what it withstood as JSON.

    scripts/attack/attack.py rates addresses memory log logins initials ring     # or some of them

Takes ekiden from $EKIDEN, otherwise target/release. As root: `memory` needs a control group. `initials` needs aioquic
(pip). The pages results/attack.md and operate/security.md say what each shows.
"""

import importlib
import json
import subprocess
import sys

import relay

ALL = ["rates", "addresses", "memory", "log", "logins", "initials", "ring"]


def main():
    relay.allow_descriptors()
    version = subprocess.run([relay.EKIDEN, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    shown = {"machine": relay.machine(), "version": version}
    for name in sys.argv[1:] or ALL:
        if name not in ALL:
            sys.exit(f"{name} is none of {', '.join(ALL)}")
        try:
            shown[name] = importlib.import_module(name).run()
        except ModuleNotFoundError as missing:
            shown[name] = f"SKIPPED: {missing}"
        print(json.dumps({name: shown[name]}), file=sys.stderr, flush=True)
    print(json.dumps(shown, indent=2))


main()
