"""rpc.py server PORT, rpc.py client PORT CALLS: gRPC calls of many sizes, one at a time, many at once, and a stream."""
import random
import sys
from concurrent import futures

import grpc

LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def serve(port):
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
        "Stream": grpc.stream_stream_rpc_method_handler(lambda requests, _: requests),
    }
    server = grpc.server(futures.ThreadPoolExecutor(8), options=LIMITS)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("T", handlers)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def body(i):
    return random.Random(i).randbytes(i * 7919 % 200000)


def main():
    port = int(sys.argv[2])
    if sys.argv[1] == "server":
        serve(port)
    calls = int(sys.argv[3])
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=LIMITS) as channel:
        echo, stream = channel.unary_unary("/T/Echo"), channel.stream_stream("/T/Stream")
        for i in range(calls // 2):
            if echo(body(i), timeout=60, wait_for_ready=True) != body(i):
                sys.exit(f"call {i} got others")
        with futures.ThreadPoolExecutor(16) as pool:
            for i, got in enumerate(pool.map(lambda i: echo(body(i), timeout=60), range(calls))):
                if got != body(i):
                    sys.exit(f"call {i} at once with others got others")
        for i, got in enumerate(stream((body(i) for i in range(calls)), timeout=120)):
            if got != body(i):
                sys.exit(f"message {i} of the stream is another")


main()
