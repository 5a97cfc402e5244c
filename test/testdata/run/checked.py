# Clients that check each byte that a server returns, over connections that stay and new ones, until
# the file is there. checked.py serve PORT | ask PORT CONNECTIONS FILE | once PORT ROUNDS |
# stay PORT FILE, which has one connection | pour PORT FILE, which only sends, and hears at the end
# what has come. HOST is the server's address.
import hashlib, os, socket, sys, threading

host = os.environ.get("HOST", "127.0.0.1")
each = int(os.environ.get("ROUNDS", "20"))

def echo(c):
    with c:
        while b := c.recv(1 << 16):
            c.sendall(b)

def drain(c):
    with c:
        h = hashlib.sha256()
        while b := c.recv(1 << 16):
            h.update(b)
        c.sendall(h.digest())

def serve(port, answer):
    s = socket.create_server((host, port), backlog=512)
    while True:
        threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()

def pour(port, stop):
    with socket.create_connection((host, port)) as c:
        h = hashlib.sha256()
        done = 0
        while not os.path.exists(stop):
            b = done.to_bytes(8, "little") * 500
            c.sendall(b)
            h.update(b)
            done += 1
        c.shutdown(socket.SHUT_WR)
        got = b""
        while b := c.recv(100):
            got += b
        if got != h.digest():
            raise SystemExit(f"other bytes than the {done} pieces of 4000 bytes")
        print("checked", done)

def rounds(c, begin, n):
    for i in range(begin, begin + n):
        size = 1 + i * 7919 % 9000
        want = b"".join(k.to_bytes(4, "little") for k in range(i, i + size // 4 + 1))[:size]
        c.sendall(want)
        got = bytearray()
        while len(got) < size:
            b = c.recv(size - len(got))
            if not b:
                raise SystemExit(f"round {i}: {len(got)} of {size} bytes")
            got += b
        if got != want:
            raise SystemExit(f"round {i}: wrong bytes")

def ask(port, stay, stop):
    done = 0
    kept = [socket.create_connection((host, port)) for _ in range(stay)]
    while not os.path.exists(stop):
        with socket.create_connection((host, port)) as new:
            for c in (new, *kept, new):
                rounds(c, done, each)
        done += each
    print("checked", done)

if sys.argv[1] in ("serve", "drain"):
    serve(int(sys.argv[2]), echo if sys.argv[1] == "serve" else drain)
elif sys.argv[1] == "pour":
    pour(int(sys.argv[2]), sys.argv[3])
elif sys.argv[1] == "once":
    with socket.create_connection((host, int(sys.argv[2]))) as c:
        rounds(c, 0, int(sys.argv[3]))
elif sys.argv[1] == "stay":
    done = 0
    with socket.create_connection((host, int(sys.argv[2]))) as c:
        while not os.path.exists(sys.argv[3]):
            rounds(c, done, each)
            done += each
else:
    ask(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
