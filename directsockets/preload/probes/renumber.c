#include "udp.h"

#include <setjmp.h>
#include <sys/resource.h>
#include <sys/time.h>

/* Probes of threads that use a number, which another thread may have dup2 make one connection, or
 * UDP socket, after the other: what they send arrives, on whichever that is. */

enum { CONNS = 3, WRITERS = 4, MOST = 40, AHEAD = 30 };

struct message {
	unsigned thread, count;
};

static struct {
	int number; // by which the threads send
	unsigned each; // messages of one thread, at most
	int stop;
	int writing; // threads that have not ended
	unsigned sent;
	unsigned udp, tcp; // which are UDP sockets, and which stay on TCP, a bit each
	int copies; // the threads send by sendfile and splice
	unsigned begun, arrived; // where there are, sends go no further ahead than AHEAD
	int client[MOST], server[MOST];
	unsigned got[MOST], wrong[MOST];
	pthread_t writer[WRITERS], reader[MOST];
} all;

/* Sends m by fd, as thread t does it. */
static ssize_t put_message(unsigned t, int fd, struct message *m)
{
	struct iovec iov = {m, sizeof *m};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	switch (t % 4) {
	case 0: return send(fd, m, sizeof *m, 0);
	case 1: return write(fd, m, sizeof *m);
	case 2: return sendmsg(fd, &h, 0);
	default: return writev(fd, &iov, 1);
	}
}

static int is_udp(int i) { return i < CONNS && all.udp >> i & 1; }

/* The same by sendfile, which reads what the thread has appended to a file, or by splice, which
 * reads its pipe. */
static ssize_t copy_message(unsigned t, int fd, struct message *m, const int from[2])
{
	off_t at = lseek(from[1], 0, SEEK_CUR);

	if (write(from[1], m, sizeof *m) != sizeof *m)
		die("write");
	if (t % 2)
		return splice(from[0], NULL, fd, NULL, sizeof *m, 0);
	return sendfile(fd, from[0], &at, sizeof *m);
}

/* A send of a datagram begins when the queues have room for it: then the kernel loses none. */
static void await_room(void)
{
	long last = monotonic() + LONG / 10;

	__atomic_fetch_add(&all.begun, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all.begun, __ATOMIC_SEQ_CST) - __atomic_load_n(&all.arrived, __ATOMIC_SEQ_CST) > AHEAD) {
		sched_yield();
		if (monotonic() > last) {
			out("%d messages have not come", AHEAD);
			_exit(1);
		}
	}
}

