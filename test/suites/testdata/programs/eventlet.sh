#!/bin/bash
# Python on eventlet: its own loop of epoll.
# needs: python3:eventlet=python3-eventlet python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo_eventlet.py <<-X
	import eventlet
	def client(c, _):
	    while True:
	        d = c.recv(65536)
	        if not d: break
	        c.sendall(d)
	eventlet.serve(eventlet.listen(("127.0.0.1", $PORT)), client)
	X
	exec /usr/bin/python3 echo_eventlet.py
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
