#!/bin/sh
# Installs the programs that tests and benchmarks stand Ekiden beside, and clang to compare the BPF programs with their
# sources: Debian's, and only those missing; schemathesis, which tries the management API, from PyPI into target/; and
# pebble, an authority that issues certificates to tests, from the Go module proxy into target/.
# Says what it does; does nothing when all are there. `--check` only says what is missing (exit 1), and `--demo` installs
# what `make demo` needs alone. Daemons that come with the packages are neither started nor left to start with the machine.
# `--sing-box`, `--caddy`, `--wireguard` and `--quiche` install that one alone, which experiments and tests stand beside: it
# is in no Debian, and is built from the Go module proxy where Go is present, or from Cargo's registry, in some minutes, and
# kept where `go install` or `cargo install` puts programs.
set -eu

# a program of the Go module proxy: its name, its version, its package, and flags
built() {
    program=$1 version=$2 package=$3
    shift 3
    if ! command -v go >/dev/null; then
        echo "peers: no Go here, so no $program: experiments leave it out, and say so" >&2
        exit 1
    fi
    folder=$(go env GOBIN)
    folder=${folder:-$(go env GOPATH)/bin}
    if command -v "$program" >/dev/null || [ -x "$folder/$program" ]; then
        echo "peers: $program is there"
        exit 0
    fi
    echo "peers: go install $program@$version, in $folder"
    exec go install "$@" "$package@$version"
}
case ${1-} in
    --sing-box)
        version=v1.14.1
        built sing-box "$version" github.com/sagernet/sing-box/cmd/sing-box -tags with_quic \
            -ldflags "-s -w -X github.com/sagernet/sing-box/constant.Version=${version#v}"
        ;;
    --wireguard) built wireguard v0.0.0-20260522210424-ecfc5a8d5446 golang.zx2c4.com/wireguard -ldflags "-s -w" ;;
    --quiche)
        program=async_http3_server
        if command -v "$program" >/dev/null || [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/$program" ]; then
            echo "peers: $program is there"
            exit 0
        fi
        version=0.20.1
        echo "peers: cargo install tokio-quiche@$version, its example server, with cmake and clang"
        exec cargo install "tokio-quiche@$version" --example "$program"
        ;;
    --caddy) built caddy v2.11.9 github.com/caddyserver/caddy/v2/cmd/caddy -ldflags "-s -w" ;;
esac

# a folder of its own below target/, with the versions of scripts/schemathesis.txt
wanted="$(dirname "$0")/schemathesis.txt"
tries="$(dirname "$0")/../target/schemathesis"
tries_is_there() { cmp -s "$wanted" "$tries/installed.txt"; }
install_tries() {
    if tries_is_there; then
        return 0
    fi
    echo "peers: pip install schemathesis, in target/schemathesis"
    rm -rf "$tries"
    python3 -m venv "$tries"
    "$tries/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
    cp "$wanted" "$tries/installed.txt"
}

