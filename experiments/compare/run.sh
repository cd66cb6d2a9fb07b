#!/bin/sh
# Other simulators on the dumbbell, kept as numbers:  experiments/compare/run.sh TOOL OUT [SCENARIO …]
#
#   apt-get install ns2                                  # TOOL ns2
#   apt-get install libns3-dev libgsl-dev g++ pkg-config            # TOOL ns3
#   experiments/compare/run.sh ns2 experiments/results/ns2
#   experiments/compare/run.sh ekiden experiments/results/ekiden      # TOOL ekiden: the simulator here
#
# One file a scenario, OUT/SCENARIO.json: what was run, on what, and a line of numbers for each seed.
# SEEDS="1 2 3" says which seeds. Not part of the tests: it takes some minutes, and let nothing else run
# if the times matter.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tool=${1:-}
out=${2:-}
[ -n "$tool" ] && [ -n "$out" ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
shift 2
seeds=${SEEDS:-"1 2 3 4 5"}

case $tool in
ns2)
    command -v ns >/dev/null || { echo "SKIPPED: ns-2 is not installed (apt-get install ns2)"; exit 0; }
    version=$(dpkg-query -W -f '${Version}' ns2 2>/dev/null || echo unknown)
    simulate() { ns "$here/ns2.tcl" "$@"; }
    ;;
ns3)
    modules="core network internet point-to-point applications traffic-control"
    prefix=$(pkg-config --list-all 2>/dev/null | sed -n 's/^\([^ ]*ns3[^ ]*-\)core .*/\1/p' | head -n 1)
    [ -n "$prefix" ] || { echo "SKIPPED: ns-3 is not installed (apt-get install libns3-dev libgsl-dev g++ pkg-config)"; exit 0; }
    packages=$(for module in $modules; do printf '%s%s ' "$prefix" "$module"; done)
    version=$(pkg-config --modversion "${prefix}core")
    built=$(mktemp -d)
    trap 'rm -r "$built"' EXIT
    # shellcheck disable=SC2046,SC2086  # flags are words
    g++ -O3 -std=c++17 "$here/ns3.cc" -o "$built/ns3" $(pkg-config --cflags --libs $packages)
    simulate() {
        for argument; do
            shift
            # its counters cannot be left out
            [ "$argument" = monitor=0 ] || set -- "$@" "--$argument"
        done
        "$built/ns3" "$@"
    }
    ;;
ekiden)
    version=$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)
    cargo bench -q -p ekiden-simulator --bench dumbbell --no-run
    simulate() { cargo bench -q -p ekiden-simulator --bench dumbbell -- "$@" | grep tool; }
    ;;
*)
    echo "$0: "$tool" is none of ns2, ns3 and ekiden" >&2
    exit 2
    ;;
esac

# scenario and what differs from the base: 100 flows, 10 Mb/s, 20 ms, queue 100, Newreno, 300 s
scenarios() {
    cat <<'END'
base
flows-1 flows=1
flows-10 flows=10
flows-30 flows=30
flows-300 flows=300
rate-2 rate=2
rate-50 rate=50 duration=60
delay-5 delay=5
delay-100 delay=100
queue-20 queue=20
queue-400 queue=400
reno variant=Reno
sack1 variant=Sack1
speed rate=1000 duration=10 monitor=0
speed-base monitor=0
END
}

machine="$(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(uname -sr)"
mkdir -p "$out"
scenarios | while read -r name settings; do
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    [ "$tool" = ns3 ] && [ "$name" = reno ] && continue
    file=$out/$name.json
    {
        printf '{\n  "scenario": "%s",\n  "settings": "%s",\n  "version": "%s",\n  "machine": "%s",\n  "runs": [' \
            "$name" "$settings" "$version" "$machine"
        between=
        for seed in $seeds; do
            begun=$(date +%s%N)
            # shellcheck disable=SC2086  # settings are words
            line=$(simulate $settings "seed=$seed") || line="{\"tool\": \"$tool\", \"seed\": $seed, \"failed\": $?}"
            ended=$(date +%s%N)
            process=$(echo "$begun $ended" | awk '{ printf "%.3f", ($2 - $1) / 1e9 }')
            printf '%s\n    %s, "process_s": %s}' "$between" "${line%\}}" "$process"
            between=,
        done
        printf '\n  ]\n}\n'
    } >"$file.new"
    mv "$file.new" "$file"
    echo "$file"
done
