#include "probe.h"

#include <sched.h>

/* Probes of epoll instances that several threads wait in, or change. */

/* As Apache's event MPM: one thread waits, takes a connection out and gives it to a worker, which
 * answers and puts it back. */
enum { CONNS = 3, WORKERS = 12, REQUESTS = 700 };

static struct {
	int ep, fd[CONNS], queue[2], taken[CONNS], ended;
} apache;

static void *apache_worker(void *arg)
{
	char request[60];
	int i;

	while (read(apache.queue[0], &i, sizeof i) == sizeof i) {
		ssize_t n = recv(apache.fd[i], request, sizeof request, 0);
		if (n == 0) {
			close(apache.fd[i]);
			__atomic_add_fetch(&apache.ended, 1, __ATOMIC_SEQ_CST);
			continue;
		}
		char answer[1300];
		memset(answer, 'r', sizeof answer);
		if (n == 60) {
			put(apache.fd[i], answer, 300);
			put(apache.fd[i], answer, 1000);
		}
		__atomic_store_n(&apache.taken[i], 0, __ATOMIC_SEQ_CST);
		if (ep_set(apache.ep, EPOLL_CTL_ADD, apache.fd[i], EPOLLIN, (unsigned long)i))
			out("ADD: %s", errname(errno));
	}
	return arg;
}

static void apache_client(void *arg)
{
	int fd = dial(arg);
	char request[1300] = "GET /";

	for (int i = 0; i < REQUESTS; i++) {
		put(fd, request, 60);
		if (get(fd, request, 1300) != 1300)
			_exit(1);
	}
	close(fd);
}

