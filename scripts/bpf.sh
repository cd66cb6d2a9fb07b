#!/bin/sh
# Makes the BPF programs of crates/linux/bpf anew; `--check` compares with what the repository has instead (exit 1
# where it differs). Either needs Debian 12's clang: another version writes other bytes. Where there is none, the check
# is skipped, loudly (in CI it fails).
set -eu
cd "$(dirname "$0")/../crates/linux/bpf"

if ! command -v clang-14 >/dev/null || ! command -v llvm-strip-14 >/dev/null; then
    if [ "${1-}" = --check ] && [ -z "${CI-}" ]; then
        echo "SKIPPED: no clang-14 and llvm-strip-14, so the BPF programs are not compared with their sources"
        exit 0
    fi
    echo "bpf: clang-14 and llvm-strip-14 are needed: apt-get install clang-14 llvm-14 (Debian 12)" >&2
    exit 1
fi
if [ "${1-}" != --check ]; then
    exec make -B
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
make -s OUT="$folder"
for object in *.bpf.o; do
    if ! cmp "$object" "$folder/$object"; then
        echo "bpf: crates/linux/bpf/$object is not what its source makes: make bpf, and commit it" >&2
        exit 1
    fi
done
echo "bpf: the programs are what their sources make"
