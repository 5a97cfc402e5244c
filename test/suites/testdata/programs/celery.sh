#!/bin/bash
# Celery: a worker with two processes, redis as the broker and for the results.
# needs: python3:celery=python3-celery python3:redis=python3-redis redis-server=redis-server
. "${0%/*}/lib.sh"

serve() {
	redis-server --port "$PORT" --bind 127.0.0.1 --save '' --dir . &
	cat > tasks.py <<-X
	from celery import Celery
	app = Celery("tasks", broker="redis://127.0.0.1:$PORT/0", backend="redis://127.0.0.1:$PORT/1")
	@app.task
	def turn(text): return text[::-1]
	X
	listens "$PORT"
	/usr/bin/python3 -m celery -A tasks worker -c 2 -l ERROR --without-gossip --without-mingle &
	servers
}

check() {
	/usr/bin/python3 -c "
import random
from tasks import turn
texts = [''.join(random.choices('abcdef', k=i * 977 % 60000)) for i in range(150)]
got = [turn.delay(t) for t in texts]
for g, t in zip(got, texts): assert g.get(timeout=200) == t[::-1]"
}

run "$@"
