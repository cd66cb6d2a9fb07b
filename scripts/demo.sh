#!/bin/sh
# A download over an emulated long, lossy link, directly and through ekiden: two minutes, one machine.
set -eu
for program in curl nginx; do
    command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || {
        echo "demo: $program is needed: apt-get install $program" >&2
        exit 1
    }
done
out=${1:-results}
echo "demo: files of 1 and 4 MiB over 50 ms and 1 % loss, directly and through ekiden; two minutes at most" >&2
rm -rf "$out/demo/kernel"
target/release/ekiden lab run demo --out "$out"
echo "demo: the picture and all figures: $out/demo/kernel/report.html" >&2
