"""A4: what one peer makes a relay write down: acknowledgements of PING that nobody asked for, and requests that fail."""

import contextlib
import time

from addresses import ACCESS, secured
from doors import ACK, PING, PREFACE, SETTINGS, frame
from relay import connect, secured as in_tls
from verdicts import most

SECONDS = 5
MOST = 32 << 20


def flood(relay, bytes_of, protocol=None):
    before, sent = len(relay.log().splitlines()), 0
    until = time.monotonic() + SECONDS
    connections = 0
    while time.monotonic() < until and sent < MOST:
        with contextlib.suppress(OSError):
            stream = connect(relay.address, timeout=1)
            connections += 1
            if protocol:
                stream = in_tls(stream, protocol)
            with stream:
                for piece in bytes_of():
                    stream.sendall(piece)
                    sent += len(piece)
                    if time.monotonic() > until or sent >= MOST:
                        break
    lines = relay.log().splitlines()[before:]
    return {
        "seconds": SECONDS,
        "connections": connections,
        "sent_mb": round(sent / 1e6, 1),
        "lines": len(lines),
        "lines_a_second": round(len(lines) / SECONDS, 2),
        "log_bytes": sum(len(line) + 1 for line in lines),
    }


def pings():
    yield PREFACE + frame(SETTINGS, 0, 0)
    while True:
        yield frame(PING, ACK, 0, b"12345678") * 1_000


def bad_request():
    yield b"GET / HTTP/9.9\r\n\r\n"


def bad_hello():
    yield b"\x16\x03\x01\x00\x05aaaaa"


def verdicts(shown):
    for kind, figures in shown.items():
        yield most(f"{kind}, lines of log", {kind: figures["lines_a_second"]}, 1, "a second")


def run():
    with secured(ACCESS) as relay:
        return {
            "ping_acknowledgements": flood(relay, pings, "h2"),
            "malformed_requests": flood(relay, bad_request),
            "malformed_handshakes": flood(relay, bad_hello),
        }
