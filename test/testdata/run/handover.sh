#!/bin/bash
# usage: handover.sh BIN CHECKED: an agent serves a network namespace with a server in C and one in Go,
# whose clients are in that namespace and in another one. A node takes the namespace, ends, and the agent
# has it again. Prints which broker it was when the connections of all clients were as before, and what
# the clients say. Run it in namespaces of its own (net, mount, pid).
set -euo pipefail
bin=$1 checked=$2
. "$(dirname "$0")/spaces.sh"

listens() { [ "$(ip netns exec server ss -Hlnt "sport = :7000 or sport = :7001" | wc -l)" = 2 ]; }
# fresh NAMESPACE: a new connection of a new program there is direct.
fresh() {
	HOST=10.9.0.1 ip netns exec "$1" "$bin/exn-run" --explain -- python3 "$checked" once 7000 500 >"$dir/once.log" 2>&1 && grep -q ' 1 direct, 0 tcp' "$dir/once.log"
}
# kept: how many are direct, and never went back, of the connections that the clients have kept: the three
# oldest ones of each.
kept() {
	"$bin/exn-tun" status --sockets --json | python3 -c '
import collections, json, sys
all = collections.defaultdict(list)
for b in json.load(sys.stdin):
    for c in b["connections"] or []:
        if not c["server"]:
            all[c["pid"]].append((c["since"], c["mode"] == "direct" and "returns" not in c))
print(sum(direct for of in all.values() for _, direct in sorted(of)[:3]))'
}
stay() { [ "$(kept)" = 12 ]; }
node_serves() { "$bin/exn-tun" status --sockets | grep -q "^node 1, broker $place"; }
# is_so WHEN: all clients go on, and their connections stay.
is_so() {
	until_so "12 connections stay $1" stay # all programs have found the broker
	for p in "${clients[@]}"; do kill -0 "$p" || { tail -n 50 "$dir"/*.log >&2; exit 1; }; done
	echo "12 direct $1"
}

"$bin/exn-tun" agent >"$dir/agent.log" 2>&1 &
until_so "the agent has begun" [ -e /run/exn/ds/agent.sock ]
HOST=10.9.0.1 ip netns exec server "$bin/exn-run" -- python3 "$checked" serve 7000 >"$dir/serve.log" 2>&1 &
ip netns exec server "$bin/echo" 10.9.0.1:7001 >"$dir/goserve.log" 2>&1 &
until_so "the servers listen" listens
place=/run/exn/ds/$(stat -Lc %i /run/netns/server)
until_so "the agent serves the namespace" [ -e "$place.sock" ]
until_so "a client there is direct" fresh server
until_so "a client of another namespace is direct" fresh client
clients=()
for ns in server client; do
	ROUNDS=200 HOST=10.9.0.1 ip netns exec $ns "$bin/exn-run" -- python3 "$checked" ask 7000 3 "$dir/stop" >"$dir/c-$ns.log" 2>&1 &
	clients+=($!)
	ip netns exec $ns "$bin/checked" 10.9.0.1:7001 3 "$dir/stop" >"$dir/go-$ns.log" 2>&1 &
	clients+=($!)
done
until_so "the connections that stay are direct" stay
is_so "by the agent"

for how in TERM KILL; do
	"$bin/exn-tun" up --netns server --addr 10.2.0.1/24 >>"$dir/up.log" 2>&1 &
	up=$!
	until_so "the node serves the namespace" node_serves
	until_so "a client there is direct by the node" fresh server
	is_so "by the node"
	kill -$how $up
	wait $up || true
	until_so "a client there is direct again" fresh server
	until_so "a client of another namespace is direct again" fresh client
	is_so "by the agent, after SIG$how"
done
touch "$dir/stop"
for p in "${clients[@]}"; do wait "$p"; done
cat "$dir"/c-*.log "$dir"/go-*.log "$dir/up.log"
