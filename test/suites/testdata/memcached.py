"""memcached.py PORT ITEMS: stores values of many sizes on four connections and reads them on each of the others,
one by one and many at once."""
import random
import socket
import sys


def line(f):
    return f.readline().rstrip(b"\r\n")


def value(i):
    return random.Random(i).randbytes((i * 7919) % (300000 if i % 50 == 0 else 4000))


def check(f, i):
    head = line(f).split()
    size = int(head[3])
    data = f.read(size + 2)
    if head[:2] != [b"VALUE", b"k%d" % i] or data[:-2] != value(i):
        sys.exit(f"k{i}: {head} and {len(data)} bytes that are not what was stored")


def main():
    port, items = int(sys.argv[1]), int(sys.argv[2])
    conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    files = [c.makefile("rwb") for c in conns]
    for i in range(items):
        f, data = files[i % 4], value(i)
        f.write(b"set k%d 0 0 %d\r\n%s\r\n" % (i, len(data), data))
        f.flush()
        if (got := line(f)) != b"STORED":
            sys.exit(f"set k{i}: {got}")
    for i in range(items):
        f = files[(i + 1) % 4]
        f.write(b"get k%d\r\n" % i)
        f.flush()
        check(f, i)
        if (got := line(f)) != b"END":
            sys.exit(f"get k{i}: {got}")
    for begin in range(0, items, 20):  # asked for together, answered together
        f, keys = files[(begin // 20) % 4], range(begin, min(begin + 20, items))
        for i in keys:
            f.write(b"get k%d\r\n" % i)
        f.flush()
        for i in keys:
            check(f, i)
            line(f)


main()
