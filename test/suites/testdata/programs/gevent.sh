#!/bin/bash
# Python on gevent: libev, greenlets.
# needs: python3:gevent=python3-gevent python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo_gevent.py <<-X
	from gevent.server import StreamServer
	def client(c, _):
	    while True:
	        d = c.recv(65536)
	        if not d: break
	        c.sendall(d)
	StreamServer(("127.0.0.1", $PORT), client).serve_forever()
	X
	exec /usr/bin/python3 echo_gevent.py
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
