"""Whole TLS handshakes, as many as two processes of one address can have; each connection is closed at once. Another address
asks meanwhile without TLS, of this relay and of one that nobody attacks."""

import contextlib
import os
import threading

import floods
from addresses import ACCESS, secured
from relay import connect, tls_client
from verdicts import Verdict

# of each process: so many handshakes at once
THREADS = 8


def shake(to, counts, stop):
    """Counts the handshakes that were done, and the connections that ended before."""
    # as on a machine of its own: what it computes must not be taken from the relay and its client
    os.nice(19)
    # no connection of it is given a session of another, so that each handshake is a whole one
    client = tls_client("http/1.1")

    def again():
        while not stop.is_set():
            ended = 1
            with contextlib.suppress(OSError):
                with connect(to, floods.SOURCE, 5) as stream, client.wrap_socket(stream, server_hostname="relay.test"):
                    ended = 0
            with counts.get_lock():
                counts[ended] += 1

    threads = [threading.Thread(target=again, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run():
    with secured(ACCESS) as relay, secured(ACCESS) as second:
        (handshakes, ended), figures = floods.asked_beside(relay, second, shake, (relay.address,))
        return {"handshakes": handshakes, "ended_before": ended, **figures}


def verdicts(shown):
    rate = round(shown["handshakes"] / shown["seconds"])
    yield Verdict("handshakes", "some", f"{shown['handshakes']}, {rate} a second", shown["handshakes"] > 0)
    yield from floods.verdicts({"handshakes": shown})
