# Two nodes, each with an exn0 in a network namespace of its own. Any program runs over it.
exn-tun demo -- ping -c 3 10.2.0.2
# One host, redis: TCP first ...
exn-run --loopback redis-server --save '' >/dev/null &
#! until nc -z 127.0.0.1 6379; do sleep .1; done
redis-benchmark -q -t get -n 200000 | head -1
# ... then the same programs on direct sockets.
exn-run --loopback redis-benchmark -q -t get -n 200000 | head -1
exn-run --loopback --explain -- redis-benchmark -q -t get -c 1 -n 20000 | head -1
