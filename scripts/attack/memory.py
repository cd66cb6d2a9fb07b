"""A3: a relay in a control group of 512 MiB: unfinished heads, handshakes that stop, readers that do not read, streams of
HTTP/2 whose answers nobody takes, and requests in service with long paths, trailers and answers' heads."""

import contextlib
import socket
import sys
import time

from addresses import ACCESS, OTHER, secured
from doors import requests
from group import MemoryGroup
from relay import ask, origin, read_head, silent_origin, small
from silent import Silent, addresses, hello
from verdicts import answered, lives, most

LIMIT = 512 << 20
# of the group at most: the budgets for heads, TLS and HTTP/2 (64 and 192 MiB), and 64 beside them
MOST_MIB = 64 + 192 + 64
HEADS, HANDSHAKES, READERS, STREAMS, SERVED = 20_000, 5_000, 1_000, 8_000, 8_000
# of a connection: what the relay allows
EACH = 100
# the descriptors of one process hold no more
AT_ONCE = 10_000


def endless(stream):
    # its own memory must not be what fills the machine
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    read_head(stream)
    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        stream.sendall(b"b" * 65_536)


def large_head(stream):
    read_head(stream)
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX: " + b"x" * 60_000 + b"\r\n\r\n")
    stream.recv(1)


def served(large):
    """Requests that are served for long, and hold 60 kB each."""
    (quiet, large), long = ("{}:{}".format(*to) for to in (silent_origin(), large)), "x" * 60_000
    chunked = "Transfer-Encoding: chunked\r\n"
    yield "served_trailers", f"POST http://{quiet}/ HTTP/1.1\r\nHost: {quiet}\r\n{chunked}\r\n0\r\nX: {long}"
    yield "served_answers", f"GET http://{large}/ HTTP/1.1\r\nHost: {large}\r\n\r\n"
    # last: who ends its direction may still wait for the answer
    yield "served_paths", f"GET http://{quiet}/{long} HTTP/1.1\r\nHost: {quiet}\r\n\r\n"


def figures(relay):
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
        **relay.cgroup.figures(),
    }


def run():
    with MemoryGroup("ekiden-attack", LIMIT) as group:
        relay = secured(ACCESS)
        relay.cgroup = group
        with relay:
            return attacked(relay)


def attacked(relay):
    to, body = origin(small), origin(endless, apart=True)
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
    # answers that wait within the relay, and heads of which the library makes 0.3 MB each
    fields, large = [(f"a{nth:x}", "") for nth in range(1_700)], origin(large_head, apart=True)
    parts = [
        ("http2_readers", body, (1 << 31) - 1, []),
        ("http2_heads", body, 0, fields),
        ("http2_answers", large, 0, []),
    ]
    for name, server, window, fields in parts:
        first = requests(server, EACH, window, fields)
        with Silent(relay.address, addresses("127.13.0", 200), STREAMS // EACH, first, "h2", reads=False) as held:
            look(name, held)
    # each is refused, and its client takes long to read why
    refused = ("heads_refused", head.decode() + "\0")
    for name, request in [refused, *served(large)]:
        with Silent(relay.address, addresses("127.14.0", 200), SERVED, request.encode(), reads=False) as held:
            look(name, held)
    time.sleep(5)
    look("after")
    return shown


def verdicts(shown):
    yield lives(shown)
    reached = {look: of["limit_reached"] for look, of in shown.items()}
    yield most("limit of the control group reached", reached, 0, "times")
    yield answered("another address", {look: of["another"] for look, of in shown.items()})
    peaks = {look: of["group_most_mib"] for look, of in shown.items()}
    # the required line; the other parts were added later, and are judged by themselves
    first = list(peaks)[: list(peaks).index("readers") + 1]
    yield most("peak of the group, heads, handshakes and readers", {look: peaks[look] for look in first}, MOST_MIB, "MiB")
    yield most("peak of the group, all parts", peaks, MOST_MIB, "MiB")
