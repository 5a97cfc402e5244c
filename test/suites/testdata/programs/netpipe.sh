#!/bin/bash
# Ping-pong of all sizes, whose bytes both ends look at; a new connection for each size.
# needs: NPtcp=netpipe-tcp
# port: 0
. "${0%/*}/lib.sh"

check() {
	NPtcp -i -u $((1 << 20)) -P "$PORT" > server.out 2>&1 &
	listens "$PORT"
	NPtcp -i -u $((1 << 20)) -h 127.0.0.1 -P "$PORT" > said 2>&1
	wait
	! grep -i -E "error|check failed" said server.out
	[ "$(grep -c 'Integrity check passed' said)" -ge 35 ]
}

run "$@"
