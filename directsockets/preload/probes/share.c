#include "probe.h"

#include <sys/prctl.h>

/* Probes of several sleepers on one socket: threads and processes, each in a call or a set of its
 * own. What comes is told to every one of them, whoever hears of it first. The sleepers look and do
 * not read, so in the kernel none can miss it. */

enum { SLEEPERS = 4, ROUNDS = 24, SLEEPS = 20 };

struct sleeper {
	char kind; /* e epoll, E edge-triggered, n an epoll set in another, p poll, s select, r recv with MSG_PEEK */
	int fd, ep, in;
	int go[2], done[2];
};

/* One sleep until fd is readable. */
static int sleep_on(const struct sleeper *w)
{
	struct pollfd p = {w->fd, POLLIN, 0};
	struct epoll_event ev;
	fd_set set;
	char b;

	switch (w->kind) {
	case 'p':
		return poll(&p, 1, -1);
	case 's':
		FD_ZERO(&set);
		FD_SET(w->fd, &set);
		return select(w->fd + 1, &set, NULL, NULL, NULL);
	case 'r':
		return (int)recv(w->fd, &b, 1, MSG_PEEK);
	default:
		return ep_hear(w->ep, &ev, 1, -1);
	}
}

static void *sleeper_run(void *arg)
{
	struct sleeper *w = arg;
	char b;

	while (read(w->go[0], &b, 1) == 1) {
		b = (char)('0' + sleep_on(w));
		(void)!write(w->done[1], &b, 1);
	}
	return NULL;
}

static void sleeper_init(struct sleeper *w, char kind, int fd)
{
	*w = (struct sleeper){.kind = kind, .fd = fd, .ep = -1, .in = -1};
	if (pipe(w->go) || pipe(w->done))
		die("pipe");
}

/* Makes w's set, with fd in it; none if it needs none. */
static void sleeper_set(struct sleeper *w)
{
	if (!strchr("eEn", w->kind))
		return;
	w->ep = w->in = ep_new();
	if (w->kind == 'n') {
		w->in = ep_new();
		ep_set(w->ep, EPOLL_CTL_ADD, w->in, EPOLLIN, 0);
	}
	if (w->fd >= 0)
		ep_set(w->in, EPOLL_CTL_ADD, w->fd, EPOLLIN | (w->kind == 'E' ? EPOLLET : 0), 1);
}

static void sleeper_thread(struct sleeper *w)
{
	pthread_t t;

	sleeper_set(w);
	if (pthread_create(&t, NULL, sleeper_run, w))
		die("pthread_create");
	pthread_detach(t);
}

static void go(struct sleeper *w) { put(w->go[1], "g", 1); }

/* w has been told. If not, that is all of the probe. */
static void await(struct sleeper *w, const char *who, int round)
{
	char b;

	if (readable(w->done[0], 120000) != 1) {
		out("%s: %c was not told in round %d", who, w->kind, round);
		_exit(1);
	}
	get(w->done[0], &b, 1);
	if (b != '1')
		out("%s: %c was told %c in round %d", who, w->kind, b, round);
}

/* All that kinds says sleep on one socket, for a byte in each round; the first of them not any more
 * from round first_stops on, unless that is 0. */
static void share(const char *kinds, int first_stops)
{
	struct sleeper w[SLEEPERS];
	int c, s, n = (int)strlen(kinds);
	char b;

	pair(&c, &s);
	for (int i = 0; i < n; i++) {
		sleeper_init(&w[i], kinds[i], s);
		sleeper_thread(&w[i]);
	}
	for (int i = 0; i < ROUNDS + first_stops; i++) {
		int from = first_stops && i >= first_stops;
		for (int k = from; k < n; k++)
			go(&w[k]);
		nap(i % 3);
		put(c, "x", 1);
		for (int k = from; k < n; k++)
			await(&w[k], kinds, i);
		get(s, &b, 1);
	}
	out("%s: told", kinds);
	still_direct(c, s);
}

