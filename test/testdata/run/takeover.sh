#!/bin/bash
# usage: takeover.sh BIN CHECKED: a server and a client of exn-run --loopback in one network namespace, then
# an agent, and a client in another namespace. Prints what --explain says of both clients. Run it in
# namespaces of its own (net, mount, pid).
set -euo pipefail
bin=$1
. "$(dirname "$0")/spaces.sh"

sockets() { "$bin/exn-tun" status --sockets --json; }
is_direct() { sockets | tr -d ' \n' | grep -q '"mode":"direct"'; }
no_broker() { ! grep -lq serve-broker /proc/[0-9]*/cmdline; } 2>/dev/null
listens() { ip netns exec server ss -Htln sport = :7000 | grep -q LISTEN; }
agents() { sockets | grep -q '"container": *"server"'; }

HOST=10.9.0.1 ip netns exec server "$bin/exn-run" --loopback -- python3 "$2" serve 7000 >"$dir/serve.log" 2>&1 &
place=/run/exn/ds/$(stat -Lc %i /run/netns/server)
until_so "exn-run serves the namespace" [ -e "$place.direct" ]
until_so "the server listens" listens
HOST=10.9.0.1 ip netns exec server "$bin/exn-run" --loopback --explain -- python3 "$2" stay 7000 "$dir/stop" >"$dir/stay.log" 2>&1 &
stays=$!
until_so "the connection is direct" is_direct

"$bin/exn-tun" direct off --port 1 >/dev/null
"$bin/exn-tun" agent >"$dir/agent.log" 2>&1 &
until_so "the agent has begun" [ -e /run/exn/ds/agent.sock ]
until_so "the agent leaves a broker with rules alone" grep -q 'exn-run.s broker has rules' "$dir/agent.log"
"$bin/exn-tun" direct on >/dev/null
until_so "the agent serves the namespace" agents
until_so "exn-run's broker is gone" no_broker

fresh() { HOST=10.9.0.1 ip netns exec client "$bin/exn-run" --explain -- python3 "$2" once 7000 500 >"$dir/once.log" 2>&1 && grep -q ' 1 direct, 0 tcp' "$dir/once.log"; }
until_so "a client of another namespace is direct" fresh "$bin" "$2"
cat "$dir/once.log"
touch "$dir/stop"
wait $stays
cat "$dir/stay.log"
