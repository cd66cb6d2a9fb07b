"""A8: two relays that are each other's upstream: what one request of each door costs until it is noticed."""

import contextlib
import socket
import struct

from addresses import ACCESS
from doors import exactly
from relay import Relay, connect, read_head
from verdicts import most

TO = ("127.9.9.9", 80)


def asked(relay, door):
    with connect(relay.address) as stream:
        at = f"{TO[0]}:{TO[1]}"
        if door == "socks":
            stream.sendall(b"\x05\x01\x00")
            exactly(stream, 2)
            stream.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(TO[0]) + struct.pack(">H", TO[1]))
            return f"reply {exactly(stream, 2)[1]}"
        target = at if door == "CONNECT" else f"http://{at}/"
        stream.sendall(f"{door} {target} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        return read_head(stream).split(b"\r\n")[0].decode()


def verdicts(shown):
    passed = {kind: max(of["connections_of_each"]) for kind, of in shown.items()}
    yield most("connections of a relay until the ring was noticed", passed, 2, "connections")


def run():
    rows = {}
    for scheme in ["http", "socks5"]:
        one, other = Relay(ACCESS), Relay(ACCESS)
        for relay, next_ in [(one, other), (other, one)]:
            path = relay.path / "ekiden/config.toml"
            upstream = f'[upstream.next]\nurl = "{scheme}://127.0.0.1:{next_.port}"\n[[route]]\nthrough = ["next"]\n'
            path.write_text(path.read_text() + upstream)
        with one, other:
            for door in ["CONNECT", "GET", "socks"]:
                count = lambda: [relay.status()["totals"]["accepted"] for relay in (one, other)]
                before, answer = count(), "the connection ended"
                with contextlib.suppress(OSError):
                    answer = asked(one, door)
                passed = [after - before for after, before in zip(count(), before)]
                rows[f"{door} by {scheme}"] = {"answer": answer, "connections_of_each": passed}
    return rows
