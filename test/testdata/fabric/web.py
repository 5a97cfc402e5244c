"""web.py HOST PORT: asks an HTTP server repeatedly over one connection, and checks each answer, until its standard
input ends; then says "ok N" for N answers."""
import http.client
import select
import sys

BODY = b"0123456789abcdef" * 4096

c = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]))
c.connect()
first = c.sock
answers = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    c.request("GET", "/")
    if c.getresponse().read() != BODY:
        sys.exit(f"answer {answers} is another")
    if c.sock is not first:
        sys.exit(f"the connection ended after {answers} answers")
    answers += 1
c.close()
print("ok", answers, flush=True)
