#!/bin/bash
# Measures the memory of other nodes beside its controls, interleaved: a line for each round, then
# medians. Takes root, and the programs of test/packages.txt.
#
#   measure.sh build            what it runs, into $DIR (/tmp/exnmem-measure)
#   measure.sh pages|redis|fio|hosts ROUNDS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
DIR=${DIR:-/tmp/exnmem-measure}
L=exnmem-m-l B=exnmem-m-b # the namespaces of the lender and of the borrower
pids=()

if [ "$1" = build ]; then
	mkdir -p "$DIR"
	(cd "$root" && go build -o "$DIR" ./cmd/exn-tun ./cmd/exn-mem)
	make -s -C "$root/memory/c" BUILD="$DIR"
	make -s -C "$root/internal/pager/preload" BUILD="$DIR/c"
	cp "$DIR/c/libexnmem.so" "$DIR/"
	cc -O2 -Wall -Wextra "$here/pages.c" -o "$DIR/pages"
	cc -O2 -Wall -Wextra -I"$root/memory/c" "$here/gets.c" "$root"/memory/c/{exnmem,message,window}.c -o "$DIR/gets" -lpthread
	exit
fi
rounds=$2
work=$(mktemp -d)

finish() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	wait
	ip netns del $L 2>/dev/null || true
	ip netns del $B 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT

namespaces() {
	for n in $L $B; do ip netns add $n; ip -n $n link set lo up; done
}

# until COMMAND: waits until it succeeds.
until_ok() {
	for _ in $(seq 200); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done
	echo "measure.sh: never: $*" >&2
	exit 1
}

node() { # NAMESPACE ARGUMENT...
	local n=$1
	shift
	ip netns exec "$n" "$DIR/exn-tun" up "$@" >"$work/log.$n" 2>&1 & # its TCP is of that namespace, too
	pids+=($!)
}

nodes() {
	namespaces
	node $L --dir "$work/fabric" --addr 10.2.0.1/24 --lend 4G
	node $B --dir "$work/fabric" --addr 10.2.0.2/24
	until_ok ip netns exec $B "$DIR/exn-mem" run --local 1M --remote 1M true
}

inside() { ip netns exec $B "$@"; }

# note NAME VALUE
note() {
	echo "$2" >>"$work/of.$1"
	printf '%s=%s ' "$1" "$2"
}

medians() {
	local f
	for f in "$work"/of.*; do
		sort -g "$f" | awk -v n="${f##*/of.}" '{v[NR]=$1} END {print n, "median", (v[int((NR+1)/2)]+v[int(NR/2)+1])/2, "from", v[1], "to", v[NR]}'
	done
}

pages() {
	nodes
	for _ in $(seq "$rounds"); do
		note minor_us "$("$DIR/pages" minor 256)"
		note local_row_mbs "$("$DIR/pages" row 1024)"
		note control_fault_us "$(inside "$DIR/exn-mem" run --local 16M --remote 512M --control -- "$DIR/pages" random 256)"
		note lease_fault_us "$(inside "$DIR/exn-mem" run --local 16M --remote 512M -- "$DIR/pages" random 256)"
		note control_row_mbs "$(inside "$DIR/exn-mem" run --local 512M --remote 1200M --control -- "$DIR/pages" row 1024)"
		note lease_row_mbs "$(inside "$DIR/exn-mem" run --local 512M --remote 1200M -- "$DIR/pages" row 1024)"
		echo
	done
}

# What redis is asked for: of KEYS keys of 1 KiB, number k with a probability of about 1/k; the numbers
# are spread over the keys.
KEYS=200000
ask="local k=math.floor($KEYS^(tonumber(ARGV[1])/1000000)); return redis.call('get', 'key:' .. ((k*7919)%$KEYS))"
fill="for i=0,$KEYS-1 do redis.call('set', 'key:' .. i, string.rep(string.char(97+i%26), 1024)) end"

