"""again.py serve PORT | talk REFUSED PORT direct|tcp: talk's socket connects to REFUSED, where
nobody listens, and then to PORT, where serve echoes what one client says; the connection has to
become direct, or has to stay on TCP."""

import ctypes
import errno
import select
import socket
import sys
import time

DIRECT = 3  # of exnds_mode: both directions


def serve(port):
    with socket.create_server(("127.0.0.1", port)) as listener:
        conn, _ = listener.accept()
    with conn:
        while data := conn.recv(100):
            conn.sendall(data)


def talk(refused, port, want):
    with socket.socket() as conn:
        conn.setblocking(False)
        for to, result in (int(refused), errno.ECONNREFUSED), (int(port), 0):
            err = conn.connect_ex(("127.0.0.1", to))
            if err == errno.ECONNABORTED:  # Linux, of the connect before
                err = conn.connect_ex(("127.0.0.1", to))
            assert err == errno.EINPROGRESS, errno.errorcode[err]
            select.select([], [conn], [])
            err = conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            assert err == result, errno.errorcode[err]
        conn.setblocking(True)
        mode, exchanges = ctypes.CDLL(None).exnds_mode, 0
        while mode(conn.fileno()) != DIRECT and (want == "direct" or exchanges < 500):
            conn.sendall(b"x")
            assert conn.recv(100) == b"x"
            exchanges += 1
            time.sleep(0.001)
        assert want == "direct" or mode(conn.fileno()) != DIRECT, "direct"


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        talk(*sys.argv[2:])
