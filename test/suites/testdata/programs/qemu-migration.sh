#!/bin/bash
# A machine's memory moved to another process, its console and monitor on sockets.
# needs: qemu-system-x86_64=qemu-system-x86 python3=python3
# port: 0
. "${0%/*}/lib.sh"

check() {
	python3 "${0%/*}/qemu-migration.py" "$PORT" "$BACK" "$OTHER"
}

run "$@"
