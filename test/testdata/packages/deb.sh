#!/usr/bin/env bash
# deb.sh: in a minimal Debian, installs /deb/*.deb, runs the demonstration and two programs on direct sockets, and removes it. What is
# then there that was not before is an error. Ends with "ok".
set -euo pipefail
listed() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /deb \) -prune -o -print | sort; }
listed >/tmp/before
dpkg -i /deb/*.deb
! command -v cc
exn-tun demo --runs 1 --duration 50ms
[ -z "$(ls /var/cache/exnet 2>/dev/null)" ] # nothing was compiled

# A connection of two of the few programs that there are is direct.
cat >/tmp/server.pl <<'END'
use IO::Socket::INET;
$| = 1;
my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:7000") or die $@;
my $c = $s->accept;
while (my $line = <$c>) { syswrite $c, "back: $line" }
END
cat >/tmp/client.pl <<'END'
use IO::Socket::INET;
my $c;
until ($c = IO::Socket::INET->new("127.0.0.1:7000")) { select undef, undef, undef, 0.05 }
for (1 .. 100) { syswrite $c, "$_\n"; my $l = <$c>; $l eq "back: $_\n" or die "line $_: $l" }
END
exn-run --loopback perl /tmp/server.pl &
exn-run --loopback --explain perl /tmp/client.pl 2>&1 | tee /tmp/said
wait
grep -q '1 direct' /tmp/said
exn-cni version

dpkg -r exnet
listed >/tmp/after
diff /tmp/before /tmp/after
! dpkg -s exnet 2>/dev/null || { echo 'dpkg still knows it'; exit 1; }
echo ok
