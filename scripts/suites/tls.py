"""testssl.sh on the TLS port of Ekiden, and of nginx: protocols, ciphers, and the attacks it knows."""

import json
import subprocess

import doors

BAD = ("LOW", "MEDIUM", "HIGH", "CRITICAL", "WARN")
# of a certificate that signs itself, which clients are told to trust, and of testssl's own OpenSSL; whichever server shows it
NOT_OF_THE_SERVER = ("engine_problem", "cert_chain_of_trust", "cert_crlDistributionPoints", "cert_revocation", "OCSP_stapling", "cert_ocspURL", "DNS_CAArecord")


def ask(program, door, port):
    with doors.folder() as home:
        report = home / "report.json"
        command = [program, "--quiet", "--warnings", "off", "--color", "0", "-p", "-s", "-f", "-S", "-P", "-U", "--jsonfile", str(report)]
        subprocess.run([*command, f"localhost:{port}"], capture_output=True, stdin=subprocess.DEVNULL, timeout=1800)
        found = json.loads(report.read_text())
    judged = [it for it in found if it["severity"] in (*BAD, "OK", "INFO")]
    bad = [it for it in judged if it["severity"] in BAD and not it["id"].startswith(NOT_OF_THE_SERVER)]
    failed = [f"{it['id']}: {it['severity']}: {it['finding']}" for it in bad]
    passes = sorted({it["id"] for it in judged} - {it["id"] for it in bad})
    return {"door": door, "passed": len(judged) - len(failed), "of": len(judged), "failed": failed, "passes": passes}


def run(_tools, _options):
    program = doors.find("testssl", "testssl.sh")
    with doors.ekiden(tls=True) as (port, _certificate):
        rows = [ask(program, "ekiden", port)]
    with doors.origin() as origin, doors.nginx(origin, tls=True) as port:
        rows.append(ask(program, "nginx", port))
    command = "testssl --quiet --warnings off -p -s -f -S -P -U localhost:PORT"
    return {"suite": doors.version("dpkg-query", "-W", "testssl.sh"), "command": command, "rows": rows}
