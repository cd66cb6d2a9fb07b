"""http-cache-tests: what a cache stores, reuses and revalidates; Ekiden beside squid and nginx."""

import json
import os
import pathlib
import subprocess
import sys

import autobahn
import doors

PACKAGE = "http-cache-tests@0.4.5"
# kinds of cases: what RFC 9111 requires, what makes a cache better, what is only looked at
KINDS = ("required", "optimal", "check")
LIST = """
import tests from './tests/index.mjs'
const all = {}
tests.forEach(suite => suite.tests.forEach(test => {
  if (!test.browser_only) all[test.id] = [test.kind || 'required', suite.name + ': ' + test.name, test.depends_on || []]
}))
console.log(JSON.stringify(all))
"""


def install(tools):
    node = tools / "node"
    home = node / "node_modules/http-cache-tests"
    if not home.exists():
        print(f"suites: npm install {PACKAGE}", flush=True)
        node.mkdir(parents=True, exist_ok=True)
        (node / "package.json").write_text("{}")
        npm = [doors.find("npm"), "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", PACKAGE]
        subprocess.run(npm, cwd=node, check=True)
    return home


def known(home):
    listed = subprocess.run([doors.find("node"), "--input-type=module", "-e", LIST], cwd=home, check=True, capture_output=True, text=True)
    return json.loads(listed.stdout)


def ask(home, base):
    environment = {**os.environ, "npm_config_base": f"http://127.0.0.1:{base}", "npm_package_config_id": ""}
    command = [doors.find("node"), "--no-warnings", "cli.mjs"]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=900)
    return json.loads(done.stdout[done.stdout.index("{"):])


def row(name, cases, results):
    """A case whose precondition failed says nothing."""
    kinds = {kind: [0, 0] for kind in KINDS}
    failed, passes = [], []
    for case, (kind, words, needs) in cases.items():
        result = results.get(case)
        if result is None or any(results.get(need) is not True for need in needs):
            continue
        if result is not True and result[0] == "Setup":
            continue
        kinds[kind][1] += 1
        if result is True:
            kinds[kind][0] += 1
            # what is only looked at may change
            if kind != "check":
                passes.append(case)
        elif kind != "check":
            failed.append(f"{kind}: {case} ({words}): {result[1]}")
    required = kinds["required"]
    counts = {f"{kind}": f"{passed} of {of}" for kind, (passed, of) in kinds.items()}
    return {"door": name, "passed": required[0], "of": required[1], **counts, "failed": failed, "passes": sorted(passes)}


def run(tools, _options):
    home = install(tools)
    cases, origin, rows = known(home), doors.free_port(), []
    with doors.folder() as work:
        environment = {"npm_config_protocol": "http", "npm_config_port": str(origin), "npm_config_pidfile": str(work / "pid")}
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), doors.find("node"), str(home / "server/server.mjs")]
        # the server finds its files beside itself
        before = os.getcwd()
        os.chdir(home)
        with doors.running(command, origin, work / "origin.log"):
            os.chdir(before)
            with doors.ekiden(cache=True) as (proxy, _), autobahn.front(proxy, origin, "absolute", work) as port:
                rows.append(row("ekiden", cases, ask(home, port)))
            with doors.squid(cache=True) as proxy, autobahn.front(proxy, origin, "absolute", work) as port:
                rows.append(row("squid", cases, ask(home, port)))
            with doors.nginx(origin, cache=True) as port:
                rows.append(row("nginx", cases, ask(home, port)))
    return {"suite": PACKAGE, "command": "node cli.mjs, through the cache", "rows": rows}
