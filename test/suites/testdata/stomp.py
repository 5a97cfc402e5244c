"""stomp.py PORT N: sends a message of 4 MiB and N small ones to a queue, and reads them from it by another
connection, in order."""
import random
import socket
import sys


def frame(command, headers, body=b""):
    head = "".join(f"{k}:{v}\n" for k, v in headers.items())
    return f"{command}\n{head}content-length:{len(body)}\n\n".encode() + body + b"\0\n"


def read(f):
    command = f.readline().strip()
    while not command:
        command = f.readline().strip()
    headers = {}
    while line := f.readline().strip().decode():
        key, _, value = line.partition(":")
        headers.setdefault(key, value)
    body = f.read(int(headers["content-length"])) if "content-length" in headers else b""
    if f.read(1) != b"\0":
        sys.exit("a frame does not end")
    return command, headers, body


def connect(port):
    conn = socket.create_connection(("127.0.0.1", port))
    conn.sendall(frame("CONNECT", {"accept-version": "1.2", "host": "localhost", "heart-beat": "0,0"}))
    f = conn.makefile("rb")
    if read(f)[0] != b"CONNECTED":
        sys.exit("not connected")
    return conn, f


def main():
    port, n = int(sys.argv[1]), int(sys.argv[2])
    sender, replies = connect(port)
    receiver, messages = connect(port)
    receiver.sendall(frame("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "ack": "auto"}))
    bodies = [random.randbytes(4 << 20)] + [f"message {i} {'x' * (i % 500)}".encode() for i in range(n)]
    for i, body in enumerate(bodies):
        sender.sendall(frame("SEND", {"destination": "/queue/q", "receipt": f"r{i}"}, body))
        if read(replies)[1]["receipt-id"] != f"r{i}":
            sys.exit("another receipt")
        if read(messages)[2] != body:
            sys.exit(f"message {i} is another")


main()
