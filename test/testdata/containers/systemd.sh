#!/usr/bin/env bash
# systemd.sh BIN: systemd as the first process of namespaces of its own starts
# packaging/exnet.service, with BIN's exn-tun and library; redis in one network namespace and its
# client in another, of other users, are direct. Ends with "ok".
set -euo pipefail
bin=$1 packaging=$(cd "${0%/*}/../../../packaging" && pwd)
work=$(mktemp -d /var/tmp/exnet-systemd.XXXXXX)
group=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)/exnet-systemd-$$
mkdir "$group"
clean() {
	echo 1 >"$group/cgroup.kill" 2>/dev/null || true
	for _ in $(seq 50); do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.1; done
	rm -rf "$work"
	rmdir /var/tmp/result 2>/dev/null || true
}
trap clean EXIT
chmod 755 "$work"
cat >"$work/inside" <<'END'
#!/bin/bash
trap 'echo end >>/var/tmp/result/out' EXIT
exec >>/var/tmp/result/out 2>&1
set -euo pipefail
eventually() {
	for _ in $(seq 300); do eval "$1" >/dev/null && return; sleep 0.2; done
	echo "never: $1"
	return 1
}
systemd-tmpfiles --create exnet.conf
[ -e /run/exn/ds/.keep ]
systemctl start exnet
[ "$(systemctl is-active exnet)" = active ]
for n in a b; do ip netns add $n; done
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 172.30.0.2/24 dev va
ip -n b addr add 172.30.0.3/24 dev vb
ip -n a link set va up
ip -n b link set vb up
as() { LD_PRELOAD=/opt/libexnds.so ip netns exec $1 setpriv --reuid $2 --clear-groups "${@:3}"; }
as b 1234 redis-server --bind 0.0.0.0 --protected-mode no --save '' --dir /tmp >/dev/null &
eventually '/opt/exn-tun status --sockets --json | jq -e "length == 2"'
eventually 'ip netns exec a redis-cli -h 172.30.0.3 ping | grep PONG'
as a 4321 redis-benchmark -h 172.30.0.3 -q -t get -l >/dev/null &
eventually '/opt/exn-tun status --sockets --json | jq -e "[.[].connections[] | select(.mode == \"direct\" and .program == \"redis-server\")] | length > 0"'
systemctl stop exnet
[ "$(ls -A /run/exn/ds)" = .keep ]
[ -e /sys/fs/bpf/exnet/pairs-1/link ]
echo passed
END
chmod 755 "$work/inside"
cp "$bin"/exn-tun "$bin"/libexnds.so "$packaging"/exnet.{conf,service} "$work/"
(
	echo $BASHPID >"$group/cgroup.procs"
	exec unshare -f -p -m -n -u -i -C --mount-proc --kill-child bash -euc '
work=$1
umount -l /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
mount -t bpf none /sys/fs/bpf
for d in /run /tmp /opt /var/log /etc/systemd/system /usr/lib/tmpfiles.d; do mount -t tmpfs -o mode=755 none $d; done
chmod 1777 /tmp
mkdir -p /run/lock /var/tmp/result
mount --bind $work /var/tmp/result
cp $work/{exn-tun,libexnds.so,inside} /opt/
cp $work/exnet.conf /usr/lib/tmpfiles.d/
sed s,/usr/bin/exn-tun,/opt/exn-tun, $work/exnet.service >/etc/systemd/system/exnet.service
printf "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/opt/inside\n" >/etc/systemd/system/inside.service
ip link set lo up
export container=lxc
exec /lib/systemd/systemd --unit=inside.service --log-target=null' systemd "$work" >/dev/null 2>&1 </dev/null
) &
started=$!
for _ in $(seq 1200); do grep -q '^end' "$work/out" 2>/dev/null && break; kill -0 $started 2>/dev/null || break; sleep 0.2; done
kill -KILL $started 2>/dev/null || true
wait $started 2>/dev/null || true
cat "$work/out"
grep -qx passed "$work/out"
echo ok
