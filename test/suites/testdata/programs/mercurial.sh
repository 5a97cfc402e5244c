#!/bin/bash
# Mercurial's web server in threads, cloned and pushed to.
# needs: hg=mercurial
. "${0%/*}/lib.sh"

serve() {
	random data $((8 << 20))
	hg init repo
	cp data repo/data
	(cd repo; hg add data; hg ci -q -u x -m one; for i in 1 2 3; do for j in $(seq 100); do echo "$i $j" > "f$i-$j"; done; hg add -q; hg ci -q -u x -m "$i"; done)
	exec hg serve -R repo -a 127.0.0.1 -p "$PORT" --config web.push_ssl=no --config web.allow_push='*'
}

check() {
	rm -rf a b
	hg clone -q "http://127.0.0.1:$PORT/" a
	same a/data data
	(cd a; head -c 4000000 /dev/urandom > more$$; hg add more$$; hg ci -q -u x -m more; hg push -q)
	hg clone -q "http://127.0.0.1:$PORT/" b
	same b/more$$ a/more$$
	hg verify -R b
}

run "$@"
