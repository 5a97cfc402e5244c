#include "fd/call.h"

#include <errno.h>

/* A jump leaves a call on a conn: struct conn *. */
static void jumped(void *p)
{
	struct conn *c = p;

	if (c->life.s)
		ds_jumped(c->life.s);
	conn_put(c);
}

/* A call on c by fd, which conn/ knows, has begun. */
static inline void begun(struct conn *c, int fd)
{
	if (__builtin_expect(__atomic_load_n(&c->armed, __ATOMIC_RELAXED), 0))
		conn_active(c);
	if (__atomic_load_n(&c->lastfd, __ATOMIC_RELAXED) != fd)
		__atomic_store_n(&c->lastfd, fd, __ATOMIC_RELAXED);
}

/* Is fd a standard stream, whose bytes the kernel moves? The C library may have made it a file
 * since, as freopen and daemon do. c is up. */
static inline bool is_stream(const struct conn *c, int fd) { return fd <= STDERR_FILENO && ds_is_stream(c->life.s); }

/* c, which is held, is a conn that conn/ knows: the call on it begins. In a critical section, which
 * ends. */
static inline struct call known(struct conn *c, int fd, int before)
{
	struct call k = {.c = c, .slot = ds_cleanup_push(jumped, c)};

	ds_critical_leave(before);
	begun(c, fd);
	return k;
}

/* Does a call on a conn in this state begin otherwise than by the kernel alone? */
static bool begins(int state) { return state == CONN_KNOWN || state == CONN_SETTLING || state == CONN_CONNECTING || state == CONN_UNCOUNTED; }

/* A call on c, which is held, begins, in a critical section, which ends. Makes the handle of c, if
 * it is connected: that takes time, in which another thread may close fd, and the call is on c all
 * the same. False: c is about to have a handle, and the caller, which has c still, looks again. */
static bool begin_held(struct call *k, struct conn *c, int fd, int before)
{
	int state = conn_is(c);
	bool makes = state == CONN_CONNECTING || state == CONN_UNCOUNTED;

	if (makes)
		conn_completed(c, fd);
	if (ds_life_counts(&c->life)) {
		*k = known(c, makes ? conn_still(c, fd) : fd, before);
		k->late = makes;
		return true;
	}
	if ((makes || state == CONN_SETTLING) && ds_life_count(&c->life)) {
		k->slot = ds_cleanup_push(uncounted_jumped, c);
		k->early = c;
		k->late = makes;
	} else if ((state = conn_is(c)) == CONN_KNOWN || state == CONN_SETTLING) {
		return false;
	} else {
		conn_put(c);
	}
	ds_critical_leave(before);
	return true;
}

/* As begin, which found that fd is changing, or that conn/ may not know its conn. Until that is
 * held another thread may close fd, and open it again, or give the number to another: what was seen
 * of it before counts for nothing. */
static __attribute__((noinline)) struct call begin_slowly(int fd)
{
	struct call k = {.slot = -1};

	for (;;) {
		uintptr_t w = fd_settled(fd);
		struct conn *c = word_conn(w);

		if (!c || !begins(conn_is(c))) {
			k.dgram = word_dgram(w) != NULL;
			return k;
		}
		int before = ds_critical_enter();
		if (word_held(fd, w, &c->users) && begin_held(&k, c, fd, before))
			return k;
		conn_put(c);
		ds_critical_leave(before);
	}
}

/* Gives back what begin has taken, and begins again. */
static __attribute__((noinline)) struct call begin_again(struct conn *c, int before, int fd)
{
	conn_put(c);
	ds_critical_leave(before);
	return begin_slowly(fd);
}

/* As call_begin_any, with few instructions for a conn that is up. */
static inline struct call begin(int fd, uintptr_t w)
{
	struct conn *c = word_conn(w);

	if (!c && w != FD_CHANGING)
		return (struct call){.slot = -1, .dgram = word_dgram(w) != NULL};
	if (__builtin_expect(!c || conn_is(c) != CONN_KNOWN, 0))
		return begin_slowly(fd);
	int before = ds_critical_enter();
	conn_hold(c);
	if (__builtin_expect(fd_word(fd) != w || conn_is(c) != CONN_KNOWN, 0))
		return begin_again(c, before, fd);
	return known(c, fd, before);
}

/* Is w a socket that is up, and fd no standard stream? Most calls are on such. */
static inline bool is_up(int fd, uintptr_t w)
{
	struct conn *c = word_conn(w);

	return __builtin_expect(fd > STDERR_FILENO && c && conn_is(c) == CONN_KNOWN, 1);
}

struct call call_begin(int fd, uintptr_t w)
{
	struct conn *c = fd <= STDERR_FILENO ? word_conn(w) : NULL;

	if (__builtin_expect(c != NULL, 0) && conn_is(c) == CONN_KNOWN && is_stream(c, fd))
		return (struct call){.slot = -1};
	struct call k = begin(fd, w);
	if (__builtin_expect(fd <= STDERR_FILENO, 0) && k.c && is_stream(k.c, fd)) { /* another one by now */
		call_end(&k);
		k = (struct call){.slot = -1};
	}
	return k;
}

struct call call_begin_any(int fd, uintptr_t w) { return begin(fd, w); }

