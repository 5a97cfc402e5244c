// Who ends second in the segment ends second on the shadow, too (SPEC 5.6): its port is not in
// TIME_WAIT then. The peer ends its direction in the segment, and does not get to the shadow before
// this end is about to end there.
#include "ends.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/syscall.h>

static long (*real_syscall)(long, ...);
static int (*real_shutdown)(int, int);
static int late = -1; // the peer's descriptor, until it ends the shadow
static bool closes;   // by close, else by shutdown
static int waits;
static struct ds_sock *peer; // which must have heard of this end by then, or NULL

// When this end waits for the peer's end of the shadow, it comes. (Of calls with fewer arguments it
// passes on more, which the kernel does not look at.)
__attribute__((no_sanitize_address)) static long on_wait(long n, ...)
{
	va_list ap;
	long a[6];

	va_start(ap, n);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (n == SYS_ppoll && late >= 0 && ((struct pollfd *)a[0])->events == POLLRDHUP) {
		waits++;
		CHECK(!peer || ds_rx_look(&peer->seg, &peer->sh->rx) == DS_END, "it waits before it has said the end on the segment");
		if (closes)
			close(late);
		else
			real_shutdown(late, SHUT_WR);
		late = -1;
	}
	return real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// The peer does not get that far; how this end does it is checked by its port.
static int on_shutdown(int fd, int how)
{
	return fd == late ? 0 : real_shutdown(fd, how);
}

static unsigned port_of(int fd)
{
	struct sockaddr_in6 a;
	socklen_t n = sizeof a;

	CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0, "%s", strerror(errno));
	return ntohs(a.sin6_port);
}

// Which of the ports of a connection is in TIME_WAIT, as soon as one is.
static unsigned waiting_port(unsigned a, unsigned b)
{
	for (int64_t end = ds_now() + 60000000000; ds_now() < end; usleep(1000)) {
		FILE *f = fopen("/proc/net/tcp", "r");
		char line[512];
		unsigned local, remote, state, found = 0;

		while (f && fgets(line, sizeof line, f))
			if (sscanf(line, "%*d: %*x:%x %*x:%x %x", &local, &remote, &state) == 3 && state == TCP_TIME_WAIT &&
			    ((local == a && remote == b) || (local == b && remote == a)))
				found = local;
		if (f)
			fclose(f);
		if (found)
			return found;
	}
	return 0;
}

// The client ends first, by close or shutdown; the server, which has read to the end or has only
// heard of it, ends second.
static void second(bool by_close, bool read)
{
	struct side c, s;
	uint8_t b[4];

	pair_up(&c, &s);
	unsigned mine = port_of(s.fd), other = port_of(c.fd);
	late = c.fd;
	closes = by_close;
	waits = 0;
	if (by_close)
		ds_close(c.s, c.fd); // its close of the descriptor comes later
	else
		CHECK(ds_shutdown(c.s, c.fd, SHUT_WR) == 0, "%s", strerror(errno));
	if (read)
		CHECK(get(&s, b, sizeof b, 0) == 0, "no end of file");
	hang_up(&s);
	CHECK(waits == 1, "waited %d times", waits);
	if (late >= 0 && by_close)
		close(late);
	late = -1;
	if (!by_close)
		hang_up(&c);
	unsigned port = waiting_port(mine, other);
	CHECK(port == other, "port %u is in TIME_WAIT, of %u (first) and %u (second)", port, other, mine);
}

// Connects c and s. c has shut down, and its end of the shadow comes when s waits for it.
static void shut_first(struct side *c, struct side *s)
{
	uint8_t b;

	pair_up(c, s);
	late = c->fd;
	closes = false;
	waits = 0;
	CHECK(ds_shutdown(c->s, c->fd, SHUT_WR) == 0, "%s", strerror(errno));
	CHECK(get(s, &b, 1, 0) == 0, "no end of file");
}

// As second, by shutdown: what it says on the segment does not wait for the shadow.
static void second_says(void)
{
	struct side c, s;

	shut_first(&c, &s);
	peer = c.s;
	CHECK(ds_shutdown(s.s, s.fd, SHUT_WR) == 0, "%s", strerror(errno));
	peer = NULL;
	CHECK(waits == 1, "waited %d times", waits);
	late = -1;
	hang_up(&s);
	hang_up(&c);
}

// Nor does who ends second, if its descriptor was closed behind its back.
static void second_without(void)
{
	struct side c, s;

	shut_first(&c, &s);
	ds_close(s.s, -2); // as socket() does, which is given its number
	CHECK(waits == 0, "waited %d times", waits);
	late = -1;
	close(s.fd);
	hang_up(&c);
}

// Who ends first does not wait.
static void first(void)
{
	struct side c, s;

	pair_up(&c, &s);
	late = s.fd;
	closes = true;
	waits = 0;
	hang_up(&c);
	CHECK(waits == 0, "waited %d times", waits);
	late = -1;
	hang_up(&s);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	real_syscall = ds_kernel;
	real_shutdown = ds_real.shutdown;
	ds_kernel = on_wait;
	ds_real.shutdown = on_shutdown;
	for (int i = 0; i < 4; i++)
		second(i & 1, i & 2);
	second_says();
	second_without();
	first();
	ds_kernel = real_syscall;
	ds_real.shutdown = real_shutdown;
	ends_stop(broker, path);
	printf("end: %d failed\n", failures);
	return failures != 0;
}
