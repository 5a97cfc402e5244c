#!/bin/bash
# usage: agent_away.sh BIN CHECKED: a device plugin with a kubelet of the test's. The agent ends; programs
# start with what the plugin gives a container, talk by TCP, and are direct when an agent is back.
# Run it in namespaces of its own (net, mount, pid).
set -euo pipefail
bin=$1 checked=$2
. "$(dirname "$0")/spaces.sh"

listens() { ip netns exec server ss -Hlnt "sport = 7000" | grep -q .; }
is_direct() { "$bin/exn-tun" status --sockets --json | tr -d ' \n' | grep -q '"mode":"direct"'; }

"$bin/kubelet" serve "$dir" >"$dir/kubelet.log" 2>&1 &
until_so "there is a kubelet" [ -e "$dir/kubelet.sock" ]
"$bin/exn-tun" device-plugin "$dir" >"$dir/plugin.log" 2>&1 &
until_so "the kubelet has the device" grep -q offered "$dir/kubelet.log"
"$bin/exn-tun" agent >"$dir/agent.log" 2>&1 &
agent=$!
until_so "the agent has begun" grep -q 'direct sockets between' "$dir/agent.log"
kill -9 $agent
wait $agent || true

# The programs have no root of their own, so the library is that of the host. The path that a container has
# for it is one with lib64 in place of $LIB.
"$bin/kubelet" allocate "$dir" >"$dir/given.log"
grep -x 'env EXNET=1' "$dir/given.log"
library=$(awk '$1 == "mount" && $3 ~ /lib64/ {print $2}' "$dir/given.log")
[ -e "$library" ] && [ -d "$(awk '$1 == "mount" && $3 == "/run/exn/ds" {print $2}' "$dir/given.log")" ]
pod() { env EXNET=1 LD_PRELOAD="$library" HOST=10.9.0.1 ip netns exec "$1" python3 "$checked" "${@:2}"; }
pod server serve 7000 >"$dir/server.log" 2>&1 &
until_so "the server listens" listens
pod client once 7000 500
echo "by TCP while the agent is away"
pod client ask 7000 2 "$dir/stop" >"$dir/client.log" 2>&1 &
client=$!
"$bin/exn-tun" agent >>"$dir/agent.log" 2>&1 &
until_so "the client is direct" is_direct
echo "direct when it is back"
touch "$dir/stop"
wait $client
cat "$dir/client.log"
! grep gone "$dir/kubelet.log"
