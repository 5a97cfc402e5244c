"""marked.py HOST PORT MARKER: sends a text repeatedly to a server that sends it back, until its standard input ends.
Says "went N" for N bytes, then "ok N"."""
import select
import socket
import sys

block = sys.argv[3].encode() * 512
total = rounds = 0
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as c:
    while not select.select([sys.stdin], [], [], 0)[0]:
        c.sendall(block)
        got = bytearray()
        while len(got) < len(block):
            part = c.recv(len(block) - len(got))
            if not part:
                sys.exit("end of file")
            got += part
        if got != block:
            sys.exit(f"other bytes came back after {total}")
        total += len(block)
        rounds += 1
        if rounds % 8 == 1:
            print("went", total, flush=True)
print("ok", total, flush=True)
