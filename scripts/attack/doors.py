"""A byte stream to a destination through each door of a relay, and a little of HTTP/2 (RFC 9113, RFC 7541)."""

import base64
import socket
import struct

from relay import connect, read_head, secured

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
ACK, END_HEADERS = 1, 4
WINDOW = (1 << 31) - 1 - 65_535
DOORS = ["connect", "socks", "tls", "http2"]


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A field that no table keeps, and that Huffman did not see (RFC 7541 section 6.2.2)."""
    assert len(name) < 127 and len(value) < 127
    return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def requests(to, count, window, fields):
    """A client's preface and so many GETs of `to`, whose answers may send `window` bytes each."""
    at = f"{to[0]}:{to[1]}"
    pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", at), (":path", "/")]
    head = b"".join(literal(*field) for field in [*pseudo, *fields])
    begun = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window))
    begun += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))
    return begun + b"".join(frame(HEADERS, 1 | END_HEADERS, 1 + 2 * nth, head) for nth in range(count))


def exactly(stream, length):
    parts = []
    while length:
        part = stream.recv(length)
        if not part:
            raise OSError("the end")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class Http2:
    """One stream of CONNECT: `recv` and `sendall` as a socket's. Windows are as large as they may be."""

    def __init__(self, stream, to, fields=()):
        self.stream, self.early = stream, b""
        heads = literal(":method", "CONNECT") + literal(":authority", f"{to[0]}:{to[1]}")
        heads += b"".join(literal(*field) for field in fields)
        # the window of each stream, and the connection's
        window = struct.pack(">HI", 4, (1 << 31) - 1)
        stream.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, window)
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))
            + frame(HEADERS, END_HEADERS, 1, heads)
        )
        while self.next()[0] != HEADERS:
            pass

    def next(self):
        head = exactly(self.stream, 9)
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        payload = exactly(self.stream, length)
        if kind == SETTINGS and not flags & ACK:
            self.stream.sendall(frame(SETTINGS, ACK, 0))
        if kind in (3, 7):
            raise OSError(f"frame {kind}: {payload.hex()}")
        return kind, payload

    def recv(self, most):
        while not self.early:
            kind, payload = self.next()
            if kind == DATA:
                if not payload:
                    return b""
                self.early = payload
        part, self.early = self.early[:most], self.early[most:]
        return part

    def sendall(self, data):
        for at in range(0, len(data), 16_384):
            self.stream.sendall(frame(DATA, 0, 1, data[at : at + 16_384]))

    def settimeout(self, seconds):
        self.stream.settimeout(seconds)

    def close(self):
        self.stream.close()


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def through(door, relay, to, source="127.0.0.1"):
    """A stream to `to` through this door, for a client that its address identifies."""
    stream = connect(relay, source)
    if door == "http2":
        return Http2(secured(stream, "h2"), to)
    if door == "tls":
        stream = secured(stream, "http/1.1")
    if door == "socks":
        stream.sendall(b"\x05\x01\x00")
        exactly(stream, 2)
        stream.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(to[0]) + struct.pack(">H", to[1]))
        reply = exactly(stream, 10)
        if reply[1]:
            raise OSError(f"SOCKS: {reply[1]}")
        return stream
    at = f"{to[0]}:{to[1]}"
    stream.sendall(f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    head = read_head(stream)
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError(head.decode())
    return stream


def forward(relay, to, source="127.0.0.1", fields="", secure=False):
    """A request in absolute form, whose answer comes as it is."""
    stream = connect(relay, source)
    if secure:
        stream = secured(stream, "http/1.1")
    at = f"{to[0]}:{to[1]}"
    stream.sendall(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{fields}\r\n".encode())
    return stream
