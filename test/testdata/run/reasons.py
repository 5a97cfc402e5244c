"""serve PORT MODE [HOST]: one connection, with which MODE does what keeps it on TCP.
talk, busy PORT, send PORT HOST: its client, which asks and is answered; which has a thread asleep in a call of the kernel's;
which sends until it is killed."""
import os
import platform
import select
import socket
import sys
import threading
import time


def talk(port):
    with socket.create_connection(("127.0.0.1", port)) as c:
        for _ in range(50):
            c.sendall(b"x")
            if c.recv(1) != b"x":
                sys.exit("no answer")


def echo(fd):
    while data := os.read(fd, 1000):
        os.write(fd, data)


def asleep_in(thread, call):
    """The thread is in that system call, of which the platform says the number."""
    with open(f"/proc/self/task/{thread.native_id}/syscall") as f:
        return f.read().split()[0] == call


def busy(port):
    """One thread waits in splice for room in a pipe, of which only the kernel knows; another sends."""
    splice = {"x86_64": "275", "aarch64": "76"}[platform.machine()]
    out, into = os.pipe()
    os.set_blocking(into, False)
    filled = 0
    while True:
        try:
            filled += os.write(into, bytes(4096))
        except BlockingIOError:
            break
    os.set_blocking(into, True)
    with socket.create_connection(("127.0.0.1", port)) as c:
        t = threading.Thread(target=lambda: os.splice(c.fileno(), into, 1))
        t.start()
        while not asleep_in(t, splice):
            time.sleep(0.01)
        for _ in range(50):
            c.sendall(b"x")
        c.shutdown(socket.SHUT_WR)
        while filled:
            filled -= len(os.read(out, filled))
        t.join()
        if (got := os.read(out, 1)) != b"y":
            sys.exit(f"{got}")


def send(port, host):
    with socket.create_connection((host, port)) as c:
        while True:
            c.sendall(b"x")
            time.sleep(0.02)


def serve(port, mode, host="127.0.0.1"):
    with socket.create_server((host, port)) as listener:
        s, _ = listener.accept()
        if mode == "asleep":  # and listens
            time.sleep(1e6)
    if mode == "sink":
        while s.recv(1000):
            pass
        s.sendall(b"y")
    if mode == "shared":
        asleep, wake = os.pipe()
        used, use = os.pipe()
        pid = os.fork()
        if pid == 0:  # has used the connection, and has it until its parent ends
            os.close(wake)
            select.select([s], [], [], 0)
            os.write(use, b"x")
            os.read(asleep, 1)
            os._exit(0)
        os.close(asleep)
        os.read(used, 1)
    elif mode == "stream":
        os.dup2(s.fileno(), 0)
    echo(s.fileno())
    s.close()
    if mode == "shared":
        os.close(wake)
        os.waitpid(pid, 0)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]), *sys.argv[3:])
elif sys.argv[1] == "send":
    send(int(sys.argv[2]), sys.argv[3])
else:
    {"talk": talk, "busy": busy}[sys.argv[1]](int(sys.argv[2]))
