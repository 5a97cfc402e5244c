#!/bin/bash
# Python's web servers: uvicorn with WebSockets, Hypercorn with HTTP/2, Waitress (asyncore).
# needs: python3:uvicorn=uvicorn python3:hypercorn=python3-hypercorn python3:waitress=python3-waitress python3:websockets=python3-websockets curl=curl ab=apache2-utils
. "${0%/*}/lib.sh"

serve() {
	cat > app.py <<-X
	async def asgi(scope, receive, send):
	    if scope["type"] == "websocket":
	        await receive()
	        await send({"type": "websocket.accept"})
	        while (m := await receive())["type"] == "websocket.receive":
	            await send({"type": "websocket.send", "bytes": m["bytes"]})
	        return
	    if scope["type"] != "http": return
	    body, more = b"", True
	    while more:
	        m = await receive()
	        body += m.get("body", b"")
	        more = m.get("more_body")
	    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
	    await send({"type": "http.response.body", "body": body})
	def wsgi(env, start):
	    body = env["wsgi.input"].read()
	    start("200 OK", [("Content-Length", str(len(body)))])
	    return [body]
	X
	/usr/bin/python3 -m uvicorn --log-level error --port "$PORT" app:asgi --ws-max-size 100000000 --lifespan off &
	/usr/bin/python3 -m hypercorn -b "127.0.0.1:$BACK" -w 2 app:asgi &
	/usr/bin/python3 -m waitress --listen="127.0.0.1:$OTHER" --max-request-body-size=1000000000 app:wsgi &
	servers
}

check() {
	random body $((4 << 20))
	listens "$BACK"
	listens "$OTHER"
	for url in "$PORT" "$BACK" "$OTHER"; do
		for i in 1 2 3; do curl -fsS -H Expect: --data-binary @body -o "got$i" "http://127.0.0.1:$url/" & done
		wait
		for i in 1 2 3; do same "got$i" body; done
		ab -q -k -c 4 -n 500 "http://127.0.0.1:$url/" > said
		grep -q 'Complete requests:      500' said
	done
	curl -fsS --http2-prior-knowledge --data-binary @body -o got "http://127.0.0.1:$BACK/"
	same got body
	/usr/bin/python3 -c "
import asyncio, random, websockets
async def main():
    async with websockets.connect('ws://127.0.0.1:$PORT/', max_size=None, ping_interval=None) as ws:
        sent = [random.randbytes(i * 977 % 200000) for i in range(200)]
        async def send():
            for m in sent: await ws.send(m)
        t = asyncio.create_task(send())
        for m in sent: assert await ws.recv() == m
        await t
asyncio.run(main())"
}

load() { ab -q -k -c 4 -n $((1000 * SIZE)) "http://127.0.0.1:$PORT/" > said; }

run "$@"
