#include "fd/fdtab.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* Added to the users of a conn on the free list: see conn_put. */
enum { FREE = 1 << 29 };

uintptr_t *fd_tab DS_START_DATA;
unsigned fd_tab_size DS_START_DATA;
unsigned fd_tab_end;
bool fd_sealed;
const struct fd_notices *fd_notices DS_START_DATA;
DS_LOCAL int fd_thread_vforks;
bool *fd_sure = &(bool){false};

static struct conn *pool;
static unsigned pool_used;	 /* conns ever taken from the pool */
static uint64_t free_head;	 /* tag in the high half, index + 1 in the low */
static pid_t own_pid;
static bool doubt = true; /* what *fd_sure is to say after a fork */
static bool doubted;	  /* fd_doubt was called */

DS_START void fd_tell(const struct fd_notices *to) { fd_notices = to; }

/* Notes which process this is: when it makes the table or others that share its memory. 0: it has
 * done neither. */
static void own(void)
{
	if (!own_pid)
		own_pid = kernel_getpid();
}

/* From now on the kernel need not be asked which process this is: p is a page for *fd_sure. */
static void be_sure(void *p)
{
	if (doubted || kernel_madvise(p, (size_t)getpagesize(), MADV_WIPEONFORK) != 0)
		return;
	*(bool *)p = true;
	fd_sure = p;
	doubt = false;
}

void fd_doubt(void)
{
	own(); /* before there is another */
	doubt = doubted = true;
	__atomic_store_n(fd_sure, false, __ATOMIC_RELAXED);
}

/* What the table and the pool lie in, behind the page of *fd_sure. No small place, into which an
 * address may point that a program has given back. */
static struct region {
	size_t n;
	struct conn pool[];
} *region;

/* Makes the region: NULL, there is no memory for it. */
static struct region *region_make(void)
{
	struct rlimit lim;
	size_t n = TABLE_MAX;

