# common.sh is what the other scripts share; they set bin, the folder of the commands.

# eventually COMMAND...: runs it until it succeeds, for two minutes.
eventually() {
	for _ in $(seq ${EVENTUALLY:-600}); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
	echo "never: $*" >&2
	return 1
}
# direct PROGRAM: how many live connections of a program are direct.
direct() { "$bin/exn-tun" status --sockets --json | jq --arg p "$1" '[.[].connections[] | select(.mode == "direct" and .program == $p)] | length'; }
# unified mounts cgroup2 alone, as most hosts have it.
unified() {
	umount -l /sys/fs/cgroup 2>/dev/null || true
	mount -t cgroup2 none /sys/fs/cgroup
}
