#!/bin/bash
# nutcracker spreads keys over two servers of redis: epoll, pipelining.
# needs: nutcracker=nutcracker redis-server=redis-server redis-benchmark=redis-tools
. "${0%/*}/lib.sh"

serve() {
	redis-server --port "$BACK" --bind 127.0.0.1 --save '' --dir . &
	redis-server --port "$OTHER" --bind 127.0.0.1 --save '' --dir . &
	printf 'a:\n  listen: 127.0.0.1:%s\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n  servers:\n   - 127.0.0.1:%s:1 one\n   - 127.0.0.1:%s:1 two\n' \
		"$PORT" "$BACK" "$OTHER" > nut.yml
	nutcracker -c nut.yml -s 8083 &
	servers
}

check() {
	listens "$BACK"
	listens "$OTHER"
	random value 500000
	for i in $(seq 20); do redis-cli -p "$PORT" -x set "big$i" < value > /dev/null; done
	for i in $(seq 20); do redis-cli -p "$PORT" --raw get "big$i" | head -c 500000 > got; same got value; done
	for i in $(seq 3000); do echo "SET k$i v$i"; done > sets
	for i in $(seq 3000); do echo "GET k$i"; done > gets
	redis-cli -p "$PORT" < sets > said
	[ "$(grep -c OK said)" = 3000 ]
	redis-cli -p "$PORT" < gets > said
	seq -f 'v%.0f' 3000 > want
	same said want
	redis-benchmark -q -p "$PORT" -t set,get -n 10000 -P 8 -c 20 > said
}

load() { redis-benchmark -q -p "$PORT" -t set,get -n $((10000 * SIZE)) -c 20; }

run "$@"
