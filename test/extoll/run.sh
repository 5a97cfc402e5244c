#!/usr/bin/env bash
# run.sh builds programs written for EXTOLL from checkouts, as they are, against the headers and
# libraries of this repository, and runs them at two nodes of their own.
#
#   test/extoll/run.sh CHECKOUT...
#
# A CHECKOUT is one of electronicvisions/librma (its tests and examples) or of ParaStation/pscom
# (the plugins extoll and velo; needs cmake, libpopt-dev). It prints a line for each program: passed,
# failed, or left out with the reason. It needs root, and skips with a reason without CHECKOUT.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
skip() { echo "skipped: $*"; exit 0; }
[ $# -ge 1 ] || skip 'name a checkout of electronicvisions/librma or ParaStation/pscom'
[ "$(id -u)" = 0 ] || skip 'it needs root for network namespaces'

work=$(mktemp -d)
failed=0
namespaces=("exn-extoll-$$-1" "exn-extoll-$$-2")
cleanup() {
	"$work/exn-tun" down --dir "$work/fabric" >/dev/null 2>&1 || true
	for ns in "${namespaces[@]}"; do ip netns del "$ns" 2>/dev/null || true; done
	rm -rf "$work"
}
trap cleanup EXIT
(cd "$here" && go build -o "$work/" ./cmd/exn-tun)
make -s -C "$here/ports/lib" BUILD="$work/lib"
for i in 0 1; do
	ip netns add "${namespaces[i]}"
	ip -n "${namespaces[i]}" link set lo up
	"$work/exn-tun" up --dir "$work/fabric" --netns "${namespaces[i]}" --addr "10.2.9.$((i + 1))/24" --detach >/dev/null 2>&1
done

# on N CMD... runs a program at node N (1 or 2), on a CPU of its own.
on() {
	local n=$1
	shift
	ip netns exec "${namespaces[n - 1]}" taskset -c "$(((n - 1) % $(nproc)))" "$@"
}

# say PROGRAM STATE REASON
say() {
	printf '%-36s %-9s %s\n' "$@"
	[ "$2" != failed ] || failed=1
}

# until_says FILE PATTERN waits until a program has written something.
until_says() {
	for _ in $(seq 300); do
		grep -q "$2" "$1" 2>/dev/null && return
		sleep 0.1
	done
	return 1
}

. "$here/test/extoll/librma.sh"
. "$here/test/extoll/pscom.sh"
for checkout; do
	[ -d "$checkout" ] || skip "$checkout is no directory"
	checkout=$(cd "$checkout" && pwd)
	if [ -e "$checkout/tests/rma2test.c" ]; then
		librma
	elif [ -d "$checkout/lib/pscom4extoll" ]; then
		pscom
	else
		skip "$checkout is a checkout of neither librma nor pscom"
	fi
done
exit $failed
