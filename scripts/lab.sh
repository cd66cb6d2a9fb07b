#!/bin/sh
# The long measurements, five hours or so: the experiments on this machine's kernel, the emulator beside
# rattan, opening connections, the comparison with other relays in full, the soak of 64 GiB a pair of ends, the leak check with 20,000
# connections. Results go to the folder given. Let nothing else run.
set -eu
out=$1/relays
mkdir -p "$out"
root=$(pwd)

machine() {
    echo "machine: $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(uname -sr)"
    echo "version: $(target/release/ekiden --version), $(git describe --always --dirty 2>/dev/null || echo no git)"
}

# a log with the machine and the command in front, shown as it grows
kept() {
    file=$out/$1
    shift
    { machine; echo "command: $*"; } | tee "$file"
    # the exit code of the command, not of tee
    { "$@" 2>&1; echo $? >"$file.code"; } | tee -a "$file"
    code=$(cat "$file.code")
    rm "$file.code"
    return "$code"
}

target/release/ekiden lab run thin-client --out "$1"
target/release/ekiden lab run proxy-pressure --out "$1"
sh scripts/peers.sh --sing-box || echo "SKIPPED: hysteria2 in the experiments satellite and pages"
sh scripts/peers.sh --caddy || echo "SKIPPED: HTTP/3 in the experiment pages"
target/release/ekiden lab run satellite --out "$1"
target/release/ekiden lab run pages --out "$1"
target/release/ekiden lab run island --engine sim --out "$1"
target/release/ekiden lab run island --out "$1"
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$1/link"
    cargo bench -p ekiden-studies --bench link -- --ekiden "$root/target/release/ekiden" --json "$root/$1/link/quiet.json"
else
    echo "SKIPPED: the emulator beside rattan needs root"
fi
mkdir -p "$1/opening"
for loss in 0% 5% 10%; do
    for rtt in 10ms 50ms 300ms; do
        cargo bench -p ekiden-studies --bench opening -- --ekiden "$root/target/release/ekiden" --openings 2000 \
            --rtt "$rtt" --loss "$loss" --json "$root/$1/opening/rtt-$rtt-loss-${loss%\%}.json"
    done
done
kept soak.txt env EKIDEN_SOAK_MIB=65536 cargo test --release --package ekiden-proxy --test alone soak -- --nocapture
kept leaks.txt env EKIDEN_LEAKS_SEQUENTIAL=20000 EKIDEN_LEAKS_CONCURRENT=2000 \
    cargo test --release --package ekiden --test it leaks:: -- --nocapture
kept default.txt cargo bench --package ekiden-studies --bench relays -- \
    --ekiden "$root/target/release/ekiden" --json "$root/$out/default.json"
# every socket with cubic: bbr paces by timers, which costs every relay alike
if [ "$(id -u)" = 0 ]; then
    kept cubic.txt cargo bench --package ekiden-studies --bench relays -- --congestion cubic \
        --ekiden "$root/target/release/ekiden" --json "$root/$out/cubic.json"
    for control in bbr cubic; do
        kept "gateway-$control.txt" cargo bench --package ekiden-studies --bench gateway -- --congestion "$control" \
            --ekiden "$root/target/release/ekiden" --json "$root/$out/gateway-$control.json"
    done
else
    echo "SKIPPED: the comparisons with cubic and of gateways need root, for network namespaces of their own"
fi
