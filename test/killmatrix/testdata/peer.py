# A peer of the matrix that is no Go program: it speaks the protocol of peer_test.go.
# "poll" as its argument: its sockets are non-blocking, with poll; else they block, and
# limits of calls are SO_RCVTIMEO and SO_SNDTIMEO.
import errno
import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time

BLOCK = 65521
MAX = 256 << 10
PATTERN = bytes((i * 7 + (i >> 8) * 13) & 255 for i in range(BLOCK)) * (MAX // BLOCK + 2)
POLL = len(sys.argv) > 1 and sys.argv[1] == "poll"
now = time.monotonic_ns


def name(e):
    if isinstance(e, (TimeoutError, BlockingIOError)) or e.errno in (errno.EAGAIN,):
        return "deadline"
    return {errno.ECONNRESET: "reset", errno.EPIPE: "pipe", errno.ENETUNREACH: "unreachable",
            errno.EHOSTUNREACH: "unreachable"}.get(e.errno, str(e))


class Way:
    def __init__(self):
        self.s = dict(bytes=0, bad=0, end="", end_at=0, timeouts=0, timeout=0, longest=0, gap=0, busy=False)
        self.call = 0
        self.last = now()

    def called(self, n):
        t = now()
        self.s["longest"] = max(self.s["longest"], t - self.call)
        self.call = 0
        self.s["bytes"] += n
        if n:
            self.s["gap"] = max(self.s["gap"], t - self.last)
            self.last = t

    def failed(self, e):
        self.called(0)
        if name(e) == "deadline":
            self.s["timeouts"] += 1
            self.s["timeout"] = now()
            return False
        self.end(name(e))
        return True

    def end(self, why):
        self.s["end"] = why
        self.s["end_at"] = now()

    def stat(self, reset):
        t, s = now(), self.s
        s["busy"] = self.call != 0
        if s["busy"]:
            s["longest"] = max(s["longest"], t - self.call)
        if not s["end"]:
            s["gap"] = max(s["gap"], t - self.last)
        r = dict(s)
        if reset:
            s["gap"] = s["longest"] = s["timeouts"] = 0
            self.last = t
            if s["busy"]:
                self.call = t
        return r


class Conn:
    def __init__(self, sock, ms):
        self.sock, self.ms = sock, ms
        self.limit()
        self.cond = threading.Condition()
        self.tx, self.rx = Way(), Way()
        self.size = self.pause = 0
        self.hold = self.over = False
        self.threads = {}

    def limit(self):
        sock, ms = self.sock, self.ms
        if POLL:
            sock.settimeout(ms / 1000 if ms else None)
        else:
            sock.settimeout(None)
            tv = struct.pack("@ll", ms // 1000, ms % 1000 * 1000) # 0: no limit
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tv)

    def start(self, what):
        if what not in self.threads:
            self.threads[what] = t = threading.Thread(target=what, daemon=True)
            t.start()

    def read(self, hold):
        with self.cond:
            self.hold = hold
            self.cond.notify_all()
        if not hold:
            self.start(self.reader)

    def pump(self, size, pause):
        with self.cond:
            self.size, self.pause = size, pause
            self.cond.notify_all()
        self.start(self.writer)

    def finish(self):
        with self.cond:
            self.over = True
            self.cond.notify_all()
        self.start(self.writer)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        with self.cond:
            self.over, self.hold = True, False
            self.cond.notify_all()
        for t in self.threads.values():
            t.join(5)
        self.sock.close()

    def writer(self):
        while True:
            with self.cond:
                self.cond.wait_for(lambda: self.size or self.over)
                if self.over:
                    break
                size, pause = self.size, self.pause
            w = self.tx
            off = w.s["bytes"] % BLOCK
            w.call = now()
            try:
                w.called(self.sock.send(PATTERN[off:off + size]))
            except OSError as e:
                if w.failed(e):
                    return
            if pause:
                time.sleep(pause / 1e6)
        try:
            self.sock.shutdown(socket.SHUT_WR)
            self.tx.end("finished")
        except OSError as e:
            self.tx.end(name(e))

    def reader(self):
        w = self.rx
        while True:
            with self.cond:
                if self.hold:
                    self.cond.wait_for(lambda: not self.hold)
                    w.last = now()
            off = w.s["bytes"] % BLOCK
            w.call = now()
            try:
                b = self.sock.recv(128 << 10)
            except OSError as e:
                if w.failed(e):
                    return
                continue
            if b != PATTERN[off:off + len(b)]:
                w.s["bad"] += len(b)
            w.called(len(b))
            if not b:
                w.end("end of file")
                return


conns, listeners = {}, {}


def address(s):
    return "%s:%d" % s.getsockname()


def do(q):
    op, i = q["op"], q["id"]
    host, _, port = q["addr"].rpartition(":")
    if op == "listen":
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((host, int(port)))
        s.listen()
        s.settimeout(5)
        listeners[i] = s
        return {"addr": address(s)}
    if op == "unlisten":
        listeners.pop(i).close()
        return {}
    if op == "accept":
        s, _ = listeners[q["from"]].accept()
        if q["buffer"]:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, q["buffer"])
        conns[i] = Conn(s, q["ms"])
        return {"addr": address(s)}
    if op == "dial":
        s = socket.socket()
        try:
            ms = q["dial"]
            if POLL:
                s.settimeout(ms / 1000)
            else: # connect(2) keeps to SO_SNDTIMEO
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", ms // 1000, ms % 1000 * 1000))
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                s.connect((host, int(port)))
            except OSError as e:
                if e.errno == errno.EINPROGRESS: # socket(7), SO_SNDTIMEO
                    raise TimeoutError from None
                raise
        except OSError:
            s.close()
            raise
        if q["buffer"]:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, q["buffer"])
        conns[i] = Conn(s, q["ms"])
        return {"addr": address(s)}
    c = conns[i]
    if op == "read":
        c.read(q["hold"])
    elif op == "pump":
        c.pump(min(q["size"], MAX), q["pause"])
    elif op == "leave": # signals of readiness are the kernel's, who has to have the bytes
        flags = fcntl.fcntl(c.sock, fcntl.F_GETFL)
        fcntl.fcntl(c.sock, fcntl.F_SETFL, flags | os.O_ASYNC)
    elif op == "pass": # to another process, as far as the library knows
        a, b = socket.socketpair()
        socket.send_fds(a, [b"x"], [c.sock.fileno()])
        c.sock.close()
        c.sock = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])
        a.close()
        b.close()
        c.limit()
    elif op == "finish":
        c.finish()
    elif op == "stat":
        return {"stat": {"tx": c.tx.stat(q["reset"]), "rx": c.rx.stat(q["reset"])}}
    elif op == "close":
        conns.pop(i).close()
    return {}


print("{}", flush=True)
for line in sys.stdin:
    began = now()
    try:
        r = do(json.loads(line))
    except OSError as e:
        r = {"err": name(e)}
    r["took"] = now() - began
    print(json.dumps(r), flush=True)
