#!/bin/bash
# Six nodes: keys over three, moved while they are used, and a failover.
# needs: redis-server=redis-server redis-cli=redis-tools redis-benchmark=redis-tools
. "${0%/*}/lib.sh"

serve() {
	for i in 0 1 2 3 4 5; do
		mkdir -p "n$i"
		redis-server --port "808$i" --bind 127.0.0.1 --save '' --appendonly no --cluster-enabled yes --cluster-node-timeout 15000 --dir "n$i" &
	done
	servers
}

all_ok() { redis-cli -p 8080 cluster info | grep -q cluster_state:ok; redis-cli -p 8085 cluster info | grep -q cluster_state:ok; }

check() {
	for i in 0 1 2 3 4 5; do listens "808$i"; done
	redis-cli --cluster create 127.0.0.1:808{0,1,2,3,4,5} --cluster-replicas 1 --cluster-yes > made
	until_ok redis-cli --cluster check 127.0.0.1:8080
	for i in $(seq 2000); do echo "SET k$i v$i-$(printf 'y%.0s' $(seq $((i % 200 + 1))))"; done > sets
	redis-cli -c -p 8080 < sets > said
	[ "$(grep -c OK said)" = 2000 ]
	redis-benchmark --cluster -q -p 8080 -t set,get -n 5000 -c 12 > said &
	from=$(redis-cli -p 8080 cluster myid) to=$(redis-cli -p 8081 cluster myid)
	redis-cli --cluster reshard 127.0.0.1:8080 --cluster-from "$from" --cluster-to "$to" --cluster-slots 500 --cluster-yes > moved
	wait
	until_ok redis-cli --cluster check 127.0.0.1:8082
	for i in 3 4 5; do redis-cli -p "808$i" cluster failover | grep -q OK; sleep 2; done
	until_ok redis-cli --cluster check 127.0.0.1:8081
	for i in $(seq 2000); do echo "GET k$i"; done > gets
	redis-cli -c -p 8080 < gets | grep -v Redirected > got
	sed 's/^SET k[0-9]* //' sets > want
	same got want
}

run "$@"
