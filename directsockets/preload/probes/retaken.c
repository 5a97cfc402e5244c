#include "probe.h"

/* Probes of a number that dup2 makes a connection and another file, a pipe, in turn, while threads
 * write and read by it: each message is carried by what the number was as the call began. */

enum { FILES = 3, THREADS = 4, QUIET = LONG / 10 };

struct message {
	unsigned from, count;
};

static struct {
	int number, stop;
	unsigned pipes; // which are pipes, a bit each; the others are connections
	int in[FILES], out[FILES]; // to write, to read
	unsigned writing; // threads that have not ended
	unsigned sent, got, wrong;
} all;

static int is_pipe(int i) { return all.pipes >> i & 1; }

static void make(int i)
{
	int ends[2];

	if (!is_pipe(i)) {
		pair(&all.in[i], &all.out[i]);
		return;
	}
	if (pipe(ends) != 0)
		die("pipe");
	all.out[i] = ends[0];
	all.in[i] = ends[1];
}

/* The number becomes one file after the other, until stop says 1. ends: all.in or all.out. */
static void turn(const int *ends, int (*stop)(void))
{
	for (int i = 1; !stop(); i++)
		if (i % 2 ? dup2(ends[i % FILES], all.number) < 0 : dup3(ends[i % FILES], all.number, O_CLOEXEC) < 0)
			die("dup2");
}

/* Nothing more is written to file i. */
static void no_more(int i)
{
	if (!is_pipe(i))
		shutdown(all.in[i], SHUT_WR);
	close(all.in[i]);
}

/* ---- writers by the number ---- */

static void *writes(void *arg)
{
	unsigned t = (unsigned)(uintptr_t)arg, n = (unsigned)fewer(20000);

	for (unsigned i = 1; i <= n; i++) {
		struct message m = {t, i};
		struct iovec iov = {&m, sizeof m};
		if ((t % 2 ? write(all.number, &m, sizeof m) : writev(all.number, &iov, 1)) != sizeof m)
			die("write");
		__atomic_fetch_add(&all.sent, 1, __ATOMIC_SEQ_CST);
	}
	__atomic_fetch_sub(&all.writing, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Reads file i to its end: of each thread in order. */
static void *reads(void *arg)
{
	int i = (int)(intptr_t)arg;
	unsigned last[THREADS] = {0};
	struct message m;
	size_t n;

	while ((n = get(all.out[i], &m, sizeof m)) == sizeof m) {
		if (m.from >= THREADS)
			die("torn");
		__atomic_fetch_add(&all.wrong, m.count <= last[m.from], __ATOMIC_SEQ_CST);
		last[m.from] = m.count;
		__atomic_fetch_add(&all.got, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static int all_written(void) { return !__atomic_load_n(&all.writing, __ATOMIC_SEQ_CST); }

static void retaken_writes(void)
{
	pthread_t writer[THREADS], reader[FILES];

	all.pipes = 1 << 1;
	for (int i = 0; i < FILES; i++) {
		make(i);
		pthread_create(&reader[i], NULL, reads, (void *)(intptr_t)i);
	}
	all.number = fcntl(all.in[0], F_DUPFD, 100);
	all.writing = THREADS;
	for (int t = 0; t < THREADS; t++)
		pthread_create(&writer[t], NULL, writes, (void *)(intptr_t)t);
	turn(all.in, all_written);
	for (int t = 0; t < THREADS; t++)
		pthread_join(writer[t], NULL);
	close(all.number);
	for (int i = 0; i < FILES; i++) {
		no_more(i);
		pthread_join(reader[i], NULL);
		close(all.out[i]);
	}
	out("%u messages are lost, %u out of order", all.sent - all.got, all.wrong);
}

/* ---- readers by the number ---- */

/* Writes to file i until it is to stop, not far ahead of the readers. */
static void *feeds(void *arg)
{
	enum { AHEAD = 300 };
	struct message m = {(unsigned)(uintptr_t)arg, 0};

	while (!__atomic_load_n(&all.stop, __ATOMIC_SEQ_CST)) {
		if (__atomic_load_n(&all.sent, __ATOMIC_SEQ_CST) - __atomic_load_n(&all.got, __ATOMIC_SEQ_CST) > AHEAD && m.count % FILES) {
			sched_yield();
			nap(1);
		}
		m.count++;
		if (write(all.in[m.from], &m, sizeof m) != sizeof m)
			die("write");
		__atomic_fetch_add(&all.sent, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void *takes(void *arg)
{
	struct message m;
	struct iovec iov = {&m, sizeof m};
	unsigned t = (unsigned)(uintptr_t)arg;

	while (!__atomic_load_n(&all.stop, __ATOMIC_SEQ_CST)) {
		ssize_t n = t % 2 ? read(all.number, &m, sizeof m) : readv(all.number, &iov, 1);
		if (n < 0)
			die("read");
		if (n && (n != sizeof m || m.from >= FILES))
			die("torn");
		__atomic_fetch_add(&all.got, n > 0, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* Have enough messages come, or none for long? */
static int all_read(void)
{
	static unsigned last;
	static long since;
	unsigned got = __atomic_load_n(&all.got, __ATOMIC_SEQ_CST);
	long now = monotonic();

	if (got != last || !since)
		since = now;
	last = got;
	if (now - since > QUIET)
		out("no message comes");
	return got >= (unsigned)fewer(20000) || now - since > QUIET;
}

static void retaken_reads(void)
{
	pthread_t feeder[FILES], taker[THREADS];
	struct message m;

	for (int i = 0; i < FILES; i++)
		make(i);
	all.number = fcntl(all.out[0], F_DUPFD, 100);
	for (int t = 0; t < THREADS; t++)
		pthread_create(&taker[t], NULL, takes, (void *)(intptr_t)t);
	for (int i = 0; i < FILES; i++)
		pthread_create(&feeder[i], NULL, feeds, (void *)(intptr_t)i);
	turn(all.out, all_read);
	__atomic_store_n(&all.stop, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < FILES; i++) {
		pthread_join(feeder[i], NULL);
		no_more(i);
	}
	for (int t = 0; t < THREADS; t++)
		pthread_join(taker[t], NULL);
	for (int i = 0; i < FILES; i++)
		while (get(all.out[i], &m, sizeof m) == sizeof m)
			all.got++;
	out("%u messages are lost", all.sent - all.got);
}

static void retaken_reads_connections(void) { retaken_reads(); }

static void retaken_reads_pipe(void)
{
	all.pipes = 1 << 1;
	retaken_reads();
}

const struct probe retaken_probes[] = {
	{"retaken-writes", retaken_writes, 0},
	{"retaken-reads", retaken_reads_connections, 0},
	{"retaken-reads-pipe", retaken_reads_pipe, 0},
	{0},
};
