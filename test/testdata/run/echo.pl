# A forking server and a client, with Perl's own buffers and with sysread.
use strict;
use warnings;
use IO::Socket::INET;

my $total = 8 << 20;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 7002, Listen => 5, ReuseAddr => 1) or die $!;
my $server = fork // die $!;
if (!$server) {
    my $c = $listener->accept or die $!;
    my $n = 0;
    while (my $r = sysread $c, my $buf, 50000) {
        for (my $at = 0; $at < $r;) {
            my $w = syswrite $c, $buf, $r - $at, $at;
            defined $w or die $!;
            $at += $w;
        }
        $n += $r;
    }
    exit($n == $total ? 0 : 1);
}
my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => 7002) or die $!;
my $sender = fork // die $!;
if (!$sender) {
    my $line = join('', map { chr(33 + $_ % 90) } 1 .. 1023) . "\n";
    print $c $line for 1 .. $total / 1024;
    $c->flush;
    shutdown $c, 1;
    exit 0;
}
my ($got, $bad) = (0, 0);
while (my $line = <$c>) {
    $got += length $line;
    $bad++ if length $line != 1024;
}
waitpid $sender, 0;
waitpid $server, 0;
die "server: $?" if $?;
print $got == $total && !$bad ? "ok\n" : "got $got, $bad bad\n";
