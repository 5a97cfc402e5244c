#!/usr/bin/env bash
# podman.sh BIN ROOTFS: containers of podman on a fabric, as docs/containers.md says, with exn-cni and host-local
# from BIN. Ends with "ok".
set -euo pipefail
bin=$1 rootfs=$2
. "${0%/*}/common.sh"
mount -t tmpfs none /sys/fs/cgroup # containers make no cgroups: crun looks there all the same
base=$(mktemp -d /run/podman.XXXXXX)
mkdir -p "$base"/{net.d,hooks.d,storage,run}
cat >"$base/net.d/20-lab.conflist" <<END
{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "exn-cni", "fabric": "lab",
 "ipam": {"type": "host-local", "dataDir": "$base/ipam", "ranges": [[{"subnet": "10.44.0.0/24"}], [{"subnet": "fd44::/64"}]]}}]}
END
cat >"$base/hooks.d/exnet.json" <<END
{"version": "1.0.0", "hook": {"path": "$bin/exn-cni", "args": ["exn-cni", "oci-hook"]}, "when": {"always": true}, "stages": ["precreate"]}
END
cat >"$base/containers.conf" <<END
[network]
network_backend = "cni"
cni_plugin_dirs = ["$bin"]
network_config_dir = "$base/net.d"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
hooks_dir = ["$base/hooks.d"]
[containers]
log_driver = "k8s-file"
END
export CONTAINERS_CONF=$base/containers.conf
podman() { command podman --root "$base/storage" --runroot "$base/run" --storage-driver vfs "$@"; }
run() { podman run --network lab --cgroups disabled "$@"; }
trap 'podman rm -af >/dev/null 2>&1 || true' EXIT

echo '-- redis over exn0'
run -d --name db --ip 10.44.0.9 --rootfs "$rootfs" redis-server --protected-mode no --save '' --dir /tmp >/dev/null
run --rm --name client --rootfs "$rootfs" redis-benchmark -h 10.44.0.9 -q -t get -n 2000
[ "$(direct redis-server)" = 0 ]

echo '-- redis on direct sockets, by EXNET=1'
podman rm -f -t 0 db >/dev/null
run -d --name db --ip 10.44.0.9 -e EXNET=1 --rootfs "$rootfs" redis-server --protected-mode no --save '' --dir /tmp >/dev/null
run -d --name client -e EXNET=1 --rootfs "$rootfs" redis-benchmark -h 10.44.0.9 -q -t get -l >/dev/null
eventually eval '[ "$(direct redis-benchmark)" -gt 0 ]'
podman exec db redis-cli set a b | grep -q OK

echo '-- nginx on direct sockets, by annotation'
run -d --name web --ip 10.44.0.30 --annotation io.exnet=1 --rootfs "$rootfs" nginx -c /etc/nginx.conf >/dev/null
sum=$(sha256sum <"$rootfs/var/data")
fetch() { run --rm --annotation io.exnet=1 --rootfs "$rootfs" curl -sSf --retry 20 --retry-connrefused http://10.44.0.30/data; }
[ "$(fetch | sha256sum)" = "$sum" ]

echo '-- nothing is left'
[ "$("$bin/exn-tun" status --json | jq length)" = 3 ]
podman rm -af -t 0 >/dev/null
[ -z "$(ls -A /run/exn-cni 2>/dev/null)" ]
[ -z "$(ls -A "$base/ipam/lab" | grep '^[0-9f].*[.:]' || true)" ]
! "$bin/exn-tun" status 2>/dev/null
echo ok