	if (kernel_getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_max < n)
		n = lim.rlim_max;
	const size_t page = (size_t)getpagesize(), room = page + sizeof *region + n * (sizeof *pool + sizeof *fd_tab);
	struct region *none = NULL, *r;
	char *p = REAL(mmap, NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	r = (struct region *)(void *)(p + page);
	r->n = n;
	if (!__atomic_compare_exchange_n(&region, &none, r, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		REAL(munmap, p, room); /* another thread, or a handler, was faster */
		return none;
	}
	own();
	be_sure(p);
	return r;
}

bool fd_table(void)
{
	if (__builtin_expect(__atomic_load_n(&fd_tab_size, __ATOMIC_ACQUIRE) != 0, 1))
		return true;
	if (fd_vforked())
		return false;
	int saved = errno;
	struct region *r = __atomic_load_n(&region, __ATOMIC_ACQUIRE);
	if (!r)
		r = region_make();
	if (r) { /* whoever comes here at the same time stores the same */
		__atomic_store_n(&pool, r->pool, __ATOMIC_RELAXED);
		__atomic_store_n(&fd_tab, (uintptr_t *)(void *)(r->pool + r->n), __ATOMIC_RELAXED);
		__atomic_store_n(&fd_tab_size, (unsigned)r->n, __ATOMIC_RELEASE);
	}
	errno = saved;
	return r != NULL;
}

void fd_after_fork(void)
{
	/* Only what changes: a page that is not written stays the parent's. */
	if (own_pid)
		own_pid = kernel_getpid();
	if (fd_vforks)
		fd_vforks = 0;
	if (*fd_sure == doubt)
		__atomic_store_n(fd_sure, !doubt, __ATOMIC_RELAXED);
}

bool fd_is_another(void)
{
	/* Without a doubt it was the kernel that has emptied the page. The ID may be the same in
	 * another PID namespace. */
	return own_pid && (!doubt || kernel_getpid() != own_pid);
}

bool fd_shares_memory(void) { return own_pid && kernel_getpid() != own_pid; }

uint32_t fd_process(void) { return fd_vforked() ? 0 : ds_name_process(); }

/* Writes w into the table for fd. */
static void set(int fd, uintptr_t w)
{
	unsigned end = __atomic_load_n(&fd_tab_end, __ATOMIC_RELAXED);

	while (end <= (unsigned)fd && !__atomic_compare_exchange_n(&fd_tab_end, &end, (unsigned)fd + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	__atomic_store_n(&fd_tab[fd], w, __ATOMIC_RELEASE);
}

/* ---- conns --------------------------------------------------------------- */

/* A conn nobody has; NULL: there are as many as descriptors. No lock. */
static struct conn *pool_take(void)
{
	uint64_t head = __atomic_load_n(&free_head, __ATOMIC_ACQUIRE);

	while ((uint32_t)head != 0) {
		struct conn *c = &pool[(uint32_t)head - 1];
		uint64_t want = ((head >> 32) + 1) << 32 | __atomic_load_n(&c->next, __ATOMIC_RELAXED);
		if (__atomic_compare_exchange_n(&free_head, &head, want, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return c;
	}
	unsigned i = __atomic_load_n(&pool_used, __ATOMIC_RELAXED);
	do {
		if (i >= fd_tab_size)
			return NULL;
	} while (!__atomic_compare_exchange_n(&pool_used, &i, i + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	__atomic_fetch_add(&pool[i].users, FREE, __ATOMIC_RELAXED);
	return &pool[i];
}

/* Puts c, which nobody has, on the free list. */
static void pool_give(struct conn *c)
{
	uint64_t head = __atomic_load_n(&free_head, __ATOMIC_RELAXED), want;

	do {
		__atomic_store_n(&c->next, (uint32_t)head, __ATOMIC_RELAXED);
		want = ((head >> 32) + 1) << 32 | (uint32_t)(c - pool + 1);
	} while (!__atomic_compare_exchange_n(&free_head, &head, want, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

/* The last reference is gone: closes the connection, whose descriptor is fd. */
static void conn_final(struct conn *c, int fd)
{
	if (c->members)
		fd_notices->forget(c);
	ds_life_end(&c->life, fd);
	if (c->closefd >= 0)
		ds_syscall(SYS_close, c->closefd); /* not a cancellation point */
	pool_give(c);
}

void conn_unused(struct conn *c)
{
	int zero = 0;

	if (__atomic_compare_exchange_n(&c->users, &zero, FREE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		conn_final(c, c->closefd);
}

bool conn_hold_live(struct conn *c)
{
	if (__atomic_load_n(&c->users, __ATOMIC_ACQUIRE) >= FREE)
		return false;
	conn_hold(c);
	if (__atomic_load_n(&c->users, __ATOMIC_ACQUIRE) < FREE)
		return true;
	conn_put(c);
	return false;
}

/* Standard streams are like all other descriptors. Set before the program runs. */
static bool streams_seen;

bool fd_is_stream(int fd) { return fd <= STDERR_FILENO && !streams_seen; }

/* As conn_new, but fd may be a standard stream. */
static struct conn *make(int fd, enum conn_event how, enum ds_nonblocking nonblock)
{
	if (fd_is_sealed() || !fd_table() || (unsigned)fd >= fd_tab_size || fd_vforked())
		return NULL;
	struct conn *c = pool_take();
	if (!c)
		return NULL;
	c->nfds = 1;
	c->closefd = -1;
	ds_life_begin(&c->life, how, nonblock);
	c->members = NULL;
	c->cookie = 0;
	c->armed = 0;
	c->lastfd = fd;
	c->doubled = false;
	c->blocked = 0;
	__atomic_fetch_add(&c->users, 1 - FREE, __ATOMIC_ACQ_REL);
	fd_was_closed(fd);
	set(fd, (uintptr_t)c | FD_CONN);
	return c;
}

struct conn *conn_new(int fd, enum conn_event how, enum ds_nonblocking nonblock)
{
	return fd_is_stream(fd) ? NULL : make(fd, how, nonblock);
}

struct conn *conn_inherited(int fd, int side)
{
	struct ds_sock *s = ds_inherited(fd, side);
	struct conn *c = s ? make(fd, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN) : NULL;

	if (s && !c)
		ds_close(s, fd);
	if (!c)
		return NULL;
	if (fd_is_stream(fd))
		ds_stream(s, true);
	ds_life_inherit(&c->life, s);
	return c;
}

void fd_streams_seen(void)
{
	streams_seen = true;
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		struct conn *c = word_conn(fd_word(fd));
		if (c && c->life.s)
			ds_stream(c->life.s, false);
	}
}

void conn_each(unsigned states, void (*fn)(struct conn *c, void *arg), void *arg)
{
	unsigned n = __atomic_load_n(&pool_used, __ATOMIC_ACQUIRE);

	for (unsigned i = 0; i < n; i++) {
		struct conn *c = &pool[i];
		if (!(states >> conn_is(c) & 1) || !conn_hold_live(c))
			continue;
		if (states >> conn_is(c) & 1)
			fn(c, arg);
		conn_put(c);
	}
}

void fd_forget(int fd)
{
	struct conn *c = word_conn(__atomic_exchange_n(&fd_tab[fd], 0, __ATOMIC_ACQ_REL));

	if (c)
		ds_life_forget(&c->life);
}

/* ---- descriptors --------------------------------------------------------- */

/* A descriptor of c other than fd, which goes; fd: there is none. */
static int other_fd(struct conn *c, int fd)
{
	for (unsigned i = 0; i < fd_tab_end; i++)
		if ((int)i != fd && word_conn(fd_word((int)i)) == c)
			return (int)i;
	return fd;
}

int conn_still(struct conn *c, int fd)
{
	int last = conn_fd(c), copy;

	if (__builtin_expect(word_conn(fd_word(fd)) == c, 1))
		return fd;
	while (!__atomic_load_n(&c->nfds, __ATOMIC_ACQUIRE) && __atomic_load_n(&c->users, __ATOMIC_ACQUIRE) < FREE) {
		if ((copy = __atomic_load_n(&c->closefd, __ATOMIC_ACQUIRE)) != -1)
			return copy;
		ds_syscall(SYS_sched_yield); /* closing() is about to make it */
	}
	return word_conn(fd_word(last)) == c ? last : other_fd(c, fd);
}

int conn_open(struct conn *c, int fd)
{
	/* closing() takes the number from the table and then looks at the state, this the other way
	 * round: one of them finds what the other has done. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(word_conn(fd_word(fd)) != c, 0))
		fd = other_fd(c, -1);
	return fd;
}

int fd_spare(int fd)
{
	int copy = REAL(fcntl, fd, F_DUPFD_CLOEXEC, 512);

	if (copy < 0)
		copy = REAL(fcntl, fd, F_DUPFD_CLOEXEC, 3);
	return copy < 0 ? NO_COPY : copy;
}

/* A standard stream that was c has gone: tells conn/, if it was the last. */
static void stream_ends(struct conn *c)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (word_conn(fd_word(fd)) == c)
			return;
	if (c->life.s && ds_one_thread()) /* otherwise a thread may sleep in a call on the stream */
		ds_stream(c->life.s, false);
}

/* How fd goes. Until CLOSED and CHANGES it names what the table says; CLOSED_BEHIND our back, it
 * names nothing of ours. */
enum going { CLOSED, CLOSED_BEHIND, CHANGES };

/* In a critical section: fd, which the table has, is about to be closed. Returns, of one that
 * CHANGES, what fd_changes does. */
static struct conn *closing(int fd, enum going how)
{
	uintptr_t w = __atomic_exchange_n(&fd_tab[fd], how == CHANGES ? FD_CHANGING : 0, __ATOMIC_SEQ_CST);
	struct conn *c = word_conn(w);
	if (c && ds_life_settles(&c->life)) /* by a thread that asks the kernel about fd: conn_open */
		ds_life_renumbered(&c->life);
	if (c && __atomic_sub_fetch(&c->nfds, 1, __ATOMIC_ACQ_REL) == 0) {
		int one = 1, copy = how == CHANGES ? fd_spare(fd) : NO_COPY;
		if (copy == NO_COPY && __atomic_compare_exchange_n(&c->users, &one, FREE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			conn_final(c, how == CLOSED_BEHIND ? NO_COPY : fd); /* the usual case: no other call on it */
			return NULL;
		}
		__atomic_store_n(&c->closefd, how == CLOSED ? fd_spare(fd) : copy, __ATOMIC_RELEASE);
		if (conn_is(c) == CONN_KNOWN && __atomic_load_n(&c->users, __ATOMIC_ACQUIRE) > 1)
			ds_renumbered(c->life.s);
		if (c->members) /* now: the number may be another socket's when that call ends */
			fd_notices->forget(c);
		if (how == CHANGES) {
			ds_by_number_await(&c->life.numbered); /* now that those that begin find the copy */
			return c;
		}
		if (how == CLOSED)
			ds_by_number_await_brief(&c->life.numbered);
		conn_put(c);
	} else if (c) {
		if (conn_fd(c) == fd)
			__atomic_store_n(&c->lastfd, other_fd(c, fd), __ATOMIC_RELAXED);
		if (c->members)
			fd_notices->orphan(c, fd);
		if (conn_is(c) == CONN_KNOWN && __atomic_load_n(&c->users, __ATOMIC_ACQUIRE) > 1)
			ds_renumbered(c->life.s);
		if (fd_is_stream(fd))
			stream_ends(c);
		if (how == CHANGES)
			ds_by_number_await(&c->life.numbered);
		else if (how == CLOSED)
			ds_by_number_await_brief(&c->life.numbered);
	} else if (word_dgram(w)) {
		struct ds_dgram *d = word_dgram(w);

		if (how == CHANGES)
			ds_by_number_await(&d->numbered);
		if (__atomic_sub_fetch(&d->nfds, 1, __ATOMIC_ACQ_REL) == 0) {
			if (fd_notices)
				fd_notices->dgram(d);
			ds_dg_put(d);
		} else if (fd_notices) {
			fd_notices->renumbered(d, fd);
		}
	} else if ((w & 3) == FD_LISTENER) {
		if (fd_notices)
			fd_notices->unlisten();
		ds_unlisten(fd);
	} else if (word_epi(w)) {
		fd_notices->close(word_epi(w), fd);
	}
	return NULL;
}

/* As closing, of a descriptor that the table may have. */
static void ends(int fd, enum going how)
{
	if (fd_word(fd) == 0 || fd_vforked())
		return;
	ds_critical_begin();
	closing(fd, how);
	ds_critical_end();
}

void fd_closing(int fd) { ends(fd, CLOSED); }
void fd_was_closed(int fd) { ends(fd, CLOSED_BEHIND); }

/* ---- duplicates ------------------------------------------------------------ */

static struct ds_lock numbers;

void fd_numbers_lock(void)
{
	if (ds_one_thread())
		ds_critical_begin();
	else
		ds_own_again(&numbers);
}

void fd_numbers_unlock(void)
{
	if (__atomic_load_n(&numbers.word, __ATOMIC_RELAXED) == 0)
		ds_critical_end();
	else
		ds_own_unlock(&numbers);
}

void fd_numbers_child(void)
{
	fd_numbers_unlock();
	numbers = (struct ds_lock){0};
}

struct conn *fd_changes(int fd) { return closing(fd, CHANGES); }

void fd_changed(int fd)
{
	uintptr_t changing = FD_CHANGING;

	__atomic_compare_exchange_n(&fd_tab[fd], &changing, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

uintptr_t fd_wait(int fd)
{
	if (ds_own_lock(&numbers) == DS_NESTED)
		return 0;
	fd_changed(fd); /* a jump out of a fault's handler has left who changed it */
	uintptr_t w = fd_word(fd);
	ds_own_unlock(&numbers);
	return w;
}

uint64_t fd_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof cookie;
	int saved = errno;

	if (REAL(getsockopt, fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) != 0)
		cookie = 0;
	errno = saved;
	return cookie;
}

void conn_note(int fd)
{
	uintptr_t w = fd_word(fd);
	struct conn *c = word_conn(w);
	uint64_t none = 0, cookie = c && c->cookie == 0 ? fd_cookie(fd) : 0;

	if (cookie && fd_word(fd) == w) /* the parent's other threads run on */
		__atomic_compare_exchange_n(&c->cookie, &none, cookie, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

uint64_t conn_cookie(const struct conn *c) { return c->cookie ? c->cookie : fd_cookie(conn_fd(c)); }

void fd_copy(int newfd, uintptr_t w)
{
	struct conn *c = word_conn(w);

	if (c)
		__atomic_fetch_add(&c->nfds, 1, __ATOMIC_ACQ_REL);
	else if (word_dgram(w))
		__atomic_fetch_add(&word_dgram(w)->nfds, 1, __ATOMIC_ACQ_REL);
	else if (word_epi(w))
		fd_notices->dup(word_epi(w));
	set(newfd, w);
}

void fd_set_conn(int fd, struct conn *c)
{
	if ((unsigned)fd >= fd_tab_size)
		return;
	fd_was_closed(fd);
	__atomic_fetch_add(&c->nfds, 1, __ATOMIC_ACQ_REL);
	if (fd_is_stream(fd) && c->life.s)
		ds_stream(c->life.s, true);
	set(fd, (uintptr_t)c | FD_CONN);
}

void fd_set_dgram(int fd, int family, enum ds_nonblocking nonblock)
{
	if (fd_is_sealed() || !fd_table() || (unsigned)fd >= fd_tab_size || fd_vforked())
		return;
	ds_critical_begin();
	fd_was_closed(fd);
	struct ds_dgram *d = ds_dg_new(family, nonblock);
	if (d)
		set(fd, (uintptr_t)d | FD_LISTENER);
	ds_critical_end();
}

struct ds_dgram *dgram_get(int fd, uintptr_t w)
{
	struct ds_dgram *d = word_dgram(w);

	if (!d || __builtin_expect(fd_vforked(), 0))
		return NULL;
	if (word_held(fd, w, &d->users))
		return d;
	ds_dg_put(d);
	return NULL;
}

void fd_set_listener(int fd)
{
	if (!fd_table() || (unsigned)fd >= fd_tab_size || fd_vforked())
		return;
	struct conn *c = conn_peek(fd);
	if (c) { /* it may have joined sets before it was to listen: they keep it */
		if (c->members)
			fd_notices->native(c);
		conn_put(c);
	}
	fd_closing(fd);
	set(fd, (uintptr_t)FD_LISTENER);
}

void fd_disconnected(struct conn *c)
{
	struct conn *plain = NULL;

	if (c->members)
		fd_notices->native(c);
	for (int fd = 0; fd < (int)fd_tab_end; fd++) {
		if (word_conn(fd_word(fd)) != c)
			continue;
		fd_closing(fd); /* calls under way go on by a copy */
		if (plain)
			fd_set_conn(fd, plain);
		else if ((plain = conn_new(fd, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN)))
			ds_life_leave(&plain->life);
	}
}

void fd_set_epoll(int fd, struct epi *e)
{
	if (!fd_table() || (unsigned)fd >= fd_tab_size)
		return;
	fd_was_closed(fd);
	set(fd, (uintptr_t)e | FD_EPOLL);
}
