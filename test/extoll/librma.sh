# librma.sh is a part of run.sh: the tests and examples of electronicvisions/librma.

# build NAME SOURCE...: old C, whose warnings are its own. illegal_cmd calls a function that it
# does not declare.
build() {
	cc -w -std=gnu2x -fcommon -Wno-error=implicit-function-declaration -O1 -I"$here/ports/lib/include" "${@:2}" -o "$work/$1" \
		-L"$work/lib" -Wl,-rpath,"$work/lib" -lrma2 -lm >"$work/$1.log" 2>&1
}

# run NAME ARGS...: a program that needs no other.
run() {
	local name=$1 status=0 out
	shift
	if [ ! -x "$work/$name" ] && ! build "$name" "$checkout"/*/"$name.c"; then
		say "$name" failed "not built: $(grep -m1 error "$work/$name.log")"
		return
	fi
	out=$(on 1 timeout 60 "$work/$name" "$@" </dev/null 2>&1) || status=$?
	if [ $status -ne 0 ] && grep -q 'Opening PMAP device' <<<"$out"; then
		say "$name" left_out 'it wants physical memory (/dev/extoll/pmap)'
	elif [ $status -ne 0 ] && [[ $name = illegal_* && $status -ne 124 ]]; then
		say "$name" passed "refused: $(tail -n1 <<<"$out")"
	elif [ $status -ne 0 ]; then
		say "$name" failed "status $status: $(tail -n1 <<<"$out")"
	elif [[ $name = illegal_* ]]; then
		# It looks whether data has come: none may have.
		if grep -q Mismatch <<<"$out"; then say "$name" passed 'nothing was written'; else say "$name" failed 'data has come'; fi
	elif grep -q 'Mismatch\|Error in' <<<"$out"; then
		say "$name" failed "$(grep -m1 'Mismatch\|Error in' <<<"$out")"
	else
		say "$name" passed "$*"
	fi
}

# The benchmarks of rma2test, as its menu has them. 3, 4 and 5 go through all sizes and take minutes:
# EXTOLL_BENCHMARKS='3 4 5' runs them.
benchmarks=${EXTOLL_BENCHMARKS:-1 2 6 b c d f g j r}

# pong starts the end of rma2test that waits, at node 1 for SECONDS, and sets vpid.
pong() {
	(cd "$work" && on 1 timeout "$1" stdbuf -oL "$work/rma2test" 3000 0 </dev/null >"$work/pong.out" 2>&1) &
	pong=$!
	until_says "$work/pong.out" 'Start Ping' || return
	vpid=$(sed -n 's/.*and vpid \([0-9]*\).*/\1/p' "$work/pong.out")
}

# pingpong runs rma2test from node 2 to node 1, and first two programs that want a peer: they have one
# of their own, as it is told when they end, which rma2test does not expect.
pingpong() {
	local vpid pong status=0
	build rma2test "$checkout"/tests/rma2{test,_ping,_pong}.c && build connect "$checkout/tests/connect.c" && pong 20 ||
		{ say rma2test failed 'not built, or its pong end does not start'; return; }
	if on 2 timeout 20 "$work/connect" 1 "$vpid" 0 >"$work/connect.out" 2>&1; then
		say connect passed 'from node 2 to node 1'
	else
		say connect failed "$(tail -n1 "$work/connect.out")"
	fi
	run noti_put 1 "$vpid" 7 1
	rm "$work/pong.out"
	pong 600 || { say rma2test failed 'its pong end does not start'; return; }
	# shellcheck disable=SC2086 # several words
	(cd "$work" && printf '%s\n' $benchmarks q |
		on 2 timeout 600 "$work/rma2test" 3000 1 1 "$vpid" >"$work/ping.out" 2>&1) || status=$?
	wait $pong || status=$?
	if [ $status -eq 0 ]; then
		say rma2test passed "benchmarks $benchmarks, between two nodes"
	else
		say rma2test failed "status $status: $(tail -n1 "$work/ping.out")"
	fi
}

librma() {
	local kind
	run openclose
	run send_recv_example
	run testregister 2 100000 2 0
	run simple_lock
	for kind in 0 1; do
		run mem_write $kind 65536
		run mem_read $kind 65536
		run mem_write_with_noti $kind 65536
		run mem_read_with_noti $kind 65536
		run mem_write_with_noti_irq $kind 65536
	done
	run mem_write_ntr 1 65536
	run mem_read_ntr 1 65536
	run notiput_irq
	pingpong
	run illegal_cmd 4096
	run illegal_cmd_with_noti 4096
	run illegal_mem_write 0 4096
	run illegal_mem_write_requester 0 4096
	run illegal_mem_read 0 4096
	run illegal_vpid_write 0 4096
	run illegal_mem_vpid_write 0 4096
	run illegal_excel 1 0 1 2
	run illegal_excel_rra 1 0 1 2
	run rra_read 1 0 0
	run rra_write 1 0x1000 0 0
	run pmem_read 0 4096
	run pmem_read_with_noti 0 4096 1 16 0
	run pmem_write 0 4096
	run pmem_write_with_noti 0 4096
	run pmem_write_with_noti_irq 0 4096
	run pmem_target
	run destination_process
}
