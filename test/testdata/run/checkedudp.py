# A client that checks that each datagram comes back once, until the file is there.
# checkedudp.py serve PORT | ask PORT FILE
import os, socket, sys, time

port, s = int(sys.argv[2]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "serve":
    s.bind(("127.0.0.1", port))
    while True:
        b, a = s.recvfrom(1 << 16)
        s.sendto(b, a)
s.bind(("127.0.0.1", 0))
s.connect(("127.0.0.1", port))
s.settimeout(60)
while True:
    try:
        s.send(b"there?")
        s.recv(1 << 16)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
done = 0
while not os.path.exists(sys.argv[3]):
    sent = {(done + i).to_bytes(8, "little") * (1 + (done + i) % 90) for i in range(16)}
    for b in sent:
        s.send(b)
    for _ in range(len(sent)):
        sent.remove(s.recv(1 << 16))
    done += 16
print("checked", done)
