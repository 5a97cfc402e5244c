#!/usr/bin/env bash
# deb.sh: in a minimal Debian, installs exnet from the repository /deb/apt, runs the demonstration and two programs on direct sockets, and removes it. What is
# then there that was not before is an error. Ends with "ok".
set -euo pipefail
listed() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/apt/extended_states -o -path /var/log -o -path /deb \) -prune -o -print | sort; }
mkdir /etc/cdi
echo 'kind: another.io/device' >/etc/cdi/another.yaml
listed >/tmp/before
echo 'deb [signed-by=/deb/apt/exnet.gpg] file:/deb/apt stable main' >/tmp/list
mkdir -p /tmp/lists/partial /tmp/cache/archives/partial /tmp/parts
apt() {
	apt-get -y --no-install-recommends -o Dir::Etc::SourceList=/tmp/list -o Dir::Etc::SourceParts=/tmp/parts -o Dir::State::Lists=/tmp/lists \
		-o Dir::Cache=/tmp/cache -o APT::Sandbox::User=root "$@"
}
apt update
apt install exnet
! command -v cc
exn-tun demo --runs 1 --duration 50ms
[ -z "$(ls /var/cache/exnet 2>/dev/null)" ] # nothing was compiled

# A connection of two of the few programs that there are is direct, once the listener is known: one that
# meets it earlier stays on TCP.
cat >/tmp/server.pl <<'END'
use IO::Socket::INET;
$| = 1;
my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:7000") or die $@;
while (my $c = $s->accept) {
	while (my $line = <$c>) { syswrite $c, "back: $line" }
}
END
cat >/tmp/client.pl <<'END'
use IO::Socket::INET;
my $c;
until ($c = IO::Socket::INET->new("127.0.0.1:7000")) { select undef, undef, undef, 0.05 }
for (1 .. 100) { syswrite $c, "$_\n"; my $l = <$c>; $l eq "back: $_\n" or die "line $_: $l" }
END
exn-run --loopback perl /tmp/server.pl &
for _ in $(seq 60); do
	exn-run --loopback --explain perl /tmp/client.pl 2>&1 | tee /tmp/said
	! grep -q '1 direct' /tmp/said || break
	sleep 1
done
kill %1
wait
grep -q '1 direct' /tmp/said
exn-cni version

# The man pages have the version; what they name is there; README's links to pages lead to one.
zcat /usr/share/man/man1/exn-cni.1.gz /usr/share/man/man1/exn-run.1.gz | grep -c '^.TH EXN.*"exnet 0\.0\.1' | grep -x 2
for page in $(zcat /usr/share/man/man1/*.1.gz | grep -o 'docs/[a-z\\-]*\.md' | tr -d '\\' | sort -u) $(grep -o '(docs/[a-z-]*\.\(md\|svg\))' /usr/share/doc/exnet/README.md | tr -d '()' | sort -u); do
	test -s "/usr/share/doc/exnet/$page" || { echo "no $page"; exit 1; }
done

dsbench ports --rounds 100

# Containers could not start with a device whose files are gone: removing the package takes it along, and
# leaves those of others.
exn-tun cdi >/etc/cdi/exnet.yaml
grep -q 'exnet.io/direct' /etc/cdi/exnet.yaml

# A node that the user has started runs on, and dpkg says so.
exn-tun up --addr 10.9.0.1/24 --fabric mine --detach
dpkg -r exnet | tee /tmp/said
grep -q 'nodes run on' /tmp/said
grep -q 'removed /etc/cdi/exnet.yaml' /tmp/said
grep -q '^mine  *1' /tmp/said
$(sed -n 's/.*and \(kill [0-9 ]*\) ends them.*/\1/p' /tmp/said)
while [ -e /sys/class/net/exn0 ]; do sleep 0.1; done
listed >/tmp/after
diff /tmp/before /tmp/after
! dpkg -s exnet 2>/dev/null || { echo 'dpkg still knows it'; exit 1; }
echo ok