static void sets_two(void) { share("ee", 0); }
static void sets_edge(void) { share("eE", 0); }
static void sets_three(void) { share("eEe", 0); }
static void set_and_poll(void) { share("ep", 0); }
static void set_and_select(void) { share("se", 0); }
static void set_and_recv(void) { share("er", 0); }
static void recv_and_set(void) { share("rE", 0); }
static void set_and_nested(void) { share("ne", 0); }
static void no_set(void) { share("prsr", 0); }
static void idle_set(void) { share("ee", SLEEPS); }
static void idle_edge(void) { share("Er", SLEEPS); }
static void idle_nested(void) { share("np", SLEEPS); }

/* The socket goes from one set to the other, and back, while both have sleepers. */
static void moved(void)
{
	struct sleeper w[2];
	int c, s;
	char b;

	pair(&c, &s);
	for (int i = 0; i < 2; i++) {
		sleeper_init(&w[i], 'e', i ? -1 : s);
		sleeper_thread(&w[i]);
		go(&w[i]);
	}
	for (int i = 0; i < 2 * ROUNDS; i++) {
		struct sleeper *from = &w[i & 1], *to = &w[!(i & 1)];
		nap(i % 3);
		if (ep_set(from->ep, EPOLL_CTL_DEL, s, 0, 0) || ep_set(to->ep, EPOLL_CTL_ADD, s, EPOLLIN, 1))
			out("round %d: %s", i, errname(errno));
		put(c, "x", 1);
		await(to, "moved", i);
		get(s, &b, 1);
		go(to);
	}
	out("moved: told, %d and %d more", readable(w[0].done[0], 0), readable(w[1].done[0], 0));
	still_direct(c, s);
}

/* As a proxy's threads take over idle connections: it is in the new set before it is out of the old
 * one. */
static void taken_over(void)
{
	struct sleeper w[2];
	int c, s;
	char b;

	pair(&c, &s);
	for (int i = 0; i < 2; i++) {
		sleeper_init(&w[i], 'e', i ? -1 : s);
		sleeper_thread(&w[i]);
	}
	for (int i = 0; i < 2 * ROUNDS; i++) {
		struct sleeper *from = &w[i & 1], *to = &w[!(i & 1)];
		go(from);
		go(to);
		nap(i % 3);
		if (ep_set(to->ep, EPOLL_CTL_ADD, s, EPOLLIN | (i % 4 > 1 ? EPOLLET : 0), 1))
			out("round %d: %s", i, errname(errno));
		put(c, "x", 1);
		await(to, "taken over", i);
		await(from, "taken over", i);
		ep_set(from->ep, EPOLL_CTL_DEL, s, 0, 0);
		get(s, &b, 1);
	}
	out("taken over: told");
	still_direct(c, s);
}

static void child(void *arg)
{
	struct sleeper *w = arg;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(w->go[1]);
	sleeper_set(w);
	sleeper_run(w);
}

/* Two processes, each with a set of its own. */
static void processes(void)
{
	struct sleeper w[2];
	pid_t pid[2];
	int c, s;
	char b;

	pair(&c, &s);
	for (int i = 0; i < 2; i++) {
		sleeper_init(&w[i], "eE"[i], s);
		pid[i] = start(child, &w[i]);
		close(w[i].go[0]);
	}
	for (int i = 0; i < ROUNDS; i++) {
		go(&w[0]);
		go(&w[1]);
		nap(i % 3);
		put(c, "x", 1);
		await(&w[0], "processes", i);
		await(&w[1], "processes", i);
		get(s, &b, 1);
	}
	out("processes: told");
	still_direct(c, s);
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
}

const struct probe share_probes[] = {
	{"share-sets", sets_two, 0},
	{"share-sets-edge", sets_edge, 0},
	{"share-sets-three", sets_three, 0},
	{"share-set-poll", set_and_poll, 0},
	{"share-set-select", set_and_select, 0},
	{"share-set-recv", set_and_recv, 0},
	{"share-recv-set", recv_and_set, 0},
	{"share-set-nested", set_and_nested, 0},
	{"share-no-set", no_set, 0},
	{"share-idle-set", idle_set, 0},
	{"share-idle-edge", idle_edge, 0},
	{"share-idle-nested", idle_nested, 0},
	{"share-moved", moved, 0},
	{"share-taken-over", taken_over, 0},
	{"share-processes", processes, 0},
	{NULL, NULL, 0},
};
