#!/usr/bin/env bash
# docker.sh BIN ROOTFS [cdi]: containers of Docker on bridges of its own. They ask for direct sockets by variables and
# mounts or, with cdi, by a CDI device, which Docker has from version 25, as docs/any-network.md says. ROOTFS has glibc.
# Ends with "ok".
set -euo pipefail
bin=$1 rootfs=$2 by=${3:-}
. "${0%/*}/common.sh"
unified
base=$(mktemp -d /run/docker.XXXXXX)
mkdir -p /var/lib/docker
mount -t tmpfs none /var/lib/docker
docker() { /usr/bin/docker --config "$base/config" -H "unix://$base/sock" "$@"; }
trap 'tail -n 5 "$base/log"; docker ps -aq | xargs -r docker rm -f >/dev/null 2>&1 || true' EXIT
# daemon ARGUMENT...: starts Docker's, in place of the one that runs.
daemon() {
	if [ -e "$base/pid" ]; then
		kill "$(cat "$base/pid")"
		wait "$daemon" || true
	fi
	dockerd --config-file "$base/daemon.json" --exec-root "$base/exec" --pidfile "$base/pid" -H "unix://$base/sock" --storage-driver vfs \
		--cgroup-parent /exnet-docker --exec-opt native.cgroupdriver=cgroupfs "$@" >>"$base/log" 2>&1 &
	daemon=$!
	eventually docker version
}
asks=(-e EXNET=1 -e LD_PRELOAD=/usr/lib/exnet/libexnds.so -v "$bin/libexnds.so:/usr/lib/exnet/libexnds.so:ro" -v /run/exn/ds:/run/exn/ds:ro)
echo '{}' >"$base/daemon.json"
if [ "$by" = cdi ]; then
	asks=(--device exnet.io/direct=all)
	echo '{"features": {"cdi": true}}' >"$base/daemon.json"
	mkdir -p /run/cdi
	"$bin/exn-tun" cdi >/run/cdi/exnet.yaml
fi
daemon --userland-proxy=false
docker version --format 'Docker {{.Server.Version}}'
"$bin/exn-tun" agent >"$base/agent.log" 2>&1 &
agent=$!
eventually grep -q '^direct sockets' "$base/agent.log"
tar -C "$rootfs" -c . | docker import - lab >/dev/null
docker network create --subnet 10.90.7.0/24 --ipv6 --subnet fd90:7::/64 lab >/dev/null
# server ARGUMENT...: redis, which asks.
server() {
	docker run --network lab "${asks[@]}" -d --name db --ip 10.90.7.9 --ip6 fd90:7::9 "$@" lab redis-server --bind '* -::*' --protected-mode no --save '' --dir /tmp >/dev/null
}
server -p 7000:6379

# client NETWORK ADDRESS PORT: redis-benchmark, which asks, in a container.
client() { docker run --network "$1" "${asks[@]}" -d --name client lab redis-benchmark -h "$2" -p "$3" -q -t get -l >/dev/null; }
gone() {
	docker rm -f client >/dev/null
	eventually eval '[ "$(direct redis-benchmark)" = 0 ]'
}
# reaches WHAT NETWORK ADDRESS PORT: a client on a network has direct connections there.
reaches() {
	echo "-- $1"
	client "${@:2}"
	eventually eval '[ "$(direct redis-benchmark)" -gt 0 ]'
	"$bin/exn-tun" status
	gone
}
reaches 'one bridge, by name' lab db 6379

echo '-- status has it by its name'
"$bin/exn-tun" status | grep "^ *db *$(docker ps -q --filter name=db) "

reaches 'IPv6' lab fd90:7::9 6379
reaches 'a port that the host has for it (DNAT)' lab 10.90.7.1 7000

echo '-- a client that does not ask is on TCP, as before'
docker run --network lab --rm lab redis-cli -h 10.90.7.9 ping | grep -q PONG

echo '-- with the userland proxy, a connection to a port of the host ends in it: it stays on TCP, and says why'
docker rm -f db >/dev/null
daemon
server -p 7000:6379
client lab 10.90.7.1 7000
eventually eval '"$bin/exn-tun" status --sockets --json | jq -e ".[].connections[] | select(.program == \"redis-benchmark\" and .mode == \"shadow\" and .reason == \"no direct listener\")"'
gone

echo '-- nothing is left'
docker rm -f db >/dev/null
eventually eval '[ "$("$bin/exn-tun" status --sockets --json | jq length)" = 1 ]'
kill $agent
wait $agent
kill "$(cat "$base/pid")"
wait
trap - EXIT
echo ok
