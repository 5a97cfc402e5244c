#!/bin/sh
# When the package goes (dpkg says remove, rpm how many versions are left), the units' agent and nodes end, AppArmor
# forgets the profile, and what the commands made themselves is removed: the libraries that exn-run
# and exn-mem built for root, and empty folders. There is no script for after it, for whose sake dpkg would
# remember the package until a purge.
case ${1:-} in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now exnet.service || true
	systemctl stop 'exn-tun@*.service' || true
fi
# Others are their starters': they run on, without their program's file.
left=$(/usr/bin/exn-tun fabrics --json 2>/dev/null) || left=
case $left in
'' | '[]') ;;
*)
	pids=
	for p in /proc/[0-9]*; do # a name would not find those that --detach has started
		[ "$(readlink "$p/exe" 2>/dev/null)" != /usr/bin/exn-tun ] || pids="$pids ${p#/proc/}"
	done
	echo "exnet: nodes run on, and kill$pids ends them in order:"
	/usr/bin/exn-tun fabrics
	;;
esac
if [ -d /sys/kernel/security/apparmor ] && command -v apparmor_parser >/dev/null; then
	apparmor_parser -R /etc/apparmor.d/exn-tun || true
fi
# A container with our device would not start any more, as the files that it mounts are gone.
cdi=/etc/cdi/exnet.yaml
if grep -qs 'exnet\.io/direct' "$cdi"; then
	rm -f "$cdi"
	echo "exnet: removed $cdi: make containers that have its devices anew"
fi
rm -rf /var/cache/exnet /sys/fs/bpf/exnet
rm -f /run/exn/ds/.keep
rmdir /run/exn/ds /run/exn /run/exn-cni 2>/dev/null
exit 0
