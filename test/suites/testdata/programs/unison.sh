#!/bin/bash
# OCaml: two folders made equal over a socket.
# needs: unison=unison
. "${0%/*}/lib.sh"

serve() { export HOME=$PWD/h1; mkdir -p h1; exec unison -socket "$PORT" -host 127.0.0.1; }

check() {
	export HOME=$PWD/h2; mkdir -p h2
	for round in 1 2; do
		rm -rf a b h1/.unison/ar* h2/.unison/ar*
		mkdir a b
		random a/big $((16 << 20))
		random b/other $((5 << 20))
		for i in $(seq 200); do echo "$i $round" > "a/f$i"; done
		unison -batch -auto -ui text -silent "$PWD/a" "socket://127.0.0.1:$PORT/$PWD/b"
		diff -r a b
		[ "$(ls a | wc -l)" = 202 ]
	done
}

run "$@"
