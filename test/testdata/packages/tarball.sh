# tarball.sh DIR: in an Alpine, runs the demonstration and two programs on direct sockets with what release.sh has made. Ends
# with "ok".
set -eu
PATH=$1:$PATH
exn-tun demo --runs 1 --duration 50ms
# feed writes until the connection is direct, and then some.
feed() {
	for _ in $(seq 300); do
		head -c 1000000 /dev/urandom
		exn-tun status --sockets --json 2>/dev/null | grep -q '"mode":"direct"' && break
		sleep 1
	done
	head -c 1000000 /dev/urandom
}
exn-run --loopback nc -l -p 7000 >/run/got &
until netstat -ltn | grep -q :7000; do sleep 1; done
feed | tee /run/sent | exn-run --loopback --explain nc 127.0.0.1 7000 2>/run/said
wait
cat /run/said
cmp /run/sent /run/got
grep -q '1 direct' /run/said
echo ok
