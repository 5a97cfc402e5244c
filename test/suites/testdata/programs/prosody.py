"""Two users of an XMPP server: one sends MESSAGES to the other, who gets them in order. prosody.py PORT MESSAGES"""
import base64
import random
import re
import socket
import sys
import threading

port, count = int(sys.argv[1]), int(sys.argv[2])
texts = ["".join(random.choices("abcdefgh", k=i * 977 % 30000 + 1)) + f".{i}." for i in range(count)]


class User:
    def __init__(self, name):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.settimeout(120)
        self.buffer = b""
        opening = "<stream:stream to='localhost' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
        self.send(opening)
        self.until(rb"</stream:features>")
        secret = base64.b64encode(f"\0{name}\0x".encode()).decode()
        self.send(f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>")
        self.until(rb"<success[^>]*/>")
        self.send(opening)
        self.until(rb"</stream:features>")
        self.send("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>")
        self.until(rb"</iq>")
        self.send("<presence/>")

    def send(self, text):
        self.sock.sendall(text.encode())

    def until(self, pattern):
        while not (m := re.search(pattern, self.buffer)):
            data = self.sock.recv(65536)
            if not data:
                sys.exit(f"the server has ended: {self.buffer[-300:]}")
            self.buffer += data
        head, self.buffer = self.buffer[: m.end()], self.buffer[m.end() :]
        return head


a, b = User("a"), User("b")
sender = threading.Thread(target=lambda: [a.send(f"<message to='b@localhost/r' type='chat'><body>{t}</body></message>") for t in texts])
sender.start()
for i, want in enumerate(texts):
    got = re.search(rb"<body>(.*?)</body>", b.until(rb"</message>")).group(1).decode()
    if got != want:
        sys.exit(f"message {i} is {got[-30:]}, want {want[-30:]}")
sender.join()
