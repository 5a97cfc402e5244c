#!/bin/bash
# A resolver in threads (libevent), asked over TCP.
# needs: unbound=unbound dig=bind9-dnsutils dnsperf=dnsperf
. "${0%/*}/lib.sh"

serve() {
	cat > unbound.conf <<-X
	server:
		interface: 127.0.0.1@$PORT
		num-threads: 2
		do-daemonize: no
		username: ""
		chroot: ""
		directory: "$PWD"
		pidfile: ""
		use-syslog: no
		access-control: 127.0.0.0/8 allow
		incoming-num-tcp: 100
		outgoing-num-tcp: 4
		tcp-idle-timeout: 60000
		include: "$PWD/data.conf"
	remote-control:
		control-enable: no
	X
	{
		echo 'local-zone: "test." static'
		for i in $(seq 2000); do echo "local-data: \"h$i.test. A 10.$((i / 250)).$((i % 250)).1\""; done
		for i in $(seq 60); do echo "local-data: \"big.test. TXT $i-$(printf 'x%.0s' $(seq 200))\""; done
	} > data.conf
	exec unbound -d -c unbound.conf
}

check() {
	[ "$(dig +tcp +short +time=60 @127.0.0.1 -p "$PORT" big.test TXT | grep -c xxxxx)" = 60 ]
	for i in $(seq 2000); do echo "h$i.test A"; done > questions
	dnsperf -m tcp -s 127.0.0.1 -p "$PORT" -d questions -n $((2 * SIZE)) -c 10 -T 2 -q 50 -t 60 > said
	grep -q "NOERROR $((4000 * SIZE)) (100.00%)" said || { cat said; exit 1; }
	[ "$(dig +tcp +short +time=60 @127.0.0.1 -p "$PORT" h1999.test)" = 10.7.249.1 ]
}

run "$@"
