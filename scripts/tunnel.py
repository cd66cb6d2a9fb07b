#!/usr/bin/env python3
"""Measures a tunnel over an emulated link: one bulk download and an echo beside it.

    scripts/tunnel.py --loss 1%            # as root or not; ekiden in target/debug or $EKIDEN

It starts `ekiden link` with one relay at each end, both in empty namespaces, and prints one JSON line:
goodput over the given seconds, delays of 64 bytes sent every 100 ms, and what the sender's tunnel says.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EKIDEN = os.environ.get("EKIDEN", os.path.join(HERE, "../target/debug/ekiden"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rate", default="20Mbit/s", help="of the way down; what is allotted unless --told")
    parser.add_argument("--up", default="2Mbit/s", help="rate of the way up")
    parser.add_argument("--told", help="what the relays are told the way down gives")
    parser.add_argument("--rtt", type=int, default=600, help="ms")
    parser.add_argument("--loss", default="0%", help="each way")
    parser.add_argument("--queue", default="600ms")
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--begin", type=int, default=10)
    parser.add_argument("--flows", type=int, default=1, help="bulk downloads at once")
    parser.add_argument("--memory", default="128 MiB")
    parser.add_argument("--direct", action="store_true", help="without a tunnel, as a comparison")
    parser.add_argument("--work")
    parser.add_argument("--side", choices=["near", "far"])
    return parser.parse_args()


def main():
    args = arguments()
    if args.side == "far":
        far(args)
    elif args.side == "near":
        near(args)
    else:
        with tempfile.TemporaryDirectory(prefix="tunnel-") as work:
            args.work = work
            prepare(args)
            command = [EKIDEN, "link", "--quiet", "--delay", f"{args.rtt / 2}ms", "--loss", args.loss]
            command += ["--queue", args.queue, "--down", f"rate={args.rate}", "--up", f"rate={args.up}"]
            me = f"{sys.executable} {os.path.abspath(__file__)} " + " ".join(
                f"--{key} '{value}'" for key, value in vars(args).items() if value and key not in ("side", "direct")
            )
            me += " --direct" if args.direct else ""
            command += ["--far", me + " --side far", "--", "sh", "-c", me + " --side near"]
            sys.exit(subprocess.call(command))


def spaced(rate):
    return rate.replace("Mbit", " Mbit").replace("kbit", " kbit")


def prepare(args):
    """Configurations, and an invitation of the far relay for the near one."""
    for side, listen in (("near", ""), ("far", 'listen = ["0.0.0.0:4433"]')):
        with open(f"{args.work}/{side}.toml", "w") as file:
            file.write(f'listen = ["127.0.0.1:3128"]\ncontrol = "{args.work}/{side}.sock"\n')
            file.write('[access]\nallow_destinations = ["127.0.0.0/8"]\n')
            file.write(f'[tunnel]\nstate = "{args.work}/{side}"\nmemory = "{args.memory}"\n{listen}\n')
            if side == "near":
                file.write('[upstream.far]\nurl = "tunnel://far"\n[[route]]\nthrough = ["far"]\n')
    down, up = spaced(args.told or args.rate), spaced(args.up)
    invite = [EKIDEN, "peer", "invite", "--config", f"{args.work}/far.toml", "--name", "near"]
    invite += ["--address", "far:4433", "--send", down, "--receive", up]
    token = subprocess.run(invite, check=True, capture_output=True, text=True).stdout.strip()
    join = [EKIDEN, "peer", "join", "--config", f"{args.work}/near.toml", "--name", "far", "--offline", token]
    subprocess.run(join, check=True, capture_output=True)


def serve(args, side):
    log = open(f"{args.work}/{side}.log", "w")
    return subprocess.Popen([EKIDEN, "serve", "--config", f"{args.work}/{side}.toml"], stderr=log)


def far(args):
    """A relay, and servers: who connects to 8001 is sent bytes without end, 8002 echoes."""
    host = "0.0.0.0" if args.direct else "127.0.0.1"
    daemon = None if args.direct else serve(args, "far")
    threading.Thread(target=accept, args=(host, 8001, pour), daemon=True).start()
    threading.Thread(target=accept, args=(host, 8002, echo), daemon=True).start()
    end = time.time() + args.seconds + 8
    while time.time() < end:
        time.sleep(1)
        if daemon:
            status = subprocess.run([EKIDEN, "status", "--json", "--socket", f"{args.work}/far.sock"],
                                    capture_output=True, text=True).stdout
            if status:
                with open(f"{args.work}/status.new", "w") as file:
                    file.write(status)
                os.rename(f"{args.work}/status.new", f"{args.work}/status")
    if daemon:
        daemon.terminate()


def accept(host, port, handle):
    listener = socket.create_server((host, port), backlog=100)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


def pour(connection):
    block = os.urandom(1 << 16)
    try:
        while True:
            connection.sendall(block)
    except OSError:
        pass


def echo(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(4096):
        connection.sendall(data)


def connect(args, port):
    """Through the near relay's SOCKS5 door, or directly."""
    if args.direct:
        return socket.create_connection(("far", port))
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", 3128))
            break
        except OSError:
            time.sleep(0.05)
    connection.sendall(b"\x05\x01\x00" + b"\x05\x01\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", port))
    answer = b""
    while len(answer) < 12:
        part = connection.recv(12 - len(answer))
        if not part:
            raise OSError("the relay closed the connection")
        answer += part
    if answer[3]:
        raise OSError(f"SOCKS reply {answer[3]}")
    return connection


