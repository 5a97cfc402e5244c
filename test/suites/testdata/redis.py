"""redis.py PORT ROUNDS: commands on one connection, then on another, without waiting in between: the server acts on them in that order.

A connection that is not accepted yet may come later (docs/exn-run.md): the rounds begin when all are direct.
Between the rounds one more connection waits for an answer: epoll looks at what it has told again at the next wait only, and until then
tells of it in its old place, also without exn-run. After that wait it has."""
import ctypes
import socket
import sys
import time


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        words = text.encode().split()
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def answer(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:].rstrip(b"\r\n")
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        if kind in b"$*" and int(rest) < 0:
            return None
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        sys.exit(f"answer {line}")

    def ask(self, text, want):
        self.send(text)
        self.expect(text, want)

    def expect(self, what, want):
        if (got := self.answer()) != want:
            sys.exit(f"{what}: {got}, not {want}")


def publish(a, b, c, i):
    a.ask("SUBSCRIBE news", ["subscribe", "news", 1])
    yield
    a.send("UNSUBSCRIBE news")
    b.ask(f"PUBLISH news {i}", 0)
    a.expect("UNSUBSCRIBE", ["unsubscribe", "news", 0])


def push(a, b, c, i):
    yield
    a.send("BRPOPLPUSH from to 0")
    b.send(f"LPUSH from {i}")
    c.ask("RPOP to", str(i))
    a.expect("BRPOPLPUSH", str(i))
    b.expect("LPUSH", 1)


def blocked(a, b, c, i):
    yield
    a.send("BLPOP queue 0")
    b.send("BLPOP queue 0")
    c.ask(f"RPUSH queue first{i} second{i}", 2)
    a.expect("BLPOP of who came first", ["queue", f"first{i}"])
    b.expect("BLPOP of who came second", ["queue", f"second{i}"])


def watch(a, b, c, i):
    a.ask("WATCH key", "OK")
    a.ask("MULTI", "OK")
    a.ask("GET key", "QUEUED")
    yield
    b.send(f"SET key {i}")
    a.ask("EXEC", None)
    b.expect("SET", "OK")


def become_direct(clients):
    """Uses the clients until the library, if it is there, says that both directions of all are direct."""
    try:
        mode = ctypes.CDLL(None).exnds_mode
    except AttributeError:
        return
    end = time.monotonic() + 300
    while any(mode(c.socket.fileno()) != 3 for c in clients):
        for c in clients:
            c.ask("PING", "PONG")
        if time.monotonic() > end:
            sys.exit("some connections do not become direct")


def main():
    port, rounds = int(sys.argv[1]), int(sys.argv[2])
    clients = [Client(port) for _ in range(3)]
    pause = Client(port)
    pause.ask("FLUSHALL", "OK")
    become_direct([*clients, pause])
    for i in range(rounds):
        order = clients[i % 3:] + clients[:i % 3]
        for what in publish, push, blocked, watch:
            steps = what(*order, i)
            next(steps)
            for _ in range(2):
                pause.ask("PING", "PONG")
            next(steps, None)


main()
