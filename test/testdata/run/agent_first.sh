#!/bin/bash
# usage: agent_first.sh BIN: an agent, a server in one network namespace, and the first program of
# another one, with --explain. Prints what that says. Run it in namespaces of its own (net, mount, pid).
set -euo pipefail
bin=$1
dir=$(mktemp -d)
mount -t tmpfs none /run
mkdir -p /run/netns
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
. "$(dirname "$0")/spaces.sh"

until_there() { for _ in $(seq 1200); do [ ! -e "$1" ] || return 0; sleep .05; done; echo "no $1" >&2; cat "$dir/agent" >&2; exit 1; }
"$bin/exn-tun" agent >"$dir/agent" 2>&1 &
until_there /run/exn/ds/agent.sock
ip netns exec server "$bin/exn-run" -- python3 -c '
import socket, sys
s = socket.create_server(("10.9.0.1", 7000))
open(sys.argv[1], "w").close()
c, _ = s.accept()
while d := c.recv(1 << 16): c.sendall(d)' "$dir/listens" &
until_there "$dir/listens"
until_there "/run/exn/ds/$(stat -Lc %i /run/netns/server).sock" # the agent has found the server
ip netns exec client "$bin/exn-run" --explain -- python3 -c '
import socket
c = socket.create_connection(("10.9.0.1", 7000))
for n in range(2000):
    d = bytes([n % 256]) * 5000
    c.sendall(d)
    got = b""
    while len(got) < len(d): got += c.recv(1 << 16)
    assert got == d' 2>&1
