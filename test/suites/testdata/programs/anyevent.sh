#!/bin/bash
# Perl on AnyEvent.
# needs: perl=perl /usr/lib/x86_64-linux-gnu/perl5/*/AnyEvent.pm=libanyevent-perl python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.pl <<-X
	use AnyEvent; use AnyEvent::Socket; use AnyEvent::Handle;
	my %h;
	tcp_server "127.0.0.1", $PORT, sub {
	  my (\$fh) = @_; my \$h;
	  \$h = AnyEvent::Handle->new(fh => \$fh, on_read => sub { \$_[0]->push_write(\$_[0]{rbuf}); \$_[0]{rbuf} = ""; },
	    on_eof => sub { \$_[0]->on_drain(sub { \$_[0]->destroy; delete \$h{\$h} }) }, on_error => sub { delete \$h{\$h}; \$_[0]->destroy });
	  \$h{\$h} = \$h;
	};
	AnyEvent->condvar->recv;
	X
	exec perl echo.pl
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