/* A thread that sends by the number, or by a duplicate of it. */
static void *writes(void *arg)
{
	unsigned t = (unsigned)(uintptr_t)arg & 0xff, dups = (unsigned)(uintptr_t)arg >> 8;

	unsigned i;
	int from[2];

	if (t % 2 ? pipe(from) != 0 : (from[0] = from[1] = memfd_create("message", 0)) < 0)
		die("pipe");
	for (i = 1; i <= all.each && !__atomic_load_n(&all.stop, __ATOMIC_SEQ_CST); i++) {
		struct message m = {t, i};
		int fd = dups ? dup(all.number) : all.number;

		if (all.udp)
			await_room();
		if ((all.copies ? copy_message(t, fd, &m, from) : put_message(t, fd, &m)) != sizeof m)
			die("send");
		if (dups)
			close(fd);
	}
	close(from[0]);
	if (t % 2)
		close(from[1]);
	__atomic_fetch_add(&all.sent, i - 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&all.writing, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A thread that reads what one connection carries, to its end: of each thread in order. */
static void *reads(void *arg)
{
	int i = (int)(intptr_t)arg;
	unsigned last[WRITERS] = {0};
	struct message m;

	while ((is_udp(i) ? recv(all.server[i], &m, sizeof m, 0) : (ssize_t)get(all.server[i], &m, sizeof m)) == sizeof m) {
		if (m.thread >= WRITERS)
			die("torn");
		all.wrong[i] += m.count <= last[m.thread];
		last[m.thread] = m.count;
		all.got[i]++;
		__atomic_fetch_add(&all.arrived, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* A connection that stays on TCP, which an option of the client asks for. */
static void tcp_pair(int *client, int *server)
{
	struct sockaddr_in addr;
	int l = listener(&addr), none = 0;

	*client = socket(AF_INET, SOCK_STREAM, 0);
	if (setsockopt(*client, SOL_SOCKET, SO_TIMESTAMPING, &none, sizeof none) != 0 || connect(*client, (struct sockaddr *)&addr, sizeof addr) != 0 ||
	    (*server = accept(l, NULL, NULL)) < 0)
		die("connect");
	close(l);
}

/* Makes connection i, and the thread that reads it. */
static void make(int i)
{
	if (is_udp(i))
		udp_pair(&all.client[i], &all.server[i]);
	else if (i < CONNS && all.tcp >> i & 1)
		tcp_pair(&all.client[i], &all.server[i]);
	else
		pair(&all.client[i], &all.server[i]);
	pthread_create(&all.reader[i], NULL, reads, (void *)(intptr_t)i);
}

/* Threads send by a number that is connection 0. */
static void begin(int dups)
{
	all.number = fcntl(all.client[0], F_DUPFD, 100);
	all.writing = WRITERS;
	for (int t = 0; t < WRITERS; t++)
		pthread_create(&all.writer[t], NULL, writes, (void *)(intptr_t)(t | (dups ? 1 << 8 : 0)));
}

/* They have sent what they were to, or are to stop: has the n connections been sent all? */
static void end(int n)
{
	unsigned got = 0, wrong = 0;

	for (int t = 0; t < WRITERS; t++)
		pthread_join(all.writer[t], NULL);
	close(all.number);
	for (int i = 0; i < n; i++) {
		if (is_udp(i))
			send(all.client[i], "", 0, 0);
		else if (all.client[i] >= 0)
			shutdown(all.client[i], SHUT_WR);
		pthread_join(all.reader[i], NULL);
		got += all.got[i];
		/* A datagram that is under way for 20 ms is overtaken: SPEC 10.3. */
		wrong += n > 1 && is_udp(i) ? 0 : all.wrong[i];
		if (all.client[i] >= 0)
			close(all.client[i]);
		close(all.server[i]);
	}
	out("%u messages are lost, %u out of order", all.sent - got, wrong);
}

/* dup2 makes the number one of n connections after the other, each of which keeps a number of its
 * own. udp: which are UDP sockets. */
static void renumber(int n, int dups, unsigned udp)
{
	all.udp = udp;
	all.each = (unsigned)fewer(20000);
	for (int i = 0; i < n; i++)
		make(i);
	begin(dups);
	for (int i = 1; n > 1 && __atomic_load_n(&all.writing, __ATOMIC_SEQ_CST); i++)
		if (i % 2 ? dup2(all.client[i % n], all.number) < 0 : dup3(all.client[i % n], all.number, O_CLOEXEC) < 0)
			die("dup2");
	end(n);
}

static void renumber_sends(void) { renumber(CONNS, 0, 0); }

/* By duplicates of the number. */
static void renumber_dups(void) { renumber(CONNS, 1, 0); }

/* One of them stays on TCP. */
static void renumber_tcp(void)
{
	all.tcp = 1 << 1;
	renumber(CONNS, 0, 0);
}

/* By sendfile and splice; one of them is a UDP socket. */
static void renumber_copies(void)
{
	all.copies = 1;
	renumber(CONNS, 0, 1 << 1);
}

/* It is a UDP socket, and stays it. */
static void udp_several(void) { renumber(1, 0, 1); }

/* It is a UDP socket and a TCP connection in turn. */
static void renumber_kinds(void) { renumber(CONNS, 0, 1 << 1); }

/* The number is the only one of each connection, which ends as the next takes it. */
static void renumber_last(void)
{
	int n = fewer(MOST);

	all.each = ~0u;
	make(0);
	begin(0);
	close(all.client[0]);
	for (int i = 1; i < n; i++) {
		make(i);
		if (dup2(all.client[i], all.number) < 0)
			die("dup2");
		close(all.client[i]);
	}
	for (int i = 0; i < n; i++)
		all.client[i] = -1;
	__atomic_store_n(&all.stop, 1, __ATOMIC_SEQ_CST);
	end(n);
}

/* A second thread, which waits until the pipe's other end is closed. */
static void *idles(void *arg)
{
	char b;

	return get((int)(intptr_t)arg, &b, 1) == 0 ? NULL : arg;
}

static pthread_t idle(int *end)
{
	int p[2];
	pthread_t t;
	sigset_t alarm, was;

	if (pipe(p) != 0)
		die("pipe");
	sigemptyset(&alarm); /* which is the other thread's */
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, &was);
	pthread_create(&t, NULL, idles, (void *)(intptr_t)p[0]);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	*end = p[1];
	return t;
}

static sigjmp_buf jumps;
static volatile sig_atomic_t armed;

static void jump(int sig)
{
	(void)sig;
	if (armed) {
		armed = 0;
		siglongjmp(jumps, 1);
	}
}

/* A handler leaves dup2 by a jump, which takes the only number of a connection: that ends. */
static void renumber_jump(void)
{
	int n = fewer(MOST), null = open("/dev/null", O_RDWR), end, client, server;
	volatile int ends = 0;
	struct sigaction act = {.sa_handler = jump};
	pthread_t thread = idle(&end);

	sigaction(SIGALRM, &act, NULL);
	for (volatile int i = 0; i < n; i++) {
		struct itimerval soon = {.it_value.tv_usec = 1 + i * 7 % 60}, never = {0};
		char b;

		pair(&client, &server);
		volatile int number = fcntl(client, F_DUPFD, 100), peer = server;
		close(client);
		armed = 1;
		if (sigsetjmp(jumps, 1) == 0) {
			setitimer(ITIMER_REAL, &soon, NULL);
			dup2(null, number);
			for (volatile int k = 0; k < 20000 && armed; k++)
				;
		}
		armed = 0;
		setitimer(ITIMER_REAL, &never, NULL);
		close(number);
		ends += get(peer, &b, 1) == 0;
		close(peer);
	}
	close(end);
	pthread_join(thread, NULL);
	close(null);
	out("%d connections have not ended", n - ends);
}

/* A number that dup2 may not take, as it is above the limit, stays what it is. */
static void renumber_refused(void)
{
	int null = open("/dev/null", O_RDWR), end, client, server;
	struct rlimit limit, low;
	char b[4] = "";
	pthread_t thread = idle(&end);

	pair(&client, &server);
	int number = fcntl(client, F_DUPFD, 200);
	close(client);
	getrlimit(RLIMIT_NOFILE, &limit);
	low = limit;
	low.rlim_cur = 200;
	setrlimit(RLIMIT_NOFILE, &low);
	int rc = dup2(null, number), error = errno;
	setrlimit(RLIMIT_NOFILE, &limit);
	out("dup2 %d %d, %zd sent", rc, rc < 0 ? error : 0, send(number, "abc", 3, MSG_NOSIGNAL));
	ssize_t n = get(server, b, 3);
	out("%zd arrive: %s", n, b);
	close(number);
	close(server);
	close(end);
	pthread_join(thread, NULL);
	close(null);
}

static int receiver; // the thread of receives

static void *receives(void *arg)
{
	char b;

	__atomic_store_n(&receiver, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	return recv((int)(intptr_t)arg, &b, 1, 0) == 1 ? NULL : arg;
}

static void *sends(void *arg)
{
	while (!__atomic_load_n(&all.stop, __ATOMIC_SEQ_CST))
		send((int)(intptr_t)arg, "x", 1, 0);
	return NULL;
}

/* dup2 takes a number of a UDP socket while a thread receives by it, and others send by another
 * one: it waits for neither. */
static void renumber_waits(void)
{
	enum { ROUNDS = 10 };
	struct sockaddr_in own, sink;
	int null = open("/dev/null", O_RDWR), fd = udp_socket(&own), to = udp_socket(&sink), number = fcntl(fd, F_DUPFD, 100);
	pthread_t sender[WRITERS], thread;
	long waited = 0;

	if (connect(fd, (struct sockaddr *)&sink, sizeof sink) != 0)
		die("connect");
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&sender[i], NULL, sends, (void *)(intptr_t)fd);
	for (int i = 0; i < ROUNDS; i++) {
		receiver = 0;
		pthread_create(&thread, NULL, receives, (void *)(intptr_t)number);
		udp_asleep(&receiver);
		long before = monotonic();
		if (dup2(null, number) < 0)
			die("dup2");
		waited += monotonic() - before;
		if (sendto(to, "x", 1, 0, (struct sockaddr *)&own, sizeof own) != 1)
			die("sendto");
		pthread_join(thread, NULL);
		if (dup2(fd, number) < 0)
			die("dup2");
	}
	__atomic_store_n(&all.stop, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(sender[i], NULL);
	out("dup2 waits %s", waited < LONG / 12 ? "for neither" : "for another");
}

const struct probe renumber_probes[] = {
	{"renumber-sends", renumber_sends, 0},
	{"renumber-dups", renumber_dups, 0},
	{"renumber-tcp", renumber_tcp, 0},
	{"renumber-copies", renumber_copies, 0},
	{"renumber-kinds", renumber_kinds, 0},
	{"renumber-waits", renumber_waits, 1},
	{"renumber-last", renumber_last, 0},
	{"udp-several-send", udp_several, 0},
	{"renumber-jump", renumber_jump, 0},
	{"renumber-refused", renumber_refused, 0},
	{0},
};
