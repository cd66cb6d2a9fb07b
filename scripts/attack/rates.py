"""A1: an account's rate and quota, whatever its bytes travel in, through every door.

Each kind has an account of its own, known by its address. Its client reads (or sends) as fast as it may. What came in a
window of some seconds, after the first bytes that were not used before, is compared with the rate. With a quota that
cuts, each repeats until it is refused; then its usage is read.
"""

import contextlib
import threading
import time

from doors import DOORS, forward, through
from relay import Relay, certificate, connect, origin, read_head
from verdicts import Verdict

RATE = 8_000_000
QUOTA = 3_000_017
WARM, WINDOW = 2.0, 12.0
# how far from the rate what was booked or received may be, as a share of it
NEAR = 0.01
FILLER = b"X: " + b"x" * 8_000 + b"\r\n"
END = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def endless(first, piece):
    def answer(stream):
        read_head(stream)
        stream.sendall(first)
        while True:
            stream.sendall(piece)

    return answer


def bulk(stream):
    while True:
        stream.sendall(b"b" * 65_536)


def sink(stream):
    while stream.recv(65_536):
        pass


def answers(answer):
    """The same answer to each request of a connection."""

    def serve(stream):
        while True:
            read_head(stream)
            stream.sendall(answer)

    return serve


def heads(client, answer_length):
    """Asks again and again on one connection; bytes of the answers."""

    def read(relay, to, source, count):
        at = f"{to[0]}:{to[1]}"
        ask = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{client}\r\n".encode()
        with forward(relay, to, source, client) as stream:
            while True:
                left = answer_length
                while left > 0:
                    part = stream.recv(min(left, 65_536))
                    if not part:
                        return
                    left -= len(part)
                    count(len(part))
                stream.sendall(ask)

    return read


def asking(relay, to, source, count):
    """Large heads of requests, on one connection; bytes of those that were answered."""
    at = f"{to[0]}:{to[1]}"
    ask = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n".encode() + FILLER * 6 + b"\r\n"
    with connect(relay, source) as stream:
        while True:
            stream.sendall(ask)
            read_head(stream)
            count(len(ask))


def reading(secure=False):
    def read(relay, to, source, count):
        with forward(relay, to, source, secure=secure) as stream:
            while part := stream.recv(65_536):
                count(len(part))

    return read


def door_down(door):
    def read(relay, to, source, count):
        stream = through(door, relay, to, source)
        with contextlib.closing(stream):
            while part := stream.recv(65_536):
                count(len(part))

    return read


def kinds():
    """Name, origin, client, and whether its bytes go up."""
    trailer = CHUNKED + b"0\r\n" + FILLER * 6 + b"\r\n"
    final = b"HTTP/1.1 200 OK\r\n" + FILLER * 6 + b"Content-Length: 0\r\n\r\n"
    yield "interim-heads", endless(b"", b"HTTP/1.1 103 E\r\n" + FILLER + b"\r\n"), reading()
    yield "small-interim-heads", endless(b"", b"HTTP/1.1 103 E\r\n\r\n" * 500), reading()
    yield "final-heads", answers(final), heads("", len(final))
    yield "trailers", answers(trailer), heads("", len(trailer))
    yield "body", endless(b"HTTP/1.1 200 OK\r\n\r\n", b"b" * 65_536), reading()
    yield "chunks", endless(CHUNKED, b"4000\r\n" + b"b" * 16_384 + b"\r\n"), reading()
    yield "chunk-extensions", endless(CHUNKED, (b"1;" + b"x" * 100 + b"\r\nx\r\n") * 100), reading()
    yield "interim-heads-in-tls", endless(b"", b"HTTP/1.1 103 E\r\n" + FILLER + b"\r\n"), reading(True)
    yield "request-heads", answers(END), asking
    for door in DOORS:
        yield door, bulk, door_down(door)


def configuration(limit):
    accounts = [
        f'[[account]]\nname = "{name}"\naddresses = ["127.0.1.{nth + 1}"]\n{limit}\n'
        for nth, (name, _, _) in enumerate(kinds())
    ]
    return '[access]\nallow_destinations = ["127.0.0.0/8"]\n[management]\nlisten = "off"\n' + "".join(accounts)


