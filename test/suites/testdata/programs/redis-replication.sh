#!/bin/bash
# A server that writes each command to its disk, a replica of it, one of that, and a sentinel; threads for input and output.
# needs: redis-server=redis-server redis-cli=redis-tools redis-benchmark=redis-tools
. "${0%/*}/lib.sh"

serve() {
	mkdir -p a b c s
	redis-server --port "$PORT" --bind 127.0.0.1 --save '' --dir a --appendonly yes --io-threads 2 --io-threads-do-reads yes --repl-diskless-sync yes --repl-diskless-sync-delay 0 &
	redis-server --port "$BACK" --bind 127.0.0.1 --save '' --dir b --replicaof 127.0.0.1 "$PORT" --repl-diskless-load swapdb &
	redis-server --port "$OTHER" --bind 127.0.0.1 --save '' --dir c --replicaof 127.0.0.1 "$BACK" &
	printf 'port 8083\nbind 127.0.0.1\ndir %s\nsentinel monitor m 127.0.0.1 %s 1\nsentinel down-after-milliseconds m 20000\n' "$PWD/s" "$PORT" > sentinel.conf
	redis-server sentinel.conf --sentinel &
	servers
}

digest() { redis-cli -p "$1" debug digest 2> /dev/null || true; }
equals() { a=$(redis-cli -p "$PORT" eval "$hash" 0) b=$(redis-cli -p "$1" eval_ro "$hash" 0); echo "$a $b"; [ "$a" = "$b" ]; }
hash="local s = '' for _, k in ipairs(redis.call('keys', '*')) do local t = redis.call('type', k).ok
if t == 'string' then s = s .. redis.sha1hex(k .. redis.call('get', k)) else s = s .. redis.sha1hex(k .. t) end
end
local l = {} for i = 1, #s, 40 do l[#l + 1] = s:sub(i, i + 39) end table.sort(l) return redis.sha1hex(table.concat(l)) .. #l"

check() {
	random value 400000
	for i in $(seq 20); do redis-cli -p "$PORT" -x set "big$i$$" < value > /dev/null; done
	redis-benchmark -q -p "$PORT" -t set,lpush,incr -n 10000 -r 500 -P 4 -c 16 > said
	until_ok equals "$BACK"
	until_ok equals "$OTHER"
	redis-cli -p "$BACK" replicaof no one
	redis-cli -p "$BACK" flushall
	redis-cli -p "$BACK" replicaof 127.0.0.1 "$PORT"
	redis-benchmark -q -p "$PORT" -t set -n 5000 -r 300 -c 16 > said
	until_ok equals "$BACK"
	until_ok equals "$OTHER"
	[ "$(redis-cli -p "$PORT" wait 1 10000)" -ge 1 ]
	until_ok eval 'redis-cli -p 8083 sentinel replicas m | grep -q "^$BACK$"'
	redis-cli -p "$PORT" debug loadaof > said || true
}

load() { redis-benchmark -q -p "$PORT" -t set,get -n $((10000 * SIZE)) -c 16; }

run "$@"
