#!/bin/sh
# `make packages-test`: what `make packages` made is installed, run, upgraded and purged in a fresh Debian 12 with its own
# systemd (debootstrap, systemd-nspawn), from a file and from a repository; the static programs serve in an empty tree,
# arm64's under qemu. Takes root, Debian's mirror and some minutes. Leaves target/packages-test/base, to begin from.
#
#   MIRROR=URL   of Debian   [http://deb.debian.org/debian]
set -eu

root=$(CDPATH='' cd -- "$(dirname "$0")/../.." && pwd)
here=$root/scripts/packages
packages=${1:-$root/target/packages}
work=$root/target/packages-test
tree=$work/tree
architecture=$(dpkg --print-architecture)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
deb=$packages/ekiden_${version}_$architecture.deb

say() { echo "packages-test: $*"; }
fail() {
    say "FAILED: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "this takes root: sudo make packages-test"
[ -e "$deb" ] || fail "$deb is missing: run \`make packages\` first"
missing=
for package in debootstrap systemd-container qemu-user-static gpg gpg-agent curl python3; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
    say "apt-get install --no-install-recommends$missing"
    apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
fi
if [ ! -e "$work/base/.complete" ]; then
    say "debootstrap bookworm, in target/packages-test/base"
    rm -rf "$work/base"
    mkdir -p "$work"
    debootstrap --include=ca-certificates,curl bookworm "$work/base" \
        "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1 ||
        fail "debootstrap, see target/packages-test/debootstrap.log"
    touch "$work/base/.complete"
fi

machine= leader= others=
stop() {
    # at once and not by a shutdown: with the first process all of that machine end
    for process in $leader $others; do kill -KILL "$process" 2>/dev/null || true; done
    machine= leader= others=
    wait || true
}
finish() {
    code=$?
    stop
    umount "$tree"/proc 2>/dev/null || true
    rm -rf "$tree" "$work/image" "$work/empty" "$work/keys" "$work/repository"
    exit $code
}
trap finish EXIT
trap 'exit 1' INT TERM

# ---- a machine ------------------------------------------------------------------------------------------------------

boot() {
    rm -rf "$tree"
    cp -a "$work/base" "$tree"
    # what installs users keeps the last state in these, and the login shell asks for a name at the first start
    for file in passwd group shadow gshadow; do cp -p "$tree/etc/$file" "$tree/etc/$file-"; done
    setsid systemd-nspawn -q -D "$tree" --boot --register=no --keep-unit --private-network --link-journal=no \
        --capability=CAP_BPF,CAP_PERFMON --system-call-filter=bpf >"$work/boot.log" 2>&1 </dev/null &
    machine=$!
    leader=
    for _ in $(seq 600); do
        leader=$(pgrep -P "$machine" -x systemd || true)
        if [ -n "$leader" ]; then
            case $(inside systemctl is-system-running 2>/dev/null || true) in running | degraded) break ;; esac
        fi
        kill -0 "$machine" 2>/dev/null || fail "the machine did not start, see target/packages-test/boot.log"
        sleep 0.1
    done
    inside systemctl is-system-running >/dev/null 2>&1 || inside systemctl is-system-running | grep -q degraded ||
        fail "the machine is not up after a minute"
    # a server to ask
    mkdir -p "$tree/srv/www"
    echo served >"$tree/srv/www/index.html"
    nsenter --target "$leader" --net python3 -m http.server 8080 --bind 127.0.0.1 --directory "$tree/srv/www" >/dev/null 2>&1 &
    others="$others $!"
}

# as sudo would: no variable of ours
inside() {
    nsenter --target "$leader" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
}