def usage(relay):
    accounts = relay.status()["sharing"]["accounts"]
    return {one["name"]: one["bytes_up"] + one["bytes_down"] for one in accounts}


def booked(relay, name):
    """When the relay was asked, half-way to its answer, and what it had booked."""
    at = time.monotonic()
    bytes_ = usage(relay)[name]
    return (at + time.monotonic()) / 2, bytes_


def within(config, act):
    """Runs `act` on a relay with TLS."""
    relay = Relay(config)
    path = relay.path / "ekiden/config.toml"
    path.write_text(path.read_text() + certificate(relay.path))
    with relay:
        return act(relay)


def rate():
    def act(relay):
        rows = {}
        for nth, (name, serve, read) in enumerate(kinds()):
            to, came, stop = origin(serve), [], threading.Event()

            def count(bytes):
                came.append((time.monotonic(), bytes))
                if stop.is_set():
                    raise OSError("enough")

            def client():
                with contextlib.suppress(OSError):
                    read(relay.address, to, f"127.0.1.{nth + 1}", count)

            thread = threading.Thread(target=client, daemon=True)
            thread.start()
            time.sleep(WARM)
            at, before = booked(relay, name)
            busy = time.process_time()
            time.sleep(WINDOW)
            to_, after = booked(relay, name)
            busy = time.process_time() - busy
            stop.set()
            thread.join(5)
            received = sum(bytes for when, bytes in came if at <= when < to_)
            rows[name] = {
                "received_share": round(received * 8 / (to_ - at) / RATE, 4),
                "booked_share": round((after - before) * 8 / (to_ - at) / RATE, 4),
                # near 1: client and origin were the limit, which are one process
                "script_busy": round(busy / (to_ - at), 2),
            }
        return rows

    return within(configuration(f'rate_down = "{RATE // 1000} kbit/s"\nrate_up = "{RATE // 1000} kbit/s"'), act)


def quota():
    def act(relay):
        rows = {}
        for nth, (name, serve, read) in enumerate(kinds()):
            to, came = origin(serve), [0]

            def count(bytes):
                came[0] += bytes

            for _ in range(60):
                if usage(relay)[name] >= QUOTA:
                    break
                with contextlib.suppress(OSError):
                    read(relay.address, to, f"127.0.1.{nth + 1}", count)
            rows[name] = {"quota": QUOTA, "booked": usage(relay)[name], "received": came[0]}
        return rows

    return within(configuration(f'quota = "{QUOTA} B/1 h"\non_quota_exceeded = "cut"'), act)


def near(what, shares):
    """Whether each is within 1 % of the rate. Of heads of requests, for which the script computes all the time, less may be."""
    few = lambda kind, share: share < 1 - NEAR and kind != "request-heads"
    off = [f"{kind} {share}" for kind, share in shares.items() if share > 1 + NEAR or few(kind, share)]
    others = [share for kind, share in shares.items() if kind != "request-heads"]
    seen = f"{min(others)} to {max(others)}, request-heads {shares['request-heads']}"
    seen += f" (off: {', '.join(off)})" if off else ""
    return Verdict(what, "0.99 to 1.01 × the rate, of request-heads at most 1.01 ×", seen, not off)


def verdicts(shown):
    rows = shown["rate"]
    yield near(f"booked with a rate, {len(rows)} kinds", {kind: of["booked_share"] for kind, of in rows.items()})
    # the relay drops chunk extensions: they are booked, and the client gets a part alone
    received = {kind: of["received_share"] for kind, of in rows.items() if kind != "chunk-extensions"}
    yield near(f"received with a rate, {len(received)} kinds", received)
    rows = shown["quota"]
    off = [f"{kind} {of['booked']}" for kind, of in rows.items() if of["booked"] != of["quota"]]
    seen = f"that in {len(rows) - len(off)} of {len(rows)} kinds" + (f" (off: {', '.join(off)})" if off else "")
    yield Verdict("booked with a quota", f"{QUOTA} bytes in each kind", seen, not off)


def run():
    return {"rate": rate(), "quota": quota()}
