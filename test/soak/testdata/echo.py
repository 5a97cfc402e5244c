"""Returns what comes (serve PORT), or sends, and looks whether the same comes back (ask SEED ADDR PORT ...).

Runs under exn-run. Results are lines of JSON, as those of the Go programs: event in worker_test.go.
"""
import json
import random
import select
import socket
import sys
import threading
import time
from datetime import datetime, timezone

PIECE = 65536
STALL = 120.0  # the same as stallTime of stream_test.go


def say(event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def echo(conn):
    with conn:
        conn.settimeout(STALL)
        try:
            while data := conn.recv(PIECE):
                conn.sendall(data)
            conn.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # who is at the other end tells


def serve(port):
    server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    say({"State": "ready"})
    threading.stack_size(256 * 1024)
    while True:
        conn, _ = server.accept()
        threading.Thread(target=echo, args=(conn,), daemon=True).start()


class Mismatch(Exception):
    pass


class Short(Exception):
    pass


def exchange(conn, data, record):
    """Sends data and its end, and compares what comes back. Returns how much was right, and notes in record that
    something came."""
    conn.setblocking(False)
    out, got, rnd = 0, 0, random.Random(len(data))
    sending = True
    while True:
        readable, writable, _ = select.select([conn], [conn] if sending else [], [], STALL)
        if not readable and not writable:
            raise TimeoutError("nothing moved for %d s" % STALL)
        if writable:
            try:
                out += conn.send(data[out : out + rnd.randint(1, PIECE)])
            except BlockingIOError:
                pass
            if out == len(data):
                conn.shutdown(socket.SHUT_WR)
                sending = False
        if readable:
            try:
                piece = conn.recv(rnd.randint(1, PIECE))
            except BlockingIOError:
                continue
            if piece != data[got : got + len(piece)]:
                raise Mismatch("%d bytes at %d of %d" % (len(piece), got, len(data)))
            got += len(piece)
            record["Silent"] = False
            if not piece:
                if got < len(data):
                    raise Short("%d of %d bytes" % (got, len(data)))
                return got


def now():
    return datetime.now(timezone.utc).isoformat()


def ask(seed, node, peers):
    """peers: a list of (node, program, address, port)."""
    rnd = random.Random(seed)
    go = threading.Event()
    done = threading.Event()

    def work():
        while True:
            go.wait()
            done.clear()
            peer, program, addr, port = rnd.choice(peers)
            record = {"Kind": "python", "Phase": "connect", "Client": node, "Server": peer, "Program": program, "Start": now()}
            data = rnd.randbytes(int(2 ** rnd.uniform(0, 20)))
            try:
                with socket.create_connection((addr, port), timeout=20) as conn:
                    record["Phase"] = "established"
                    record["Silent"] = True
                    got = exchange(conn, data, record)
                say({"Tallies": {"python/%d" % peer: {"Conns": 1, "Bytes": got}}})
            except (OSError, Mismatch, Short) as e:
                record["Err"] = repr(e)
                record["End"] = now()
                record["Corrupt"] = isinstance(e, Mismatch)
                record["Lost"] = 1 if isinstance(e, Short) else 0
                say({"Record": record})
            done.set()
            time.sleep(rnd.uniform(0, 0.5))

    done.set()
    threading.Thread(target=work, daemon=True).start()
    say({"State": "ready"})
    for line in sys.stdin:
        command = line.strip()
        if command == "pause":
            go.clear()
            time.sleep(0.3)  # for one that has just begun
            done.wait()
            say({"State": "paused"})
        elif command == "resume":
            go.set()


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    ask(int(sys.argv[2]), int(sys.argv[3]), [(int(a), b, c, int(d)) for a, b, c, d in (p.split(",") for p in sys.argv[4:])])
