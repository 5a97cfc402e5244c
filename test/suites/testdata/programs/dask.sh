#!/bin/bash
# Dask: a scheduler, two workers that fetch from each other, a client; tornado.
# needs: python3:distributed=python3-distributed
. "${0%/*}/lib.sh"

serve() {
	/usr/bin/python3 -m distributed.cli.dask_scheduler --host 127.0.0.1 --port "$PORT" --no-dashboard &
	listens "$PORT"
	for i in 1 2; do /usr/bin/python3 -m distributed.cli.dask_worker "tcp://127.0.0.1:$PORT" --nthreads 1 --no-dashboard --no-nanny --memory-limit 0 & done
	servers
}

check() {
	/usr/bin/python3 -c "
import hashlib, random
from distributed import Client
c = Client('tcp://127.0.0.1:$PORT')
c.wait_for_workers(2, timeout=200)
workers = list(c.scheduler_info()['workers'])
data = [random.randbytes(i * 300000 + 1) for i in range(20)]
fs = c.scatter(data[:10], workers=workers[:1]) + c.scatter(data[10:], workers=workers[1:])
got = c.gather([c.submit(lambda a, b: hashlib.sha256(a + b).hexdigest(), fs[i], fs[19 - i]) for i in range(20)])
assert got == [hashlib.sha256(data[i] + data[19 - i]).hexdigest() for i in range(20)]
assert c.gather(fs) == data
assert sum(c.gather(c.map(lambda x: x * x, range(500)))) == sum(x * x for x in range(500))
c.close()"
}

run "$@"
