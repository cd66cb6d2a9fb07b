"""Connections that say nothing, or not enough, held by a process of its own and opened again as the relay ends them."""

import contextlib
import multiprocessing
import os
import select
import socket
import ssl
import threading
import time

from relay import allow_descriptors, connect, secured

# handshakes at once
THREADS = 8
PROCESSES = 2
# connections that are opened again a second, all processes together: more would measure this machine's processors, which
# attackers and relay share here
AGAIN = 500


def hello():
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="relay.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def opened(to, source, first, protocol, reads):
    """Nothing where it was refused. What a full buffer does not take of `first` is left out."""
    try:
        # who reads nothing should keep nothing: its memory is not the relay's
        stream = connect(to, source, 5, None if reads else 4_096)
        if protocol:
            stream = secured(stream, protocol)
        stream.setblocking(False)
        if first:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                stream.send(first)
        return stream
    except OSError:
        return None


def hold(to, sources, count, first, protocol, reads, again, shown, stop):
    """Holds so many, taking `sources` in turn, and opens `again` a second in place of those that were ended."""
    allow_descriptors()
    # as on machines of their own: what they compute must not be taken from the relay and its client
    os.nice(19)
    # by descriptor; a reader that does not read is only told of the end
    poll, streams, wanted = select.epoll(), {}, select.EPOLLIN if reads else select.EPOLLRDHUP
    lock, turn = threading.Lock(), iter(range(1 << 40))
    due, ended = [count], [0]

    def replace():
        whole, last = 0.0, time.monotonic()
        while not stop.is_set():
            time.sleep(0.02)
            now = time.monotonic()
            whole, last = min(whole + (now - last) * again, float(again)), now
            with lock:
                some = min(int(whole), ended[0])
                ended[0] -= some
                due[0] += some
            whole -= some

    def open_some():
        while not stop.is_set():
            with lock:
                mine = due[0] > 0
                due[0] -= mine
                source = sources[next(turn) % len(sources)]
            if not mine:
                time.sleep(0.01)
                continue
            stream = opened(to, source, first, protocol, reads)
            shown[1] += 1
            if stream is None:
                with lock:
                    ended[0] += 1
                continue
            with lock:
                streams[stream.fileno()] = stream
                shown[0] += 1
            poll.register(stream, wanted)

    threading.Thread(target=replace, daemon=True).start()
    for _ in range(THREADS):
        threading.Thread(target=open_some, daemon=True).start()
    while not stop.is_set():
        for number, _ in poll.poll(0.1):
            with lock:
                stream = streams[number]
            with contextlib.suppress(OSError):
                if reads and stream.recv(65_536):
                    continue
            poll.unregister(number)
            with lock:
                # before its number is another's
                del streams[number]
                shown[0] -= 1
                ended[0] += 1
            stream.close()


class Silent:
    """While it is entered, `count` connections from `sources` stand, or as many as the relay lets stand. Each process holds
    as many of them as its descriptors allow."""

    def __init__(self, to, sources, count, first=b"", protocol=None, reads=True, again=AGAIN):
        self.stop, self.count = multiprocessing.Event(), count
        share = -(-count // PROCESSES)
        self.shown, self.processes = [], []
        for nth in range(PROCESSES):
            shown, own = multiprocessing.Array("q", 2), sources[nth::PROCESSES] or sources
            arguments = (to, own, min(share, count), first, protocol, reads, again // PROCESSES, shown, self.stop)
            self.shown.append(shown)
            self.processes.append(multiprocessing.Process(target=hold, args=arguments, daemon=True))
            count -= min(share, count)

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def counts(self):
        return [sum(shown[at] for shown in self.shown) for at in range(2)]

    def settle(self, seconds):
        """Waits until each was tried, or no other within a second, and no more stand than then; for so long at most."""
        before, until = [-1, -1], time.monotonic() + seconds
        stand, tried = self.counts()
        while (stand > before[0] or before[1] < tried < self.count) and time.monotonic() < until:
            before = [stand, tried]
            time.sleep(1)
            stand, tried = self.counts()
        return {"stand": stand, "tried": tried}

    def __exit__(self, *_):
        self.stop.set()
        for process in self.processes:
            process.join(5)
            process.kill()
            process.join()


def addresses(prefix, count):
    return [f"{prefix}.{n}" for n in range(1, count + 1)]


def listening(to):
    with contextlib.suppress(OSError), socket.create_connection(to, 2):
        return True
    return False
