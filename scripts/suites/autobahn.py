"""Autobahn's WebSocket cases through a proxy, driven by kosoku: an echo server's answers must be the same through
Ekiden, by CONNECT and by an upgrade of a forwarded request, as directly.
"""

import contextlib
import json
import pathlib
import subprocess
import sys

import doors

HERE = pathlib.Path(__file__).parent
PACKAGES = ["kosoku==0.1.0", "websockets==17.4"]
ECHO = """
import asyncio, sys
from websockets.asyncio.server import serve
async def echo(client):
    async for message in client:
        await client.send(message)
async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=None):
        await asyncio.Future()
asyncio.run(main())
"""


def install(tools):
    venv = tools / "venv"
    if not (venv / "installed").exists():
        print(f"suites: pip install {' '.join(PACKAGES)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
        (venv / "installed").write_text("\n".join(PACKAGES))
    return venv / "bin"


@contextlib.contextmanager
def front(proxy, origin, mode, home):
    port = doors.free_port()
    command = [sys.executable, str(HERE / "front.py"), str(port), str(proxy), str(origin), mode]
    with doors.running(command, port, home / f"front-{mode}.log"):
        yield port


GOOD = ("OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED")


def results(programs, port, report, cases, at_once):
    command = [str(programs / "kosoku"), "-p", str(at_once), "-o", str(report), f"127.0.0.1:{port}"]
    for case in cases:
        command[1:1] = ["-i", case]
    subprocess.run(command, capture_output=True, timeout=1800)
    return next(iter(json.loads((report / "index.json").read_text()).values()), {})


def bad(found):
    return sorted(case for case, it in found.items() if it["behavior"] not in GOOD or it["behaviorClose"] not in GOOD)


def ask(programs, port, home, name, cases):
    found = results(programs, port, home / name, cases, 4)
    # cases of many messages have time-outs: once more, one at a time, before a busy machine is blamed on the proxy
    if bad(found) and len(bad(found)) < len(found) / 2:
        found |= results(programs, port, home / f"{name} again", bad(found), 1)
    failed = [f"{case}: {found[case]['behavior']}, close {found[case]['behaviorClose']}" for case in bad(found)]
    passes = sorted(set(found) - set(bad(found)))
    return {"door": name, "passed": len(passes), "of": len(found), "failed": failed, "passes": passes}


def run(tools, options):
    programs = install(tools)
    rows, echo = [], doors.free_port()
    # compression's thousands of messages say nothing of a proxy that no shorter case says
    cases = options.cases or [f"{n}.*" for n in (1, 2, 3, 4, 5, 6, 7, 9, 10)]
    with doors.folder() as home:
        (home / "echo.py").write_text(ECHO)
        with doors.running([str(programs / "python"), str(home / "echo.py"), str(echo)], echo, home / "echo.log"):
            rows.append(ask(programs, echo, home, "directly", cases))
            with doors.ekiden() as (ekiden, _), doors.squid() as squid:
                for name, proxy in (("ekiden", ekiden), ("squid", squid)):
                    for mode, words in (("connect", "CONNECT"), ("absolute", "upgrade")):
                        with front(proxy, echo, mode, home) as port:
                            rows.append(ask(programs, port, home, f"{name}, {words}", cases))
            with doors.nginx(echo, upgrade=True) as port:
                rows.append(ask(programs, port, home, "nginx, upgrade", cases))
    return {"suite": ", ".join(PACKAGES), "command": f"kosoku {' '.join('-i ' + case for case in cases)}", "rows": rows}
