#!/bin/bash
# Nim's asyncdispatch.
# needs: nim=nim gcc=gcc python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.nim <<-X
	import std/[asyncnet, asyncdispatch]
	proc client(c: AsyncSocket) {.async.} =
	  while true:
	    let d = await c.recv(65536)
	    if d.len == 0: break
	    await c.send(d)
	  c.close()
	proc main() {.async.} =
	  let s = newAsyncSocket(buffered = false)
	  s.setSockOpt(OptReuseAddr, true)
	  s.bindAddr(Port($PORT), "127.0.0.1")
	  s.listen()
	  while true:
	    asyncCheck client(await s.accept())
	asyncCheck main()
	runForever()
	X
	HOME=$PWD nim c -d:release --hints:off --nimcache:nc -o:echo echo.nim
	exec ./echo
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
