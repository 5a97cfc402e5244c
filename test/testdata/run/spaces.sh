# What scripts share that run in namespaces of their own (net, mount, pid): a folder $dir and a /run that
# go with the script, until_so, and the network namespaces server, 10.9.0.1, and client, 10.9.0.2, with a
# link between them. $bin has the commands.
dir=$(mktemp -d)
mount -t tmpfs none /run
mkdir -p /run/netns
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
# until_so WHAT COMMAND...: until it succeeds.
until_so() {
	local what=$1
	shift
	for _ in $(seq 1200); do ! "$@" || return 0; sleep .05; done
	echo "not so: $what" >&2
	"$bin/exn-tun" status --sockets >&2
	tail -n 50 "$dir"/*.log >&2
	exit 1
}
for n in server client; do ip netns add "$n"; ip -n "$n" link set lo up; done
ip link add s netns server type veth peer name c netns client
ip -n server addr add 10.9.0.1/24 dev s
ip -n client addr add 10.9.0.2/24 dev c
ip -n server link set s up
ip -n client link set c up
