#!/usr/bin/env python3
"""Writes the seeds that are made from formats, into fuzz/seeds, and the configuration's dictionary.

    fuzz/make_seeds.py

Fields of protocols are written by their specifications. Targets that choose messages by the bytes of their input (`Input`
in fuzz/targets) are given those bytes; where such a target changes, what it is given here changes with it. RFC 9001's
Initial takes the package `cryptography`. Other seeds stay.
"""

import pathlib
import re
import struct

HERE = pathlib.Path(__file__).resolve().parent


def write(target, seeds):
    folder = HERE / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds.items():
        (folder / name).write_bytes(content)


def joined(*parts):
    return b"".join(part if isinstance(part, bytes) else bytes([part]) for part in parts)


def number(n):
    """A variable-length integer (RFC 9000 §16)."""
    for bits, size in ((6, 1), (14, 2), (30, 4), (62, 8)):
        if n < 1 << bits:
            return (n | (size.bit_length() - 1) << bits + 8 * size - bits - 2).to_bytes(size, "big")
    raise ValueError(n)


# what the specifications say


def capsules():
    """Cuts, their count before them, and capsules (RFC 9297 §3.2, RFC 9298 §5)."""

    def capsule(kind, *content):
        content = joined(*content)
        return number(kind) + number(len(content)) + content

    def udp(payload):
        return capsule(0, number(0), payload)

    long = number(0) + number(1 + 65_528) + number(0) + b"cut"
    return {
        "one": joined(0, udp(b"hello")),
        "cut": joined(5, bytes([1, 1, 2, 1, 3]), udp(b"one"), udp(b""), udp(b"three")),
        "contexts": joined(2, bytes([3, 4]), capsule(0, number(2), b"other"), udp(b"x"), capsule(0, number(70_000), b"y"), udp(b"z")),
        "unknown": joined(3, bytes([1, 9, 1]), capsule(0x1234, b"?" * 70), udp(b"a"), capsule(1, b""), udp(b"b" * 300)),
        "long-numbers": joined(4, bytes([1] * 4), b"\x40\0" + b"\x80\0\0\x0c" + b"\xc0" + bytes(7) + b"four"),
        "no-context": joined(0, udp(b"x"), capsule(0)),
        "too-long": joined(1, bytes([2]), long),
        "skipped": joined(0, number(9), number(300_000), b"no end"),
    }


def tunnel_frames():
    """Frames of the tunnel (docs/book/src/design/protocol.md)."""

    def text(words):
        return number(len(words)) + words

    def frame(kind, *content):
        content = joined(*content)
        return number(kind) + number(len(content)) + content

    hello = [number(n) for n in (1, 0, 0x1234_5678_9ABC, 20_000_000, 1 << 20, 1 << 24)]
    name = joined(3, text(b"example.org"), b"\x01\xbb")
    owner = text(bytes(range(8)))
    return {
        "hello-repairs": frame(1, *hello, text(b""), number(1), number(1)),
        "hello-invited": frame(1, *hello, text(b"s" * 32)),
        "hello-later": frame(1, *hello, text(b""), number(1), number(1), b"appended"),
        "open-v4": frame(2, number(4), owner, 1, joined(4, b"\xc0\x00\x02\x01\x00\x50"), number(47), number(0)),
        "open-v6": frame(2, number(70), text(bytes(12)), 8, joined(6, bytes(15), 1, b"\x00\x16"), number(0), number(1)),
        "coded": joined(frame(2, number(2), owner, 1, name, number(0), number(2)), frame(0x0C, number(300), 5, 0, b"packet")),
        "answers": joined(frame(3, number(2)), frame(7), frame(8, number(3), text(b"no")), frame(6, number(9), number(1), text(b"bye"))),
        "credit": joined(frame(9, number(2), number(1 << 20)), frame(0x0A, number(1 << 30))),
        "packets": joined(frame(0x0B, b"udp"), frame(0x0B), frame(0x0C, number(1), 0, 1, b"first"), frame(0x0C, number(2), 0, 2, b"last")),
        "repair": frame(0x20, number(0), number(1_200), number(3), number(2_000), 7, bytes(1_200)),
        "packet-repair": joined(frame(0x21, number(5), 20, 3, bytes(64)), frame(0x22, bytes(9)), frame(0x3F, b"later")),
        "below-0x20": frame(0x1F, b"?"),
        "too-long": joined(number(4), number(16_385), number(0)),
    }


