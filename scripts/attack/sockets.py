"""A4: readers of one address that stop, until the kernel's TCP memory is low. `net.ipv4.tcp_mem` is one for all network
namespaces: it is small while this runs, and put back."""

import contextlib
import os
import pathlib
import sys
import time

from addresses import ACCESS, OTHER
from memory import endless
from relay import Relay, origin, percentile, request, small
from silent import Silent
from verdicts import NotRun, Verdict, answered

TCP_MEM = pathlib.Path("/proc/sys/net/ipv4/tcp_mem")
# pages: 48, 64 and 96 MiB, as a machine of 1 GB has
PAGES = "12288 16384 24576"
READERS = 400
# of the relay's connections that are opened again in a second
AGAIN = 20
REQUESTS, SECONDS = 50, 15


@contextlib.contextmanager
def little_memory():
    if os.geteuid() != 0:
        raise NotRun("`sockets` sets net.ipv4.tcp_mem, which needs root: sudo, or leave it out")
    before = TCP_MEM.read_text()
    try:
        TCP_MEM.write_text(PAGES)
        yield
    finally:
        TCP_MEM.write_text(before)


def asked(relay, to):
    """Requests of another address, one after another, in bounded time."""
    until, seen = time.monotonic() + SECONDS, []
    while len(seen) < REQUESTS and time.monotonic() < until:
        seen.append(request(relay.address, to, OTHER, timeout=12))
        time.sleep(0.05)
    delays = [took * 1000 for status, took in seen if status == 200]
    shown = {"asked": len(seen), "answered": len(delays)}
    if delays:
        shown |= {"p50_ms": round(percentile(delays, 0.5), 1), "slowest_ms": round(max(delays), 1)}
    return shown


def figures(relay):
    pressure = relay.status()["pressure"]
    level = next(one for one in pressure["levels"] if one["resource"] == "socket memory")
    names = ["waiting", "refused", "silent_evicted", "stalled_evicted"]
    return {"pages": level["used"], "low": level["low"], **{name: pressure.get(name) for name in names}}


def run():
    with little_memory(), Relay(ACCESS) as relay:
        to, body = origin(small), origin(endless)
        at = f"{body[0]}:{body[1]}"
        get = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
        shown = {"limit_pages": int(PAGES.split()[1]), "before": {"another": asked(relay, to), **figures(relay)}}
        with Silent(relay.address, ["127.0.1.1"], READERS, get, reads=False, again=AGAIN) as attack:
            until = time.monotonic() + 15
            while not figures(relay)["low"] and time.monotonic() < until:
                time.sleep(0.2)
            for name in ["low", "later", "at_last"]:
                shown[name] = {"another": asked(relay, to), **figures(relay), "readers": attack.counts()}
                print(name, shown[name], file=sys.stderr, flush=True)
                time.sleep(5)
        shown["log"] = [line for line in relay.log().splitlines() if "stood still" in line][:3]
        return shown


def verdicts(shown):
    yield answered("another address", {look: shown[look]["another"] for look in ["low", "later", "at_last"]})
    closed = shown["at_last"]["stalled_evicted"] or 0
    yield Verdict("readers that stopped and were closed", "one at least", str(closed), closed > 0)
