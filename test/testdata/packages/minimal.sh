#!/usr/bin/env bash
# minimal.sh DIR COMMAND [ARGUMENT...]: runs a command in a minimal Debian, in namespaces of its own (network, mounts, processes,
# IPC), with /proc, /sys, /dev and an empty /run. With no root file system in DIR it makes one, by debootstrap
# from the mirror of this host's apt. With MINIMAL_NET=host it has this host's network.
set -euo pipefail
dir=$1
shift
if [ ! -e "$dir/etc/debian_version" ]; then
	mkdir -p "$dir"
	. /etc/os-release
	mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $VERSION_CODENAME" 'Identifier: Packages' | head -1)
	debootstrap --variant=minbase "$VERSION_CODENAME" "$dir" "${mirror:-http://deb.debian.org/debian}" >&2
fi
net=-n
if [ "${MINIMAL_NET:-}" = host ]; then
	net=
	mkdir -p "$dir/etc/ssl/certs"
	cp /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/"
	cp -L /etc/resolv.conf "$dir/etc/"
fi
exec unshare $net -m -p -i --fork --kill-child bash -euc '
	dir=$1
	shift
	mount --bind "$dir" "$dir"
	mount -t proc none "$dir/proc"
	mount -t sysfs none "$dir/sys"
	mount --rbind /dev "$dir/dev"
	mount -t tmpfs none "$dir/run"
	mount -t tmpfs none "$dir/tmp"
	ip link set lo up
	cd "$dir" # its own root, not a chroot: there user namespaces and nsenter -m do not work
	pivot_root . .
	umount -l .
	exec chroot . env -i PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C "$@"
' minimal "$dir" "$@"