def packets():
    """Packets of IP (RFC 791, RFC 8200), as a WireGuard client sends them, and as the kernel leaves them to be cut."""

    def v4(protocol, payload, options=b"", fragment=0):
        head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), 7, fragment, 64, protocol, 0)
        return head + bytes([10, 66, 0, 2, 192, 0, 2, 1]) + options + payload

    def v6(following, payload):
        return struct.pack("!IHBB", 6 << 28, len(payload), following, 64) + bytes(15) + b"\2" + bytes(15) + b"\1" + payload

    udp = struct.pack("!HHHH", 4000, 53, 12, 0) + b"four"
    tcp = struct.pack("!HHIIBBHHH", 4000, 443, 1, 2, 0x50, 0x18, 999, 0, 0)
    echo = struct.pack("!BBHHH", 8, 0, 0, 77, 1) + b"ping"
    # struct virtio_net_hdr: flags, kind, length of heads, size, start and offset of the checksum
    super_packet = struct.pack("=BBHHHH", 1, 1, 40, 8, 20, 16) + v4(6, tcp + b"0123456789abcdefXYZ")
    super_packet_v6 = struct.pack("=BBHHHH", 1, 4, 60, 8, 40, 16) + v6(6, tcp + b"0123456789abcdefXYZ")
    return {
        "v4-udp": v4(17, udp),
        "v4-tcp": v4(6, tcp),
        "v4-echo": v4(1, echo),
        "v4-padded": v4(17, udp) + bytes(12),
        "v4-options": v4(17, udp, options=b"\1\x07\x07\x04" + bytes(4)),
        "v4-source-route": v4(17, udp, options=b"\x83\x07\x04\x0a\0\0\1\0"),
        "v4-first-fragment": v4(17, udp, fragment=0x2000),
        "v4-later-fragment": v4(17, b"more", fragment=0x0010),
        "v6-udp": v6(17, udp),
        "v6-tcp": v6(6, tcp),
        "v6-echo": v6(58, struct.pack("!BBHHH", 128, 0, 0, 77, 1)),
        "v6-heads": v6(0, bytes([60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]) + udp),
        "v6-routing": v6(43, bytes([17, 0, 4, 0, 0, 0, 0, 0]) + udp),
        "v6-fragment": v6(44, bytes([17, 0, 0, 1, 0, 0, 0, 9]) + udp),
        "v6-later-fragment": v6(44, bytes([17, 0, 0, 8, 0, 0, 0, 9]) + b"more"),
        "super-packet": super_packet,
        "super-packet-v6": super_packet_v6,
        "checksum": struct.pack("=BBHHHH", 1, 0, 0, 0, 20, 6) + v4(17, udp),
    }


# CRYPTO with the ClientHello of RFC 9001 A.2, for example.com
CRYPTO = bytes.fromhex(
    "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302010000c0"
    "00000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d001700180010000700050461"
    "6c706e000500050100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748"
    "002b0003020304000d0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff"
    "05048000ffff07048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff"
)


