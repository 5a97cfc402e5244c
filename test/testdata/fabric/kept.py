"""kept.py HOST PORT HOW: has a connection with keep-alive to a server that sends back what comes. Moves data until its
standard input ends, says "idle", and then waits for more in the way that HOW names. Says what the call is told, and those
after it. HOW write, early and retries send: with TCP_USER_TIMEOUT set when data has moved, before, or never. HOW flight is
not idle: it goes on to send until its standard input ends, and says whether all came back."""
import errno
import select
import socket
import sys
import time

HOST, PORT, HOW = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SENDS = HOW in ("write", "early", "retries")
NAMES = {"IN": 1, "OUT": 4, "ERR": 8, "HUP": 16, "RDHUP": 0x2000}


def echo(c, size):
    c.sendall(bytes(size))
    while size > 0:
        size -= len(c.recv(size))


def told(call):
    try:
        return repr(call())
    except BlockingIOError:
        return "not ready"
    except OSError as e:
        return errno.errorcode[e.errno]


def names(events):
    return "|".join(n for n, bit in NAMES.items() if events & bit)


def waited(c):
    """Waits until there is something to read, or a call says more than that there is not."""
    if HOW == "poll":
        p = select.poll()
        p.register(c, select.POLLIN | 0x2000)
        return names(p.poll()[0][1])
    if HOW == "select":
        return "".join("x" if s else "-" for s in select.select([c], [], [c]))
    if HOW in ("level", "edge"):
        e = select.epoll()
        e.register(c, select.EPOLLIN | select.EPOLLRDHUP | (select.EPOLLET if HOW == "edge" else 0))
        if HOW == "edge":
            e.poll(0)
        return names(e.poll()[0][1])
    if HOW == "nonblocking" or SENDS:
        call = (lambda: c.send(b"x")) if SENDS else (lambda: c.recv(1))
        while (says := told(call)) in ("1", "not ready"):
            time.sleep(0.05)
        return says
    if HOW == "error":
        while not (error := c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            time.sleep(0.05)
        return errno.errorcode[error]
    return ""


def flight(c):
    """Sends something every 50 ms, whatever has come back."""
    sent = came = 0
    c.setblocking(False)
    while (over := select.select([sys.stdin], [], [], 0.05)[0]) == [] or came < sent:
        try:
            if not over:
                sent += c.send(bytes(1000))
            came += len(c.recv(1 << 20))
        except BlockingIOError:
            pass
        except OSError as e:
            return errno.errorcode[e.errno]
    return "all came back"


def limit(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3000)


def main():
    c = socket.create_connection((HOST, PORT))
    if HOW == "early":
        limit(c)
    while HOW != "flight" and not select.select([sys.stdin], [], [], 0)[0]:
        echo(c, 1000)
    if HOW == "write":
        limit(c)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, not SENDS)
    for option, value in ((socket.TCP_KEEPIDLE, 1 if HOW == "flight" else 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        c.setsockopt(socket.IPPROTO_TCP, option, value)
    print("idle", flush=True)
    if HOW == "flight":
        print(HOW, "was told:", flight(c), flush=True)
        return
    if HOW != "recv":
        c.setblocking(False)
    says = waited(c)
    if SENDS:  # how much of what came back is unread is chance
        print(HOW, "was told:", says, told(lambda: c.send(b"x")), flush=True)
    else:
        print(HOW, "was told:", says, told(lambda: c.recv(1)), told(lambda: c.recv(1)), told(lambda: c.send(b"x")), flush=True)


main()
