"""serve PORT MODE: one connection, with which MODE does what keeps it on TCP. talk PORT: its client."""
import os
import socket
import sys


def talk(port):
    with socket.create_connection(("127.0.0.1", port)) as c:
        for _ in range(50):
            c.sendall(b"x")
            if c.recv(1) != b"x":
                sys.exit("no answer")


def echo(fd):
    while data := os.read(fd, 1000):
        os.write(fd, data)


def serve(port, mode):
    with socket.create_server(("127.0.0.1", port)) as listener:
        s, _ = listener.accept()
    if mode == "shared":
        asleep, wake = os.pipe()
        pid = os.fork()
        if pid == 0:  # has the connection until its parent ends
            os.close(wake)
            os.read(asleep, 1)
            os._exit(0)
        os.close(asleep)
    elif mode == "stream":
        os.dup2(s.fileno(), 0)
    echo(s.fileno())
    s.close()
    if mode == "shared":
        os.close(wake)
        os.waitpid(pid, 0)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]), sys.argv[3])
else:
    talk(int(sys.argv[2]))
