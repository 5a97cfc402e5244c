#!/usr/bin/env bash
# alpine.sh DIR COMMAND [ARGUMENT...]: runs a command in the root file system of an Alpine in DIR, in namespaces of its own (network,
# mounts, processes, IPC), in the current directory, with this host's /tmp and checkout.
set -euo pipefail
dir=$1
shift
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
exec unshare -n -m -p -i --fork --kill-child bash -euc '
	dir=$1 checkout=$2 here=$PWD
	shift 2
	mkdir -p "$dir$checkout"
	mount --bind "$dir" "$dir"
	mount -t proc none "$dir/proc"
	mount -t sysfs none "$dir/sys"
	mount --rbind /dev "$dir/dev"
	mount -t tmpfs none "$dir/run"
	mount --bind /tmp "$dir/tmp"
	mount --bind "$checkout" "$dir$checkout"
	ip link set lo up
	exec chroot "$dir" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"
' alpine "$dir" "$checkout" "$@"
