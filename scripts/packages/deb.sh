#!/bin/sh
# Makes a Debian package: deb.sh PROGRAM amd64|arm64 HELPER NOTICES OUT. HELPER is a program of the same version that
# runs here and prints manual page and completions. SOURCE_DATE_EPOCH dates the files; COMPRESS is dpkg-deb's -Z (xz).
set -eu

program=$1 architecture=$2 helper=$3 notices=$4 out=$5
root=$(CDPATH='' cd -- "$(dirname "$0")/../.." && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# mktemp's mode would become that of /
chmod 755 "$tree"
umask 022

put() { install -D -m "$1" "$2" "$tree$3"; }
packaging=$root/packaging
doc=/usr/share/doc/ekiden
put 755 "$program" /usr/bin/ekiden
put 644 "$packaging/ekiden.service" /usr/lib/systemd/system/ekiden.service
put 644 "$packaging/ekiden.sysusers" /usr/lib/sysusers.d/ekiden.conf
put 644 "$packaging/ekiden.tmpfiles" /usr/lib/tmpfiles.d/ekiden.conf
put 644 "$packaging/config.toml" /etc/ekiden/config.toml
put 644 "$packaging/ekiden.logrotate" /etc/logrotate.d/ekiden
put 644 "$packaging/copyright" $doc/copyright
# the licence with its own copyright line, as the format wants it: indented, empty lines as dots
{
    echo 'License: MIT'
    sed 's/^$/./; s/^/ /' "$root/LICENSE-MIT"
} >>"$tree$doc/copyright"
put 644 "$root/config.example.toml" $doc/examples/config.example.toml
put 644 "$packaging/monitoring/alerts.yml" $doc/examples/alerts.yml
put 644 "$packaging/monitoring/grafana.json" $doc/examples/grafana.json
put 644 "$root/CHANGELOG.md" $doc/changelog
put 644 "$notices" $doc/THIRD-PARTY
mkdir -p "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions" \
    "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/fish/vendor_completions.d"
"$helper" man >"$tree/usr/share/man/man1/ekiden.1"
"$helper" completions bash >"$tree/usr/share/bash-completion/completions/ekiden"
"$helper" completions zsh >"$tree/usr/share/zsh/vendor-completions/_ekiden"
"$helper" completions fish >"$tree/usr/share/fish/vendor_completions.d/ekiden.fish"
gzip -9n "$tree$doc/changelog" "$tree$doc/THIRD-PARTY" "$tree/usr/share/man/man1/ekiden.1"

control=$tree/DEBIAN
mkdir "$control"
size=$(du -sk --apparent-size "$tree" | cut -f 1)
# no Depends: the program is static, and the scripts use what is essential, and systemd where it is there
cat >"$control/control" <<END
Package: ekiden
Version: $version
Architecture: $architecture
Maintainer: ${MAINTAINER:-The Ekiden authors <authors@ekiden.invalid>}
Section: net
Priority: optional
Installed-Size: $size
Recommends: ca-certificates
Suggests: logrotate, nftables
Description: TCP accelerator for long, lossy, asymmetric and shared links
 Ekiden cuts a long TCP path into legs. Each leg has its own congestion control,
 pace and buffers. Between two relays a tunnel holds its rate across loss and
 sends keystrokes before downloads.
 .
 Clients speak HTTP, CONNECT, SOCKS5 or SOCKS4a. The relay has accounts with
 rates and quotas, an HTTP cache, and a laboratory with emulated links.
END
printf '%s\n' /etc/ekiden/config.toml /etc/logrotate.d/ekiden >"$control/conffiles"
install -m 755 "$packaging/debian/postinst" "$packaging/debian/prerm" "$packaging/debian/postrm" "$control/"
(cd "$tree" && find etc usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2) >"$control/md5sums"
dpkg-deb --root-owner-group "-Z${COMPRESS:-xz}" --build "$tree" "$out.new" >/dev/null
mv "$out.new" "$out"
