#!/bin/sh
# Installs what libbpf is built with, where it is missing: headers of libelf and zlib, and pkg-config to find them.
# Says what it does. `--check` only says what is missing (exit 1).
set -eu

if command -v pkg-config >/dev/null && pkg-config --exists libelf zlib; then
    exit 0
fi
missing=
for package in libelf-dev zlib1g-dev pkg-config; do
    case $package in
    libelf-dev) [ -e /usr/include/libelf.h ] ;;
    zlib1g-dev) [ -e /usr/include/zlib.h ] ;;
    pkg-config) command -v pkg-config >/dev/null ;;
    esac || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "${1-}" = --check ] || ! command -v apt-get >/dev/null; then
    echo "make: libbpf needs libelf, zlib and pkg-config; in Debian: apt-get install$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    echo "make: asking for root with sudo"
fi
echo "make: apt-get install --no-install-recommends$missing"
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
