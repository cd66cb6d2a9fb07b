#!/bin/sh
# The daemon's pages in Chromium: looked at (Playwright, axe), graded (Lighthouse), their first paint over a long link, with
# ten thousand rows, and their history while the clock jumps.
# Pictures go to target/dashboard/pictures, figures to experiments/results/dashboard. Root, for the links; half an hour.
# Installs Playwright, axe and Lighthouse from npm into target/dashboard, and Japanese letters from Debian.
set -eu
[ "$(id -u)" = 0 ] || {
    echo "dashboard: root is needed, for the emulated links" >&2
    exit 1
}
for program in node npm chromium; do
    command -v "$program" >/dev/null || {
        echo "dashboard: $program is missing: sh scripts/peers.sh" >&2
        exit 1
    }
done
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || apt-get install -y --no-install-recommends libfaketime
fc-list :lang=ja | grep -q . || apt-get install -y --no-install-recommends fonts-ipafont-gothic
root=$(cd "$(dirname "$0")/../.." && pwd)
place=$root/target/dashboard
mkdir -p "$place"
cp "$root"/scripts/dashboard/*.mjs "$root"/scripts/dashboard/package*.json "$place"
cd "$place"
echo "dashboard: npm ci, in target/dashboard (200 MB)"
npm ci --ignore-scripts --no-audit --no-fund
exec node run.mjs "$@" --ekiden "$root/target/quick/ekiden" --results "$root/experiments/results/dashboard" --pictures "$place/pictures" --book "$root/docs/book/src/images"
