"""mute COMMAND...: executes it where the kernel refuses sockets of AF_NETLINK, as systemd's RestrictAddressFamilies= does.
echo PORT: answers datagrams. ask PORT: asks there until it is killed."""
import ctypes
import os
import platform
import socket
import struct
import sys
import time

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EAFNOSUPPORT = 0x7FFF0000, 0x00050000 | 97
AF_NETLINK = 16


def mute(command):
    number = {"x86_64": 41, "aarch64": 198}[platform.machine()]  # of socket
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 3, number), (LOAD, 0, 0, 16), (EQUAL, 0, 1, AF_NETLINK),
             (RETURN, 0, 0, EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *s) for s in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
        sys.exit(os.strerror(ctypes.get_errno()))
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
        sys.exit("the kernel gives a socket")
    except OSError:
        os.execvp(command[0], command)


def echo(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", port))
        while True:
            data, whence = s.recvfrom(100)
            s.sendto(data, whence)


def ask(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.connect(("127.0.0.1", port))
        while True:
            try:
                s.send(b"x")
                s.recv(100)
            except OSError:  # nobody is there yet
                pass
            time.sleep(0.02)


if sys.argv[1] == "mute":
    mute(sys.argv[2:])
else:
    {"echo": echo, "ask": ask}[sys.argv[1]](int(sys.argv[2]))
