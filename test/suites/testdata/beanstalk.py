"""beanstalk.py PORT JOBS: puts jobs of many sizes on one connection, and takes them on another, in order, while a third
waits for one of its own."""
import random
import socket
import sys
import threading


def body(i):
    return random.Random(i).randbytes(i * 7919 % 100000)


def line(f):
    return f.readline().rstrip(b"\r\n")


def open_file(port):
    return socket.create_connection(("127.0.0.1", port)).makefile("rwb")


def ask(f, text, want):
    f.write(text)
    f.flush()
    got = line(f)
    if not got.startswith(want):
        sys.exit(f"{text[:40]}: {got}")
    return got


def take(f, timeout=60):
    head = ask(f, b"reserve-with-timeout %d\r\n" % timeout, b"RESERVED").split()
    data = f.read(int(head[2]) + 2)
    ask(f, b"delete %s\r\n" % head[1], b"DELETED")
    return data[:-2]


def main():
    port, jobs = int(sys.argv[1]), int(sys.argv[2])
    waiter = open_file(port)
    ask(waiter, b"watch late\r\n", b"WATCHING")
    ask(waiter, b"ignore default\r\n", b"WATCHING")
    late = []
    thread = threading.Thread(target=lambda: late.append(take(waiter)), daemon=True)
    thread.start()

    def put(f):
        for i in range(jobs):
            data = body(i)
            ask(f, b"put %d 0 60 %d\r\n%s\r\n" % (i, len(data), data), b"INSERTED")
        ask(f, b"use late\r\n", b"USING")
        ask(f, b"put 1 0 60 4\r\nlast\r\n", b"INSERTED")

    putter = threading.Thread(target=put, args=(open_file(port),))
    putter.start()
    reader = open_file(port)
    putter.join()
    for i in range(jobs):
        if take(reader) != body(i):
            sys.exit(f"job {i} is not what was put")
    thread.join()
    if late != [b"last"]:
        sys.exit(f"the one that waited got {late}")


main()
