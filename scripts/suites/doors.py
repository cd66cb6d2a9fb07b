"""Ekiden, squid and nginx on loopback, as the suites need them, each in a folder of its own."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EKIDEN = pathlib.Path(os.environ.get("EKIDEN", ROOT / "target/quick/ekiden"))
PATIENCE = 30


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port, child):
    """Until somebody listens there; the child must live."""
    for _ in range(PATIENCE * 20):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if child.poll() is not None:
            raise SystemExit(f"suites: {child.args[0]} ended with {child.returncode} instead of listening on {port}")
        time.sleep(0.05)
    raise SystemExit(f"suites: {child.args[0]} did not listen on {port} within {PATIENCE} s")


@contextlib.contextmanager
def running(command, port, log):
    with open(log, "ab") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(port, child)
        yield child
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="ekiden-suite-") as name:
        path = pathlib.Path(name)
        # daemons give up root and write here
        path.chmod(0o777)
        yield path


def certificate(home):
    """A certificate for localhost that signs itself, and its key."""
    made, key = home / "certificate.pem", home / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
    subprocess.run([*make, *subject, "-keyout", key, "-out", made], check=True, capture_output=True)
    return made, key


@contextlib.contextmanager
def ekiden(tls=False, cache=False, more=""):
    """Ekiden on a free port, which may reach loopback; yields the port and, with `tls`, its certificate."""
    if not EKIDEN.exists():
        raise SystemExit(f"suites: {EKIDEN} is missing: run `make quick` first, or name another by EKIDEN=")
    with folder() as home:
        port = free_port()
        text = f'listen = ["127.0.0.1:{port}"]\ncontrol = "off"\n[access]\nallow_destinations = ["127.0.0.0/8", "::1/128"]\n'
        if tls:
            made, key = certificate(home)
            text += f'[tls]\ncertificate = "{made}"\nkey = "{key}"\n'
        if cache:
            text += '[cache]\nmemory = "64 MiB"\n'
        (home / "ekiden.toml").write_text(text + more)
        command = [str(EKIDEN), "serve", "--config", str(home / "ekiden.toml")]
        with running(command, port, home / "ekiden.log"):
            yield port, home / "certificate.pem" if tls else None


@contextlib.contextmanager
def squid(cache=False, more=""):
    program = find("squid")
    with folder() as home:
        port = free_port()
        store = "cache_mem 64 MB\n" if cache else "cache deny all\ncache_mem 8 MB\n"
        (home / "squid.conf").write_text(
            f"http_port 127.0.0.1:{port}\nvisible_hostname squid{port}.suite\nhttp_access allow all\n{store}"
            f"http_upgrade_request_protocols WebSocket allow all\n{more}"
            f"access_log none\ncache_log {home}/squid.log\npid_filename {home}/squid.pid\ncoredump_dir {home}\n"
            "netdb_filename none\npinger_enable off\nshutdown_lifetime 0 seconds\nmax_filedescriptors 4096\n"
        )
        name = f"suite{port}"
        with running([program, "-N", "-n", name, "-f", str(home / "squid.conf")], port, home / "output.log"):
            yield port


@contextlib.contextmanager
def nginx(origin, cache=False, upgrade=False, tls=False):
    """nginx as a reverse proxy of the origin's port; upgrades must be configured. With `tls` it speaks HTTP/2, and the
    versions of TLS that rustls has: its own default has TLS 1.0 and lacks 1.3.
    """
    program = find("nginx")
    connection = "proxy_set_header Connection upgrade; proxy_set_header Upgrade $http_upgrade;" if upgrade else "proxy_set_header Connection '';"
    with folder() as home:
        port = free_port()
        main = f"daemon off; worker_processes 1; pid {home}/nginx.pid; error_log {home}/nginx.log; events {{}}\n"
        if os.geteuid() == 0:
            main = "user root; " + main
        temporary = "".join(f"{kind}_temp_path {home}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        store = f"proxy_cache_path {home}/cache keys_zone=c:8m; proxy_cache c;" if cache else ""
        # what the suite asks of a cache that is switched on: revalidation, no waiting for others
        store += " proxy_cache_revalidate on;" if cache else ""
        listen = f"listen 127.0.0.1:{port};"
        if tls:
            made, key = certificate(home)
            listen = f"listen 127.0.0.1:{port} ssl http2; ssl_certificate {made}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;"
        (home / "nginx.conf").write_text(
            f"{main}http {{ access_log off; {temporary}{store}\nserver {{ {listen}\n"
            f"location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_http_version 1.1; {connection} }} }} }}\n"
        )
        with running([program, "-e", str(home / "nginx.log"), "-c", str(home / "nginx.conf")], port, home / "output.log"):
            yield port


@contextlib.contextmanager
def origin():
    """A server of HTTP/1.1 that answers every request alike, for those who need one behind them; yields its port."""
    with folder() as home:
        port = free_port()
        command = [sys.executable, str(pathlib.Path(__file__).with_name("origin.py")), str(port)]
        with running(command, port, home / "origin.log"):
            yield port


def find(program, package=None):
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise SystemExit(f"suites: {program} is missing: apt-get install {package or program}")
    return found


def version(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if lines else ""
