"""SYNs from drawn addresses that never go on, 20,000 a second at most, while another address asks. Relay and attacker
have a network namespace each and a veth pair between them, and no other way out.

The relay's listener asks for a queue of 4,096 (`net.core.somaxconn` is its limit). Where it is full of half-open connections,
the kernel answers with SYN cookies (`net.ipv4.tcp_syncookies` = 1, the default), which it keeps nothing for."""

import contextlib
import multiprocessing
import os
import pathlib
import random
import socket
import struct
import time

import namespaces
from addresses import ACCESS
from memory import MOST_MIB
from relay import Relay, ask, origin, small
from verdicts import Verdict, answered, lives, most

SECONDS = 8
A_SECOND = 20_000
# sent in one go
EACH = 200
REQUESTS = 200
RELAY, OTHER, DRAWN = "10.77.0.1", "10.77.0.2", "198.18.0.0/15"
RULE = '[[rule]]\nfrom = ["10.77.0.0/24"]\naction = "allow"\n'
SYN = 2
# of `/proc/net/tcp`
HALF_OPEN = "03"


def checksum(data):
    """Of the Internet (RFC 1071), for an even number of bytes."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn(source, port, number, to):
    """An IPv4 packet. The kernel fills in the checksum of IP's own head."""
    target = socket.inet_aton(to[0])
    # six words of head, the last of which says 1,460 as the largest segment
    head = lambda sum_: struct.pack(">HHIIBBHHHBBH", port, to[1], number, 0, 6 << 4, SYN, 64_240, sum_, 0, 2, 4, 1_460)
    pseudo = source + target + struct.pack(">HH", socket.IPPROTO_TCP, len(head(0)))
    tcp = head(checksum(pseudo + head(0)))
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + source + target + tcp


def drawn(to):
    """What is sent in all: no two need be alike. Drawn before, as drawing takes longer than sending."""
    draw, first = random.Random(1), struct.unpack(">I", socket.inet_aton(DRAWN.split("/")[0]))[0]
    for _ in range(SECONDS * A_SECOND):
        source = struct.pack(">I", first + draw.randrange(1 << 17))
        yield syn(source, draw.randrange(1_024, 65_536), draw.randrange(1 << 32), to)


def flood(to, ready, go, sent, stop):
    # as on a machine of its own: what it computes must not be taken from the relay and its client
    os.nice(19)
    namespaces.leave()
    packets = list(drawn(to))
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    ready.set()
    go.wait()
    until = time.monotonic() + SECONDS
    for at in range(0, len(packets), EACH):
        begun = time.monotonic()
        if begun > until or stop.is_set():
            break
        some = 0
        for packet in packets[at : at + EACH]:
            with contextlib.suppress(OSError):
                raw.sendto(packet, (to[0], 0))
                some += 1
        sent.value += some
        # never more than was said, though it was held up before
        time.sleep(max(0, begun + EACH / A_SECOND - time.monotonic()))
    # its namespace stands as long as it does
    stop.wait()


def join(attacker):
    """A veth pair. What is sent to a drawn address goes to the attacker's namespace, and ends there."""
    namespaces.ip(f"link add relay0 type veth peer name other0 netns {attacker.pid}")
    namespaces.ip(f"address add {RELAY}/24 dev relay0")
    namespaces.ip("link set relay0 up")
    with namespaces.of(attacker):
        # a namespace begins with what the machine has: one that passes on would say that there is no way, and so end them
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
        namespaces.ip(f"address add {OTHER}/24 dev other0")
        namespaces.ip("link set other0 up")
    namespaces.ip(f"route add {DRAWN} via {OTHER}")


def counters(pid):
    """The kernel's counts of SYN cookies and of what listeners dropped, in the namespace of this process."""
    lines = pathlib.Path(f"/proc/{pid}/net/netstat").read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
    of = dict(zip(names, map(int, values)))
    return {name: of.get(name, 0) for name in ["SyncookiesSent", "SyncookiesRecv", "ListenOverflows", "ListenDrops"]}


def half_open(relay):
    """Connections in the queue of the relay's port that wait for the end of their handshake."""
    port = f":{relay.port:04X}"
    rows = pathlib.Path(f"/proc/{relay.process.pid}/net/tcp").read_text().splitlines()[1:]
    return sum(row.split()[1].endswith(port) and row.split()[3] == HALF_OPEN for row in rows)


def run():
    namespaces.needed("syns")
    with namespaces.and_back():
        namespaces.leave()
        relay = Relay(ACCESS + RULE, host=RELAY)
        ready, go, stop = (multiprocessing.Event() for _ in range(3))
        sent = multiprocessing.Value("q")
        arguments = (relay.address, ready, go, sent, stop)
        attacker = multiprocessing.Process(target=flood, args=arguments, daemon=True)
        attacker.start()
        try:
            while not ready.wait(1):
                if not attacker.is_alive():
                    raise RuntimeError("the attacker ended before its namespace was made")
            join(attacker)
            with relay:
                return asked_beside(relay, attacker, go, sent)
        finally:
            stop.set()
            attacker.join(3)
            attacker.kill()
            attacker.join()


def asked_beside(relay, attacker, go, sent):
    to, settings = origin(small), pathlib.Path("/proc/sys/net")
    read = lambda name: int((settings / name).read_text())
    with namespaces.of(attacker):
        without = ask(relay.address, to, OTHER, REQUESTS // 2)
    before, lines = counters(relay.process.pid), len(relay.log().splitlines())
    go.set()
    begun = time.monotonic()
    # until the queue is full
    time.sleep(1)
    with namespaces.of(attacker):
        attacked = ask(relay.address, to, OTHER, REQUESTS)
    asked = time.monotonic() - begun
    waiting = half_open(relay)
    time.sleep(max(0, begun + SECONDS - time.monotonic()))
    after, seconds = counters(relay.process.pid), time.monotonic() - begun
    return {
        "tcp_syncookies": read("ipv4/tcp_syncookies"),
        "somaxconn": read("core/somaxconn"),
        "syns": sent.value,
        "syns_a_second": round(sent.value / SECONDS),
        "kernel": {name: after[name] - before[name] for name in after},
        "half_open": waiting,
        # the flood ends after 8 s
        "asked_until_s": round(asked, 1),
        "lines_a_second": round((len(relay.log().splitlines()) - lines) / seconds, 2),
        "resident_most_mib": relay.memory()[1] >> 20,
        "lives": relay.lives(),
        "without": without,
        "attacked": attacked,
    }


def verdicts(shown):
    cookies = shown["kernel"]["SyncookiesSent"]
    seen = f"{cookies} cookies for {shown['syns']} SYNs, {shown['half_open']} half-open"
    yield Verdict("the flood fills the queue", "SYN cookies of the kernel", seen, cookies > 0)
    end = shown["asked_until_s"]
    yield Verdict("all of it asked while the flood lasts", f"within {SECONDS} s", f"{end} s", end <= SECONDS, time=True)
    yield lives({"syns": shown})
    yield answered("another address", {"attacked": shown["attacked"]})
    yield most("memory of the relay", {"relay": shown["resident_most_mib"]}, MOST_MIB, "MiB")
