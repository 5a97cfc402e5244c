// Datagrams: options, control data, duplicates, other processes and programs.
#include "udp.h"

#include <sched.h>
#include <sys/time.h>

// Writes the control data of a datagram.
static void controls(int fd, int flags)
{
	union {
		char b[256];
		struct cmsghdr align;
	} u;
	char b[16];
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof u.b};
	int n = (int)recvmsg(fd, &m, flags);

	out("  %d %.*s flags %#x", n, n > 0 ? n : 0, b, m.msg_flags);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); n >= 0 && c; c = CMSG_NXTHDR(&m, c)) {
		struct in_pktinfo *i = (void *)CMSG_DATA(c);
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
			out("    pktinfo %d %#x %#x", i->ipi_ifindex, ntohl(i->ipi_spec_dst.s_addr), ntohl(i->ipi_addr.s_addr));
		else
			out("    %d %d %zu: %d", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len, *CMSG_DATA(c));
	}
}

// What the kernel says with datagrams, and what a sender's options make of that.
static void told(void)
{
	int c, s, one = 1, tos = 0x48, ttl = 9;

	udp_pair(&c, &s);
	R(setsockopt(s, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
	R(setsockopt(s, IPPROTO_IP, IP_RECVTOS, &one, sizeof one));
	R(setsockopt(s, IPPROTO_IP, IP_RECVTTL, &one, sizeof one));
	if (!is_cold())
		udp_warm(c, s);
	for (int i = 0; i < 3; i++) {
		R(send(c, "told", 4, 0));
		controls(s, 0);
	}
	R(setsockopt(c, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
	R(setsockopt(c, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl));
	for (int i = 0; i < 3; i++) {
		R(send(c, "marked", 6, 0));
		controls(s, 0);
	}
	char b[16], little[CMSG_SPACE(4)];
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = little, .msg_controllen = 8};
	R(send(c, "cut", 3, 0));
	R(recvmsg(s, &m, 0));
	out("%#x %zu", m.msg_flags & MSG_CTRUNC, m.msg_controllen);
	R(send(c, "none", 4, 0));
	show(s, 0);
}

// A train comes as several datagrams.
static void train(void)
{
	char b[1000];
	int c, s, size = 300;

	fill(b, sizeof b, 1);
	memcpy(b, "train", 5);
	udp_pair(&c, &s);
	R(setsockopt(c, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
	for (int k = 0; k < 2; k++) {
		R(send(c, b, sizeof b, 0));
		for (int i = 0; i < 4; i++)
			R(recv(s, b, sizeof b, 0));
		quiet(s);
	}
	size = 0;
	R(setsockopt(c, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
	R(send(c, b, sizeof b, 0));
	R(recv(s, b, sizeof b, 0));
	R(send(c, "held ", 5, MSG_MORE));
	R(send(c, "back", 4, 0));
	show(s, 0);
	quiet(s);
}

// Time stamps are the kernel's.
static void stamped(void)
{
	int c, s, one = 1;

	udp_pair(&c, &s);
	R(send(c, "before", 6, 0));
	R(setsockopt(s, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one));
	R(send(c, "after", 5, 0));
	show(s, 0);
	char b[16];
	union {
		char b[256];
		struct cmsghdr align;
	} u;
	struct iovec v = {b, sizeof b};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof u.b};
	R(recvmsg(s, &m, 0));
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	out("%d", h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SO_TIMESTAMP);
}

static void duplicates(void)
{
	int c, s, d, e;

	udp_pair(&c, &s);
	d = dup(c);
	e = fcntl(s, F_DUPFD_CLOEXEC, 100);
	R(send(c, "by the first", 12, 0));
	R(send(d, "by the second", 13, 0));
	show(e, 0);
	close(c);
	R(send(d, "by the one that is left", 23, 0));
	close(s);
	show(e, 0);
	show(e, 0);
	R(dup2(e, d));
	quiet(d);
	R(send(d, "x", 1, 0));
}

static void child_reads(void *p)
{
	char b[16];

	if (recv(*(int *)p, b, sizeof b, 0) != 13)
		_exit(1);
}

static void child_writes(void *p)
{
	send(*(int *)p, "from the child", 14, 0);
}

// Parent and child have the sockets both; then the child has ended.
static void forked(void)
{
	int c, s;

	udp_pair(&c, &s);
	R(send(c, "before", 6, 0));
	show(s, 0);
	pid_t pid = start(child_reads, &s);
	R(send(c, "for the child", 13, 0));
	finish(pid);
	pid = start(child_writes, &c);
	show(s, 0);
	finish(pid);
	R(send(c, "from the parent", 15, 0));
	show(s, 0);
	if (!is_cold())
		udp_warm(c, s);
	R(send(c, "after", 5, 0));
	show(s, 0);
	quiet(s);
}

// A daemon: the process that goes on is not the one that made the sockets.
static void daemonized(void)
{
	int c, s, p[2];
	char b;

	udp_pair(&c, &s);
	if (pipe(p))
		die("pipe");
	if (fork() == 0) {
		if (fork() == 0) {
			nap(20);
			R(send(c, "as a daemon", 11, 0));
			show(s, 0);
			R(send(c, "again", 5, 0)); // by the kernel: flows stay with the process that made them (SPEC.md, 10.6)
			show(s, 0);
			close(p[0]);
			put(p[1], "x", 1);
			_exit(0);
		}
		_exit(0);
	}
	close(c);
	close(s);
	close(p[1]);
	wait(NULL);
	out("%zu", get(p[0], &b, 1));
}

// A program that is executed reads from the socket, and one that is passed to.
static void executed(void)
{
	const char *cat = getenv("PROBE_CAT");
	int c, s;

	udp_pair(&c, &s);
	R(send(c, "read\n", 5, 0));
	show(s, 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(s, 0);
		execl(cat ? cat : "/bin/cat", "cat", (char *)NULL);
		_exit(9);
	}
	send(c, "by the program\n", 15, 0);
	send(c, "", 0, 0); // an end of file to it
	finish(pid);
}

static void passed(void)
{
	int c, s, p[2], got = -1;
	char b;
	union {
		char b[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	struct iovec v = {&b, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.b, .msg_controllen = sizeof u.b};

	udp_pair(&c, &s);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p))
		die("socketpair");
	pass_fd(p[0], s);
	R(send(c, "one", 3, 0));
	R(recvmsg(p[1], &m, 0));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
	show(got, 0);
	R(send(c, "two", 3, 0));
	show(s, 0);
	R(send(c, "three", 5, 0));
	close(s);
	show(got, 0);
	quiet(got);
}

// The receiver is killed, and another one takes its place: a sender notices.
static void serve(void *p)
{
	char b[16];
	struct sockaddr_in a;
	socklen_t len = sizeof a;

	for (;;) {
		ssize_t n = recvfrom(*(int *)p, b, sizeof b, 0, (struct sockaddr *)&a, &len);
		sendto(*(int *)p, b, (size_t)n, 0, (struct sockaddr *)&a, len);
	}
}

static void killed(void)
{
	struct sockaddr_in a, b;
	int c = udp_socket(&b), one = 1;
	char x[16];

	for (int k = 0; k < 2; k++) {
		int s = socket(AF_INET, SOCK_DGRAM, 0);
		if (k == 0) {
			close(s);
			s = udp_socket(&a);
			R(connect(c, (struct sockaddr *)&a, sizeof a));
		} else {
			setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
			R(bind(s, (struct sockaddr *)&a, sizeof a));
		}
		pid_t pid = start(serve, &s);
		close(s);
		int wrong = 0;
		for (int i = 0; i < 40; i++) {
			send(c, "ping", 4, 0);
			wrong += recv(c, x, sizeof x, 0) != 4;
			nap(has_library() && !is_cold() ? 3 : 0);
		}
		out("%d wrong", wrong);
		kill(pid, SIGKILL);
		finish(pid);
		nap(2);
		R(send(c, "nobody", 6, 0));
		R(recv(c, x, sizeof x, 0));
	}
}

// Gives the number fd to another file behind the library's back, as a hostile program would.
static void take_number(int fd)
{
	int other = open("/dev/null", O_RDWR);
	long rc = -1;

#if defined(__x86_64__)
	// The library sees instructions of the program's file, and those that become executable,
	// but not those that are written to memory which is executable already.
	static const unsigned char dup2_call[] = {0xb8, 33, 0, 0, 0, 0x0f, 0x05, 0xc3}; // mov $SYS_dup2, %eax; syscall; ret
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		die("mmap");
	long (*call)(long, long) = (long (*)(long, long))code;
	memcpy(code, dup2_call, sizeof dup2_call);
	rc = call(other, fd);
	munmap(code, 4096);
#elif defined(__aarch64__)
	register long nr __asm__("x8") = 24, a __asm__("x0") = other, b __asm__("x1") = fd, c __asm__("x2") = 0; // dup3
	__asm__ volatile("svc 0" : "+r"(a) : "r"(nr), "r"(b), "r"(c) : "memory");
	rc = a;
#endif
	if (rc != fd)
		die("take_number");
	close(other);
}

// Binds a socket to an address that another one had.
static int take_address(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	R(bind(fd, (const struct sockaddr *)a, sizeof *a));
	return fd;
}

// Does s, at a, take nothing more of c, whose number and address others have?
static int forgeries_end(int c, int s, const struct sockaddr_in *a)
{
	char b[32];
	int silent = 0;

	for (long last = monotonic() + LONG; silent < 20 && monotonic() < last; nap(2)) {
		sendto(c, "forged", 6, 0, (const struct sockaddr *)a, sizeof *a);
		silent = recv(s, b, sizeof b, MSG_DONTWAIT) < 0 ? silent + 1 : 0;
	}
	return silent == 20;
}

// A socket that was closed has left its address, but not its flows: it gets nothing of what is for
// the next one there, and is not taken for that.
static void replaced(void)
{
	int c, s, x;
	char b[32];
	struct sockaddr_in a, at;
	socklen_t len = sizeof a;

	udp_pair(&c, &s);
	getsockname(s, (struct sockaddr *)&a, &len);
	take_number(s);
	x = take_address(&a);
	for (long last = monotonic() + 300; monotonic() < last; nap(2))
		send(c, "for either", 10, 0);
	drain(x);
	for (int i = 0; i < 3; i++) {
		struct pollfd p = {x, POLLIN, 0};
		R(send(c, "for the next one", 16, 0));
		if (poll(&p, 1, LONG) == 1)
			show(x, MSG_DONTWAIT);
	}
	close(x);
	close(c);
	close(s);

	udp_pair(&c, &s);
	getsockname(c, (struct sockaddr *)&at, &len);
	getsockname(s, (struct sockaddr *)&a, &len);
	take_number(c);
	x = take_address(&at);
	for (long last = monotonic() + 300; monotonic() < last; nap(2)) {
		send(c, "forged", 6, 0);
		recv(s, b, sizeof b, MSG_DONTWAIT);
	}
	R(forgeries_end(c, s, &a));
	R(sendto(x, "by the next one", 15, 0, (struct sockaddr *)&a, sizeof a));
	show(s, 0);
}

// As above, but the sender closes its socket between the moment at which the broker grants the flow
// and that at which the receiver's program next receives, whichever of these that is.
static void granted(void)
{
	for (int twice = 8; twice < 26; twice++) {
		int rounds = twice / 2;
		struct sockaddr_in a, at;
		socklen_t len = sizeof a;
		int s = udp_socket(&a), c = udp_socket(&at);
		char b[32];

		for (int i = 0; i < rounds; i++) {
			sendto(c, "mine", 4, 0, (struct sockaddr *)&a, len);
			if (recv(s, b, sizeof b, 0) != 4)
				out("wrong");
			nap(10);
		}
		take_number(c);
		int x = take_address(&at);
		int next = 0; // too few datagrams of the next one's for a flow of its own
		for (long last = monotonic() + 250; monotonic() < last; nap(2)) {
			sendto(c, "forged", 6, 0, (struct sockaddr *)&a, len);
			if (next++ < 3)
				sendto(x, "by the next one", 15, 0, (struct sockaddr *)&a, len);
			while (recv(s, b, sizeof b, MSG_DONTWAIT) >= 0)
				;
		}
		R(forgeries_end(c, s, &a));
		close(c);
		close(x);
		close(s);
	}
	if (through())
		is_direct();
}

static void six(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, b = a, from;
	socklen_t len = sizeof a;
	int s = socket(AF_INET6, SOCK_DGRAM, 0), c = socket(AF_INET6, SOCK_DGRAM, 0);
	char x[16];

	if (bind(s, (struct sockaddr *)&a, sizeof a) || getsockname(s, (struct sockaddr *)&a, &len) || bind(c, (struct sockaddr *)&b, sizeof b) ||
	    getsockname(c, (struct sockaddr *)&b, &len) || connect(c, (struct sockaddr *)&a, sizeof a)) {
		out("no IPv6");
		return;
	}
	for (int i = 0; i < (has_library() && !is_cold() ? 60 : 3); i++) {
		send(c, "six", 3, 0);
		len = sizeof from;
		if (recvfrom(s, x, sizeof x, 0, (struct sockaddr *)&from, &len) != 3 || len != sizeof from || memcmp(&from, &b, sizeof b))
			out("wrong %d", i);
		if (recv(s, x, sizeof x, MSG_DONTWAIT) != -1)
			out("more");
		if (sendto(s, "back", 4, 0, (struct sockaddr *)&from, len) != 4 || recv(c, x, sizeof x, 0) != 4 || recv(c, x, sizeof x, MSG_DONTWAIT) != -1)
			out("wrong back %d", i);
		if (has_library() && !is_cold())
			nap(2);
	}
	out("%.4s", x);
}

/* ---- a handler that interrupts a send, and which the library has not seen ---------------- */

/* A datagram: who sent it, the program (0) or its handler (1), and how many each had sent then. */
struct numbered {
	unsigned count[2], sender;
};

static struct {
	int fd;
	struct sockaddr_in to;
	volatile unsigned sent[2];
	unsigned *taken; /* by the receiver, in memory that it shares */
} between;

static int put_numbered(unsigned sender, int flags)
{
	struct numbered m = {{between.sent[0], between.sent[1]}, sender};

	m.count[sender]++;
	return sendto(between.fd, &m, sizeof m, flags, (struct sockaddr *)&between.to, sizeof between.to) == sizeof m;
}

/* Is the receiver so far behind that the kernel might drop what comes? */
static int is_behind(void) { return between.sent[0] + between.sent[1] - __atomic_load_n(between.taken, __ATOMIC_SEQ_CST) > 100; }

static void interrupts(int sig)
{
	(void)sig;
	if (!is_behind() && put_numbered(1, MSG_DONTWAIT))
		between.sent[1]++;
}

/* As the C library installs it, but by the system call. */
static void handle_unseen(int sig, void (*handler)(int))
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} act = {.handler = handler, .flags = SA_RESTART};
#ifdef __x86_64__
	extern void probe_return(void);
	__asm__(".pushsection .text.probe_return,\"ax\"\nprobe_return: mov $15, %eax\nsyscall\n.popsection");
	act.flags |= 0x04000000; /* SA_RESTORER */
	act.restorer = probe_return;
#endif
	if (syscall(SYS_rt_sigaction, sig, &act, NULL, sizeof act.mask) != 0)
		die("rt_sigaction");
}

static void takes_numbered(int tell)
{
	struct sockaddr_in a;
	int s = udp_socket(&a);
	unsigned had[2] = {0}, wrong = 0;
	struct numbered m;

	put(tell, &a, sizeof a);
	while (recv(s, &m, sizeof m, 0) == sizeof m && m.sender < 2) {
		/* What had been sent before it comes before it. */
		wrong += m.count[m.sender] != had[m.sender] + 1 || m.count[!m.sender] > had[!m.sender];
		had[m.sender] = m.count[m.sender];
		__atomic_fetch_add(between.taken, 1, __ATOMIC_SEQ_CST);
	}
	out("%u are not in order", wrong);
}

static void interrupted(void)
{
	enum { ROUNDS = 50000 };
	struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
	int p[2];

	between.taken = mmap(NULL, sizeof *between.taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pipe(p) != 0)
		die("pipe");
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		takes_numbered(p[1]);
		_exit(0);
	}
	get(p[0], &between.to, sizeof between.to);
	between.fd = socket(AF_INET, SOCK_DGRAM, 0);
	/* Until memory carries them. */
	for (long last = monotonic() + LONG; has_library() && !is_cold() && !through() && monotonic() < last;)
		between.sent[0] += is_behind() ? (unsigned)sched_yield() : (unsigned)put_numbered(0, 0);
	handle_unseen(SIGALRM, interrupts);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < fewer(ROUNDS); i++) {
		for (long last = monotonic() + LONG / 30; is_behind() && monotonic() < last;)
			sched_yield();
		if (is_behind()) {
			out("some do not come");
			break;
		}
		if (!put_numbered(0, 0))
			die("sendto");
		between.sent[0]++;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	put_numbered(0, 0);
	sendto(between.fd, &(struct numbered){.sender = 2}, sizeof(struct numbered), 0, (struct sockaddr *)&between.to, sizeof between.to);
	finish(pid);
	if (through())
		is_direct();
}

const struct probe udpproc_probes[] = {
	{"udp-told", told, 0},
	{"udp-train", train, 0},
	{"udp-stamped", stamped, 0},
	{"udp-duplicates", duplicates, 0},
	{"udp-forked", forked, 0},
	{"udp-daemon", daemonized, 0},
	{"udp-executed", executed, 0},
	{"udp-passed", passed, 0},
	{"udp-killed", killed, 1},
	{"udp-six", six, 1},
	{"udp-replaced", replaced, 0},
	{"udp-granted", granted, 0},
	{"udp-interrupted", interrupted, 0},
	{NULL, NULL, 0},
};
