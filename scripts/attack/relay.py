"""A relay in a folder of its own, and what all attacks need: origins, clients, percentiles, limits of this process."""

import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
EKIDEN = os.environ.get("EKIDEN", str(HERE / "../../target/release/ekiden"))
# descriptors that one process of an attack may hold, some over its connections
DESCRIPTORS = 65_536
# the ports of all relays and origins, one after another
PORTS = iter(range(int(os.environ.get("PORTS", "27600")), 65_000))


def allow_descriptors():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))


def machine():
    """As kept results of studies have it."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    with open("/proc/meminfo") as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("MemTotal"))
    kernel, load = os.uname().release, round(os.getloadavg()[0], 2)
    return {"cpu": model, "cores": os.cpu_count(), "kernel": kernel, "memory_kib": memory, "load": load}


class Relay:
    """`ekiden serve` with this configuration, on a port of `host`."""

    def __init__(self, config, listen=True, cgroup=None, host="127.0.0.1"):
        self.folder = tempfile.TemporaryDirectory(prefix="attack-")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "ekiden").mkdir()
        (self.path / "state").mkdir()
        self.port = next(PORTS)
        self.address = (host, self.port)
        listen = f'listen = ["{host}:{self.port}"]\n' if listen else ""
        self.control = self.path / "ekiden.sock"
        listen += f'control = "{self.control}"\n'
        text = config.replace("DIR", str(self.path))
        (self.path / "ekiden/config.toml").write_text(listen + text)
        self.environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(self.path),
            "XDG_RUNTIME_DIR": str(self.path),
            "STATE_DIRECTORY": str(self.path / "state"),
        }
        self.cgroup = cgroup
        self.process = None

    def run(self, *arguments, input=""):
        done = subprocess.run([EKIDEN, *arguments], env=self.environment, input=input, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ekiden {arguments}: {done.stderr}")
        return done.stdout

    def serve(self):
        def place():
            if self.cgroup:
                self.cgroup.procs.write_text(str(os.getpid()))

        log = open(self.path / "log", "a")
        self.process = subprocess.Popen([EKIDEN, "serve"], env=self.environment, stderr=log, preexec_fn=place)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                self.status()
                return self
            time.sleep(0.05)
        raise RuntimeError(self.log())

    def status(self, timeout=20):
        """As `ekiden status --json` has it, without the time that a program takes to begin."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(timeout)
            stream.connect(str(self.control))
            stream.sendall(b"GET /v1/status HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := stream.recv(65_536):
                answer += part
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])

    def log(self):
        return (self.path / "log").read_text()

    def memory(self):
        """Resident bytes: now, and at most. None of a relay that has ended."""
        lines = []
        with contextlib.suppress(OSError):
            lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        of = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
        return int(of.get("VmRSS", 0)) << 10, int(of.get("VmHWM", 0)) << 10

    def lives(self):
        return self.process.poll() is None

    def __enter__(self):
        return self.serve()

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


def certificate(folder):
    """The keys of `[tls]` for a certificate that nobody signed, made by openssl."""
    key, cert = folder / "key.pem", folder / "certificate.pem"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=relay.test"
    subprocess.run(["openssl", *request.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return f'[tls]\ncertificate = "{cert}"\nkey = "{key}"\n'


def tls_client(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def secured(stream, protocol):
    return tls_client(protocol).wrap_socket(stream, server_hostname="relay.test")


def connect(to, source="127.0.0.1", timeout=20, receives=None):
    """`receives`: bytes of its receive buffer, where the kernel's own choice would not do."""
    stream = socket.socket()
    stream.settimeout(timeout)
    if receives:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    # many sources may use one port each, and one source all of them
    stream.setsockopt(socket.IPPROTO_IP, 24, 1)
    stream.bind((source, 0))
    stream.connect(to)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def origin(answer, apart=False):
    """A server that calls `answer` with each connection in a thread; its address. `apart`: in a process of its own, behind
    all others, so that nobody who is measured waits for its threads."""
    listener = socket.create_server(("127.0.0.1", next(PORTS)), backlog=4096)

    def one(stream):
        with stream, contextlib.suppress(OSError):
            answer(stream)

    def serve():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=one, args=(stream,), daemon=True).start()

    def process():
        allow_descriptors()
        os.nice(19)
        serve()

    if apart:
        multiprocessing.Process(target=process, daemon=True).start()
    else:
        threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()


def silent_origin():
    """A server that takes every connection and says nothing; its address."""
    listener, held = socket.create_server(("127.0.0.1", next(PORTS)), backlog=4096), []

    def serve():
        while True:
            held.append(listener.accept()[0])

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()


def read_head(stream):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = stream.recv(1)
        if not byte:
            raise OSError("the end, within a head")
        head += byte
    return head


def small(stream):
    """An origin's answer to each request of a connection: two bytes."""
    while True:
        read_head(stream)
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def request(relay, to, source, fields="", timeout=20):
    """The status of a request on a new connection, 0 where there is none, and the seconds it took."""
    begun, status = time.monotonic(), 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        with connect(relay, source, timeout) as stream:
            at = f"{to[0]}:{to[1]}"
            text = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{fields}Connection: close\r\n\r\n"
            stream.sendall(text.encode())
            status = int(read_head(stream).split()[1])
    return status, time.monotonic() - begun


def percentile(seconds, share):
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ask(relay, to, source, count, apart=0.01, fields="", timeout=20):
    """So many requests, one after another: how many were answered by 200, and the delays of those, in milliseconds."""
    return ask_in_turn([relay], to, source, count, apart, fields, timeout)[0]


def ask_in_turn(relays, to, source, count, apart=0.01, fields="", timeout=20):
    """The same of several relays, which take turns."""
    seen = [([], collections.Counter()) for _ in relays]
    for _ in range(count):
        for relay, (delays, others) in zip(relays, seen):
            status, took = request(relay, to, source, fields, timeout)
            if status == 200:
                delays.append(took * 1000)
            else:
                others[str(status or "nothing")] += 1
            time.sleep(apart)
    return [summary(count, delays, others) for delays, others in seen]


def summary(count, delays, others):
    shown = {"asked": count, "answered": len(delays)}
    if others:
        shown["others"] = dict(others)
    if delays:
        shown |= {"p50_ms": round(percentile(delays, 0.5), 2), "p99_ms": round(percentile(delays, 0.99), 2)}
    return shown