def near(args):
    daemon = None if args.direct else serve(args, "near")
    cold = time.time()
    typed = connect(args, 8002)
    typed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened = time.time() - cold
    seconds = [0] * (args.seconds + 1)
    begun = time.time()
    for _ in range(args.flows):
        threading.Thread(target=drain, args=(connect(args, 8001), seconds, begun), daemon=True).start()
    delays = []
    asked = []
    threading.Thread(target=listen, args=(typed, asked, delays), daemon=True).start()
    while (now := time.time()) < begun + args.seconds:
        asked.append(now)
        typed.sendall(struct.pack(">Q", len(asked)) * 8)
        time.sleep(max(0, now + 0.1 - time.time()))
    time.sleep(2)
    counted = seconds[args.begin:args.seconds]
    late = sorted(delay for at, delay in delays if begun + args.begin <= at < begun + args.seconds - 1)
    wanted = sum(begun + args.begin <= at < begun + args.seconds - 1 for at in asked)
    # an echo that has not come yet counts as late as it is
    late += [9.999] * (wanted - len(late))
    result = {
        "loss": args.loss, "rate": args.rate, "rtt_ms": args.rtt,
        "goodput_mbit": round(sum(counted) * 8e-6 / len(counted), 3),
        "echo_ms": {name: round(late[int(len(late) * share)] * 1e3) for name, share in
                    (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))} | {"max": round(late[-1] * 1e3)},
        "open_cold_ms": round(opened * 1e3),
    }
    if daemon:
        status = json.load(open(f"{args.work}/status"))["tunnels"][0]
        keys = ("rate", "line", "path_loss", "packets", "packets_lost", "bytes_on_the_wire", "bytes_sent", "copies",
                "bytes_copied", "mtu", "pacing_error_p50_us", "pacing_error_p99_us", "queue_us", "rtt_us")
        result["tunnel"] = {key: status[key] for key in keys}
        daemon.terminate()
        daemon.wait()
    print(json.dumps(result), flush=True)


def drain(connection, seconds, begun):
    buffer = bytearray(1 << 18)
    try:
        while count := connection.recv_into(buffer):
            at = int(time.time() - begun)
            if at < len(seconds):
                seconds[at] += count
    except OSError as error:
        # at the end the relay is stopped; before it, this is news
        if time.time() < begun + len(seconds):
            print(f"a download broke: {error}", file=sys.stderr)


def listen(connection, asked, delays):
    held = b""
    while data := connection.recv(65536):
        now = time.time()
        held += data
        while len(held) >= 64:
            number = struct.unpack(">Q", held[:8])[0]
            delays.append((asked[number - 1], now - asked[number - 1]))
            held = held[64:]


if __name__ == "__main__":
    main()
