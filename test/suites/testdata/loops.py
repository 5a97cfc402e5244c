"""loops.py HOW PORT: a web server by aiohttp on uvloop, tornado, or twisted. GET sends a file of the directory www, POST
sends back what it got. loops.py client PORT: gets and posts by aiohttp on uvloop, many at once, and compares."""
import sys

LIMIT = 64 << 20


def aiohttp_server(port):
    import uvloop
    from aiohttp import web

    async def get(request):
        return web.FileResponse("www" + request.path)

    async def post(request):
        return web.Response(body=await request.read())

    uvloop.install()
    app = web.Application(client_max_size=LIMIT)
    app.router.add_get("/{path}", get)
    app.router.add_post("/{path}", post)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def tornado_server(port):
    import asyncio
    import tornado.httpserver
    import tornado.web

    class Handler(tornado.web.RequestHandler):
        async def get(self):
            with open("www" + self.request.path, "rb") as f:
                while part := f.read(1 << 18):
                    self.write(part)
                    await self.flush()

        def post(self):
            self.write(self.request.body)

    async def run():
        server = tornado.httpserver.HTTPServer(tornado.web.Application([("/.*", Handler)]), max_buffer_size=LIMIT)
        server.listen(port, "127.0.0.1")
        await asyncio.Event().wait()

    asyncio.run(run())


def twisted_server(port):
    from twisted.internet import epollreactor

    epollreactor.install()
    from twisted.internet import reactor
    from twisted.web import server, static

    class Root(static.File):
        def createSimilarFile(self, path):
            return Root(path)

        def render_POST(self, request):
            return request.content.read()

    Root.contentTypes = {".html": "text/html"}
    reactor.listenTCP(port, server.Site(Root("www")), interface="127.0.0.1")
    reactor.run()


def client(port):
    import asyncio
    import random
    import aiohttp
    import uvloop

    with open("www/index.html", "rb") as f:
        small = f.read()

    async def one(session, i):
        body = random.Random(i).randbytes(i * 997 % 200000)
        async with session.post(f"http://127.0.0.1:{port}/index.html", data=body) as answer:
            if await answer.read() != body:
                sys.exit(f"POST {i}: other bytes came back")
        async with session.get(f"http://127.0.0.1:{port}/index.html") as answer:
            if await answer.read() != small:
                sys.exit(f"GET {i}: other bytes came")

    async def run():
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=8)) as session:
            await asyncio.gather(*(one(session, i) for i in range(200)))

    uvloop.install()
    asyncio.run(run())


HOW = {"aiohttp": aiohttp_server, "tornado": tornado_server, "twisted": twisted_server, "client": client}
HOW[sys.argv[1]](int(sys.argv[2]))
