#!/bin/bash
# Python on trio.
# needs: python3:trio=python3-trio python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo_trio.py <<-X
	import trio
	async def client(s):
	    async for d in s:
	        await s.send_all(d)
	trio.run(trio.serve_tcp, client, $PORT)
	X
	exec /usr/bin/python3 echo_trio.py
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
