#!/usr/bin/env bash
# run.sh builds the tests and examples of librma (electronicvisions/librma) from a checkout,
# against the headers and libraries of this repository, and runs them at a node of their own.
#
#   test/extoll/run.sh CHECKOUT
#
# Nothing of them is changed. It prints a line for each program: passed, failed, or left out with
# the reason. It needs root, and skips with a reason without CHECKOUT.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
skip() { echo "skipped: $*"; exit 0; }
[ $# -eq 1 ] || skip 'name a checkout of electronicvisions/librma'
checkout=$(cd "$1" && pwd)
[ -d "$checkout/tests" ] || skip "$1 has no tests/: it is no checkout of librma"
[ "$(id -u)" = 0 ] || skip 'it needs root for a network namespace'

work=$(mktemp -d)
ns=exn-extoll-$$ failed=0
cleanup() {
	"$work/exn-tun" down --dir "$work/fabric" >/dev/null 2>&1 || true
	ip netns del "$ns" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
(cd "$here" && go build -o "$work/exn-tun" ./cmd/exn-tun)
make -s -C "$here/ports/lib" BUILD="$work/lib"
ip netns add "$ns"
"$work/exn-tun" up --dir "$work/fabric" --netns "$ns" --addr 10.2.9.1/24 --detach >/dev/null 2>&1

# build NAME SOURCE...: old C, whose warnings are its own. illegal_cmd calls a function that it
# does not declare.
build() {
	cc -w -std=gnu11 -fcommon -Wno-error=implicit-function-declaration -O1 -I"$here/ports/lib/include" "${@:2}" -o "$work/$1" \
		-L"$work/lib" -Wl,-rpath,"$work/lib" -lrma2 >"$work/$1.log" 2>&1
}

say() { printf '%-28s %-9s %s\n' "$@"; }
# run NAME ARGS...: a program that needs no other.
run() {
	local name=$1 status=0 out
	shift
	if [ ! -x "$work/$name" ] && ! build "$name" "$checkout/tests/$name.c"; then
		say "$name" failed "not built: $(grep -m1 error "$work/$name.log")"
		failed=1
		return
	fi
	out=$(timeout 60 ip netns exec "$ns" "$work/$name" "$@" </dev/null 2>&1) || status=$?
	echo "$out" >"$work/$name.out"
	if [ $status -ne 0 ] && grep -q 'Opening PMAP device' <<<"$out"; then
		say "$name" left_out 'it wants physical memory (/dev/extoll/pmap)'
	elif [ $status -ne 0 ] && [[ $name = illegal_* ]]; then
		say "$name" passed "refused: $(tail -n1 <<<"$out")"
	elif [ $status -ne 0 ]; then
		say "$name" failed "status $status: $(tail -n1 <<<"$out")"
		failed=1
	elif [[ $name = illegal_* ]]; then
		# It looks whether data has come: none may have.
		if grep -q Mismatch <<<"$out"; then say "$name" passed 'nothing was written'; else say "$name" failed 'data has come'; failed=1; fi
	elif grep -q Mismatch <<<"$out"; then
		say "$name" failed "$(grep -m1 Mismatch <<<"$out")"
		failed=1
	else
		say "$name" passed
	fi
}

run openclose
run testregister 2 100000 2 0
run simple_lock
for kind in 0 1; do
	run mem_write $kind 65536
	run mem_read $kind 65536
	run mem_write_with_noti $kind 65536
	run mem_read_with_noti $kind 65536
done
run mem_write_ntr 1 65536
run mem_read_ntr 1 65536
run illegal_cmd 4096
run illegal_mem_write 0 4096
run illegal_mem_write_requester 0 4096
run illegal_mem_read 0 4096
run illegal_vpid_write 0 4096
run illegal_mem_vpid_write 0 4096
run illegal_excel 1 0 1 2
run illegal_excel_rra 1 0 1 2
run rra_read 1 0 0
run pmem_write 0 4096
exit $failed
