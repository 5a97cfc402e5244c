#!/usr/bin/env bash
# image.sh DIR: builds the image of packaging/Containerfile from the tarball of release.sh unpacked in DIR, upon nothing, and runs
# the demonstration in a container of it. Ends with "ok". It wants a mount namespace of its own.
set -euo pipefail
mount --make-rprivate /
mount -t tmpfs none /sys/fs/cgroup # containers make no cgroups: crun looks there all the same
base=$(mktemp -d)
trap 'podman rmi -af >/dev/null 2>&1 || true; rm -rf "$base"' EXIT
podman() { command podman --root "$base/storage" --runroot "$base/run" --storage-driver vfs --cgroup-manager cgroupfs --events-backend file "$@"; }
podman build --isolation chroot --build-arg BASE=scratch -t exnet -f "$1/packaging/Containerfile" "$1"
limits=(--ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc=4096:4096) # podman asks for more than this process may have
run() { podman run --rm --privileged --cgroups disabled --network none "${limits[@]}" --device /dev/net/tun --log-driver k8s-file "$@"; }
run exnet version
run exnet demo --runs 1 --duration 50ms
run --entrypoint /exnet/dsbench exnet ports --rounds 100
echo ok
