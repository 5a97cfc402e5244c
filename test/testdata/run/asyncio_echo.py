# A server and ten clients on one event loop: messages of many lengths, half-close.
import asyncio

PORT = 7001
TOTAL = 4 << 20


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def client(n):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    want = bytes((i * 7 + n) % 251 for i in range(TOTAL))

    async def send():
        at, size = 0, 1
        while at < TOTAL:
            writer.write(want[at:at + size])
            await writer.drain()
            at, size = at + size, size * 3 % 100003
        writer.write_eof()

    sending = asyncio.create_task(send())
    got = await reader.read(-1)
    await sending
    writer.close()
    assert got == want, (n, len(got))


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", PORT)
    await asyncio.gather(*(client(n) for n in range(10)))
    server.close()
    print("ok")

asyncio.run(main())
