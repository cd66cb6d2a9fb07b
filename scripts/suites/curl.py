"""curl's own tests, with a proxy between curl and the tests' servers.

`runtests.pl -P` gives every test the proxy: each case that squid passes, Ekiden has to pass. No proxy leaves requests
alone byte by byte, so that part of the tests is taken out of a copy of their data, and what curl gets, prints and
returns is compared, but for `Connection` and fields that name a proxy. The copy's answers end their lines by CRLF where the tests' end
them by LF, which Ekiden refuses. The tests of SOCKS run with Ekiden in the place of the tests' own SOCKS server, and with that.

The source is Debian's, by `apt-get source`, from lists of its own; it is built without any other package than the
OpenSSL headers.
"""

import contextlib
import getpass
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import autobahn
import doors

SOURCES = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n"
CONFIGURE = "--with-openssl --disable-shared --disable-ldap --disable-manual --without-libpsl --without-brotli --without-zstd --without-librtmp"
# no connection is held for later, and what cannot be reached is given up soon
SQUID = "server_persistent_connections off\ndns_timeout 1 second\nconnect_timeout 2 seconds\nforward_timeout 4 seconds\nread_timeout 20 seconds\n"
# the tests' SOCKS server, of which the port, its file and the process's id are what runtests.pl wants to know; with
# $BEFORE, Ekiden stands before that server
SOCKS = """#!/bin/sh
case "$*" in *--unix-socket*) exit 1 ;; esac
while [ $# -gt 0 ]; do
    case $1 in
    --port) port=$2 ;;
    --portfile) portfile=$2 ;;
    --pidfile) pidfile=$2 ;;
    --backend) backend=$2 ;;
    --config) config=$2 ;;
    esac
    case $1 in --ipv4 | --ipv6) shift ;; *) shift 2 ;; esac
done
[ "${port:-0}" != 0 ] || port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
home=$(mktemp -d)
cat >"$home/ekiden.toml" <<TOML
listen = ["127.0.0.1:$port"]
control = "off"
[access]
allow_destinations = ["127.0.0.0/8", "::1/128"]
TOML
if [ -n "$BEFORE" ]; then
    "$0.own" --port 0 --portfile "$home/port" --pidfile "$home/pid" --backend "$backend" --config "$config" &
    own=$!
    until [ -s "$home/port" ]; do sleep 0.05; done
    cat >>"$home/ekiden.toml" <<TOML
[upstream.own]
url = "socks5://uz3r:p4ssworm@127.0.0.1:$(cat "$home/port")"
private_methods = false
[[route]]
through = ["own"]
TOML
fi
echo $$ >"$pidfile"
# those who read it connect at once
( for _ in $(seq 100); do python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null && break; sleep 0.05; done; echo "$port" >"$portfile" ) &
"$EKIDEN" serve --config "$home/ekiden.toml" >"$home/ekiden.log" 2>&1 &
trap "kill $! $own; exit" TERM INT
wait
"""
SOCKS_CASES = ["SOCKS4", "SOCKS5", "SOCKS5h", "SOCKS4a"]
# seconds that one client may take
LONGEST = 60
# they connect to a Unix socket, where Ekiden does not listen
ELSEWHERE = {1467, 1468}


def install(tools):
    home = tools / "curl"
    if not (home / "built").exists():
        if not shutil.which("apt-get"):
            raise SystemExit("suites: curl's source is Debian's, and there is no apt-get here")
        shutil.rmtree(home, ignore_errors=True)
        for part in ("lists/partial", "archives/partial", "empty"):
            (home / part).mkdir(parents=True)
        (home / "sources.list").write_text(SOURCES)
        apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={home}/sources.list", "-o", f"Dir::Etc::sourceparts={home}/empty"]
        apt += ["-o", f"Dir::State::lists={home}/lists", "-o", f"Dir::Cache={home}"]
        print("suites: apt-get source curl, and make", flush=True)
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*apt, "update"], **quiet)
        subprocess.run([*apt, "source", "--download-only", "curl"], cwd=home, **quiet)
        archive = next(home.glob("curl_*.orig.tar.*z"))
        subprocess.run(["tar", "xf", archive.name], cwd=home, check=True)
        source = next(path for path in home.glob("curl-*") if path.is_dir())
        subprocess.run(["./configure", *CONFIGURE.split()], cwd=source, **quiet)
        jobs = f"-j{os.environ.get('JOBS', '2')}"
        subprocess.run(["make", jobs], cwd=source, **quiet)
        subprocess.run(["make", jobs], cwd=source / "tests", **quiet)
        (home / "built").write_text(source.name)
    tests = home / (home / "built").read_text() / "tests"
    if not (tests / "data.own").exists():
        shutil.copytree(tests / "data", tests / "data.own")
        for case in (tests / "data").glob("test[0-9]*"):
            text = re.sub(rb"<protocol[^>]*>.*?</protocol>\n?", b"", case.read_bytes(), flags=re.S)
            case.write_bytes(re.sub(rb"^HTTP/[0-9.]+ [0-9]{3}.*?(?=^\r?\n|^<)\r?\n?", crlf, text, flags=re.S | re.M))
    return tests


