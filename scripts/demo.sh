#!/bin/sh
# One download through the accelerator on this machine, and what the accelerator says of it.
set -eu
for program in curl python3; do
    command -v "$program" >/dev/null || { echo "demo: $program is needed: apt-get install $program" >&2; exit 1; }
done
ekiden=target/release/ekiden
folder=$(mktemp -d)
server= relay=
tidy() { kill $server $relay 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"; }
trap tidy EXIT INT TERM

head -c 64M /dev/urandom >"$folder/file"
# a server on a port the kernel chooses
(cd "$folder" && exec python3 -u -c '
import http.server, functools
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=".")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
open("port", "w").write(str(server.server_port))
server.serve_forever()' 2>/dev/null) &
server=$!
"$ekiden" serve --listen 127.0.0.1:0 --allow-destination 127.0.0.0/8 --socket "$folder/socket" 2>"$folder/log" &
relay=$!
tries=0
until [ -s "$folder/port" ] && grep -q 'listening on' "$folder/log"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
port=$(cat "$folder/port")
proxy=$(sed -n 's/.*listening on \([^ ]*:[0-9]*\):.*/\1/p' "$folder/log" | head -n 1)

for through in "--proxy http://$proxy" "--proxy http://$proxy --proxytunnel" "--socks5-hostname $proxy" "--socks4a $proxy"; do
    # shellcheck disable=SC2086 # two words
    sum=$(curl -sS $through "http://127.0.0.1:$port/file" | sha256sum)
    [ "$sum" = "$(sha256sum <"$folder/file")" ] || { echo "demo: the bytes differ ($through)" >&2; exit 1; }
    echo "64 MiB, equal by SHA-256: curl $through"
done
echo
# a slow one, to look at while it runs
curl -sS --proxy "http://$proxy" --proxytunnel --limit-rate 4M -o /dev/null "http://127.0.0.1:$port/file" &
slow=$!
sleep 1
"$ekiden" status --socket "$folder/socket"
kill $slow
