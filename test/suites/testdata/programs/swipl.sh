#!/bin/bash
# SWI-Prolog: a thread for each connection, its own buffers.
# needs: swipl=swi-prolog-nox python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.pl <<-X
	:- use_module(library(socket)).
	main :- tcp_socket(S), tcp_setopt(S, reuseaddr), tcp_bind(S, ip(127,0,0,1):$PORT), tcp_listen(S, 5), loop(S).
	loop(S) :- tcp_accept(S, C, _), thread_create(client(C), _, [detached(true)]), loop(S).
	client(C) :- setup_call_cleanup(tcp_open_socket(C, I, O), (set_stream(I, encoding(octet)), set_stream(O, encoding(octet)), set_stream(I, type(binary)), set_stream(O, type(binary)), copy(I, O)), (close(I, [force(true)]), close(O, [force(true)]))).
	copy(I, O) :- fill_buffer(I), read_pending_codes(I, L, []), ( L == [] -> true ; format(O, "~s", [L]), flush_output(O), copy(I, O) ).
	:- initialization(main, main).
	X
	exec swipl echo.pl
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
