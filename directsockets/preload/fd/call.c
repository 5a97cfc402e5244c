#include "fd/call.h"

/* A jump leaves a call on a conn: struct conn *. */
static void jumped(void *p)
{
	struct conn *c = p;

	if (c->s)
		ds_jumped(c->s);
	conn_put(c);
}

/* As call_begin_any. */
static inline struct call begin(int fd, uintptr_t w)
{
	struct call k = {NULL, -1, NULL};
	struct conn *c = word_conn(w);

	if (!c)
		return k;
	if (__builtin_expect(conn_is(c) != CONN_UP, 0) && young_begin(&k, c, fd, w))
		return k;
	int before = ds_critical_enter();
	conn_hold(c);
	if (__builtin_expect(fd_word(fd) != w, 0)) {
		conn_put(c);
		ds_critical_leave(before);
		return k;
	}
	k.slot = ds_cleanup_push(jumped, c);
	k.c = c;
	ds_critical_leave(before);
	if (__builtin_expect(__atomic_load_n(&c->armed, __ATOMIC_RELAXED), 0))
		conn_active(c);
	if (__atomic_load_n(&c->lastfd, __ATOMIC_RELAXED) != fd)
		__atomic_store_n(&c->lastfd, fd, __ATOMIC_RELAXED);
	return k;
}

struct call call_begin(int fd, uintptr_t w)
{
	struct conn *c = fd <= STDERR_FILENO ? word_conn(w) : NULL;

	/* The C library may have made it a file since, as freopen and daemon do. */
	if (__builtin_expect(c != NULL, 0) && conn_is(c) == CONN_UP && ds_is_stream(c->s))
		return (struct call){NULL, -1, NULL};
	return begin(fd, w);
}

struct call call_begin_any(int fd, uintptr_t w) { return begin(fd, w); }

struct call call_young(int fd, uintptr_t w, bool waits)
{
	struct conn *c = word_conn(w);
	struct call k = {NULL, -1, NULL};

	if (c && conn_is(c) == CONN_PENDING && c->young &&
	    (!waits || __atomic_load_n(&c->blocking, __ATOMIC_RELAXED) == 2 || ds_one_thread()) && !ds_ripe(&c->begun, c->side, fd) &&
	    young_count(&k, c, fd, w))
		return k;
	return call_begin(fd, w);
}

struct call call_young_any(int fd, uintptr_t w) { return fd <= STDERR_FILENO ? begin(fd, w) : call_young(fd, w, false); }

void call_end(struct call *k)
{
	if (__builtin_expect(k->early != NULL, 0)) {
		int before = ds_critical_enter();
		ds_cleanup_pop(k->slot);
		young_end(k->early);
		conn_put(k->early);
		ds_critical_leave(before);
	}
	if (!k->c)
		return;
	int before = ds_critical_enter();
	ds_cleanup_pop(k->slot);
	conn_put(k->c);
	ds_critical_leave(before);
}
