# A program in C for the tests of package agent, as Python's sockets are the C library's.
#
#   chat.py server ADDRESS PORT   answers each line of each connection with the same line
#   chat.py client ADDRESS PORT   asks what its standard input says, a line at a time:
#     open          makes a connection
#     ask N TIME    sends N lines, one after the other, and has TIME seconds for each answer
#     wait TIME     has TIME seconds to read something that nobody sends
import socket, sys, threading

def lines(c):
    return c.makefile("rb", buffering=0)

def answer(c):
    try:
        for line in lines(c):
            c.sendall(line)
    except OSError:
        pass
    c.close()

def serve(addr, port):
    s = socket.create_server((addr, port), family=socket.AF_INET6 if ":" in addr else socket.AF_INET, dualstack_ipv6=addr == "::")
    print("ready", flush=True)
    threading.Thread(target=accept, args=(s,), daemon=True).start()
    sys.stdin.read()

def accept(s):
    while True:
        threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()

def ask(addr, port):
    c, number, due, got = None, 0, [], b""
    for command in sys.stdin:
        words = command.split()
        try:
            if words[0] == "open":
                c = socket.create_connection((addr, port))
                due, got = [], b""
            if words[0] == "wait":
                c.settimeout(float(words[1]))
                if not c.recv(1):
                    raise EOFError
            for _ in range(int(words[1]) if words[0] == "ask" else 0):
                c.settimeout(float(words[2]))
                line = b"%010d %s\n" % (number, b"x" * 2000)
                number += 1
                c.sendall(line)
                due.append(line)
                while due:
                    while not got.endswith(b"\n"):
                        more = c.recv(1 << 16)
                        if not more:
                            raise EOFError
                        got += more
                    while got:
                        assert got.startswith(due[0]), "another line"
                        got = got[len(due.pop(0)):]
            print("ok", flush=True)
        except TimeoutError:
            print("timeout", flush=True)
        except (OSError, EOFError) as e:
            print("end", type(e).__name__, flush=True)

role = {"server": serve, "client": ask}[sys.argv[1]]
role(sys.argv[2], int(sys.argv[3]))
