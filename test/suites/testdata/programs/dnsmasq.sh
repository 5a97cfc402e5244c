#!/bin/bash
# A process for each connection over TCP.
# needs: dnsmasq=dnsmasq-base dig=bind9-dnsutils
# tcp: a connection for each question
. "${0%/*}/lib.sh"

serve() {
	for i in $(seq 1000); do echo "10.$((i / 250)).$((i % 250)).1 h$i.test"; done > hosts
	for i in $(seq 200); do echo "txt-record=big.test,$i-$(printf 'x%.0s' $(seq 200))"; done > dnsmasq.conf
	exec dnsmasq -k -p "$PORT" --listen-address=127.0.0.1 --bind-interfaces --no-resolv --no-hosts -H "$PWD/hosts" -C "$PWD/dnsmasq.conf" -u root --pid-file=
}

check() {
	[ "$(dig +tcp +short +time=60 @127.0.0.1 -p "$PORT" big.test TXT | grep -c xxxxx)" = 200 ]
	for round in $(seq 0 99); do
		seq -f 'h%.0f.test' $((round * 10 + 1)) $((round * 10 + 10)) > names
		xargs dig @127.0.0.1 -p "$PORT" +tcp +short +time=60 < names
	done > got
	for i in $(seq 1000); do echo "10.$((i / 250)).$((i % 250)).1"; done > want
	same got want
}

run "$@"
