#!/usr/bin/env python3
"""Attacks a relay, on loopback, within bounds of time and count, and prints what it withstood as JSON.

    scripts/attack/attack.py rates addresses memory sockets log logins initials ring floods     # or some of them

Takes ekiden from $EKIDEN, otherwise target/release. As root: `memory` needs a control group, and `sockets` sets
`net.ipv4.tcp_mem`. `initials` needs aioquic (pip). The pages results/attack.md and operate/security.md say what each shows. Exits with 1 where the relay ended, or
somebody who did not attack was not served.
"""

import importlib
import json
import subprocess
import sys

import relay

ALL = ["rates", "addresses", "memory", "sockets", "log", "logins", "initials", "ring", "floods"]


def main():
    relay.allow_descriptors()
    version = subprocess.run([relay.EKIDEN, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    faults = []
    shown = {"machine": relay.machine(), "version": version}
    for name in sys.argv[1:] or ALL:
        if name not in ALL:
            sys.exit(f"{name} is none of {', '.join(ALL)}")
        try:
            part = importlib.import_module(name)
            shown[name] = part.run()
            faults += [f"{name}: {words}" for words in getattr(part, "faults", lambda _: [])(shown[name])]
        except ModuleNotFoundError as missing:
            shown[name] = f"SKIPPED: {missing}"
        print(json.dumps({name: shown[name]}), file=sys.stderr, flush=True)
    print(json.dumps(shown, indent=2))
    sys.exit("\n".join(faults) or 0)


main()