def client_initial():
    """The datagram of RFC 9001 A.2, or none where the package is missing."""
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hmac import HMAC
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
    except ImportError:
        return None
    identifier = bytes.fromhex("8394c8f03e515708")
    extract = HMAC(bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a"), hashes.SHA256())
    extract.update(identifier)

    def expand(secret, label, length):
        label = b"tls13 " + label
        info = struct.pack("!HB", length, len(label)) + label + b"\0"
        return HKDFExpand(hashes.SHA256(), length, info).derive(secret)

    secret = expand(extract.finalize(), b"client in", 32)
    key, iv, mask_key = (expand(secret, label, length) for label, length in ((b"quic key", 16), (b"quic iv", 12), (b"quic hp", 16)))
    frames = CRYPTO.ljust(1_162, b"\0")
    head = b"\xc3\0\0\0\1" + bytes([len(identifier)]) + identifier + b"\0\0" + struct.pack("!H", 0x4000 | 4 + len(frames) + 16)
    packet = struct.pack("!I", 2)
    nonce = (int.from_bytes(iv, "big") ^ 2).to_bytes(12, "big")
    sealed = AESGCM(key).encrypt(nonce, frames, head + packet)
    encryptor = Cipher(algorithms.AES(mask_key), modes.ECB()).encryptor()
    mask = encryptor.update(sealed[:16])
    hidden = bytes(a ^ b for a, b in zip(packet, mask[1:5]))
    datagram = bytes([head[0] ^ mask[0] & 15]) + head[1:] + hidden + sealed
    assert datagram.startswith(bytes.fromhex("c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11")), datagram[:32].hex()
    assert len(datagram) == 1_200
    return datagram


def initials():
    """A first byte: bit 0, the target protects what follows, bit 1, by QUIC 2; then datagrams behind an eighth of their length."""

    def datagrams(kind, *all_frames):
        parts = [bytes([-(-len(frames) // 8)]) + frames.ljust(-(-len(frames) // 8) * 8, b"\0") for frames in all_frames]
        return joined(kind, *parts)

    def crypto(begin, end):
        # an offset and a length of two bytes each
        return b"\x06" + struct.pack("!HH", 0x4000 | begin, 0x4000 | end - begin) + hello[begin:end]

    hello = CRYPTO[4:]
    raw = client_initial()
    seeds = {
        "hello": datagrams(1, CRYPTO),
        "version-2": datagrams(3, CRYPTO),
        "pieces": datagrams(1, b"\1" + crypto(120, 200) + crypto(0, 60) + b"\0\0" + crypto(200, len(hello)) + crypto(50, 130)),
        "two-datagrams": datagrams(1, crypto(100, len(hello)), crypto(0, 100)),
        "acknowledgement": datagrams(1, b"\x02\0\0\0\0" + crypto(0, 40)),
        "close": datagrams(1, b"\x1c\0\0\0" + CRYPTO),
        "no-hello": datagrams(1, b"\x06\0\x40\x10" + b"\x02" + bytes(15)),
    }
    if raw is None:
        print("make_seeds: SKIPPED: quic_initial/rfc-9001-a2 is left as it is: pip install cryptography")
    else:
        seeds["rfc-9001-a2"] = datagrams(0, raw)
        seeds["retried"] = datagrams(0, raw[:16], raw)
    return seeds


# what targets choose by the bytes of their input


def h2_frames():
    """Frames of HTTP/2 (RFC 9113 §6), each: its kind, its stream, its flags, and what the kind takes."""

    def get(path, method=0, fields=()):
        return joined(1, path, method, len(fields), *(bytes(field) for field in fields))

    def headers(stream, ends, block):
        return bytes([0, stream, ends]) + block

    def data(stream, ends, content):
        return bytes([5, stream, ends, len(content)]) + content

    # places in NAMES and VALUES of the target
    length, te, expect, trailer, x = 6, 11, 12, 14, 17
    five, trailers, continues, a_b = 14, 20, 21, 23
    post, put, head, connect, datagrams = 2, 4, 5, 6, 7
    reset, setting, ping, window, goaway = 8, 9, 10, 11, 13
    return {
        "answers": joined(*(headers(1 + 2 * n, 1, get(n)) for n in range(6))),
        "more-answers": joined(*(headers(1 + 2 * n, 1, get(6 + n)) for n in range(4)), headers(9, 1, get(9, head)), headers(11, 1, get(1, head))),
        "body": joined(headers(1, 0, get(0, post)), data(1, 0, b"some"), data(1, 0, b""), data(1, 1, b"more")),
        "length": joined(headers(1, 0, get(3, put, [(length, five), (expect, continues)])), data(1, 1, b"right")),
        "wrong-length": joined(headers(1, 0, get(0, post, [(length, five)])), data(1, 1, b"less")),
        "connect": joined(headers(1, 0, get(0, connect)), data(1, 0, b"there"), data(1, 1, b"and back")),
        "datagrams": joined(headers(1, 0, get(0, datagrams)), data(1, 0, bytes([0, 3, 0, 1, 2])), data(1, 1, b"")),
        "continued": joined(4, 1, 1, get(0), 4, 3, 0, get(1, post), data(3, 1, b"x")),
        "trailers": joined(headers(1, 0, get(0, post, [(te, trailers), (trailer, a_b)])), data(1, 0, b"x"), 0, 1, 1, bytes([0, 1, x, a_b])),
        "reset": joined(headers(1, 0, get(0, post)), reset, 1, 0, bytes([0, 8]), headers(3, 1, get(9)), reset, 3, 0, bytes([0, 8]), headers(5, 1, get(0))),
        "windows": joined(setting, 0, 0, 4, bytes([0, 1]), headers(1, 1, get(9)), window, 1, 0, bytes([1, 200]), window, 0, 0, bytes([1, 200])),
        "settings": joined(*(bytes([setting, 0, 0, n, 0, 100]) for n in (1, 3)), bytes([setting, 0, 0, 5, 3, 1]), headers(1, 1, get(0))),
        "pings": joined(*(bytes([ping, 0, 0]) for _ in range(3)), goaway, 0, 0, 0, headers(1, 1, get(0))),
        "garbage": joined(headers(1, 1, get(0)), bytes([63, 0, 0, 9, 0, 0, 0, 9, 9, 0, 0, 0, 0])),
        "relay": headers(1, 1, get(0, 0, [(8, 7)])),
    }


def h2_heads():
    """A kind, and places in the lists of the target."""

    def fields(*pairs):
        return joined(len(pairs), *(bytes(pair) for pair in pairs))

    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: x\r\nX: y\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n"
    return {
        "get": joined(2, 0, 0, 0, fields((3, 10), (3, 10), (14, 14), (7, 9))),
        "post": joined(3, 1, 3, 0, fields((0, 1))),
        "chunked": joined(3, 1, 6, 0, fields((1, 5), (4, 8))),
        "both": joined(3, 1, 0, 0, fields((0, 1), (0, 1), (2, 11))),
        "connect": joined(3, 3, 2, 0, fields((12, 12))),
        "datagrams": joined(3, 3, 1, 5, fields((14, 0))),
        "bad-protocol": joined(3, 3, 1, 7, fields()),
        "own-words": joined(3, 255, 3, b"PUT", 255, 12, b"http://b.c/d", 0, 1, 255, 1, b"z", 255, 2, b"zz"),
        "answer": joined(0, 0, fields((0, 1), (4, 8), (14, 10), (8, 11))),
        "who": joined(0, 3, fields((12, 12), (0, 0))),
        "codings": joined(0, 0, fields((1, 5), (5, 10), (13, 10), (13, 15))),
        "upgrade": joined(0, 6, fields((4, 8), (8, 11))),
        "interim": joined(0, 5, fields((14, 10))),
        "raw": joined(1, raw),
    }


def repairs():
    """Whether values lie, and then steps: bytes that come, repairs, and what is forgotten."""

    def two(n):
        return struct.pack("!H", n)

    def come(begin, end):
        return joined(1, two(begin), two(end - begin - 1))

    def repair(base, size, first, length, nth):
        return joined(5, two(base), two(size - 1), first, two(length), nth)

    return {
        "one-lost": joined(0, come(0, 100), come(200, 300), repair(0, 100, 0, 300, 0)),
        "repair-first": joined(0, repair(0, 100, 0, 300, 0), come(0, 100), come(200, 300)),
        "two-lost": joined(0, come(0, 50), repair(0, 50, 0, 200, 0), come(150, 200), repair(0, 50, 0, 200, 1)),
        "cut-symbol": joined(0, come(0, 100), repair(0, 100, 0, 130, 2)),
        "windows": joined(0, come(0, 64), repair(0, 64, 0, 256, 0), repair(0, 64, 2, 256, 1), repair(0, 64, 3, 256, 2), come(128, 192), come(256, 448)),
        "grids": joined(0, repair(0, 100, 0, 300, 0), repair(50, 70, 0, 210, 0), come(0, 100), come(200, 300)),
        "in-parts": joined(0, repair(0, 100, 0, 300, 0), come(0, 30), come(20, 100), come(210, 290), come(200, 300)),
        "forgotten": joined(0, come(0, 100), 0, repair(0, 100, 0, 200, 0), come(0, 100), 0, 0),
        "lies": joined(1, come(0, 100), repair(0, 100, 0, 300, 0), 20, 1, repair(0, 100, 0, 300, 1), 0, 1, come(200, 300)),
        "lies-of-length": joined(1, repair(0, 100, 0, 300, 0), 0, 0, two(1_500), repair(0, 100, 0, 300, 1), 0, 1, come(0, 300)),
    }


def tunnel_peer():
    """A lane and an action each: frames of the peer, and what this end does."""

    def value(n):
        """As `Input::number` reads it."""
        if n < 256:
            return bytes([0, n])
        if n < 65_536:
            return bytes([3, n >> 8, n & 255])
        assert n & n - 1 == 0
        return bytes([4, n.bit_length() - 1, 2])

    def stream(which, frame, lane=0):
        return bytes([lane, 10, which]) + frame

    def datagram(*frames):
        return joined(0, 0, len(frames), *frames)

    def does(action, *rest):
        return bytes([0, action, *rest])

    def data(offset, length):
        return bytes([4, length]) + value(offset)

    def opening(flow, carries):
        return bytes([1, flow, carries, 0, 1])

    def hello(lane):
        return stream(0, bytes([0, lane, 0]) + value(1 << 24) + value(1 << 16) + value(1 << 20) + bytes([0, 0]), lane)

    def repair(size, length, nth):
        return bytes([14]) + value(0) + bytes([(size - 1) // 6]) + value(0) + bytes([length, nth])

    def numbered(n, back, part, length):
        return bytes([15]) + value(n) + bytes([back, part, length])

    def sums(first, count, nth, length):
        return bytes([16]) + value(first) + bytes([count - 1, nth, length])

    packet, coded, plain = 0, 1, 2
    opened, total = bytes([9]), 13
    up = hello(0) + hello(1)
    accept, refuse, read, put, finish, abort, take = (bytes([n]) for n in (3, 4, 5, 6, 7, 8, 9))
    first = [does(action[0], 0) for action in (accept, refuse, read, finish, abort, take)]
    accept, refuse, read, finish, abort, take = first
    wrote = does(put[0], 0, 100)
    later = bytes([0, 1]) + value(200)
    begun = joined(up, stream(1, opening(2, plain)), accept)
    return {
        "stream": joined(begun, stream(1, data(0, 100)), stream(1, data(200, 50)), stream(1, data(100, 100)), read, wrote, finish, stream(1, bytes([7]) + value(250)), read),
        "early": joined(stream(1, opening(2, plain)), stream(1, data(0, 100)), up, accept, read),
        "copies": joined(up, datagram(opening(2, plain), data(0, 40)), accept, stream(1, opening(2, plain)), stream(1, data(0, 100)), datagram(bytes([3, 2]), data(60, 80)), read),
        "lanes": joined(begun, stream(1, data(0, 60)), stream(2, bytes([3, 2]), 1), stream(2, data(60, 60), 1), read),
        "reset": joined(begun, stream(1, data(0, 60)), stream(1, bytes([8]) + value(60) + bytes([3])), read, later),
        "refused": joined(up, stream(1, opening(2, plain)), refuse, stream(1, data(0, 60)), stream(1, bytes([8]) + value(60) + bytes([0]))),
        "own": joined(up, does(2, plain, 0, 1), wrote, stream(1, bytes([3, 1])), stream(1, opened), stream(0, bytes([12, 1]) + value(1 << 17)), wrote, abort, later),
        "own-refused": joined(up, does(2, plain, 0, 1), stream(1, bytes([3, 1])), stream(1, bytes([10, 4])), later),
        "credit": joined(begun, stream(0, bytes([12, 2]) + value(1 << 17)), stream(0, bytes([total]) + value(1 << 21)), wrote, later),
        "repair": joined(begun, stream(1, data(0, 97)), stream(1, repair(97, 194, 0)), read, stream(1, data(194, 97)), stream(1, repair(97, 255, 1)), read),
        "packets": joined(up, stream(1, opening(2, packet)), accept, datagram(bytes([3, 2]), bytes([11, 50])), take, stream(1, bytes([11, 200])), take, wrote),
        "coded": joined(up, stream(1, opening(2, coded)), accept, datagram(bytes([3, 2]), numbered(0, 3, 0, 30)), datagram(bytes([3, 2]), numbered(2, 2, 0, 30)), datagram(bytes([3, 2]), sums(0, 3, 0, 30)), take, take, later, take),
        "parts": joined(up, stream(1, opening(2, coded)), accept, *(datagram(bytes([3, 2]), numbered(n, 0, part, 30)) for n, part in enumerate((1, 3, 2))), take, later, take),
        "accounts": joined(up, *(stream(n, bytes([1, 2 * n + 2, plain, n, 1])) for n in range(1, 7)), accept, stream(1, data(0, 127)), later),
        "beyond": joined(begun, stream(1, data(65_000, 127)), stream(1, data(65_500, 127))),
    }


def configuration():
    """Each table of the example, with its keys set to their defaults; and the dictionary of all names."""
    example = (HERE.parent / "config.example.toml").read_text().splitlines()
    tables, current, names = {}, "top", set()
    samples = []
    for line in example:
        if line.startswith("#: "):
            samples.append(line[3:])
            continue
        if table := re.fullmatch(r"#(\[\[?)([a-z._]+)(\]\]?)", line):
            current = table.group(2)
            names.add(line[1:])
            tables[current] = [line[1:]]
        elif key := re.fullmatch(r"#([a-z0-9_]+) = .*", line):
            names.add(key.group(1))
            tables.setdefault(current, []).append(line[1:])
    for line in samples:
        names.add(line if line.startswith("[") else line.split(" = ")[0])
    seeds = {f"table-{name.replace('.', '-')}": "\n".join([*lines, ""]).encode() for name, lines in tables.items()}
    seeds["samples"] = "\n".join([*samples, ""]).encode()
    dictionary = HERE / "dictionaries/config"
    # values were chosen by hand
    values = [line for line in dictionary.read_text().splitlines() if not re.fullmatch(r'"(\[.*\]|[a-z0-9_]+)"', line) or line == '"true"']
    dictionary.write_text("\n".join([*(f'"{name}"' for name in sorted(names)), *dict.fromkeys(values), ""]))
    return seeds


def main():
    write("capsule", capsules())
    write("tunnel_frames", tunnel_frames())
    write("tunnel_packet", packets())
    write("quic_initial", initials())
    write("h2_frames", h2_frames())
    write("h2_head", h2_heads())
    write("repair", repairs())
    write("tunnel_peer", tunnel_peer())
    write("config", configuration())


if __name__ == "__main__":
    main()
