#!/bin/sh
# Everything that a release publishes, in target/packages: Debian packages, static programs, lean programs for routers,
# container images, bills of materials, checksums. Names have version and architecture.
#
#   ARCHITECTURES="amd64 arm64"   those to make
#   KINDS="full lean"             with all features, and for routers
#   PROGRAM=FILE                  packages this program, of this machine's architecture, and builds nothing
#   OUT=FOLDER                    instead of target/packages; replaced where an earlier run made it
#   COMPRESS=xz                   of the Debian packages, as dpkg-deb's -Z
#
# The files are dated by the last commit, so that the same sources give the same packages.
set -eu

root=$(CDPATH='' cd -- "$(dirname "$0")/../.." && pwd)
here=$root/scripts/packages
out=${OUT:-$root/target/packages}
program=${PROGRAM-}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)

say() { echo "packages: $*"; }
fail() {
    echo "packages: $*" >&2
    exit 1
}

missing=
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: packages are made on Debian or its relatives"
command -v python3 >/dev/null || missing="$missing python3"
if [ -z "$program" ]; then
    command -v make >/dev/null || missing="$missing make"
    python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
if [ -n "$missing" ]; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    say "apt-get install --no-install-recommends$missing"
    $as_root apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
fi

own=$(dpkg --print-architecture)
if [ -n "$program" ]; then
    [ -x "$program" ] || fail "no program $program"
    ARCHITECTURES=$own
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CHANGELOG.md")}
export SOURCE_DATE_EPOCH

# what an earlier run made is replaced, and nothing else
if [ -e "$out" ] && [ -n "$(ls -A "$out" 2>/dev/null || echo file)" ]; then
    [ -d "$out" ] && grep -qs ' ekiden_' "$out/SHA256SUMS" ||
        fail "$out has files that are not packages of an earlier run: name an empty folder by OUT, or one that is not there"
fi

# nothing of an earlier run among the checksums, nothing half-made under its final name
new=$out.new
rm -rf "$new"
mkdir -p "$new"
helper=
for architecture in ${ARCHITECTURES:-$own $([ "$own" = amd64 ] && echo arm64 || echo amd64)}; do
    case $architecture in
    amd64) processor=x86_64 ;;
    arm64) processor=aarch64 ;;
    *) fail "no packages for $architecture: amd64 or arm64" ;;
    esac
    target=$processor-unknown-linux-musl
    for kind in ${KINDS:-full lean}; do
        case $kind in full | lean) ;; *) fail "no program called $kind: full or lean" ;; esac
        if [ -n "$program" ]; then
            [ "$kind" = full ] || continue
            built=$program
        else
            built=$(sh "$here/build.sh" "$processor" "$kind" | tail -n 1)
        fi
        [ -x "$built" ] || fail "the $kind program for $target was not built"
        suffix=${version}_linux_$processor
        [ "$kind" = full ] || suffix=lean_$suffix
        python3 "$here/bill.py" sbom "$target" "$kind" >"$new/ekiden_$suffix.cdx.json"
        [ -n "$program" ] || install -m 755 "$built" "$new/ekiden_$suffix"
        [ "$kind" = full ] || continue
        # the manual page and the completions are the same for all architectures
        if [ "$architecture" = "$own" ]; then helper=$built; fi
        helper=${helper:-$built}
        "$helper" --version >/dev/null 2>&1 ||
            fail "$helper does not run here, and prints the manual page: begin with $own, ARCHITECTURES=\"$own $architecture\""
        say "ekiden_${version}_$architecture.deb and its image"
        python3 "$here/bill.py" notices "$target" "$kind" >"$new/THIRD-PARTY.txt"
        sh "$here/deb.sh" "$built" "$architecture" "$helper" "$new/THIRD-PARTY.txt" "$new/ekiden_${version}_$architecture.deb"
        python3 "$here/image.py" "$built" "$architecture" "$version" "$new/ekiden_${version}_linux_$architecture.oci.tar"
    done
done
(cd "$new" && sha256sum -- * >"../SHA256SUMS.$$" && mv "../SHA256SUMS.$$" SHA256SUMS)
rm -rf "$out"
mv "$new" "$out"
say "in $out:"
ls -l "$out" | awk 'NR > 1 { printf "%10.1f MiB  %s\n", $5 / 1048576, $9 }'
