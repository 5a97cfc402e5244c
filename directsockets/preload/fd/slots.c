#include "fd/epoll.h"
#include "fd/slots.h"

#include <errno.h>
#include <sys/mman.h>

enum { SMALL = 4 };

/* Memory for a large set, which stays for the next call. */
struct room {
	size_t size; /* of the mapping */
};
enum { ROOM_HEAD = 64, ROOM_KEPT = 1 << 20, ROOMS = 8 };
static struct room *kept[ROOMS];

/* Small sets use memory of the thread: its stack may be an alternate one, which is small. */
static DS_LOCAL struct slot thread_small[SMALL];
static DS_LOCAL bool thread_small_used;
#define small DS_HERE(thread_small)
#define small_used DS_HERE(thread_small_used)

/* Where a thread looks for memory first: threads that wait at the same time have different ones. */
static struct room **kept_here(void) { return &kept[ds_me() % ROOMS]; }

void slots_sleep(struct slot *t, const struct pollfd *fds)
{
	ds_critical_begin();
	ds_wait_begin(t->c->life.s);
	t->waiting = true;
	if (ds_bell(t->c->life.s) >= 0) {
		t->had = ds_arm(t->c->life.s, poll_plain((unsigned short)fds[t->at].events));
		t->armed = true;
		t->follows = !t->had;
		t->far = t->follows && !ds_follow(t->c->life.s);
		if (t->had)
			ds_lead_listen(t->c->life.s, fds[t->at].fd, poll_plain((unsigned short)fds[t->at].events));
	}
	ds_critical_end();
}

void slots_wake(struct waiting *w)
{
	for (nfds_t i = 0; i < w->n; i++) {
		struct slot *t = &w->slots[i];
		ds_critical_begin();
		if (t->follows)
			ds_follow_end(t->c->life.s);
		if (t->armed)
			ds_disarm(t->c->life.s, t->had);
		if (t->waiting)
			ds_wait_end(t->c->life.s);
		t->armed = t->waiting = t->follows = false;
		ds_critical_end();
	}
}

/* Memory of size bytes after a struct room; NULL: there is none. */
static struct room *room_get(size_t size)
{
	struct room *r = __atomic_exchange_n(kept_here(), NULL, __ATOMIC_ACQ_REL);

	size += ROOM_HEAD;
	if (r && r->size >= size)
		return r;
	if (r)
		REAL(munmap, r, r->size);
	r = REAL(mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r == MAP_FAILED)
		return NULL;
	r->size = size;
	return r;
}

/* Gives r back. */
static void room_put(struct room *r)
{
	if (r->size <= ROOM_KEPT)
		r = __atomic_exchange_n(kept_here(), r, __ATOMIC_ACQ_REL);
	if (r)
		REAL(munmap, r, r->size);
}

/* Gives back all that w has. */
static void waiting_end(struct waiting *w)
{
	slots_wake(w);
	for (nfds_t i = 0; i < w->n; i++)
		conn_put(w->slots[i].c);
	if (w->map)
		room_put(w->map);
	w->map = NULL;
	w->n = 0;
	if (w->local)
		small_used = false;
}

/* A jump leaves the call that has the set: struct waiting *. */
static void jumped(void *set) { waiting_end(set); }

void slots_end(struct waiting *w)
{
	ds_critical_begin();
	ds_cleanup_pop(w->cleanup);
	waiting_end(w);
	ds_critical_end();
}

bool slots_begin(struct waiting *w, nfds_t n, nfds_t ours, struct pollfd *few, struct pollfd **k)
{
	ds_critical_begin();
	w->cleanup = ds_cleanup_push_frame(jumped, w);
	w->local = ours <= SMALL && !small_used;
	small_used |= w->local;
	*k = few;
	if (!w->local || n + 2 * ours > SMALL_FDS) {
		w->map = room_get((n + 2 * ours) * sizeof **k + ours * sizeof *w->slots);
		*k = (struct pollfd *)((char *)w->map + ROOM_HEAD + ours * sizeof *w->slots);
	}
	w->slots = w->local ? small : w->map ? (struct slot *)((char *)w->map + ROOM_HEAD) : NULL;
	ds_critical_end();
	if (w->slots && (w->map || *k == few))
		return true;
	errno = ENOMEM;
	return false;
}

void slots_join(struct waiting *w, int fd, nfds_t i)
{
	ds_critical_begin();
	struct conn *c = conn_get(fd);

	if (c && conn_is(c) == CONN_CONNECTING)
		conn_completed(c, fd);
	if (c && ds_life_settles(&c->life)) /* by another thread: without the handle nothing tells of what comes by memory */
		ds_life_settle(&c->life, fd);
	if (c && conn_is(c) == CONN_KNOWN) {
		if (__atomic_load_n(&c->armed, __ATOMIC_RELAXED))
			conn_active(c);
		w->slots[w->n] = (struct slot){.c = c, .at = i};
		w->n++;
	} else if (c) {
		conn_put(c);
	}
	ds_critical_end();
}

/* May a look at t's socket, whose entry of a large set is p, be left out, since nothing has come?
 * One that is early is looked at once in a call, unless a signal handler has run. */
static inline bool still(const struct waiting *w, struct slot *t, const struct pollfd *p)
{
	if (t->early)
		return ds_bell(t->c->life.s) < 0 && ds_handled() == w->handled;
	t->quiet = t->direct && !((unsigned short)p->events & (POLLOUT | POLLWRNORM)) && ds_quiet(t->c->life.s);
	return t->quiet;
}

/* Looks at c for t, whose entry is p. */
static inline void look_at(struct slot *t, struct conn *c, struct pollfd *p)
{
	unsigned asked = (unsigned short)p->events;
	struct ds_ready r = ds_ready(c->life.s, p->fd, poll_plain(asked) | POLLHUP | POLLERR);

	t->kernel = poll_synonyms(r.kernel, POLLRDNORM | POLLWRNORM) | POLLPRI | POLLRDBAND | POLLWRBAND | POLLMSG;
	p->revents = (short)(poll_synonyms(r.now, asked) & (asked | POLLERR | POLLHUP));
}

/* As slots_look_at, once the number of t is another file's: the kernel tells of what has the number
 * when it looks, too, though what had it when the call began wakes it. */
static bool look_by_number(struct slot *t, struct pollfd *p)
{
	t->direct = t->quiet = false;
	t->kernel = ~0u;
	p->revents = 0;
	ds_critical_begin();
	struct conn *c = conn_get(p->fd);
	if (c && conn_is(c) == CONN_KNOWN)
		look_at(t, c, p);
	if (c)
		conn_put(c);
	ds_critical_end();
	return p->revents != 0;
}

bool slots_look_at(const struct waiting *w, struct slot *t, struct pollfd *p)
{
	if (w->large && still(w, t, p)) {
		p->revents = 0;
		return false;
	}
	if (__builtin_expect(conn_still(t->c, p->fd) != p->fd, 0))
		return look_by_number(t, p);
	look_at(t, t->c, p);
	t->direct = ds_direct(t->c->life.s) == 3;
	return p->revents != 0;
}

int slots_look(struct waiting *w, struct pollfd *fds)
{
	int ready = 0;

	for (nfds_t i = 0; i < w->n; i++)
		ready += slots_look_at(w, &w->slots[i], &fds[w->slots[i].at]);
	return ready;
}

int slots_look_more(struct waiting *w, struct pollfd *fds)
{
	int ready = 0;

	for (nfds_t i = 0; i < w->n; i++)
		if (!fds[w->slots[i].at].revents)
			ready += slots_look_at(w, &w->slots[i], &fds[w->slots[i].at]);
	return ready;
}
