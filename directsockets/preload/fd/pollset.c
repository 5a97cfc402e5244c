#include "fd/pollset.h"
#include "fd/epoll.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One socket of the set that the core knows. */
struct slot {
	struct conn *c;
	nfds_t at;	  /* its place in the program's array */
	nfds_t extra;	  /* of its bell and kick in the kernel's; 0 none */
	int extras;
	unsigned kernel;  /* what the shadow decides */
	bool direct;	  /* both directions: the shadow has nothing to say as long as something is ready */
	bool waiting, armed, had;
};

enum { SMALL = 16, SMALL_FDS = 64 };

struct waiting {
	struct slot *slots;
	nfds_t n;
	void *map; /* if it is large */
	size_t size;
	bool local; /* it uses small */
	int cleanup; /* of ds_cleanup_push */
};

/* Small sets use the thread's own place: its stack may be an alternate one, which is small. */
static __thread struct slot small[SMALL];
static __thread bool small_used;

/* Registers the sleeper with a socket. */
static void lie_down(struct slot *t, const struct pollfd *fds)
{
	ds_critical_begin();
	ds_wait_begin(t->c->s);
	t->waiting = true;
	if (ds_bell(t->c->s) >= 0) {
		t->had = ds_arm(t->c->s, poll_plain((unsigned short)fds[t->at].events));
		t->armed = true;
	}
	ds_critical_end();
}

static void asleep_end(struct waiting *w)
{
	for (nfds_t i = 0; i < w->n; i++) {
		struct slot *t = &w->slots[i];
		ds_critical_begin();
		if (t->armed)
			ds_disarm(t->c->s, t->had);
		if (t->waiting)
			ds_wait_end(t->c->s);
		t->armed = t->waiting = false;
		ds_critical_end();
	}
}

static void waiting_end(struct waiting *w)
{
	asleep_end(w);
	for (nfds_t i = 0; i < w->n; i++)
		conn_put(w->slots[i].c);
	if (w->map)
		munmap(w->map, w->size);
	w->map = NULL;
	w->n = 0;
	if (w->local)
		small_used = false;
}

/* A jump leaves the call that has the set: struct waiting *. */
static void jumped(void *set) { waiting_end(set); }

static void guard_end(struct waiting *w)
{
	ds_critical_begin();
	ds_cleanup_pop(w->cleanup);
	waiting_end(w);
	ds_critical_end();
}

/* Makes room for ours sockets of a set of n: *k for the kernel's set, few if it is large enough. False: no memory. */
static bool make_room(struct waiting *w, nfds_t n, nfds_t ours, struct pollfd *few, struct pollfd **k)
{
	ds_critical_begin();
	w->cleanup = ds_cleanup_push(jumped, w);
	w->local = ours <= SMALL && !small_used;
	small_used |= w->local;
	*k = few;
	if (!w->local || n + 2 * ours > SMALL_FDS) {
		w->size = (n + 2 * ours) * sizeof **k + ours * sizeof *w->slots;
		void *p = mmap(NULL, w->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		w->map = p == MAP_FAILED ? NULL : p;
		*k = (struct pollfd *)((char *)p + ours * sizeof *w->slots);
	}
	w->slots = w->local ? small : w->map;
	ds_critical_end();
	if (w->slots && (w->map || *k == few))
		return true;
	errno = ENOMEM;
	return false;
}

/* Puts the conn of the i-th of the set into w, if it is one that the core knows. */
static void join(struct waiting *w, int fd, nfds_t i)
{
	ds_critical_begin();
	struct conn *c = conn_get(fd);

	if (c && c->state == CONN_PENDING)
		conn_completed(c, fd);
	if (c && c->state == CONN_UP) {
		if (__atomic_load_n(&c->armed, __ATOMIC_RELAXED))
			ep_active(c);
		w->slots[w->n] = (struct slot){.c = c, .at = i};
		w->n++;
	} else if (c) {
		conn_put(c);
	}
	ds_critical_end();
}

/* What holds now; counts the entries that are ready. */
static int look(struct waiting *w, struct pollfd *fds)
{
	int ready = 0;

	for (nfds_t i = 0; i < w->n; i++) {
		struct slot *t = &w->slots[i];
		struct pollfd *p = &fds[t->at];
		unsigned asked = (unsigned short)p->events;
		struct ds_ready r = ds_ready(t->c->s, p->fd, poll_plain(asked) | POLLHUP | POLLERR);
		t->direct = ds_direct(t->c->s) == 3;
		t->kernel = poll_synonyms(r.kernel, POLLRDNORM | POLLWRNORM) | POLLPRI | POLLRDBAND | POLLWRBAND | POLLMSG;
		p->revents = (short)(poll_synonyms(r.now, asked) & (asked | POLLERR | POLLHUP));
		ready += p->revents != 0;
	}
	return ready;
}

static int raw_poll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	return REAL(ppoll)(fds, n, t, mask);
}

