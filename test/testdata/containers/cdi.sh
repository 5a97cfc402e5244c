#!/usr/bin/env bash
# cdi.sh BIN ROOTFS MUSL: containers of podman on a bridge of its own that ask for direct sockets by a CDI device,
# as docs/any-network.md says. ROOTFS has glibc, MUSL only musl, with a program /pinger. Ends with "ok".
set -euo pipefail
bin=$1 rootfs=$2 musl=$3
. "${0%/*}/common.sh"
unified
base=$(mktemp -d /run/podman.XXXXXX)
mkdir -p "$base"/{storage,run,net} /run/cdi
cat >"$base/containers.conf" <<END
[network]
network_backend = "netavark"
network_config_dir = "$base/net"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
[containers]
log_driver = "k8s-file"
pids_limit = 0
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
END
export CONTAINERS_CONF=$base/containers.conf
podman() { command podman --root "$base/storage" --runroot "$base/run" --storage-driver vfs "$@" 2> >(grep -v '^failed to connect to syslog' >&2); }
trap 'podman rm -af -t 0 >/dev/null 2>&1 || true; find /sys/fs/cgroup/libpod_parent -depth -type d -exec rmdir {} + 2>/dev/null || true' EXIT
"$bin/exn-tun" agent --metrics :9400 >"$base/agent.log" 2>&1 &
agent=$!
eventually grep -q '^direct sockets' "$base/agent.log"
"$bin/exn-tun" cdi >/run/cdi/exnet.yaml
podman network create --subnet 10.89.7.0/24 --ipv6 --subnet fd89:7::/64 lab >/dev/null
podman network create --subnet 10.89.8.0/24 --ipv6 --subnet fd89:8::/64 other >/dev/null
device() { podman run --network lab --device "exnet.io/direct=$1" "${@:2}"; }
server() { device "$1" -d --name db --ip 10.89.7.9 "${@:2}" --rootfs "$rootfs" redis-server --protected-mode no --save '' --dir /tmp >/dev/null; }

echo '-- redis over the bridge, without the device'
podman run --network lab -d --name db --ip 10.89.7.9 --rootfs "$rootfs" redis-server --protected-mode no --save '' --dir /tmp >/dev/null
podman run --network lab --rm --rootfs "$rootfs" redis-benchmark -h 10.89.7.9 -q -t get -n 2000
[ "$(direct redis-server)" = 0 ]
podman rm -f -t 0 db >/dev/null

echo '-- with it, a read-only root among them'
server all --read-only --tmpfs /tmp
device all -d --name client --rootfs "$rootfs" redis-benchmark -h 10.89.7.9 -q -t get -l >/dev/null
eventually eval '[ "$(direct redis-benchmark)" -gt 0 ]'
eventually eval '[ "$(direct redis-server)" -gt 0 ]'

echo '-- status has them by name'
eventually eval '"$bin/exn-tun" status --sockets --json | jq -e ".[] | select(.name == \"db\" and .direct.received.bytes > 0 and .direct.sent.bytes > 0)"'
"$bin/exn-tun" status
"$bin/exn-tun" status | grep -q "^ *client *$(podman ps -q --filter name=client) "
curl -sS http://127.0.0.1:9400/metrics | grep '^exnet_agent_direct_sent_bytes_total{container="[0-9a-f]*",name="db"} [1-9]'

echo '-- a client without it is on TCP, as before'
podman run --network lab --rm --rootfs "$rootfs" redis-cli -h 10.89.7.9 set a b | grep -q OK

echo '-- a client with musl'
device all -d --name musl --rootfs "$musl" /pinger 10.89.7.9 10000 >/dev/null
eventually eval '[ "$(direct pinger)" = 1 ]'

echo '-- ld.so.preload keeps the LD_PRELOAD of an image'
device ld.so.preload -d --name kept -e LD_PRELOAD=libm.so.6 --rootfs "$rootfs" bash -c 'echo $LD_PRELOAD; exec redis-benchmark -h 10.89.7.9 -q -t get -l' >/dev/null
eventually eval 'podman logs kept | grep -qx libm.so.6'
podman rm -f -t 0 client >/dev/null
eventually eval '[ "$(direct redis-benchmark)" -gt 0 ]'

for name in kept musl db; do eventually podman rm -f -t 0 $name; done

# reaches WHAT NETWORK ADDRESS PORT: a client on a network has direct connections there.
reaches() {
	echo "-- $1"
	podman run --network "$2" --device exnet.io/direct=all -d --name client --rootfs "$rootfs" redis-benchmark -h "$3" -p "$4" -q -t get -l >/dev/null
	eventually eval '[ "$(direct redis-benchmark)" -gt 0 ]'
	podman rm -f -t 0 client >/dev/null
	eventually eval '[ "$(direct redis-benchmark)" = 0 ]'
}
server all --ip6 fd89:7::9 -p 7000:6379
reaches 'IPv6' lab fd89:7::9 6379
reaches 'routed between two bridges' other 10.89.7.9 6379
reaches 'routed between two bridges, IPv6' other fd89:7::9 6379
reaches 'a port that the host has for it (DNAT)' other 10.89.8.1 7000

echo '-- a SYN that leaves the host is the same with and without it'
ip netns add far
ip link add far0 type veth peer name eth0 netns far
ip addr add 198.51.100.1/24 dev far0 && ip link set far0 up
ip -n far addr add 198.51.100.2/24 dev eth0 && ip -n far link set eth0 up
# syn ARGUMENT...: what a container's SYN says at the far host, without what differs each time.
syn() {
	ip netns exec far tcpdump -l -n -c 1 -i eth0 'tcp[tcpflags] == tcp-syn' 2>"$base/tcpdump" >"$base/syn" &
	local pid=$!
	eventually grep -q '^listening' "$base/tcpdump"
	podman run --network lab "$@" --rm --rootfs "$rootfs" redis-cli -h 198.51.100.2 ping >/dev/null 2>&1 || true
	wait $pid
	sed 's/^.*Flags/Flags/; s/seq [0-9]*/seq S/; s/val [0-9]* /val V /' "$base/syn"
}
syn --device exnet.io/direct=all | tee "$base/with"
syn | tee "$base/without"
grep -q 'options \[mss' "$base/with" && cmp "$base/with" "$base/without"

echo '-- a container cannot write there'
! device all --rm --rootfs "$rootfs" bash -c 'echo x >/run/exn/ds/x' 2>/dev/null
! device all --rm --rootfs "$rootfs" bash -c 'echo x >/usr/lib/exnet/lib64/libexnds.so' 2>/dev/null

echo '-- a client that comes after another agent has begun is direct, as containers have the directory that stays'
device all -d --name again --rootfs "$musl" /pinger 10.89.7.9 10000 >/dev/null
eventually eval '[ "$(direct pinger)" = 1 ]'
kill $agent && wait $agent
"$bin/exn-tun" agent >"$base/agent.log" 2>&1 &
agent=$!
eventually grep -q '^direct sockets' "$base/agent.log"
eventually eval '[ "$(direct pinger)" = 1 ]'

echo '-- nothing is left'
# podman 4.3 fails if a container ends by itself meanwhile, as clients do without their server.
eventually podman rm -af -t 0
eventually eval '[ "$("$bin/exn-tun" status --sockets --json | jq length)" = 1 ]'
kill $agent
wait $agent
[ "$(ls -A /run/exn/ds)" = .keep ]
echo ok
