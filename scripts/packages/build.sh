#!/bin/sh
# Builds the program for packages, static with musl, libbpf, libelf, zlib, SQLite and zstd inside (decision 14):
# build.sh x86_64|aarch64 full|lean. Prints the program's path as its last line. Zig's C compiler (PyPI) and Rust's
# targets (rustup) are fetched where they are missing; the script says so.
set -eu

zig=0.17.1
arch=${1:?x86_64 or aarch64}
kind=${2:?full or lean}
root=$(CDPATH='' cd -- "$(dirname "$0")/../.." && pwd)
cargo=${CARGO:-cargo}
tools=$root/target/packages-tools
target=$arch-unknown-linux-musl

say() { echo "packages: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

case $arch in x86_64 | aarch64) ;; *) fail "no build for $arch: x86_64 or aarch64" ;; esac
case $kind in
full) profile=packaged features= flags= ;;
lean)
    profile=lean features="--no-default-features --features lean"
    # no tables to unwind, and none to load it anywhere; sequences of instructions that repeat as functions
    flags=" -Cforce-unwind-tables=no -Clink-arg=--no-eh-frame-hdr -Clink-arg=-T$root/packaging/lean.ld"
    flags="$flags -Crelocation-model=static -Cllvm-args=-enable-machine-outliner=always"
    # equal functions once: Rust's, which promises nothing about their addresses. SQLite compares those of its own, and
    # without sections for each function none of C's is taken for another
    flags="$flags -Clink-arg=--icf=all"
    export "CFLAGS_${arch}_unknown_linux_musl=-fno-function-sections"
    ;;
*) fail "no build called $kind: full or lean" ;;
esac

if [ "$(cat "$tools/zig/version" 2>/dev/null)" != "$zig" ]; then
    command -v python3 >/dev/null || fail "zig comes by python3; in Debian: apt-get install python3-venv"
    say "pip install ziglang==$zig, in target/packages-tools"
    rm -rf "$tools/zig"
    mkdir -p "$tools"
    python3 -m venv "$tools/zig" || fail "no venv for zig; in Debian: apt-get install python3-venv"
    "$tools/zig/bin/pip" install --quiet --disable-pip-version-check "ziglang==$zig"
    program=$("$tools/zig/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__) + "/zig")')
    ln -sf "$program" "$tools/zig/bin/zig"
    echo "$zig" >"$tools/zig/version"
fi
if [ ! -e "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    command -v rustup >/dev/null || fail "Rust's target $target is missing, and so is rustup to add it: https://rustup.rs"
    say "rustup target add $target"
    rustup target add "$target" >&2
fi

# zig knows its targets by other names than cargo's
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
mkdir -p "$tools/$arch"
for language in cc c++; do
    cat >"$tools/$arch/$language.new" <<END
#!/bin/sh
for argument in "\$@"; do
    shift
    case \$argument in --target=*) ;; *) set -- "\$@" "\$argument" ;; esac
done
exec "$tools/zig/bin/zig" $language -target $arch-linux-musl -fno-sanitize=all "-ffile-prefix-map=$registry=" -Wno-everything "\$@"
END
    chmod +x "$tools/$arch/$language.new"
    # an unchanged file keeps cargo from building again
    if cmp -s "$tools/$arch/$language.new" "$tools/$arch/$language"; then
        rm "$tools/$arch/$language.new"
    else
        mv "$tools/$arch/$language.new" "$tools/$arch/$language"
    fi
done
printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$tools/zig/bin/zig" >"$tools/ar"
chmod +x "$tools/ar"

# libelf and zlib, from the sources that libbpf-sys brings: its own way to build them takes autotools and glibc
if [ "$kind" = full ] && [ ! -e "$tools/$arch/lib/libelf.a" ]; then
    say "compiling libelf and zlib for $target"
    "$cargo" fetch --locked --quiet --manifest-path "$root/Cargo.toml"
    sources=$("$cargo" metadata --locked --format-version 1 --manifest-path "$root/Cargo.toml" | python3 -c '
import json, os, sys
found = [p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "libbpf-sys"]
print(os.path.dirname(found[0]))')
    work=$tools/$arch/objects
    rm -rf "$work"
    mkdir -p "$work/elf" "$work/z" "$tools/$arch/lib" "$tools/$arch/include"
    cp "$sources"/elfutils/libelf/*.h "$sources/zlib/zlib.h" "$sources/zlib/zconf.h" "$tools/$arch/include/"
    cp "$root/packaging/libelf-config.h" "$work/config.h"
    (
        cd "$work/elf"
        # shellcheck disable=SC2086 # the flags are words
        "../../cc" -O2 -fPIC -std=gnu99 -D_GNU_SOURCE -DHAVE_CONFIG_H -I.. "-I$sources/elfutils/lib" \
            "-I$sources/elfutils/libelf" "-I$sources/zlib" -c "$sources"/elfutils/libelf/*.c
        cd "$work/z"
        "../../cc" -O2 -fPIC -D_LARGEFILE64_SOURCE=1 -DHAVE_UNISTD_H -DHAVE_STDARG_H -c "$sources"/zlib/*.c
    )
    "$tools/ar" rcs "$tools/$arch/lib/libz.a" "$work"/z/*.o
    # the last one made: its presence says that all are
    "$tools/ar" rcs "$tools/$arch/libelf.a.new" "$work"/elf/*.o
    mv "$tools/$arch/libelf.a.new" "$tools/$arch/lib/libelf.a"
    rm -rf "$work"
fi

under=$(echo "$target" | tr - _)
upper=$(echo "$under" | tr a-z A-Z)
# cargo takes these by the name of the target
export "CC_$under=$tools/$arch/cc" "CXX_$under=$tools/$arch/c++" "AR_$under=$tools/ar" "AR=$tools/ar"
# Rust brings musl's objects, and a linker for all processors
export "CARGO_TARGET_${upper}_LINKER=rust-lld"
# no folder of this machine in the program
export "CARGO_TARGET_${upper}_RUSTFLAGS=--remap-path-prefix=$registry= --remap-path-prefix=$root/=$flags"
export "LIBBPF_SYS_LIBRARY_PATH=$tools/$arch/lib" "LIBBPF_SYS_EXTRA_CFLAGS=-I$tools/$arch/include" PKG_CONFIG=true
export "CARGO_TARGET_DIR=$root/target/packages-build"
say "building the $kind program for $target"
# shellcheck disable=SC2086 # none or some words
"$cargo" build --locked --profile "$profile" --target "$target" --package ekiden $features --manifest-path "$root/Cargo.toml" >&2
echo "$CARGO_TARGET_DIR/$target/$profile/ekiden"
