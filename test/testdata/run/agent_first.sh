#!/bin/bash
# usage: agent_first.sh BIN: an agent, a server in one network namespace, and the first program of
# another one, with --explain. Prints what that says. Run it in namespaces of its own (net, mount, pid).
set -euo pipefail
bin=$1
. "$(dirname "$0")/spaces.sh"

"$bin/exn-tun" agent >"$dir/agent.log" 2>&1 &
until_so "the agent has begun" [ -e /run/exn/ds/agent.sock ]
ip netns exec server "$bin/exn-run" -- python3 -c '
import socket, sys
s = socket.create_server(("10.9.0.1", 7000))
open(sys.argv[1], "w").close()
c, _ = s.accept()
while d := c.recv(1 << 16): c.sendall(d)' "$dir/listens" &
until_so "the server listens" [ -e "$dir/listens" ]
until_so "the agent has found the server" [ -e "/run/exn/ds/$(stat -Lc %i /run/netns/server).sock" ]
ip netns exec client "$bin/exn-run" --explain -- python3 -c '
import socket
c = socket.create_connection(("10.9.0.1", 7000))
for n in range(2000):
    d = bytes([n % 256]) * 5000
    c.sendall(d)
    got = b""
    while len(got) < len(d): got += c.recv(1 << 16)
    assert got == d' 2>&1
