#!/bin/bash
# Threads around a buffer, from one to the other; each server takes one connection.
# needs: mbuffer=mbuffer
# port: 0
# tcp: it closes its listener when it has accepted, before the broker may have come to it
. "${0%/*}/lib.sh"

check() {
	random file $((32 << 20))
	for i in 1 2 3; do
		mbuffer -q -m 4M -I "127.0.0.1:$PORT" -o "got$i" &
		listens "$PORT"
		mbuffer -q -m 4M -i file -O "127.0.0.1:$PORT"
		wait
		same "got$i" file
	done
}

run "$@"
