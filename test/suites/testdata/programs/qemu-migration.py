"""Starts a machine and another that waits for it, writes to the memory of the first, moves it, and compares what
the memory of the second is. qemu-migration.py PORT MONITOR MONITOR"""
import hashlib
import json
import socket
import subprocess
import sys
import time

move, first, second = (int(a) for a in sys.argv[1:4])


class Monitor:
    def __init__(self, port):
        for _ in range(600):
            try:
                self.file = socket.create_connection(("127.0.0.1", port)).makefile("rw")
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        self.file.readline()
        self.call("qmp_capabilities")

    def call(self, name, **args):
        self.file.write(json.dumps({"execute": name, "arguments": args}) + "\n")
        self.file.flush()
        while True:
            answer = json.loads(self.file.readline())
            if "error" in answer:
                sys.exit(f"{name}: {answer['error']}")
            if "return" in answer:
                return answer["return"]


def start(port, *more):
    return subprocess.Popen(
        ["qemu-system-x86_64", "-M", "pc", "-m", "64", "-accel", "tcg", "-display", "none", "-nodefaults", "-S",
         "-qmp", f"tcp:127.0.0.1:{port},server=on,wait=off", "-device", "loader,file=memory,addr=0x1000000,force-raw=on", *more])


with open("memory", "wb") as f, open("/dev/urandom", "rb") as r:
    f.write(r.read(32 << 20))
machines = [start(first), start(second, "-incoming", f"tcp:127.0.0.1:{move}")]
a, b = Monitor(first), Monitor(second)
a.call("migrate-set-parameters", **{"max-bandwidth": 10 << 30})
a.call("migrate", uri=f"tcp:127.0.0.1:{move}")
for _ in range(1200):
    state = a.call("query-migrate")["status"]
    if state in ("completed", "failed"):
        break
    time.sleep(0.1)
if state != "completed":
    sys.exit(f"migration: {state}")
for m, name in ((a, "a"), (b, "b")):
    for _ in range(600):
        if m.call("query-status")["status"] != "inmigrate":
            break
        time.sleep(0.1)
    m.call("pmemsave", val=0x1000000, size=32 << 20, filename=name)
want = hashlib.sha256(open("memory", "rb").read()).digest()
for name in ("a", "b"):
    if hashlib.sha256(open(name, "rb").read()).digest() != want:
        sys.exit(f"the memory of {name} is other")
for m in (a, b):
    m.call("quit")
for m in machines:
    if m.wait(60):
        sys.exit(f"qemu: {m.returncode}")
