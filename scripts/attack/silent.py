"""Connections that say nothing, or not enough, held by a process of its own and opened again as the relay ends them."""

import contextlib
import multiprocessing
import os
import selectors
import socket
import ssl
import threading
import time

from relay import allow_descriptors, connect, secured

# handshakes at once
THREADS = 8


def hello():
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="relay.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def opened(to, source, first, protocol):
    """Nothing where it was refused. What a full buffer does not take of `first` is left out."""
    try:
        stream = connect(to, source, 5)
        if protocol:
            stream = secured(stream, protocol)
        stream.setblocking(False)
        if first:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                stream.send(first)
        return stream
    except OSError:
        return None


def hold(to, sources, count, first, protocol, reads, shown, stop):
    """Holds so many, taking `sources` in turn."""
    allow_descriptors()
    os.nice(5)
    poll, lock, turn = selectors.DefaultSelector(), threading.Lock(), iter(range(1 << 40))
    due = [count]

    def open_some():
        while not stop.is_set():
            with lock:
                mine = due[0] > 0
                due[0] -= mine
                source = sources[next(turn) % len(sources)]
            if not mine:
                time.sleep(0.01)
                continue
            stream = opened(to, source, first, protocol)
            shown[1] += 1
            if stream is None:
                with lock:
                    due[0] += 1
                time.sleep(0.02)
                continue
            poll.register(stream, selectors.EVENT_READ if reads else 0x2000)
            shown[0] += 1

    for _ in range(THREADS):
        threading.Thread(target=open_some, daemon=True).start()
    while not stop.is_set():
        if not poll.get_map():
            time.sleep(0.01)
            continue
        for key, _ in poll.select(0.1):
            stream = key.fileobj
            with contextlib.suppress(OSError):
                if reads and stream.recv(65_536):
                    continue
            poll.unregister(stream)
            stream.close()
            shown[0] -= 1
            with lock:
                due[0] += 1


class Silent:
    """While it is entered, `count` connections from `sources` stand, or as many as the relay lets stand."""

    def __init__(self, to, sources, count, first=b"", protocol=None, reads=True):
        self.shown = multiprocessing.Array("q", 2)
        self.stop = multiprocessing.Event()
        arguments = (to, sources, count, first, protocol, reads, self.shown, self.stop)
        self.process = multiprocessing.Process(target=hold, args=arguments, daemon=True)

    def __enter__(self):
        self.process.start()
        return self

    def settle(self, seconds):
        """Waits until no more stand than a second ago, for so long at most."""
        before, until = -1, time.monotonic() + seconds
        while self.shown[0] > before and time.monotonic() < until:
            before = self.shown[0]
            time.sleep(1)
        return {"stand": self.shown[0], "tried": self.shown[1]}

    def __exit__(self, *_):
        self.stop.set()
        self.process.join(5)
        self.process.kill()
        self.process.join()


def addresses(prefix, count):
    return [f"{prefix}.{n}" for n in range(1, count + 1)]


def listening(to):
    with contextlib.suppress(OSError), socket.create_connection(to, 2):
        return True
    return False
