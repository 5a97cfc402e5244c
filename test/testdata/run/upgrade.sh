#!/bin/bash
# usage: upgrade.sh LAST NOW ROUNDS: replaces the agent, the library's file and two nodes of the
# release in the folder LAST by those in NOW, and back, while programs of LAST exchange data that is
# checked. Each folder has exn-tun, exn-run and direct (test/numbered/direct). A line for each
# replacement says how long it took until new connections of old and new programs were direct.
# Run it in namespaces of its own (net, mount, pid).
set -euo pipefail
last=$1 now=$2 rounds=$3
here=$(dirname "$(realpath "$0")")
. "$here/spaces.sh"
mkdir /run/lib
fail() { echo "$*" >&2; tail -n 5 "$dir"/*.log >&2 || true; exit 1; }
eventually() { local end=$((SECONDS + ${LIMIT:-60})); until "$@" 2>"$dir/why"; do [ $SECONDS -lt $end ] || fail "never: $* $(tail -c 1000 "$dir/why")"; sleep .05; done; }
says() { grep -q "$2" "$1"; }

export EXNET_DS_SENDS=2 # so short connections before do not delay an offer
export HOST=10.9.0.1
# The agent serves those who have EXNET or a library of its usual name. Programs at the nodes have
# neither: an agent of the last release does not leave a namespace to a node.

agent_pid=
agent() { # BIN
	if [ -n "$agent_pid" ]; then kill "$agent_pid"; wait "$agent_pid" || fail "the agent ends with $?"; fi
	"$1/exn-tun" agent >"$dir/agent.log" 2>&1 &
	agent_pid=$!
	eventually says "$dir/agent.log" "^direct sockets between"
}
library() { # BIN
	local file
	file=$("$1/exn-run" --print-env 2>/dev/null | sed -n 's/^export LD_PRELOAD=//p')
	cp "$file" /run/lib/.new
	mv -f /run/lib/.new /run/lib/ds.so
}
node() { # BIN NUMBER FLAG...
	local n=$2
	ip netns exec "node$n" "$1/exn-tun" up --fabric upgrade --node "$n" --addr "10.2.0.$n/24" "${@:3}" >"$dir/node$n.log" 2>&1 &
	eventually says "$dir/node$n.log" exn0
}
in_c() { exec ip netns exec "$1" env LD_PRELOAD=/run/lib/ds.so "${@:2}"; } # with the library that is there now
listens() { ip netns exec "$1" ss -Htln | grep -q ":$2 "; }
# new_direct EXN-TUN TIME PORT...: a connection of a client to each port is direct and newer.
new_direct() {
	"$1" status --sockets --fabric upgrade --json | python3 -c '
import datetime, json, re, sys
made = lambda text: datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text.replace("Z", "+00:00"))).timestamp()
missing = {int(p) for p in sys.argv[2:]}
seen = []
for broker in json.load(sys.stdin):
    for c in broker["connections"] or []:
        port = int(c["remote"].rsplit(":", 1)[1])
        if not c["server"] and port in missing and made(c["since"]) > float(sys.argv[1]):
            if c["mode"] == "direct":
                missing.discard(port)
            else:
                seen.append((port, c["mode"], c.get("reason")))
sys.exit(f"nothing new is direct at {missing}: {seen}" if missing else 0)' "${@:2}"
}

agent "$last"
library "$last"
for n in 1 2; do ip netns add "node$n"; ip -n "node$n" link set lo up; node "$last" "$n"; done
# Programs of the last release, which stay for all rounds.
(EXNET=1 in_c server python3 "$here/checked.py" serve 7000) 2>"$dir/serve.log" &
(EXNET=1 exec ip netns exec server "$last/direct" serve 10.9.0.1:7001 < <(exec sleep infinity)) >"$dir/serve-go.log" 2>&1 &
(HOST=10.2.0.2 in_c node2 python3 "$here/checked.py" serve 7002) 2>"$dir/serve-nodes.log" &
eventually listens server 7000
eventually listens server 7001
eventually listens node2 7002
eventually [ -e "/run/exn/ds/$(stat -Lc %i /run/netns/server).sock" ]
(EXNET=1 in_c client python3 "$here/checked.py" ask 7000 4 "$dir/stop") >"$dir/ask.log" 2>&1 &
stay=($!)
(HOST=10.2.0.2 in_c node1 python3 "$here/checked.py" ask 7002 4 "$dir/stop") >"$dir/ask-nodes.log" 2>&1 &
stay+=($!)
(EXNET=1 exec ip netns exec client "$last/direct" dial 10.9.0.1:7001 4 3600000 20 1 0) >"$dir/ask-go.log" 2>&1 &
go_pid=$!

replace() { # BIN NAME
	local since
	library "$1"
	agent "$1"
	node "$1" 1 --replace
	node "$1" 2 --replace
	since=$EPOCHREALTIME
	eventually new_direct "$1/exn-tun" "$since" 7000 7001 7002
	echo "$2: new connections are direct after $(bc <<<"$EPOCHREALTIME - $since") s"
	for bin in "$last" "$now"; do
		EXNET=1 ip netns exec client "$bin/direct" dial 10.9.0.1:7001 2 300 0 "$RANDOM" 1024 >"$dir/once.log" || fail "a client ends with $?"
		says "$dir/once.log" "^sum .* 0$" || fail "a client says $(cat "$dir/once.log")"
	done
	(EXNET=1 in_c client python3 "$here/checked.py" once 7000 100) || fail "a client ends with $?"
	kill -0 "${stay[@]}" "$go_pid" || fail "a client has ended"
}
eventually new_direct "$last/exn-tun" 0 7000 7001 7002
for _ in $(seq "$rounds"); do
	replace "$now" "this release"
	replace "$last" "the last release"
done
touch "$dir/stop"
for p in "${stay[@]}"; do wait "$p" || fail "a client that stayed ends with $?"; done
cat "$dir/ask.log" "$dir/ask-nodes.log"
for log in "$dir"/serve*.log "$dir/ask-go.log"; do ! grep -v "^listening" "$log" || fail "$log"; done
echo upgraded
