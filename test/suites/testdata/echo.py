"""echo.py server PORT: writes back what it reads. echo.py client PORT BYTES: sends bytes on three connections,
while it reads them back, and compares."""
import hashlib
import random
import socket
import sys
import threading


def echo(conn):
    with conn:
        while data := conn.recv(65536):
            conn.sendall(data)
        conn.shutdown(socket.SHUT_WR)


def server(port):
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            conn, _ = listener.accept()
            threading.Thread(target=echo, args=(conn,), daemon=True).start()


def client(port, size, wrong):
    data = random.randbytes(min(size, 1 << 20))
    got, want = hashlib.sha256(), hashlib.sha256()
    with socket.create_connection(("127.0.0.1", port)) as conn:

        def send():
            left = size
            while left:
                part = data[:left][: random.randrange(1, 100000)]
                want.update(part)
                conn.sendall(part)
                left -= len(part)

        sender = threading.Thread(target=send)
        sender.start()
        left = size
        while left:
            part = conn.recv(left)
            if not part:
                break
            got.update(part)
            left -= len(part)
        sender.join()
        if left or got.digest() != want.digest():
            wrong.append(f"{left} of {size} bytes are missing, or others came")


def main():
    if sys.argv[1] == "server":
        server(int(sys.argv[2]))
    wrong = []
    clients = [threading.Thread(target=client, args=(int(sys.argv[2]), int(sys.argv[3]), wrong)) for _ in range(3)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    sys.exit("\n".join(wrong) or 0)


main()
