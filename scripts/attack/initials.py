"""A7: first packets of QUIC, each of another connection, at the port of a relay's tunnel, beside requests through it."""

import multiprocessing
import socket
import time

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from addresses import ACCESS
from relay import PORTS, Relay, ask, origin, small
from verdicts import Verdict, answered, most, ratio

A_SECOND = 2_600
# with fewer, the figures show no such attack
FEWEST = 2_500
# made before, and sent again and again, which a relay cannot know
DIFFERENT = 6_000
REQUESTS = 100
# how many times its time without the attack the median request may take
TIMES = 2


def initial():
    connection = QuicConnection(configuration=QuicConfiguration(alpn_protocols=["ekiden/1"], server_name="far"))
    connection.connect(("127.0.0.1", 1), now=0)
    return connection.datagrams_to_send(now=0)[0][0]


def flood(to, packets, sent, stop):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
    begun, nth = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - begun) * A_SECOND)
        while nth < due:
            sockets[nth % 64].sendto(packets[nth % len(packets)], to)
            nth += 1
        sent.value = nth
        time.sleep(0.001)


def verdicts(shown):
    rate = shown["initials_a_second"]
    yield Verdict("first packets", f"{FEWEST} a second or more", f"{rate} a second", rate >= FEWEST, time=True)
    yield answered("requests through the tunnel", {"attacked": shown["attacked"]})
    yield most("their p50", {"attacked": shown["p50_ratio"]}, TIMES, "× its time without the attack", time=True)


def run():
    port = next(PORTS)
    tunnel = f'[tunnel]\nlisten = ["127.0.0.1:{port}"]\nstate = "DIR/state"\n'
    far = Relay(ACCESS + tunnel)
    near = Relay(ACCESS + '[tunnel]\nstate = "DIR/state"\n[upstream.far]\nurl = "tunnel://far"\n[[route]]\nthrough = ["far"]\n')
    invite = ["peer", "invite", "--name", "near", "--address", f"127.0.0.1:{port}"]
    token = far.run(*invite, "--send", "100 Mbit/s", "--receive", "100 Mbit/s").strip()
    near.run("peer", "join", token, "--name", "far", "--offline")
    packets = [initial() for _ in range(DIFFERENT)]
    with far, near:
        while not any(tunnel["up"] for tunnel in near.status()["tunnels"]):
            time.sleep(0.1)
        to = origin(small)
        without = ask(near.address, to, "127.0.0.1", REQUESTS)
        sent, stop = multiprocessing.Value("q"), multiprocessing.Event()
        arguments = (("127.0.0.1", port), packets, sent, stop)
        process = multiprocessing.Process(target=flood, args=arguments, daemon=True)
        process.start()
        time.sleep(1)
        before, at = sent.value, time.monotonic()
        attacked = ask(near.address, to, "127.0.0.1", REQUESTS)
        rate = (sent.value - before) / (time.monotonic() - at)
        stop.set()
        process.join(5)
        process.kill()
        times = ratio(attacked, without, "p50_ms")
        return {"without": without, "attacked": attacked, "p50_ratio": times, "initials_a_second": round(rate)}
