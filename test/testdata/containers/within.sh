#!/usr/bin/env bash
# within.sh ROOT COMMAND...: runs a command in this mount namespace, of which ROOT (of debian.sh) becomes the root file
# system; what is written there goes to memory. /dev, /proc, /run, /sys, temporary files and these scripts stay, as do
# the folders of $KEEP.
set -euo pipefail
root=$1 scripts=$(cd "${0%/*}" && pwd) tmp=${TMPDIR:-/tmp}
shift
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/{up,work,root}
mount -t overlay overlay -o "lowerdir=$root,upperdir=/mnt/up,workdir=/mnt/work" /mnt/root
cd /mnt/root
for dir in /dev /proc /run /sys "$tmp" "$scripts" ${KEEP-}; do
	mkdir -p ".$dir"
	mount --rbind "$dir" ".$dir"
done
for dir in containerd containers kubelet; do # storage drivers make overlays, which none can on an overlay
	mkdir -p "var/lib/$dir"
	mount -t tmpfs none "var/lib/$dir"
done
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
cd /
PATH=$PATH:/usr/sbin:/sbin exec "$@"
