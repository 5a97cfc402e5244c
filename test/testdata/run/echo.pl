# A forking server, and a client that forks when it has talked a while, so that two
# processes share the connection: one writes, the other reads. Perl's own buffers on
# one side, sysread on the other.
use strict;
use warnings;
use IO::Socket::INET;

my $lines = 8 << 10; # of 1024 bytes, in each part
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
    exit($n == 2 * 1024 * $lines ? 0 : 1);
}
my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => 7002) or die $!;
my $line = join('', map { chr(33 + $_ % 90) } 1 .. 1023) . "\n";
my ($got, $bad) = (0, 0);

sub take {
    my $in = <$c> // die 'the end';
    $got++;
    $bad++ if $in ne $line;
}
for (1 .. $lines / 32) {
    print $c $line x 32;
    $c->flush;
    take() for 1 .. 32;
}
my $sender = fork // die $!;
if (!$sender) {
    print $c $line for 1 .. $lines;
    $c->flush;
    shutdown $c, 1;
    exit 0;
}
take() for 1 .. $lines;
die 'more than was sent' if defined <$c>;
waitpid $sender, 0;
waitpid $server, 0;
die "server: $?" if $?;
print $got == 2 * $lines && !$bad ? "ok\n" : "got $got, $bad bad\n";
