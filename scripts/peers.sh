#!/bin/sh
# Installs the programs that tests and benchmarks stand Ekiden beside, and clang to compare the BPF programs with their
# sources: Debian's, and only those missing; and schemathesis, which tries the management API, from PyPI into target/.
# Says what it does; does nothing when all are there. `--check` only says what is missing (exit 1). `--sing-box`
# installs that one alone, which the satellite experiment stands the tunnel beside: it is in no Debian, and is built
# from the Go module proxy where Go is present, in some minutes, and kept where `go install` puts programs.
set -eu

if [ "${1-}" = --sing-box ]; then
    version=v1.14.1
    if ! command -v go >/dev/null; then
        echo "peers: no Go here, so no sing-box: the satellite experiment leaves hysteria2 out, and says so" >&2
        exit 1
    fi
    folder=$(go env GOBIN)
    folder=${folder:-$(go env GOPATH)/bin}
    if command -v sing-box >/dev/null || [ -x "$folder/sing-box" ]; then
        echo "peers: sing-box is there"
        exit 0
    fi
    echo "peers: go install sing-box@$version, in $folder"
    exec go install -tags with_quic -ldflags "-s -w -X github.com/sagernet/sing-box/constant.Version=${version#v}" \
        "github.com/sagernet/sing-box/cmd/sing-box@$version"
fi

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

packages='squid dante-server haproxy nginx libnginx-mod-stream microsocks openssh-server openssh-client
netcat-openbsd chromium curl wget git iproute2 iputils-ping iperf3 tshark nftables tcpdump python3-minimal
python3-venv clang llvm postgresql'

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done

if [ "${1-}" = --check ] && ! tries_is_there; then
    echo "peers: schemathesis is missing: python3 -m venv target/schemathesis, and pip install -r scripts/schemathesis.txt"
    [ -n "$missing" ] || exit 1
fi
if [ -z "$missing" ]; then
    install_tries
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
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
tidy() { [ -z "$ours" ] || $as_root rm -f "$policy"; }
trap tidy EXIT
echo "peers: apt-get install --no-install-recommends$missing"
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
install_tries
