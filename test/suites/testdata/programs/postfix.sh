#!/bin/bash
# Postfix's tools: letters on several connections, and one each.
# needs: smtp-source=postfix smtp-sink=postfix
. "${0%/*}/lib.sh"

serve() { exec smtp-sink -u root -d m. "127.0.0.1:$PORT" 100; }

check() {
	smtp-source -s 8 -m 200 -l 50000 -f a@b.test -t c@d.test "127.0.0.1:$PORT"
	smtp-source -s 4 -m 4 -l 4000000 -d -f a@b.test -t c@d.test "127.0.0.1:$PORT"
	until_ok eval "[ \$(ls m.* | wc -l) = 204 ]"
	[ "$(for f in m.*; do grep -c X < "$f"; done | sort -n | uniq -c | awk "{ print \$1 }" | tr "\n" " ")" = "200 4 " ]
	rm -f m.*
}

run "$@"
