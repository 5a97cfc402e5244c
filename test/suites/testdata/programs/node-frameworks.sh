#!/bin/bash
# express, fastify, ws, socket.io and undici from npm; NODE_PATH has to lead to them.
# npm install express@4 fastify@4 ws@8 undici@6 socket.io@4 socket.io-client@4
# needs: node=nodejs ab=apache2-utils
. "${0%/*}/lib.sh"

serve() { exec node "${0%/*}/node-frameworks.js" server "$PORT" "$BACK" "$OTHER"; }

check() {
	listens "$OTHER"
	node "${0%/*}/node-frameworks.js" client "$PORT" "$BACK" "$OTHER" "$SIZE"
	for port in "$PORT" "$BACK"; do
		ab -q -k -c 8 -n 1000 "http://127.0.0.1:$port/small" > said
		grep -q 'Failed requests:        0' said
	done
}

load() { ab -q -k -c 8 -n $((3000 * SIZE)) "http://127.0.0.1:$PORT/small" > said; }

run "$@"