/* The call of k, on an uncounted conn, goes on as one that conn/ knows, if it does. */
static void grow(struct call *k, int fd)
{
	struct conn *c = k->early;

	ds_life_settle(&c->life, fd);
	k->late = true;
	fd = conn_still(c, fd);
	if (conn_is(c) != CONN_KNOWN || is_stream(c, fd))
		return;
	int before = ds_critical_enter();
	ds_cleanup_pop(k->slot);
	ds_life_uncount(&c->life);
	k->slot = ds_cleanup_push(jumped, c);
	k->c = c;
	k->early = NULL;
	ds_critical_leave(before);
	begun(c, fd);
}

/* As call_begin, of a call that may sleep if waits. One that begins while another thread makes the
 * handle of its conn would sleep in the kernel as a user of the shadow, which keeps the conn on TCP
 * until it ends: it waits for the handle. */
struct call call_waiting(int fd, uintptr_t w, bool waits)
{
	struct call k = call_begin(fd, w);
	int saved = errno;

	if (__builtin_expect(k.early != NULL, 0) && waits && !ds_life_nonblock(&k.early->life))
		grow(&k, call_fd(&k, fd));
	errno = saved;
	return k;
}

/* As call_uncounted; in: as call_uncounted_in. */
static __attribute__((noinline)) struct call uncounted(int fd, uintptr_t w, bool waits, bool in)
{
	struct conn *c = word_conn(w);
	struct call k = {.slot = -1};

	if (c && conn_is(c) == CONN_UNCOUNTED) {
		bool sleeps = waits && !ds_life_nonblock(&c->life) && !ds_one_thread();
		/* Only from uncounted_count on, which takes a reference, is it certain that c is
		 * still uncounted. */
		if ((!sleeps || (in && __atomic_load_n(&c->life.nonblock, __ATOMIC_RELAXED) == DS_NONBLOCK_NO)) && uncounted_count(&k, c, fd, w)) {
			if (!ds_ripe(&c->life.traffic, c->life.side, fd)) {
				/* A thread that waits for an answer does so in the kernel: no other
				 * is likely to want the conn until it comes. */
				k.waits = sleeps && __atomic_load_n(&c->life.traffic.sender, __ATOMIC_RELAXED) != ds_me();
				return k;
			}
			call_end(&k);
			k.early = NULL;
		}
	}
	return call_waiting(fd, w, waits);
}

struct call call_uncounted(int fd, uintptr_t w, bool waits) { return is_up(fd, w) ? begin(fd, w) : uncounted(fd, w, waits, false); }
struct call call_uncounted_in(int fd, uintptr_t w, bool waits) { return is_up(fd, w) ? begin(fd, w) : uncounted(fd, w, waits, true); }

/* Is a send by the kernel on the word w, of fd, a matter of the kernel alone? */
static bool kernels(int fd, uintptr_t w)
{
	struct conn *c = word_conn(w);
	struct ds_dgram *d = word_dgram(w);
	int state = c ? conn_is(c) : CONN_PLAIN;

	if (d)
		return __atomic_load_n(&d->hard, __ATOMIC_RELAXED);
	return !begins(state) || state == CONN_CONNECTING || (state == CONN_KNOWN && fd <= STDERR_FILENO && is_stream(c, fd));
}

bool call_by_kernel_where_threads(const struct call *k, int *fd, struct ds_by_number *by)
{
	struct conn *c = k->c ? k->c : k->early;

	if (c) {
		ds_by_number_begin(by, &c->life.numbered, false);
		*fd = conn_still(c, *fd);
		return true;
	}
	uintptr_t w = fd_settled(*fd);
	struct ds_numbered *n = word_numbered(w);
	if (!n || fd_vforked()) /* the numbers of a child of vfork are its own */
		return true;
	if (!ds_by_number_same(by, n, fd_number(*fd, w)))
		return false;
	/* From here on it is that file, which may be another one than when the call began. */
	if (kernels(*fd, w))
		return true;
	ds_by_number_end(by); /* before the hook begins anew, and waits for the number */
	return false;
}

bool call_waited(struct call *k, int *fd)
{
	static const struct timespec most = {0, CALL_WAIT_MS * 1000000L};
	struct pollfd p = {.fd = *fd, .events = POLLIN};
	int saved = errno, got = REAL(ppoll, &p, 1, &most, NULL);
	bool interrupted = got < 0 && errno == EINTR;

	k->waits = false;
	*fd = conn_still(k->early, *fd); /* another thread may have closed it */
	if (interrupted && !ds_recv_restarts(*fd)) {
		errno = EINTR;
		return false;
	}
	errno = saved;
	if (got <= 0)
		grow(k, *fd);
	*fd = call_fd(k, *fd);
	return true;
}

struct call call_uncounted_any(int fd, uintptr_t w) { return fd <= STDERR_FILENO ? begin(fd, w) : call_uncounted(fd, w, false); }

void call_end(struct call *k)
{
	struct conn *c = k->early ? k->early : k->c;

	if (!c)
		return;
	int before = ds_critical_enter();
	ds_cleanup_pop(k->slot);
	if (__builtin_expect(k->early != NULL, 0))
		ds_life_uncount(&c->life);
	conn_put(c);
	ds_critical_leave(before);
}
