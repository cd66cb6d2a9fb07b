"""A3: a relay in a control group of 512 MiB: unfinished heads, handshakes that stop, and readers that do not read."""

import contextlib
import os
import pathlib
import sys
import time

from addresses import ACCESS, OTHER, secured
from relay import ask, origin, read_head, small
from silent import Silent, addresses, hello

GROUP = pathlib.Path("/sys/fs/cgroup/memory/ekiden-attack")
LIMIT = 512 << 20
HEADS, HANDSHAKES, READERS = 20_000, 5_000, 1_000
# the descriptors of one process hold no more
AT_ONCE = 10_000


def endless(stream):
    read_head(stream)
    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        stream.sendall(b"b" * 65_536)


def figures(relay):
    read = lambda name: int((GROUP / name).read_text())
    now, most = relay.memory()
    budgets = {}
    # a busy machine may not answer in time
    with contextlib.suppress(OSError, ValueError):
        budgets = {one["name"]: [one["used"], one["limit"]] for one in relay.status()["budgets"]}
    return {
        "budgets": budgets,
        "lives": relay.lives(),
        "resident_mib": now >> 20,
        "resident_most_mib": most >> 20,
        "group_mib": read("memory.usage_in_bytes") >> 20,
        "group_most_mib": read("memory.max_usage_in_bytes") >> 20,
        "limit_reached": read("memory.failcnt"),
    }


def run():
    GROUP.mkdir(exist_ok=True)
    try:
        (GROUP / "memory.limit_in_bytes").write_text(str(LIMIT))
        relay = secured(ACCESS)
        relay.cgroup = GROUP
        with relay:
            return attacked(relay)
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(GROUP)
                break
            time.sleep(0.1)


def attacked(relay):
    to, body = origin(small), origin(endless)
    at = f"{body[0]}:{body[1]}"
    get = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
    head = b"GET http://127.0.0.1/ HTTP/1.1\r\nX: " + b"x" * 60_000
    shown = {}

    def look(name, attack=None):
        stand = attack.settle(20) if attack else {}
        another = ask(relay.address, to, OTHER, 10, timeout=10)
        shown[name] = {**stand, **figures(relay), "another": another}
        print(name, shown[name], file=sys.stderr, flush=True)

    look("before")
    with contextlib.ExitStack() as all_of_them:
        for nth in range(HEADS // AT_ONCE):
            heads = Silent(relay.address, addresses(f"127.10.{nth}", 200), AT_ONCE, first=head)
            look(f"heads_{(nth + 1) * AT_ONCE}", all_of_them.enter_context(heads))
        shake = Silent(relay.address, addresses("127.11.0", 200), HANDSHAKES, first=hello())
        look("handshakes", all_of_them.enter_context(shake))
        readers = Silent(relay.address, addresses("127.12.0", 200), READERS, first=get, reads=False)
        look("readers", all_of_them.enter_context(readers))
    time.sleep(5)
    look("after")
    return shown