redis() { # PORT COMMAND...: starts one
	local port=$1
	shift
	inside "$@" redis-server --save '' --appendonly no --port "$port" --bind 127.0.0.1 >"$work/redis.$port" 2>&1 &
	pids+=($!)
	until_ok inside redis-cli -p "$port" ping
	inside redis-cli -p "$port" config set lua-time-limit 100000 >/dev/null
	inside redis-cli -p "$port" eval "$fill" 0 >/dev/null
}

gets() { inside redis-benchmark -p "$1" -n 100000 -r 1000000 -c 50 --csv "${@:2}" | tail -1 | awk -F'","' '{print $2}'; }

redises() {
	nodes
	redis 7001 env
	used=$(inside redis-cli -p 7001 info memory | tr -d '\r' | sed -n 's/^used_memory_rss://p')
	redis 7002 "$DIR/exn-mem" run --local $((used / 2)) --remote 1G --
	echo "all local: $used bytes resident; paged: a share of half of that"
	for _ in $(seq "$rounds"); do
		note local_zipf "$(gets 7001 eval "$ask" 0 __rand_int__)"
		note paged_zipf "$(gets 7002 eval "$ask" 0 __rand_int__)"
		echo
	done
}

fios() {
	nodes
	inside nbdkit -f -U "$work/lease" "$DIR/nbdkit-exnet-plugin.so" size=256M & pids+=($!)
	nbdkit -f -U "$work/memory" memory 256M & pids+=($!)
	until_ok test -S "$work/lease"
	until_ok test -S "$work/memory"
	for at in memory lease; do
		fio --name=w --ioengine=nbd --uri="nbd+unix:///?socket=$work/$at" --rw=write --bs=1M --size=256M >/dev/null
	done
	for _ in $(seq "$rounds"); do
		for at in memory lease; do
			note "${at}_iops" "$(fio --name=r --ioengine=nbd --uri="nbd+unix:///?socket=$work/$at" --rw=randread --bs=4k --iodepth=32 \
				--size=256M --runtime=3 --time_based --output-format=terse --terse-version=3 | tail -1 | cut -d';' -f8)"
		done
		echo
	done
}

busy() { awk '/^cpu / {print $2+$3+$4+$7+$8+$9}' /proc/stat; } # ticks of 10 ms

hosts() {
	namespaces
	ip link add exnmem-m0 netns $L type veth peer name exnmem-m1 netns $B
	ip -n $L addr add 192.0.2.1/24 dev exnmem-m0
	ip -n $B addr add 192.0.2.2/24 dev exnmem-m1
	ip -n $L link set exnmem-m0 up
	ip -n $B link set exnmem-m1 up
	(
		cd "$work"
		"$DIR/exn-tun" key ca --fabric lab --out ca
		for i in 1 2; do "$DIR/exn-tun" key node --fabric lab --node $i --ca ca --out node$i; done
	) >/dev/null
	node $L --dir "$work/one" --addr 10.2.0.1/24 --lend 1G --listen :4791 --key "$work/node1.key" --trust "$work/ca.crt"
	node $B --dir "$work/two" --addr 10.2.0.2/24 --listen :4791 --key "$work/node2.key" --trust "$work/ca.crt" --join 192.0.2.1
	until_ok inside "$DIR/gets" 1 0
	ip netns exec $L iperf3 -s >/dev/null & pids+=($!)
	sleep 1
	for _ in $(seq "$rounds"); do
		b=$(busy)
		r=$(inside iperf3 -c 192.0.2.1 -R -t 5 -J | python3 -c 'import json,sys; print(round(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"]/8e6))')
		note iperf3_mbs "$r"
		note iperf3_mbs_per_core "$((r * 500 / ($(busy) - b)))"
		for n in 1 4; do
			b=$(busy)
			r=$(inside "$DIR/gets" $n 5)
			note "gets${n}_mbs" "$r"
			note "gets${n}_mbs_per_core" "$((r * 500 / ($(busy) - b)))"
		done
		echo
	done
}

case $1 in
pages) pages ;;
redis) redises ;;
fio) fios ;;
hosts) hosts ;;
esac
echo
medians