/* The kernel's array: the program's, with the shadows asked only for what they decide;
 * then, to sleep, bells and kicks. Returns its length. */
static nfds_t kernel_set(struct waiting *w, const struct pollfd *fds, nfds_t n, struct pollfd *k, bool sleep)
{
	nfds_t len = n;

	memcpy(k, fds, n * sizeof *k);
	for (nfds_t i = 0; i < w->n; i++) {
		struct slot *t = &w->slots[i];
		struct pollfd *p = &k[t->at];
		p->events = (short)((unsigned short)p->events & t->kernel);
		if (p->events == 0 && !(t->kernel & (POLLERR | POLLHUP)))
			p->fd = -1;
		t->extras = 0;
		t->extra = len;
		if (!sleep)
			continue;
		int bell = t->armed && t->had ? ds_bell(t->c->s) : -1, kick = ds_kick(t->c->s);
		if (bell >= 0)
			k[len++] = (struct pollfd){bell, POLLIN, 0};
		if (kick >= 0)
			k[len++] = (struct pollfd){kick, POLLIN, 0};
		t->extras = (int)(len - t->extra);
	}
	return len;
}

/* Puts the kernel's answers beside ours. Returns the entries that are ready. */
static int merge(struct waiting *w, struct pollfd *fds, nfds_t n, const struct pollfd *k)
{
	int ready = 0;
	nfds_t next = 0;

	for (nfds_t i = 0; i < n; i++) {
		if (next < w->n && w->slots[next].at == i) {
			unsigned r = (unsigned short)k[i].revents & (w->slots[next].kernel | POLLNVAL);
			fds[i].revents |= (short)(k[i].fd < 0 ? 0 : r & ((unsigned short)fds[i].events | POLLERR | POLLHUP | POLLNVAL));
			next++;
		} else {
			fds[i].revents = k[i].revents;
		}
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* The set has sockets of ours: w. */
static int poll_mixed(struct waiting *w, struct pollfd *fds, nfds_t n, struct pollfd *k, const struct timespec *timeout, const sigset_t *mask)
{
	static const struct timespec zero;
	struct timespec deadline, left;
	bool poll = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
	struct ds_spin spin;
	bool bells = false, slept = false;
	int rc;

	if (timeout && !poll)
		deadline_set(&deadline, timeout);
	int ready = look(w, fds);
	bool all_ours = w->n == n;
	for (nfds_t i = 0; i < w->n; i++) {
		all_ours = all_ours && w->slots[i].direct;
		bells = bells || ds_bell(w->slots[i].c->s) >= 0;
	}
	if (ready > 0 && all_ours)
		return ready;
	if (ready > 0 || poll || (bells && !all_ours)) {
		rc = raw_poll(k, kernel_set(w, fds, n, k, false), &zero, mask);
		if (rc < 0 && ready == 0)
			return rc;
		if (rc >= 0 && (merge(w, fds, n, k) > 0 || poll))
			return merge(w, fds, n, k);
		if (ready > 0)
			return ready;
	}
	if (bells && !poll) {
		ds_spin_begin(&spin, w->n == 1 ? w->slots[0].c->s : NULL);
		while (ready == 0 && ds_spin_more(&spin))
			ready = look(w, fds);
		if (ready > 0) {
			ds_spin_end(&spin, w->n == 1 ? w->slots[0].c->s : NULL, true);
			for (nfds_t i = 0, next = 0; i < n; i++) {
				if (next < w->n && w->slots[next].at == i)
					next++;
				else
					fds[i].revents = 0;
			}
			return ready;
		}
	}
	for (;;) {
		bool follow = false, armed = false;
		const struct timespec *t = NULL;
		for (nfds_t i = 0; i < w->n; i++) {
			struct slot *s = &w->slots[i];
			lie_down(s, fds);
			armed |= s->armed;
			follow |= s->armed && !s->had;
		}
		if (armed)
			ds_barrier();
		ready = look(w, fds);
		if (ready > 0) {
			asleep_end(w);
			rc = raw_poll(k, kernel_set(w, fds, n, k, false), &zero, NULL);
			return rc < 0 ? ready : merge(w, fds, n, k);
		}
		if (timeout) {
			deadline_left(&deadline, &left);
			t = &left;
		}
		if (follow && (!t || left.tv_sec > 0 || left.tv_nsec > DS_FOLLOW_MS * 1000000L)) {
			left = (struct timespec){0, DS_FOLLOW_MS * 1000000L};
			t = &left;
		}
		rc = raw_poll(k, kernel_set(w, fds, n, k, true), t, mask);
		int err = errno;
		if (bells && !slept)
			ds_spin_end(&spin, w->n == 1 ? w->slots[0].c->s : NULL, false);
		slept = true;
		for (nfds_t i = 0; i < w->n && rc > 0; i++) {
			struct slot *s = &w->slots[i];
			bool rung = false;
			for (int x = 0; x < s->extras; x++)
				rung |= k[s->extra + (nfds_t)x].revents != 0;
			if (rung)
				ds_rung(s->c->s, fds[s->at].fd);
		}
		asleep_end(w);
		if (rc < 0) {
			errno = err;
			return rc;
		}
		look(w, fds);
		ready = merge(w, fds, n, k);
		if (ready > 0 || (timeout && !deadline_left(&deadline, &left)))
			return ready;
	}
}

int wait_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	nfds_t ours = 0;

	for (nfds_t i = 0; i < n; i++) {
		uintptr_t w = fd_word(fds[i].fd);
		if ((w & 3) == FD_CONN)
			ours++;
		else if (word_epi(w))
			epi_settle(word_epi(w), false);
	}
	if (ours == 0)
		return raw_poll(fds, n, timeout, mask);

	struct pollfd few[SMALL_FDS], *k;
	__attribute__((cleanup(guard_end))) struct waiting w = {.cleanup = -1};

	if (!make_room(&w, n, ours, few, &k))
		return -1;
	for (nfds_t i = 0; i < n && w.n < ours; i++)
		join(&w, fds[i].fd, i);
	if (w.n == 0)
		return raw_poll(fds, n, timeout, mask);
	return poll_mixed(&w, fds, n, k, timeout, mask);
}

/* ---- select --------------------------------------------------------------- */

typedef unsigned long word;
enum { BITS = sizeof(word) * CHAR_BIT };

static inline word bits_of(const fd_set *s, int i)
{
	return s ? ((const word *)s)[i] : 0;
}

static inline bool has(const fd_set *s, int fd)
{
	return s && (((const word *)s)[fd / BITS] >> (fd % BITS) & 1);
}

static int select_poll(int n, int count, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask, struct pollfd *p)
{
	int k = 0, rc, total = 0;

	for (int i = 0; i < (n + BITS - 1) / BITS; i++) {
		word any = bits_of(in, i) | bits_of(out, i) | bits_of(except, i);
		for (; any && k < count; any &= any - 1) {
			int fd = i * (int)BITS + __builtin_ctzl(any);
			if (fd >= n)
				break;
			p[k++] = (struct pollfd){fd, (short)((has(in, fd) ? POLLIN : 0) | (has(out, fd) ? POLLOUT : 0) | (has(except, fd) ? POLLPRI : 0)), 0};
		}
	}
	rc = wait_poll(p, (nfds_t)k, timeout, mask);
	if (rc < 0)
		return rc;
	for (int i = 0; i < k; i++)
		if (p[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	size_t bytes = (size_t)((n + BITS - 1) / BITS) * sizeof(word);
	fd_set *sets[3] = {in, out, except};
	static const short yes[3] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
	static const short asked[3] = {POLLIN, POLLOUT, POLLPRI};
	for (int s = 0; s < 3; s++) {
		if (!sets[s])
			continue;
		memset(sets[s], 0, bytes);
		for (int i = 0; i < k; i++)
			if ((p[i].events & asked[s]) && (p[i].revents & yes[s])) {
				((word *)sets[s])[p[i].fd / BITS] |= 1ul << (p[i].fd % BITS);
				total++;
			}
	}
	return total;
}

int wait_select(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask, struct timespec *left)
{
	struct pollfd few[SMALL_FDS], *p = few;
	struct timespec deadline;
	int count = 0, rc;

	for (int i = 0; i < (n + BITS - 1) / BITS; i++)
		count += __builtin_popcountl(bits_of(in, i) | bits_of(out, i) | bits_of(except, i));
	size_t size = (size_t)count * sizeof *p;
	if (count > SMALL_FDS) {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			errno = ENOMEM;
			return -1;
		}
	}
	if (timeout)
		deadline_set(&deadline, timeout);
	rc = select_poll(n, count, in, out, except, timeout, mask, p);
	if (timeout && left)
		deadline_left(&deadline, left);
	if (p != few)
		munmap(p, size);
	return rc;
}