def crlf(found):
    """A head of an answer, up to its empty line, with CRLF, and without what is meant for one hop alone."""
    head = re.sub(rb"\r?\n", b"\r\n", found.group())
    if re.search(rb"^(content-length|transfer-encoding):", head, re.M | re.I):
        head = re.sub(rb"^connection: (close|keep-alive)\r\n", b"", head, flags=re.M | re.I)
    return head


def end_stuck(tests, over):
    """Ends clients that have run for too long, until `over`: runtests.pl waits for them without end."""
    while not over.wait(5):
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                age = time.time() - folder.stat().st_ctime
                client = re.match(rb"(\./libtest/|\S*/src/curl)", command)
                if client and age > LONGEST and (folder / "cwd").resolve() == tests:
                    os.kill(int(folder.name), signal.SIGKILL)


def ask(tests, *options, environment=None):
    """The numbers of the tests that passed, and of those that failed."""
    command = ["perl", "-I.", "./runtests.pl", "-a", "-n", "-am", *options]
    # a test asks perl for the name of the user
    environment = {"USER": getpass.getuser(), **os.environ, **(environment or {})}
    over = threading.Event()
    threading.Thread(target=end_stuck, args=(tests, over), daemon=True).start()
    # a server of the tests may outlive them, with its end of a pipe
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            subprocess.run(command, cwd=tests, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=7200, env=environment)
        finally:
            over.set()
        output.seek(0)
        text = output.read()
    passed, failed = ({int(n) for n in re.findall(rf"^{word}: (\d+)", text, re.M)} for word in ("PASS", "FAIL"))
    if not passed | failed:
        raise SystemExit(f"suites: runtests.pl ran nothing:\n{text[-2000:]}")
    return passed, failed


def words(tests, number):
    text = (tests / f"data/test{number}").read_text(errors="replace")
    found = re.search(r"<name>\s*(.*?)\s*</name>", text, re.S)
    return f"{number}: {found.group(1)}" if found else str(number)


def socks_in_place_of(tests, replaced):
    """Puts Ekiden in the place of the tests' SOCKS server, or that back."""
    program, own = tests / "server/socksd", tests / "server/socksd.own"
    if replaced and not own.exists():
        program.rename(own)
        program.write_text(SOCKS)
        program.chmod(0o755)
    if not replaced and own.exists():
        own.rename(program)


def socks(tests):
    """With Ekiden in the place of the tests' SOCKS server, and the rest with Ekiden before it: those ask for destinations
    that exist behind that server alone."""
    own = ask(tests, *SOCKS_CASES)[0] - ELSEWHERE
    environment = {"EKIDEN": str(doors.EKIDEN.resolve())}
    socks_in_place_of(tests, True)
    try:
        alone = ask(tests, *SOCKS_CASES, environment=environment)[0] & own
        rest = [str(number) for number in sorted(own - alone)]
        before = ask(tests, *rest, environment={**environment, "BEFORE": "1"})[0] if rest else set()
    finally:
        socks_in_place_of(tests, False)
    missing = [words(tests, number) for number in sorted(own - alone - before)]
    return [
        {"door": "ekiden, SOCKS", "passed": len(alone), "of": len(own), "failed": [], "passes": sorted(alone)},
        # one that passes alone has no need of the other server
        {
            "door": "ekiden, before their own",
            "passed": len(before),
            "of": len(rest),
            "failed": missing,
            "passes": sorted(alone | before),
        },
    ]


def run(tools, options):
    tests = install(tools)
    cases = options.cases or ["HTTP"]
    socks_in_place_of(tests, False)
    directly, _ = ask(tests, *cases)
    # the tests' server takes one connection at a time: nobody may hold one for later
    with doors.folder() as home, doors.squid(more=SQUID) as squid, autobahn.front(squid, 0, "bare", home) as port:
        by_squid, _ = ask(tests, "-P", f"http://127.0.0.1:{port}", *cases)
    with doors.folder() as home, doors.ekiden(more="[pool]\nconnections = 0\n") as (ekiden, _), autobahn.front(ekiden, 0, "bare", home) as port:
        by_ekiden, _ = ask(tests, "-P", f"http://127.0.0.1:{port}", *cases)
    squid_alone = sorted((by_squid & directly) - by_ekiden)
    rows = [
        {"door": "directly", "passed": len(directly), "of": len(directly), "failed": []},
        {"door": "squid", "passed": len(by_squid & directly), "of": len(directly), "failed": []},
        {
            "door": "ekiden",
            "passed": len(by_ekiden & directly),
            "of": len(directly),
            "failed": [f"passes through squid: {words(tests, number)}" for number in squid_alone],
            "only_ekiden_passes": sorted((by_ekiden & directly) - by_squid),
            "passes": sorted(by_ekiden & directly),
        },
    ]
    rows += socks(tests)
    command = f"runtests.pl -a -n -am -P http://127.0.0.1:PORT {' '.join(cases)}"
    return {"suite": tests.parent.name, "command": command, "rows": rows}
