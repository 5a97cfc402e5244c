"""irc.py PORT LINES: two users in a channel send each other numbered lines, which come whole and in order."""
import socket
import sys
import threading


def join(port, nick):
    f = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    f.write(b"NICK %s\r\nUSER %s 0 * :x\r\nJOIN #c\r\n" % (nick, nick))
    f.flush()
    for line in f:
        if line.startswith(b"PING"):
            f.write(line.replace(b"PING", b"PONG"))
            f.flush()
        if b" 366 " in line:  # the end of the channel's names
            return f
    sys.exit("the server closed the connection")


def main():
    port, lines = int(sys.argv[1]), int(sys.argv[2])
    a, b = join(port, b"a"), join(port, b"b")
    wrong = []

    def talk(f, tell):
        for i in range(lines):
            if tell:
                f.write(b"PRIVMSG #c :%d.%s\r\n" % (i, b"x" * (i % 300)))
                f.flush()
            want = b"%d.%s" % (i, b"x" * (i % 300))
            for line in f:
                if line.startswith(b"PING"):
                    f.write(line.replace(b"PING", b"PONG"))
                    f.flush()
                if b"PRIVMSG" in line:
                    break
            if line.rstrip().split(b" :", 1)[-1] != want:
                wrong.append(f"line {i}: {line}")
                return
            if not tell:
                f.write(b"PRIVMSG #c :%s\r\n" % want)
                f.flush()

    other = threading.Thread(target=talk, args=(b, False))
    other.start()
    talk(a, True)
    other.join()
    sys.exit("\n".join(wrong) or 0)


main()
