#include "probe.h"

/* Probes of one epoll instance that many threads wait in and change. */

/* As Apache's event MPM: one thread waits, takes a connection out and gives it to a worker, which answers and puts it back. */
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

/* ---- at random ----------------------------------------------------------------- */

/* Threads that wait, add, change, delete, write, read and close, each step under the mutex of its socket, beside the model of
 * what the kernel does: a registration has a generation, which its data carries. An event is false if its registration had been
 * deleted, or had fired (EPOLLONESHOT) and not been set again, when the wait began that tells it. */
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

/* The registration is the next one now, or none: what is told of the old one is true for waits that have begun. */
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
		for (int k = 0; k < 3; k++) {
			seed = seed * 1103515245 + 12345;
			r[k] = seed >> 16 & 0x7fff;
		}
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
	for (int n = epoll_wait(model.ep, ev, PLACES, LONG), i = 0; i < n; i++)
		told |= 1 << ev[i].data.u64;
	out("%#x", told);
}

const struct probe thread_probes[] = {
	{"threads-delete", threads_delete, 0},
	{"threads-random", threads_random, 0},
	{NULL, NULL, 0},
};
