"""client.py HOST PORT [TOS]: sends data of many sizes, or of those in EXN_SIZES, to a server that sends it back, and checks that, until its standard
input ends, EXN_PAUSE seconds after each round; then ends its direction and checks that nothing more comes. Says "went N" for N bytes, then "ok N"; or,
when the connection breaks, "broken: WHY". After 500,000 bytes it sets the TOS or traffic class byte."""
import os
import random
import select
import socket
import sys

SIZES = [int(n) for n in os.environ.get("EXN_SIZES", "1,64,120,121,480,1000,4096,65536,200000").split(",")]

PAUSE = float(os.environ.get("EXN_PAUSE", "0"))


def set_tos(c, tos):
    if c.family == socket.AF_INET6:
        c.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
    else:
        c.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)


def main():
    data = random.Random(1).randbytes(max(SIZES))
    total = rounds = 0
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as c:
        while not select.select([sys.stdin], [], [], PAUSE)[0]:
            size = SIZES[rounds % len(SIZES)]
            c.sendall(data[:size])
            got = bytearray()
            while len(got) < size:
                part = c.recv(size - len(got))
                if not part:
                    raise ConnectionError("end of file")
                got += part
            if got != data[:size]:
                sys.exit(f"other bytes came back after {total}")
            if len(sys.argv) > 3 and total < 500000 <= total + size:
                set_tos(c, int(sys.argv[3]))
            total += size
            rounds += 1
            if rounds % 100 == 1 or PAUSE:
                print("went", total, flush=True)
        c.shutdown(socket.SHUT_WR)
        if c.recv(1):
            sys.exit("more came back than was sent")
    print("ok", total, flush=True)


try:
    main()
except OSError as e:
    print("broken:", e, flush=True)
