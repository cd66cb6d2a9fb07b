#!/bin/sh
# A download over an emulated long, lossy link, directly and through ekiden: two minutes, one machine. Installs curl and
# nginx where they are missing.
set -eu
lacks() { ! command -v "$1" >/dev/null && [ ! -x "/usr/sbin/$1" ]; }
if lacks curl || lacks nginx; then
    sh "$(dirname "$0")/peers.sh" --demo || {
        echo "demo: curl and nginx are needed" >&2
        exit 1
    }
fi
out=${1:-results}
echo "demo: files of 1 and 4 MiB over 50 ms and 1 % loss, directly and through ekiden; two minutes at most" >&2
rm -rf "$out/demo/kernel"
target/release/ekiden lab run demo --out "$out"
echo "demo: the picture and all figures: $out/demo/kernel/report.html" >&2
