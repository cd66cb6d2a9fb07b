"""h2spec: the specification of HTTP/2 and of HPACK, case by case, on Ekiden's TLS port."""

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
    """Of a JUnit report: passed, of how many, and the failures in words."""
    passed, failed = 0, []
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        why = [child for child in case if child.tag in ("failure", "error")]
        if why:
            failed.append(f"{case.get('package')}: {case.get('classname')}: {(why[0].text or '').strip()}")
        elif not any(child.tag == "skipped" for child in case):
            passed += 1
    return passed, passed + len(failed), failed


def run(tools, _options):
    program = install(tools)
    with doors.ekiden(tls=True) as (port, _certificate), doors.folder() as home:
        report = home / "report.xml"
        command = [str(program), "-t", "-k", "-h", "localhost", "-p", str(port), "-o", "4", "--junit-report", str(report)]
        subprocess.run(command, capture_output=True, timeout=600)
        passed, of, failed = cases(report)
    row = {"door": "ekiden", "passed": passed, "of": of, "failed": failed}
    return {"suite": MODULE, "command": "h2spec -t -k -h localhost -p PORT -o 4", "rows": [row]}