# all files with their hashes, without what apt, dpkg and the running system write about themselves
files() {
    inside sh -c 'cd / && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp -o -path ./var/tmp \
        -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache/apt -o -path ./var/log -o -path ./srv \
        -o -path ./var/lib/systemd/catalog -o -path ./var/lib/systemd/timers -o -path ./var/lib/systemd/random-seed \
        -o -path ./var/cache/debconf -o -path ./var/cache/man -o -path ./var/lib/logrotate -o -path ./var/cache/ldconfig -o -path "./etc/*-" -o -path ./root/.bash_history \) -prune \
        -o \( -type f -printf "%p %u %m " -exec sha256sum -z {} \; -printf "\n" -o -printf "%p %y %u %m %l\n" \) | tr -d "\000" | sort
        ls -d /var/log/* /run/ekiden* /tmp/ekiden* 2>/dev/null || true'
}

# until a command succeeds, 20 s at most
await() {
    what=$1
    shift
    for _ in $(seq 200); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    inside journalctl -u ekiden --no-pager | tail -n 20 >&2 || true
    fail "$what; see target/packages-test"
}

served() { [ "$(inside curl -s -m 5 -x "${1:-http://127.0.0.1:3128}" http://127.0.0.1:8080/)" = served ]; }
configure() {
    printf '%s\n' '[access]' 'allow_destinations = ["127.0.0.0/8"]' "$@" | inside tee /etc/ekiden/config.toml >/dev/null
    inside ekiden check /etc/ekiden/config.toml >/dev/null || fail "the test's configuration"
}

say "a fresh Debian 12 starts"
boot
files >"$work/before"

# ---- install --------------------------------------------------------------------------------------------------------

cp "$deb" "$tree/root/"
say "apt install ./$(basename "$deb")"
begun=$(date +%s%N)
inside apt-get install -qy "/root/$(basename "$deb")" >"$work/apt.log" 2>&1 || fail "apt, see target/packages-test/apt.log"
await "the relay does not listen" inside curl -s -m 1 -o /dev/null http://127.0.0.1:3128/
took=$((($(date +%s%N) - begun) / 1000000))
say "first byte $took ms after the beginning of apt install"
[ "$took" -le 20000 ] || fail "more than 20 s"
[ "$(inside systemctl is-active ekiden)" = active ] || fail "not active"
[ "$(inside systemctl is-enabled ekiden)" = enabled ] || fail "not enabled"
inside systemd-analyze verify --man=no ekiden.service || fail "systemd-analyze verify"
inside systemd-analyze security --offline=true --threshold=30 /usr/lib/systemd/system/ekiden.service >"$work/security" 2>/dev/null ||
    fail "exposure above 3.0: $(tail -n 1 "$work/security")"
say "$(tail -n 1 "$work/security" | cut -c 5-)"
inside ekiden status | grep -q 'listening on 127.0.0.1:3128' || fail "sudo ekiden status"
process=$(inside systemctl show -P MainPID ekiden)
inside sh -c "grep -E '^(Uid|CapEff|NoNewPrivs|Seccomp):' /proc/$process/status" >"$work/process"
# NET_BIND_SERVICE 10, NET_ADMIN 12, SYS_NICE 23
grep -q '^CapEff:.*0000000000801400$' "$work/process" || fail "capabilities: $(cat "$work/process")"
grep -q "^Uid:.*$(inside id -u ekiden)" "$work/process" || fail "user: $(cat "$work/process")"
inside ls /usr/share/man/man1/ekiden.1.gz >/dev/null || fail "no manual page"
inside bash -c '. /usr/share/bash-completion/completions/ekiden && complete -p ekiden' >/dev/null || fail "bash completion"

# ---- set up by one command --------------------------------------------------------------------------------------------

# the daemon listens on 127.0.0.1:3128 as it was installed; special destinations are opened for the test's server
printf '%s\n' '[access]' 'allow_destinations = ["127.0.0.0/8"]' | inside tee -a /etc/ekiden/config.toml >/dev/null
line=$(inside ekiden init half-way --name localhost --yes 2>"$work/init.log") || fail "init half-way: $(cat "$work/init.log")"
await "curl through the account" sh -c '[ "$(nsenter --target "$1" --all env -i PATH=/usr/bin:/bin curl -s -m 5 -p \
    --proxy-cacert /var/lib/ekiden/tls/certificate.pem -x "$2" http://127.0.0.1:8080/)" = served ]' sh "$leader" "$line"
inside ekiden status | grep -q 'listening on .*0.0.0.0:3128' || fail "init half-way does not listen for others"
! inside setpriv --reuid nobody --clear-groups ekiden account list >"$work/nobody.log" 2>&1 && grep -q 'run this with sudo' "$work/nobody.log" ||
    fail "another user than root: $(cat "$work/nobody.log")"
strange=$(inside find /var/lib/ekiden ! -user ekiden)
[ -z "$strange" ] || fail "init half-way left files that are not the daemon's: $strange"
inside ekiden account remove home >/dev/null || fail "account remove"
say "init half-way: one command, and an account logs in"

# ---- serve, reload, accounts, peers -----------------------------------------------------------------------------------

configure '[tunnel]' 'listen = ["127.0.0.1:4433"]' '[log]' 'access = "/var/log/ekiden/access.log"' \
    '[cache]' 'memory = "16 MiB"' 'disk = "64 MiB"' 'directory = "/var/cache/ekiden"' '[accounts]' 'enabled = true' 'required = false' '[[rule]]' 'from = ["127.0.0.0/8"]' 'action = "allow"'
inside systemctl restart ekiden || fail "restart: $(inside journalctl -u ekiden --no-pager | tail -n 5)"
await "curl through the relay" served
inside systemctl reload ekiden
await "curl after a reload" served
[ "$process" != "$(inside systemctl show -P MainPID ekiden)" ] || fail "not restarted"
inside ekiden status --json | grep -q '"reloads": *1' || fail "not reloaded"
# the next lines go to the new file
inside logrotate --force /etc/logrotate.d/ekiden || fail "logrotate"
inside ls /var/log/ekiden/access.log.1 >/dev/null || fail "the access log is not rotated"
logged() { served && inside grep -q . /var/log/ekiden/access.log; }
await "nothing is written after a rotation" logged
token=$(inside ekiden peer invite --name ship --address 127.0.0.1:4433 --send '50 Mbit/s' --receive '50 Mbit/s' 2>/dev/null)
echo 'a long password' | inside ekiden account add tanaka --user anna --password-stdin >/dev/null || fail "account add"
inside ekiden token rotate >/dev/null || fail "token rotate"
strange=$(inside find /var/lib/ekiden ! -user ekiden)
[ -z "$strange" ] || fail "root's commands left files that are not the daemon's: $strange"
# the other relay, as another user would run it
inside mkdir -p /tmp/ship/ekiden
printf '%s\n' 'listen = ["127.0.0.1:3129"]' '[management]' 'listen = "off"' '[upstream.shore]' 'url = "tunnel://shore"' '[[route]]' 'through = ["shore"]' \
    '[access]' 'allow_destinations = ["127.0.0.0/8"]' | inside tee /tmp/ship/ekiden/config.toml >/dev/null
ship() { inside XDG_CONFIG_HOME=/tmp/ship XDG_RUNTIME_DIR=/tmp/ship STATE_DIRECTORY=/tmp/ship/state ekiden "$@"; }
ship peer join "$token" --name shore >/dev/null || fail "peer join"
ship serve 2>"$work/ship.log" &
ship=$!
await "no tunnel with the peer" served http://127.0.0.1:3129
inside ekiden peer list | grep -q '^ship .*connects to this relay' || fail "the peer was not admitted"
# or the daemon would wait for its connections
pkill -KILL -P "$ship" || true
say "served, reloaded, its access log rotated, an account added, a peer invited and admitted"

# ---- the kernel's rate holding ----------------------------------------------------------------------------------------

configure '[leg.client]' 'congestion = ["hold", "cubic"]' 'rate = "50 Mbit/s"'
inside systemctl restart ekiden
await "curl with hold" served
if inside ls /run/ekiden-bpf >/dev/null 2>&1 && inside journalctl -u ekiden --no-pager | grep -q 'congestion control hold: .*pinned'; then
    say "congestion = [\"hold\"]: loaded by root, used by the service"
else
    say "SKIPPED: congestion = [\"hold\"]: $(inside journalctl -u ekiden --no-pager | grep -E 'bpf|hold' | tail -n 1)"
fi

# ---- upgrade, removal -------------------------------------------------------------------------------------------------

process=$(inside systemctl show -P MainPID ekiden)
inside apt-get install -qy --reinstall "/root/$(basename "$deb")" >"$work/apt.log" 2>&1 || fail "apt, again"
[ "$process" != "$(inside systemctl show -P MainPID ekiden)" ] || fail "an upgrade does not restart the service"
await "curl after the upgrade" served
inside grep -q hold /etc/ekiden/config.toml || fail "an upgrade changed the configuration"
# a version that refuses the configuration leaves the old daemon alone
process=$(inside systemctl show -P MainPID ekiden)
echo 'nonsense = 1' | inside tee -a /etc/ekiden/config.toml >/dev/null
inside apt-get install -qy --reinstall "/root/$(basename "$deb")" >"$work/apt.log" 2>&1 || fail "apt, with a faulty configuration"
[ "$process" = "$(inside systemctl show -P MainPID ekiden)" ] || fail "an upgrade stops a relay whose configuration it refuses"
grep -q 'the old daemon goes on' "$work/apt.log" || fail "an upgrade says nothing of a refused configuration"
served || fail "curl after an upgrade that refuses the configuration"
inside sed -i '/^nonsense/d' /etc/ekiden/config.toml
inside systemctl disable -q --now ekiden 2>/dev/null
inside apt-get install -qy --reinstall "/root/$(basename "$deb")" >"$work/apt.log" 2>&1 || fail "apt, disabled"
[ "$(inside systemctl is-enabled ekiden || true)" = disabled ] || fail "an upgrade enabled a disabled service"
inside systemctl enable -q --now ekiden 2>/dev/null
inside ekiden doctor --apply --persist >/dev/null 2>&1 || true
inside apt-get remove -qy ekiden >"$work/apt.log" 2>&1 || fail "apt remove"
[ -e "$tree/var/lib/ekiden" ] && [ -e "$tree/etc/ekiden/config.toml" ] || fail "removal took state or configuration along"
! inside systemctl is-active -q ekiden || fail "removed and still running"
inside apt-get purge -qy ekiden >"$work/apt.log" 2>&1 || fail "apt purge"
inside rm -rf "/root/$(basename "$deb")" /tmp/ship
files >"$work/after"
if ! diff "$work/before" "$work/after" >"$work/traces"; then fail "traces of the package: $(cat "$work/traces")"; fi
say "upgraded, removed and purged without a trace ($(wc -l <"$work/after") files compared)"

# ---- a repository -----------------------------------------------------------------------------------------------------

mkdir -m 700 "$work/keys"
GNUPGHOME=$work/keys
export GNUPGHOME
gpg --batch --quiet --passphrase '' --quick-generate-key 'Test <test@ekiden.invalid>' ed25519 sign never 2>/dev/null
python3 "$here/repository.py" test@ekiden.invalid "$work/repository" "$packages"/*.deb >"$work/gpg.log" 2>&1 ||
    fail "repository.py: $(cat "$work/gpg.log")"
gpgconf --kill gpg-agent
unset GNUPGHOME
cp -r "$work/repository" "$tree/srv/www/repository"
inside sh -c 'install -D -m 644 /srv/www/repository/ekiden.gpg /etc/apt/keyrings/ekiden.gpg
    rm /etc/apt/sources.list
    echo "deb [signed-by=/etc/apt/keyrings/ekiden.gpg] http://127.0.0.1:8080/repository stable main" >/etc/apt/sources.list.d/ekiden.list'
inside apt-get update -q >"$work/apt.log" 2>&1 && ! grep -E '^(W|E):' "$work/apt.log" || fail "apt update: $(cat "$work/apt.log")"
inside apt-get install -qy ekiden >"$work/apt.log" 2>&1 || fail "apt install ekiden from the repository"
configure
inside systemctl restart ekiden
await "curl, installed from the repository" served
inside sh -c 'echo "$(tail -n +2 /srv/www/repository/dists/stable/InRelease)" >/tmp/x; sed s/Ekiden/Akiden/ /tmp/x >/srv/www/repository/dists/stable/InRelease; rm /srv/www/repository/dists/stable/Release.gpg'
inside apt-get update -q -o APT::Update::Error-Mode=any >"$work/apt.log" 2>&1 && fail "apt takes a forged index"
say "installed from a repository with signed-by; a forged index is refused"
stop

# ---- static programs and images ---------------------------------------------------------------------------------------

mkdir -p "$work/www"
echo served >"$work/www/index.html"
# an earlier run's would be read before this server writes its own
rm -f "$work/port"
python3 -c '
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
handler.log_message = lambda *_: None
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_port, flush=True)
server.serve_forever()' "$work/www" >"$work/port" 2>/dev/null &
others="$others $!"
await "a server to ask" test -s "$work/port"
server=$(cat "$work/port")

# tries NAME COMMAND…: the program serves a request, alone in the tree that the command enters
tries() {
    name=$1
    shift
    "$@" serve --listen 127.0.0.1:0 --allow-destination 127.0.0.0/8 --socket /tmp/e.sock 2>"$work/try.log" &
    relay=$!
    others="$others $relay"
    await "$name does not listen: $(cat "$work/try.log")" grep -q 'listening on 127' "$work/try.log"
    port=$(sed -n 's/.*listening on 127.0.0.1:\([0-9]*\).*/\1/p' "$work/try.log")
    [ "$(curl -s -m 20 -x "http://127.0.0.1:$port" "http://127.0.0.1:$server/")" = served ] || fail "$name does not serve"
    kill "$relay"
    others=${others% "$relay"}
    wait "$relay" || fail "$name does not stop"
    say "$name serves"
}

for processor in x86_64 aarch64; do
    for program in "$packages/ekiden_${version}_linux_$processor" "$packages/ekiden_lean_${version}_linux_$processor"; do
        [ -e "$program" ] || continue
        rm -rf "$work/empty"
        mkdir -p "$work/empty/tmp"
        cp "$program" "$work/empty/ekiden"
        name="$(basename "$program") ($(($(stat -c %s "$program") / 1024)) KiB, alone in its tree)"
        if [ "$(uname -m)" = "$processor" ]; then
            tries "$name" chroot "$work/empty" /ekiden
        else
            cp "/usr/bin/qemu-$processor-static" "$work/empty/qemu"
            tries "$name, under qemu" chroot "$work/empty" /qemu /ekiden
        fi
        case $program in *lean*) [ "$(stat -c %s "$program")" -le 8388608 ] || fail "$program is larger than 8 MiB" ;; esac
    done
done
for image in "$packages"/*.oci.tar; do
    [ "$(stat -c %s "$image")" -le 26214400 ] || fail "$image is larger than 25 MiB"
    if command -v skopeo >/dev/null; then
        skopeo inspect --raw "oci-archive:$image" >/dev/null && skopeo inspect "docker-archive:$image" >/dev/null || fail "skopeo does not take $image"
    fi
    case $image in *_"$architecture".oci.tar) ;; *) continue ;; esac
    rm -rf "$work/image"
    mkdir -p "$work/image/root"
    tar -xf "$image" -C "$work/image"
    layer=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["Layers"][0])' "$work/image/manifest.json")
    tar -xzf "$work/image/$layer" -C "$work/image/root"
    tries "$(basename "$image") ($(($(stat -c %s "$image") / 1024)) KiB)" \
        chroot --userspec 65532:65532 "$work/image/root" /usr/bin/ekiden
done
say "all passed"