# pebble wants a newer Go than Debian 12 has. Where no Go is that can fetch one by itself (1.21), the toolchain comes from
# the module proxy, too, where it is a module like any other.
pebble=v2.10.1
pebble_go=go1.24.2
place="$(cd "$(dirname "$0")/.." && pwd)/target/pebble"
pebble_is_there() { [ "$(cat "$place/installed.txt" 2>/dev/null)" = "$pebble" ]; }
fetch_go() {
    case $(uname -m) in
        x86_64) arch=amd64 sum=e02960c4d165acfa85817fbdd4eccee35cdd28f6bda666c7f8e495fb9549944f ;;
        aarch64) arch=arm64 sum=4d31d22f75fed99025f7b082319eabeb74106d11e343fc203b336ba2afdeb3a1 ;;
        *)
            echo "peers: no Go here, and none for $(uname -m) in the module proxy; tests with pebble skip, loudly" >&2
            return 1
            ;;
    esac
    name="v0.0.1-$pebble_go.linux-$arch"
    echo "peers: fetching $pebble_go from proxy.golang.org (80 MB), for pebble alone"
    curl -fsSL -o "$place/go.zip" "https://proxy.golang.org/golang.org/toolchain/@v/$name.zip"
    echo "$sum  $place/go.zip" | sha256sum --check --quiet
    python3 -m zipfile -e "$place/go.zip" "$place/go"
    go="$place/go/golang.org/toolchain@$name/bin/go"
    chmod -R u+x "$place/go/golang.org/toolchain@$name/bin" "$place/go/golang.org/toolchain@$name/pkg/tool"
}
# a WireGuard in user space, as tests in CI need it
install_wireguard() {
    [ -z "${CI-}" ] || sh "$0" --wireguard
}
install_pebble() {
    if pebble_is_there; then
        return 0
    fi
    rm -rf "$place"
    mkdir -p "$place"
    go=go
    # go1.26.8 is 26
    minor=$(go env GOVERSION 2>/dev/null | cut -d. -f2 || true)
    if [ "${minor:-0}" -lt 21 ]; then
        fetch_go
    fi
    echo "peers: go install pebble@$pebble, in target/pebble"
    module=github.com/letsencrypt/pebble/v2/cmd
    GOPATH="$place/path" GOBIN="$place" GOFLAGS=-modcacherw \
        "$go" install "$module/pebble@$pebble" "$module/pebble-challtestsrv@$pebble"
    rm -rf "$place/path" "$place/go" "$place/go.zip"
    echo "$pebble" >"$place/installed.txt"
}

packages='squid dante-server haproxy nginx libnginx-mod-stream microsocks redsocks tinyproxy-bin openssh-server unbound
openssh-client netcat-openbsd chromium curl wget git iproute2 iputils-ping iperf3 tshark nftables tcpdump python3-minimal
python3-venv clang llvm postgresql systemd gpg gpg-agent ca-certificates'
[ "${1-}" != --demo ] || packages='curl nginx'
# what is in no package
install_others() {
    if [ "${1-}" = --demo ]; then
        return 0
    fi
    install_tries
    install_pebble
    install_wireguard
}

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done

if [ "${1-}" = --check ] && ! tries_is_there; then
    echo "peers: schemathesis is missing: python3 -m venv target/schemathesis, and pip install -r scripts/schemathesis.txt"
    [ -n "$missing" ] || exit 1
fi
if [ "${1-}" = --check ] && ! pebble_is_there; then
    echo "peers: pebble is missing: sh scripts/peers.sh builds it in target/pebble"
    [ -n "$missing" ] || exit 1
fi
if [ -z "$missing" ]; then
    install_others "$@"
    echo "peers: all installed"
    exit 0
fi
echo "peers: missing:$missing"
if [ "${1-}" = --check ]; then
    echo "peers: install with: apt-get install --no-install-recommends$missing"
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "peers: no apt-get here; tests that need these programs will skip, loudly" >&2
    exit 1
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    echo "peers: asking for root with sudo"
fi
# Debian starts daemons it installs; ours are started by the tests, with their own configuration.
policy=/usr/sbin/policy-rc.d
ours=
# services and sockets that start with the machine
enabled() {
    if [ -d /run/systemd/system ]; then
        systemctl list-unit-files --type=service,socket --state=enabled --no-legend --no-pager | awk '{ print $1 }'
    fi
}
before=$(enabled)
# also where apt fails half-way, or is interrupted
tidy() {
    # to its end, also where the terminal has gone
    trap '' INT TERM HUP PIPE
    set +e
    [ -z "$ours" ] || $as_root rm -f "$policy"
    # without a list of before, all would be new
    [ -n "$before" ] || return 0
    new=
    for unit in $(enabled); do
        printf '%s\n' "$before" | grep -qxF -- "$unit" || new="$new $unit"
    done
    [ -n "$new" ] || return 0
    echo "peers: systemctl disable --now$new (their packages had them start with the machine)"
    # shellcheck disable=SC2086 # a list of words
    $as_root systemctl disable --quiet --now $new || echo "peers: they stay enabled" >&2
}
trap tidy EXIT
# dash runs that at `exit` alone
trap 'exit 130' INT
trap 'exit 143' TERM HUP PIPE
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
echo "peers: apt-get install --no-install-recommends$missing"
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
install_others "$@"
