#include "probe.h"

#include <sys/mman.h>
#include <sys/resource.h>

/* Probes of what a program may have: descriptors, address space, memory, and what its core dumps
 * hold. A direct connection takes nothing of it away. */

static void sharer(void *none)
{
	(void)none;
	for (;;)
		pause();
}

/* Polls the 40 pairs while nothing comes, and again until one end gets bytes. */
static void poll_pairs(const int *c, const int *s)
{
	struct pollfd p[80];
	int fd = c[7];
	pthread_t t;
	char buf[4];

	for (int i = 0; i < 40; i++) {
		p[i] = (struct pollfd){c[i], POLLIN, 0};
		p[40 + i] = (struct pollfd){s[i], POLLIN, 0};
	}
	R(poll(p, 80, 20));
	pthread_create(&t, NULL, write_later, &fd);
	R(poll(p, 80, LONG));
	pthread_join(t, NULL);
	get(s[7], buf, 4);
	out("%s", revents((unsigned)p[47].revents));
}

/* What is direct takes no descriptor that the program may have. */
static void limits_descriptors(void)
{
	struct rlimit most;
	char buf[16];
	int c[40], s[40], u = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), n = 0, fd;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof to;

	getrlimit(RLIMIT_NOFILE, &most);
	out("%d", most.rlim_max > 1000);
	most.rlim_cur = 200;
	R(setrlimit(RLIMIT_NOFILE, &most));
	for (int i = 0; i < 40; i++)
		pair(&c[i], &s[i]);
	R(bind(u, (struct sockaddr *)&to, len));
	getsockname(u, (struct sockaddr *)&to, &len);
	for (int i = 0; i < 20; i++) {
		int v = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		connect(v, (struct sockaddr *)&to, len);
		for (int k = 0; k < 60; k++) {
			put(v, "a datagram", 10);
			recv(u, buf, sizeof buf, 0);
		}
	}
	while ((fd = open("/dev/null", O_RDONLY)) >= 0)
		n += fd < 200;
	out("%d more, then %s", n, strerror(errno));
	getrlimit(RLIMIT_NOFILE, &most);
	out("%d", (int)most.rlim_cur);
	pid_t pid = fork();
	if (pid == 0) {
		getrlimit(RLIMIT_NOFILE, &most);
		_exit(most.rlim_cur == 200 ? 0 : 1);
	}
	finish(pid);
	most.rlim_cur = 90; /* for poll: fewer than sockets and doorbells */
	R(setrlimit(RLIMIT_NOFILE, &most));
	poll_pairs(c, s);
	pid = start(sharer, NULL);
	poll_pairs(c, s);
	kill(pid, SIGKILL);
	finish(pid);
	for (int i = 0; i < 40; i++) {
		put(c[i], "still", 5);
		get(s[i], buf, 5);
		still_direct(c[i], s[i]);
	}
}

/* Is there so much address space? */
static int has_room(size_t size)
{
	void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p != MAP_FAILED && munmap(p, size) == 0;
}

/* What is direct leaves the address space to the program. Not with a sanitizer, which has more than
 * the limit by itself. */
static void limits_space(void)
{
	enum { PAIRS = 60, LIMIT = 1 << 30, MOST = LIMIT / 16 * 12 };
	struct rlimit space = {LIMIT, RLIM_INFINITY};
	int c[PAIRS], s[PAIRS];
	char buf[8];

	setrlimit(RLIMIT_AS, &space);
	if (has_room(MOST)) {
		for (int i = 0; i < PAIRS; i++) {
			pair_cold(&c[i], &s[i]);
			for (int k = 0; k < 40; k++) {
				put(c[i], "to and", 6);
				get(s[i], buf, 6);
				put(s[i], "fro", 3);
				get(c[i], buf, 3);
			}
		}
		is_direct(); /* some are */
		out("room %d", has_room(MOST));
	} else {
		is_direct();
		out("room 1");
	}
}

/* How many kB of this process are in memory. */
static long resident(void)
{
	char line[128];
	long kb = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "VmRSS: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

/* A core dump has no rings: how many kB of shared memory without the flag dd are mapped. */
static void limits_core(void)
{
	enum { PAIRS = 10, MOST_KB = 30 << 10 };
	char line[512], *flags;
	long size = 0, dumped = 0;
	int c, s, shared = 0;

	for (int i = 0; i < PAIRS; i++)
		pair(&c, &s);
	FILE *f = fopen("/proc/self/smaps", "r");
	while (f && fgets(line, sizeof line, f)) {
		if (strstr(line, "-s ") || strstr(line, "rw-p "))
			shared = strstr(line, "memfd:") != NULL;
		sscanf(line, "Size: %ld", &size);
		if (shared && (flags = strstr(line, "VmFlags:")) && !strstr(flags, " dd"))
			dumped += size;
	}
	if (f)
		fclose(f);
	out("few kB: %d", dumped < MOST_KB);
}

/* A program that locks what it maps has not all pages of each ring in memory. */
static void limits_locked(void)
{
	enum { PAIRS = 10, MOST_KB = 30 << 10 };
	int c, s;

	mlockall(MCL_FUTURE); /* which a user may have no right to */
	long before = resident();
	for (int i = 0; i < PAIRS; i++)
		pair(&c, &s);
	out("few pages: %d", resident() - before < MOST_KB);
}

const struct probe limit_probes[] = {
	{"limits-descriptors", limits_descriptors, 0},
	{"limits-space", limits_space, 0},
	{"limits-locked", limits_locked, 0},
	{"limits-core", limits_core, 0},
	{0},
};
