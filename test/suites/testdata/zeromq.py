"""zeromq.py server PORT, zeromq.py client PORT MESSAGES: requests and answers on PORT, a stream of messages to
PORT+1 whose hash the server tells, and a publisher on PORT+2."""
import hashlib
import random
import sys

import zmq


def server(context, port):
    answers, sink, publisher = context.socket(zmq.REP), context.socket(zmq.PULL), context.socket(zmq.PUB)
    sink.bind(f"tcp://127.0.0.1:{port + 1}")
    publisher.bind(f"tcp://127.0.0.1:{port + 2}")
    answers.bind(f"tcp://127.0.0.1:{port}")
    while True:
        request = answers.recv()
        if request.startswith(b"sum "):
            total = hashlib.sha256()
            for _ in range(int(request[4:])):
                total.update(sink.recv())
            answers.send(total.digest())
        elif request.startswith(b"publish "):
            for i in range(int(request[8:])):
                publisher.send(b"%d" % i)
            answers.send(b"done")
        else:
            answers.send(request[::-1])


def client(context, port, messages):
    asks, source, subscriber = context.socket(zmq.REQ), context.socket(zmq.PUSH), context.socket(zmq.SUB)
    asks.connect(f"tcp://127.0.0.1:{port}")
    source.connect(f"tcp://127.0.0.1:{port + 1}")
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.setsockopt(zmq.RCVHWM, 0)
    subscriber.connect(f"tcp://127.0.0.1:{port + 2}")
    numbers = random.Random(1)
    for _ in range(messages):
        data = b"=" + numbers.randbytes(numbers.randrange(300))
        asks.send(data)
        if asks.recv() != data[::-1]:
            sys.exit("another answer came")
    total = hashlib.sha256()
    asks.send(b"sum %d" % messages)
    for _ in range(messages):
        data = numbers.randbytes(numbers.choice((1, 100, 5000, 100000 if _ % 100 == 0 else 10)))
        total.update(data)
        source.send(data)
    if asks.recv() != total.digest():
        sys.exit("the stream is another")
    asks.send(b"publish 500")
    if [subscriber.recv() for _ in range(500)] != [b"%d" % i for i in range(500)]:
        sys.exit("what was published is another")
    asks.recv()


def main():
    context, port = zmq.Context(), int(sys.argv[2])
    if sys.argv[1] == "server":
        server(context, port)
    client(context, port, int(sys.argv[3]))


main()