static void threads_delete(void)
{
	struct sockaddr_in a;
	struct epoll_event ev[16];
	pid_t pid[CONNS];
	pthread_t t[WORKERS];
	int c, s, l, one = 1, stale = 0;

	pair(&c, &s); // a direct one
	l = listener(&a);
	nap(20);
	for (int i = 0; i < CONNS; i++)
		pid[i] = start(apache_client, &a);
	apache.ep = ep_new();
	if (pipe(apache.queue))
		die("pipe");
	for (int i = 0; i < CONNS; i++) {
		apache.fd[i] = accept(l, NULL, NULL);
		setsockopt(apache.fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		ep_set(apache.ep, EPOLL_CTL_ADD, apache.fd[i], EPOLLIN, (unsigned long)i);
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&t[i], NULL, apache_worker, NULL);
	while (__atomic_load_n(&apache.ended, __ATOMIC_SEQ_CST) < CONNS) {
		int n = epoll_wait(apache.ep, ev, 16, 50);
		for (int k = 0; k < n; k++) {
			int i = (int)ev[k].data.u64;
			if (__atomic_exchange_n(&apache.taken[i], 1, __ATOMIC_SEQ_CST)) {
				stale++;
				continue;
			}
			if (ep_set(apache.ep, EPOLL_CTL_DEL, apache.fd[i], 0, 0))
				out("DEL: %s", errname(errno));
			put(apache.queue[1], &i, sizeof i);
		}
	}
	close(apache.queue[1]);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(t[i], NULL);
	out("%d events of what was not in the set", stale);
	for (int i = 0; i < CONNS; i++)
		finish(pid[i]);
}

struct waiter {
	int ep, n, ms;
	pthread_t t;
	struct epoll_event ev;
};

static void *wait_in(void *p)
{
	struct waiter *w = p;
	w->n = ep_hear(w->ep, &w->ev, 1, w->ms ? w->ms : LONG);
	return NULL;
}

static void epoll_exclusive(void)
{
	int c, s;
	struct waiter w[2] = {{.ep = ep_new(), .ms = 3000}, {.ep = ep_new(), .ms = 3000}};
	pair_cold(&c, &s);
	R(ep_set(w[0].ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLEXCLUSIVE, 1));
	R(ep_set(w[1].ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLEXCLUSIVE, 2));
	warm(c, s);
	R(ep_set(w[1].ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE, 2));
	R(ep_set(w[1].ep, EPOLL_CTL_MOD, s, EPOLLIN, 2));
	for (int i = 0; i < 2; i++)
		pthread_create(&w[i].t, NULL, wait_in, &w[i]);
	nap(50);
	put(c, "x", 1);
	nap(50);
	put(c, "y", 1);
	nap(50);
	put(c, "z", 1);
	int some = 0;
	for (int i = 0; i < 2; i++) {
		pthread_join(w[i].t, NULL);
		some += w[i].n == 1;
	}
	out("some were woken %d", some > 0);
}

/* Answers until the other end says so, and then takes all that comes, at a word for each time. */
static void room_peer(void *arg)
{
	static char block[65536];
	int fd = dial(arg);

	nonblock(fd, 1);
	for (ssize_t n; (n = read(fd, block, 1)) != 0;) {
		if (n < 0) {
			readable(fd, LONG);
		} else if (*block == 'w') {
			put(fd, "w", 1);
		} else {
			nap(50);
			while (readable(fd, 50))
				if (read(fd, block, sizeof block) == 0)
					return;
		}
	}
}

/* A connection to a peer that answers words, and then takes all. */
static int room_pair(int *l, pid_t *pid)
{
	char word;
	struct sockaddr_in a;

	*l = listener(&a);
	nap(20);
	*pid = start(room_peer, &a);
	int fd = accept(*l, NULL, NULL);

	for (int i = 0; i < 20; i++) {
		put(fd, "w", 1);
		get(fd, &word, 1);
		nap(1);
	}
	nonblock(fd, 1);
	return fd;
}

/* Sends until there is no room. */
static void fill_up(int fd)
{
	static char block[65536];
	ssize_t n;

	while ((n = write(fd, block, sizeof block)) > 0)
		;
	out("%s", n < 0 ? errname(errno) : "no end");
}

/* Who sleeps on edges is told of room that another thread runs out of meanwhile: Go and tokio have
 * one thread that waits for all. */
static void epoll_room(void)
{
	struct waiter w = {.ep = ep_new()};
	int c, s, l;
	pid_t pid;

	pair(&c, &s); // a direct one
	int fd = room_pair(&l, &pid);

	R(ep_set(w.ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1));
	wait_in(&w);
	out("%d %s", w.n, revents(w.ev.events));
	for (int i = 0; i < 3; i++) {
		pthread_create(&w.t, NULL, wait_in, &w);
		nap(50);
		fill_up(fd);
		pthread_join(w.t, NULL);
		out("%d %s", w.n, revents(w.ev.events));
		nap(200); /* it has taken all */
	}
	close(fd);
	close(l);
	finish(pid);
}

/* A set that a connection enters when it has run out of room already, or that asks for room only
 * then. */
static void epoll_room_late(void)
{
	int c, s, l;
	pid_t pid;

	pair(&c, &s); // a direct one
	for (int change = 0; change < 2; change++) {
		struct waiter w = {.ep = ep_new()};
		int fd = room_pair(&l, &pid);

		if (change)
			R(ep_set(w.ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
		fill_up(fd);
		R(ep_set(w.ep, change ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1));
		wait_in(&w);
		out("%d %s", w.n, revents(w.ev.events));
		close(fd);
		close(l);
		close(w.ep);
		finish(pid);
	}
}

static void epoll_threads(void)
{
	int c[4], s[4], ep = ep_new();
	struct waiter w[4];
	unsigned seen = 0;
	for (int i = 0; i < 4; i++) {
		pair(&c[i], &s[i]);
		ep_set(ep, EPOLL_CTL_ADD, s[i], EPOLLIN | EPOLLONESHOT, (unsigned long)i);
	}
	for (int i = 0; i < 4; i++) {
		w[i] = (struct waiter){.ep = ep};
		pthread_create(&w[i].t, NULL, wait_in, &w[i]);
	}
	nap(50);
	for (int i = 0; i < 4; i++)
		put(c[i], "x", 1);
	for (int i = 0; i < 4; i++) {
		pthread_join(w[i].t, NULL);
		out("%d", w[i].n);
		seen |= 1u << w[i].ev.data.u64;
	}
	out("seen %#x", seen);
	/* one sleeps while another changes the set */
	w[0] = (struct waiter){.ep = ep};
	pthread_create(&w[0].t, NULL, wait_in, &w[0]);
	nap(50);
	R(ep_set(ep, EPOLL_CTL_MOD, s[2], EPOLLIN | EPOLLONESHOT, 77));
	pthread_join(w[0].t, NULL);
	out("%d %lu", w[0].n, (unsigned long)w[0].ev.data.u64);
	int c2, s2;
	pair(&c2, &s2);
	w[0] = (struct waiter){.ep = ep};
	pthread_create(&w[0].t, NULL, wait_in, &w[0]);
	nap(50);
	R(ep_set(ep, EPOLL_CTL_ADD, s2, EPOLLIN, 78));
	nap(50);
	put(c2, "x", 1);
	pthread_join(w[0].t, NULL);
	out("%d %lu", w[0].n, (unsigned long)w[0].ev.data.u64);
}

struct tags {
	int ep, end;
	unsigned long told, wrong;
};

static void *count_wrong(void *p)
{
	struct tags *w = p;
	struct epoll_event ev[4];
	while (!__atomic_load_n(&w->end, __ATOMIC_ACQUIRE)) {
		int n = epoll_wait(w->ep, ev, 4, 100);
		for (int i = 0; i < n; i++) {
			w->wrong += ev[i].data.u64 != 4711 && ev[i].data.u64 != 5;
			__atomic_add_fetch(&w->told, 1, __ATOMIC_RELEASE);
		}
	}
	return NULL;
}

// What is ready when it joins a set is told to a thread that sleeps there at once, with the data
// that it was added with, and only that: Apache's listener and its workers.
static void epoll_join_ready(void)
{
	int c, s, last = eventfd(0, EFD_NONBLOCK), all = fewer(2000);
	struct tags w = {.ep = ep_new()};
	pthread_t t;
	pair_cold(&c, &s);
	pthread_create(&t, NULL, count_wrong, &w);
	for (int i = 0; i < all; i++) {
		unsigned long before = __atomic_load_n(&w.told, __ATOMIC_ACQUIRE);
		ep_set(w.ep, EPOLL_CTL_ADD, s, EPOLLOUT | EPOLLONESHOT, 4711);
		for (int j = 0; j < LONG && __atomic_load_n(&w.told, __ATOMIC_ACQUIRE) == before; j++)
			j < 1000 ? sched_yield() : nap(1);
		ep_set(w.ep, EPOLL_CTL_DEL, s, 0, 0);
	}
	__atomic_store_n(&w.end, 1, __ATOMIC_RELEASE);
	ep_set(w.ep, EPOLL_CTL_ADD, last, EPOLLOUT, 5);
	pthread_join(t, NULL);
	out("all told %d, with other data %lu", w.told >= (unsigned)all, w.wrong);
}

enum { TURNS = 20000 };

struct strays {
	int ep, stop, wrong;
};

// Waits until it is stopped, and counts the events whose data is not the program's.
static void *count_strays(void *arg)
{
	struct strays *w = arg;
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		struct epoll_event ev[4];
		int n = epoll_wait(w->ep, ev, 4, 10);
		for (int i = 0; i < n; i++)
			w->wrong += ev[i].data.u64 != 7;
	}
	return NULL;
}

// One thread waits while another adds and deletes what is ready, as Apache's event MPM does: what
// is told is what the program has asked for.
static void epoll_turns(void)
{
	struct strays w = {ep_new(), 0, 0};
	int c, s;
	pthread_t t;
	pair(&c, &s);
	pthread_create(&t, NULL, count_strays, &w);
	for (int i = 0; i < TURNS; i++) {
		struct epoll_event ev = {.events = EPOLLOUT, .data.u64 = 7};
		if (epoll_ctl(w.ep, EPOLL_CTL_ADD, s, &ev) != 0 || epoll_ctl(w.ep, EPOLL_CTL_DEL, s, NULL) != 0)
			die("epoll_ctl");
	}
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	out("%d wrong", w.wrong);
}

/* ---- at random ----------------------------------------------------------------- */

/* Threads that wait, add, change, delete, write, read and close, each step under the mutex of its
 * socket, beside the model of what the kernel does: a registration has a generation, which its data
 * carries. An event is false if its registration had been deleted, or had fired (EPOLLONESHOT) and
 * not been set again, when the wait began that tells it. */
enum { PLACES = 6, CHANGERS = 3, WAITERS = 3, STEPS = 1500, AGES = 3 * STEPS };

static struct place {
	pthread_mutex_t lock;
	int c, s;
	int in;		   /* registered, */
	unsigned events;   /* for these */
	unsigned gen;	   /* counts ADD and MOD, and DEL */
	unsigned fired;	   /* the generation whose one event was told, or 0 */
	long gone[AGES];   /* times at which the last generations ended */
} places[PLACES];

static struct {
	int ep, l, wrong, false_events, twice, stop;
	long clock;
	struct sockaddr_in addr;
} model;

static long tick(void) { return __atomic_add_fetch(&model.clock, 1, __ATOMIC_SEQ_CST); }

static void count(int *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }

static void expect(int rc, int want)
{
	if ((rc == 0 ? 0 : errno) != want)
		count(&model.wrong);
}

static void open_place(struct place *p)
{
	static pthread_mutex_t pairing = PTHREAD_MUTEX_INITIALIZER;
	int one = 1;

	pthread_mutex_lock(&pairing); // else another's may be accepted
	p->c = dial(&model.addr);
	p->s = accept(model.l, NULL, NULL);
	pthread_mutex_unlock(&pairing);
	setsockopt(p->c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	nonblock(p->c, 1);
	nonblock(p->s, 1);
	p->in = 0;
}

/* The data of the next registration. */
static unsigned long next(struct place *p) { return (unsigned long)(p - places) << 32 | (p->gen + 1); }

/* The registration is the next one now, or none: what is reported of the old one is true for waits
 * that have begun. */
static void renew(struct place *p)
{
	p->gone[p->gen % AGES] = tick();
	p->gen++;
}

static void change(struct place *p, unsigned what, unsigned events)
{
	static const unsigned how[] = {0, EPOLLET, EPOLLONESHOT, EPOLLONESHOT};
	int rc, was = p->in;

	events = EPOLLIN | how[events % 4];
	if (what == 2) {
		expect(ep_set(model.ep, EPOLL_CTL_DEL, p->s, 0, 0), was ? 0 : ENOENT);
		p->in = 0;
	} else {
		rc = ep_set(model.ep, what ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, p->s, events, next(p));
		expect(rc, what ? was ? 0 : ENOENT : was ? EEXIST : 0);
		if (rc)
			return;
		p->in = 1;
		p->events = events;
	}
	if (was || p->in)
		renew(p);
}

static void step(struct place *p, unsigned what, unsigned more)
{
	char b[256] = "";

	switch (what) {
	case 0:
	case 1:
	case 2:
		(void)!write(p->c, b, 1 + more % 100);
		break;
	case 3:
	case 4:
		(void)!read(p->s, b, more % 2 ? sizeof b : 1);
		break;
	case 5:
		(void)!write(p->s, b, 1);
		(void)!read(p->c, b, sizeof b);
		break;
	case 6:
		if (more % 8 == 0) { // closing takes it out
			close(p->s);
			if (p->in)
				renew(p);
			close(p->c);
			open_place(p);
			break;
		}
		/* fall through */
	default:
		change(p, more % 3, more / 3);
	}
}

static void *changer(void *arg)
{
	unsigned seed = (unsigned)(unsigned long)arg;

	for (int i = 0; i < STEPS; i++) {
		unsigned r[3];
		for (int k = 0; k < 3; k++)
			r[k] = random_below(&seed, 0x8000);
		struct place *p = &places[r[0] % PLACES];
		pthread_mutex_lock(&p->lock);
		step(p, r[1] % 9, r[2]);
		pthread_mutex_unlock(&p->lock);
	}
	return NULL;
}

/* An event of a wait that began at a time. */
static void judge(const struct epoll_event *ev, long began)
{
	struct place *p = &places[ev->data.u64 >> 32];
	unsigned gen = (unsigned)ev->data.u64;
	char b[64];

	pthread_mutex_lock(&p->lock);
	if (gen != p->gen && (p->gen - gen >= AGES || p->gone[gen % AGES] < began)) // it had ended by then
		count(&model.false_events);
	if (gen == p->gen && p->in && (p->events & EPOLLONESHOT)) {
		if (p->fired == gen)
			count(&model.twice);
		p->fired = gen;
	}
	(void)!read(p->s, b, sizeof b);
	pthread_mutex_unlock(&p->lock);
}

static void *waiter(void *arg)
{
	struct epoll_event ev[4];

	while (!__atomic_load_n(&model.stop, __ATOMIC_SEQ_CST)) {
		long began = tick();
		int n = epoll_wait(model.ep, ev, 4, 20);
		for (int i = 0; i < n; i++)
			judge(&ev[i], began);
	}
	return arg;
}

static void threads_random(void)
{
	pthread_t t[CHANGERS + WAITERS];
	struct epoll_event ev[PLACES];
	int c, s, told = 0;

	pair(&c, &s); // a direct one
	model.l = listener(&model.addr);
	model.ep = ep_new();
	nap(20);
	for (int i = 0; i < PLACES; i++) {
		pthread_mutex_init(&places[i].lock, NULL);
		open_place(&places[i]);
	}
	for (long i = 0; i < CHANGERS + WAITERS; i++)
		pthread_create(&t[i], NULL, i < CHANGERS ? changer : waiter, (void *)(i + 77));
	for (int i = 0; i < CHANGERS; i++)
		pthread_join(t[i], NULL);
	__atomic_store_n(&model.stop, 1, __ATOMIC_SEQ_CST);
	for (int i = CHANGERS; i < CHANGERS + WAITERS; i++)
		pthread_join(t[i], NULL);
	out("%d wrong answers, %d false events, %d fired twice", model.wrong, model.false_events, model.twice);
	/* Nothing is lost: all that has something to be read is told. */
	for (int i = 0; i < PLACES; i++) {
		struct place *p = &places[i];
		ep_set(model.ep, p->in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, p->s, EPOLLIN, (unsigned long)i);
		put(p->c, "end", 3);
		readable(p->s, LONG);
	}
	/* A bell may take the room of an event in one wait: the next one tells it. */
	for (int waits = 0; waits < 100 && told != (1 << PLACES) - 1; waits++)
		for (int n = ep_hear(model.ep, ev, PLACES, LONG), i = 0; i < n; i++)
			told |= 1 << ev[i].data.u64;
	out("%#x", told);
}

const struct probe thread_probes[] = {
	{"threads-delete", threads_delete, 0},
	{"threads-random", threads_random, 0},
	{"epoll-exclusive", epoll_exclusive, 0},
	{"epoll-threads", epoll_threads, 0},
	{"epoll-room", epoll_room, 0},
	{"epoll-room-late", epoll_room_late, 0},
	{"epoll-join-ready", epoll_join_ready, 1},
	{"epoll-turns", epoll_turns, 0},
	{NULL, NULL, 0},
};
