#!/usr/bin/env python3
"""Makes or extends a Debian repository: `repository.py KEY FOLDER PACKAGE.deb…`.

KEY is a secret key of gpg (fingerprint, number or address), which signs. FOLDER gets pool/, dists/stable/ with an index
for each architecture, and ekiden.gpg, the public key for `signed-by`. Packages that are there already stay, so that an
older version can still be installed.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

SUITE, COMPONENT = "stable", "main"
ARCHITECTURES = ["amd64", "arm64"]


def gpg(*arguments, **more):
    try:
        return subprocess.run(["gpg", "--batch", "--yes", *arguments], check=True, **more)
    except FileNotFoundError:
        sys.exit("repository: gpg is missing; in Debian: apt-get install gpg gpg-agent")
    except subprocess.CalledProcessError as error:
        sys.exit(f"repository: gpg failed ({error.returncode}): gpg {' '.join(arguments)}")


def hashes(content):
    return hashlib.sha256(content).hexdigest()


def control(package):
    """The fields of a package, as a dictionary and as its text."""
    run = subprocess.run(["dpkg-deb", "--field", str(package)], stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"repository: {package} is no Debian package")
    fields = dict(line.split(": ", 1) for line in run.stdout.splitlines() if ": " in line and line[0] != " ")
    return fields, run.stdout.strip()


def keep(package, pool):
    """Copies a package into the pool. A version that was published does not change: machines have it by its hash."""
    fields, _ = control(package)
    to = pool / f"{fields['Package']}_{fields['Version']}_{fields['Architecture']}.deb"
    content = package.read_bytes()
    if to.exists() and to.read_bytes() != content:
        sys.exit(f"repository: {to} has other content; raise the version, or remove that file if nobody has it")
    to.parent.mkdir(parents=True, exist_ok=True)
    new = to.with_suffix(".new")
    new.write_bytes(content)
    new.rename(to)


def stanza(package, folder):
    _, text = control(package)
    content = package.read_bytes()
    more = f"Filename: {package.relative_to(folder)}\nSize: {len(content)}\nSHA256: {hashes(content)}\n"
    return f"{text}\n{more}"


def main(key, folder, packages):
    folder = Path(folder)
    # before anything is written
    gpg("--list-secret-keys", key, stdout=subprocess.DEVNULL)
    pool = folder / "pool" / COMPONENT / "e" / "ekiden"
    for package in packages:
        keep(Path(package), pool)
    # between the two renames there is no dists/: apt, which asks then, fails and finds the new state the next time
    new = folder / "dists.new"
    shutil.rmtree(new, ignore_errors=True)
    suite = new / SUITE
    for architecture in ARCHITECTURES:
        there = sorted(pool.glob(f"*_{architecture}.deb"))
        index = "\n".join(stanza(package, folder) for package in there).encode()
        place = suite / COMPONENT / f"binary-{architecture}"
        place.mkdir(parents=True)
        (place / "Packages").write_bytes(index)
        (place / "Packages.gz").write_bytes(gzip.compress(index, 9, mtime=0))
    files = sorted(path for path in suite.rglob("*") if path.is_file())
    sums = "".join(f" {hashes(f.read_bytes())} {f.stat().st_size} {f.relative_to(suite)}\n" for f in files)
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or datetime.now().timestamp(), timezone.utc)
    (suite / "Release").write_text(
        f"Origin: Ekiden\nLabel: Ekiden\nSuite: {SUITE}\nCodename: {SUITE}\n"
        f"Date: {date:%a, %d %b %Y %H:%M:%S} UTC\nArchitectures: {' '.join(ARCHITECTURES)}\n"
        f"Components: {COMPONENT}\nDescription: Ekiden, a TCP accelerator\nSHA256:\n{sums}"
    )
    release = str(suite / "Release")
    sign = ["--local-user", key, "--digest-algo", "SHA512", "--output"]
    gpg(*sign, f"{suite}/InRelease", "--clearsign", release)
    gpg(*sign, f"{suite}/Release.gpg", "--armor", "--detach-sign", release)
    gpg("--output", str(folder / "ekiden.gpg"), "--export", key)
    old = folder / "dists.old"
    shutil.rmtree(old, ignore_errors=True)
    if (folder / "dists").exists():
        (folder / "dists").rename(old)
    new.rename(folder / "dists")
    shutil.rmtree(old, ignore_errors=True)
    print(f"repository: {folder}, with {len(list(pool.glob('*.deb')))} packages, signed by {key}")


if __name__ == "__main__":
    if len(sys.argv) < 4 or not sys.argv[1]:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
