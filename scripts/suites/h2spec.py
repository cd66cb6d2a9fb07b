"""h2spec: the specification of HTTP/2 and of HPACK, case by case, on the TLS port of Ekiden, and of nginx."""

import collections
import os
import subprocess
import xml.etree.ElementTree

import doors

MODULE = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"


def install(tools):
    """From the Go module proxy; the program's path."""
    program = tools / "bin/h2spec"
    if not program.exists():
        go = doors.find("go")
        environment = {**os.environ, "GOBIN": str(tools / "bin"), "GOPATH": str(tools / "go"), "GOFLAGS": "-modcacherw"}
        print(f"suites: go install {MODULE}", flush=True)
        subprocess.run([go, "install", MODULE], env=environment, check=True)
    return program


def cases(report):
    """Of a JUnit report: the names of the cases that passed, and the failures in words."""
    passes, failed, names = [], [], collections.Counter()
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('package')}: {case.get('classname')}"
        names[name] += 1
        if names[name] > 1:
            name += f" ({names[name]})"
        why = [child for child in case if child.tag in ("failure", "error")]
        if why:
            failed.append(f"{name}: {(why[0].text or '').strip()}")
        elif not any(child.tag == "skipped" for child in case):
            passes.append(name)
    return passes, failed


def ask(program, door, port):
    with doors.folder() as home:
        report = home / "report.xml"
        command = [str(program), "-t", "-k", "-h", "localhost", "-p", str(port), "-o", "4", "--junit-report", str(report)]
        subprocess.run(command, capture_output=True, timeout=600)
        passes, failed = cases(report)
    return {"door": door, "passed": len(passes), "of": len(passes) + len(failed), "failed": failed, "passes": passes}


def run(tools, _options):
    program = install(tools)
    with doors.ekiden(tls=True) as (port, _certificate):
        rows = [ask(program, "ekiden", port)]
    with doors.origin() as origin, doors.nginx(origin, tls=True) as port:
        rows.append(ask(program, "nginx", port))
    return {"suite": MODULE, "command": "h2spec -t -k -h localhost -p PORT -o 4", "rows": rows}
