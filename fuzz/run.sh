#!/bin/sh
# Fuzzes one parser for a while:  fuzz/run.sh TARGET [SECONDS]
#
# Needs a stable Rust and a C++ compiler (libFuzzer is built by the libfuzzer-sys crate); cargo-fuzz
# and a nightly Rust are not needed. There is no address sanitizer: the parsers hold no unsafe.
#
# Inputs that widen coverage are kept in fuzz/corpus/TARGET and crashes in fuzz/artifacts/TARGET,
# both ignored by git; fuzz/seeds/TARGET is where every run begins. The log ends with the figures.
set -eu
cd "$(dirname "$0")"
targets="http_request http_response chunked socks config destination link_text capture acknowledgement tunnel_frames"
target=${1:-}
seconds=${2:-600}
case " $targets " in
*" $target "*) [ -n "$target" ] ;;
*) false ;;
esac || { echo "usage: $0 TARGET [SECONDS]; targets: $targets" >&2; exit 2; }

host=$(rustc -vV | sed -n 's/^host: //p')
# the flags cargo-fuzz gives, but for the sanitizer; with --target they do not reach build scripts
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing" \
    cargo build --locked --release --target "$host" --bin "$target"

mkdir -p "corpus/$target" "artifacts/$target" "seeds/$target"
dictionary=
[ -f "dictionaries/$target" ] && dictionary="-dict=dictionaries/$target"
exec nice -n 19 "${CARGO_TARGET_DIR:-target}/$host/release/$target" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" $dictionary "corpus/$target" "seeds/$target"
