/* What the program's descriptors are, by number.
 *
 * A table of words, read without a lock by every call: a pointer to a struct conn
 * (a TCP socket), the mark of a listener, a pointer to a struct ds_dgram (a UDP
 * socket), a pointer to a struct epi (an epoll instance, epoll.h), FD_CHANGING,
 * or 0 for everything else. A conn is one kernel socket, however many descriptors name it;
 * calls under way hold a reference, and the last descriptor or call closes it.
 *
 * Lock-free, so that close may be called in a signal handler. The process's
 * own: after fork each process has a copy, and sock.h's counts tell how many
 * processes share a connection. A vfork child shares the table but not the
 * descriptors, and changes nothing: see fd_vforked.
 *
 * Where there are threads, dup2 takes a number through one more state:
 *
 *	what it was ── fd_changes ──▶ FD_CHANGING ── fd_copy, fd_changed ──▶ what it is
 *
 * A call that began before goes on with what the number was. If the kernel sends by the
 * number, dup2 waits for that (conn/numbers.h). A call that begins now waits (fd_settled):
 * the table cannot tell it what the kernel has there. The lock of fd_numbers_lock guards
 * the state, and all calls that make duplicates.
 */
#ifndef DS_FDTAB_H
#define DS_FDTAB_H

#include "conn/sock.h"

#include <stdint.h>

struct member;

struct conn {
	int users;		 /* references: one for all descriptors, one for each call; see conn_put */
	int nfds;		 /* descriptors of this process */
	int armed;		 /* members that are armed */
	int lastfd;		 /* the descriptor that a call used last: one that is open */
	struct ds_life life;	 /* conn/ changes it */
	struct member *members;	 /* epoll instances it is in, under ep_lock (epoll.c) */
	int nmembers;		 /* their number, to be read without ep_lock */
	int closefd;		 /* if calls outlive the last descriptor: a copy, or NO_COPY; else -1 */
	uint32_t next;		 /* free list: index + 1 */
	uint32_t blocked;	 /* sends that ran out of room: the next room is an edge */
	uint64_t cookie;	 /* SO_COOKIE once it has a bell or vfork closed it; else 0 */
	bool doubled;		 /* one epoll instance holds several of its descriptors */
};

/* The state of c, an enum conn_state, which another thread may be changing. */
static inline int conn_is(const struct conn *c) { return ds_life_is(&c->life); }

/* An open descriptor of c. */
static inline int conn_fd(const struct conn *c)
{
	return __atomic_load_n(&c->lastfd, __ATOMIC_RELAXED);
}

/* As fd, for a call on c that has slept: another one of c if fd was closed meanwhile, since its
 * number may be another socket's. */
int conn_still(struct conn *c, int fd) DS_HIDDEN;

/* The same for c that is SETTLING; -1: c has no descriptor any more. Whoever closes what it
 * returns tells conn/ before. */
int conn_open(struct conn *c, int fd) DS_HIDDEN;

/* A copy of fd for calls on it that go on when it is closed, above what programs like to have; or
 * NO_COPY. */
enum { NO_COPY = -2 };
int fd_spare(int fd) DS_HIDDEN;

struct epi;

/* What this file reports to those above it. active: a call begins on c,
 * which has armed members. orphan: fd of c is about to be closed, and c has others. forget: c has
 * no descriptor any more, or is about to go. native: it is the kernel's from now on. dup, close: an
 * instance gets or loses a descriptor. unlisten: a listener is about to be closed. */
struct fd_notices {
	void (*active)(struct conn *c);
	void (*orphan)(struct conn *c, int fd);
	void (*forget)(struct conn *c);
	void (*native)(struct conn *c);
	void (*dup)(struct epi *e);
	void (*close)(struct epi *e, int fd);
	void (*unlisten)(void);
	void (*dgram)(struct ds_dgram *d); /* its last descriptor is about to be closed; */
	void (*renumbered)(struct ds_dgram *d, int fd); /* or this one, and it has others */
};
/* Once, before the first descriptor. */
void fd_tell(const struct fd_notices *to) DS_HIDDEN;
extern const struct fd_notices *fd_notices DS_HIDDEN;

/* A call on an armed conn begins. */
static inline void conn_active(struct conn *c) { fd_notices->active(c); }

/* A pointer of kind FD_LISTENER is a UDP socket. FD_CHANGING is a word, of kind FD_NONE. */
enum { FD_NONE = 0, FD_CONN = 1, FD_LISTENER = 2, FD_EPOLL = 3, FD_CHANGING = 4 };

extern uintptr_t *fd_tab DS_HIDDEN;
extern unsigned fd_tab_size DS_HIDDEN;
extern unsigned fd_tab_end DS_HIDDEN; /* above all descriptors that ever were ours */

/* fd_seal was called: no descriptor becomes ours any more, so
 * that all calls are the kernel's. */
extern bool fd_sealed DS_HIDDEN;
static inline bool fd_is_sealed(void) { return __atomic_load_n(&fd_sealed, __ATOMIC_RELAXED); }

/* Descriptors above this are left alone: the kernel's own limit (nr_open). */
enum { TABLE_MAX = 1 << 20 };

/* Makes the table, before the first descriptor: most programs that are started never have one.
 * False: there is no memory, or this is a child of vfork; everything is plain. Lock-free. */
bool fd_table(void) DS_HIDDEN;

/* fd_after_fork notes the process's new ID. fd_vforked: true in a vfork child, which shares our
 * memory. fd_vforks counts those of this thread, which shares the count with them, that still run.
 * Other ways to make a process leave a doubt, *fd_sure false: by fd_doubt, or by the kernel, which
 * empties that page in the child of a fork. Then fd_is_another asks the kernel. */
void fd_after_fork(void) DS_HIDDEN;
void fd_doubt(void) DS_HIDDEN;
bool fd_is_another(void) DS_HIDDEN;
bool fd_shares_memory(void) DS_HIDDEN; /* asks the kernel: this is a child of vfork, or of its like, that may be known to nobody */
uint32_t fd_process(void) DS_HIDDEN; /* the name of this process (segment/name.h); 0: it is a child of vfork */
extern DS_LOCAL int fd_thread_vforks DS_HIDDEN;
#define fd_vforks DS_HERE(fd_thread_vforks)
extern bool *fd_sure DS_HIDDEN;
static inline bool fd_vforked(void)
{
	return __builtin_expect(fd_vforks > 0, 0) || (__builtin_expect(!__atomic_load_n(fd_sure, __ATOMIC_RELAXED), 0) && fd_is_another());
}

static inline uintptr_t fd_word(int fd)
{
	return (unsigned)fd < __atomic_load_n(&fd_tab_size, __ATOMIC_ACQUIRE) ? __atomic_load_n(&fd_tab[fd], __ATOMIC_ACQUIRE) : 0;
}

/* The word of fd, once no thread is changing the number. fd_wait waits for the one that does; 0: it
 * must not, as this thread is that one, or is in a handler that it may wait for. */
uintptr_t fd_wait(int fd) DS_HIDDEN;
static inline uintptr_t fd_settled(int fd)
{
	uintptr_t w = fd_word(fd);

	return __builtin_expect(w == FD_CHANGING, 0) ? fd_wait(fd) : w;
}

static inline int fd_kind(int fd)
{
	return (int)(fd_settled(fd) & 3);
}

static inline struct epi *word_epi(uintptr_t w)
{
	return (w & 3) == FD_EPOLL ? (struct epi *)(w & ~(uintptr_t)3) : NULL;
}

static inline struct ds_dgram *word_dgram(uintptr_t w)
{
	return (w & 3) == FD_LISTENER && w != FD_LISTENER ? (struct ds_dgram *)(w & ~(uintptr_t)3) : NULL;
}
/* The word of a descriptor that a thread is about to wait for: need the kernel's answer be changed,
 * or the wait be counted? Where no thread can make a flow meanwhile, a UDP socket without flows
 * needs neither. */
static inline bool word_waits(uintptr_t w)
{
	const struct ds_dgram *d = word_dgram(w);

	return w && !(d && !ds_dg_inward(d) && (ds_one_thread() || __atomic_load_n(&d->hard, __ATOMIC_RELAXED)));
}
/* Is fd a listener? */
static inline bool fd_listens(int fd) { return fd_word(fd) == FD_LISTENER; }

static inline struct conn *word_conn(uintptr_t w)
{
	return (w & 3) == FD_CONN ? (struct conn *)(w & ~(uintptr_t)3) : NULL;
}

/* The counts of the calls by the numbers of a socket; NULL: it is none. */
static inline struct ds_numbered *word_numbered(uintptr_t w)
{
	struct conn *c = word_conn(w);
	struct ds_dgram *d = word_dgram(w);

	return c ? &c->life.numbered : d ? &d->numbered : NULL;
}

/* Takes a reference of what fd's word w points to, by its count; false: fd has changed meanwhile,
 * and the caller drops it. */
static inline bool word_held(int fd, uintptr_t w, int *users)
{
	ds_add_shared(users, 1);
	return __builtin_expect(fd_word(fd) == w, 1);
}

static inline void conn_hold(struct conn *c) { ds_add_shared(&c->users, 1); }

/* As conn_hold, for a conn that was found without a descriptor; false: it is FREE, or soon is. */
bool conn_hold_live(struct conn *c) DS_HIDDEN;

/* Drops a reference. The call or close that brings users to 0 makes it FREE and owns the conn. A
 * thread that has read the table before and comes late adds 1 and takes it away again; whichever of
 * them finds 0 last is the owner: conn_unused. */
void conn_unused(struct conn *c) DS_HIDDEN;
static inline void conn_put(struct conn *c)
{
	if (__builtin_expect(ds_add_shared(&c->users, -1) == 0, 0))
		conn_unused(c);
}

/* A reference to the conn of fd, in any state; NULL: there is none. As uncounted.h's conn_get,
 * but leaves an uncounted one as it is. */
static inline struct conn *conn_peek(int fd)
{
	for (uintptr_t w = fd_word(fd);; w = fd_settled(fd)) {
		struct conn *c = word_conn(w);

		if (c && word_held(fd, w, &c->users))
			return c;
		if (c)
			conn_put(c);
		else if (w != FD_CHANGING)
			return NULL;
	}
}

/* fd is a new TCP socket (CONN_ON_SOCKET), or a connection that was accepted (CONN_ON_ACCEPT).
 * NULL: no memory, it stays plain. No reference is held. */
struct conn *conn_new(int fd, enum conn_event how, enum ds_nonblocking nonblock) DS_HIDDEN;

/* fd is a connection inherited by exec (ds_inherited). NULL: it stays plain. No reference. */
struct conn *conn_inherited(int fd, int side) DS_HIDDEN;

/* Calls fn for each conn that is in one of states, with a reference held. */
#define CONN_IN(state) (1u << (state))
void conn_each(unsigned states, void (*fn)(struct conn *c, void *arg), void *arg) DS_HIDDEN;

/* From now on the program's calls on fd are the kernel's. The connection, which is on TCP, stays
 * open. */
void fd_forget(int fd) DS_HIDDEN;

/* fd is about to be closed, or replaced by dup2. If another call is using its last
 * conn, a copy of the descriptor stays open until that ends. */
void fd_closing(int fd) DS_HIDDEN;

/* Around a call that makes a duplicate, also where only one of the two is of ours: as a critical
 * section, and a lock where there are threads. Before all locks of epoll.h and conn/. */
void fd_numbers_lock(void) DS_HIDDEN;
void fd_numbers_unlock(void) DS_HIDDEN;
void fd_numbers_child(void) DS_HIDDEN; /* in the child of a fork before which it was locked */
/* With that lock, where there are threads: dup2 is about to give the number fd to another
 * descriptor. Returns a conn that has lost its last one: conn_put ends it, without the lock. NULL:
 * there is none. fd_changed: dup2 has returned. fd_copy may have said what the number is; else it
 * is none of ours. */
struct conn *fd_changes(int fd) DS_HIDDEN;
void fd_changed(int fd) DS_HIDDEN;
/* fd is new, and what the table has for it was closed behind our back: no call for that reaches
 * fd. */
void fd_was_closed(int fd) DS_HIDDEN;

/* SO_COOKIE of fd; 0: it is no socket. Keeps errno. No lock. */
uint64_t fd_cookie(int fd) DS_HIDDEN;

/* In a child of vfork: fd is about to be closed or replaced. While the child can, it asks for the
 * cookie, by which it finds the connection in what it executes. No lock. */
void conn_note(int fd) DS_HIDDEN;

/* SO_COOKIE of c, by the descriptor that the parent has of it, if there is no better source; 0: it
 * is not to be had. No lock. */
uint64_t conn_cookie(const struct conn *c) DS_HIDDEN;

/* Is fd a standard stream that the C library reads and writes by calls of its own, which do not
 * come here? Such a connection stays on TCP. */
bool fd_is_stream(int fd) DS_HIDDEN;
/* Those calls come here from now on. Before the program runs. */
void fd_streams_seen(void) DS_HIDDEN;

/* newfd has become a duplicate of oldfd, which fd_word says is w; no standard stream is to be
 * carried (dup.c). */
void fd_copy(int newfd, uintptr_t w) DS_HIDDEN;

/* fd is another descriptor of c, made behind the table's back. */
void fd_set_conn(int fd, struct conn *c) DS_HIDDEN;

/* fd is a new UDP socket. */
void fd_set_dgram(int fd, int family, enum ds_nonblocking nonblock) DS_HIDDEN;
/* The number fd, as long as its word is w; as long as it is d's. */
static inline struct ds_number fd_number(int fd, uintptr_t w) { return (struct ds_number){&fd_tab[fd], w}; }
static inline struct ds_number dgram_number(int fd, struct ds_dgram *d) { return fd_number(fd, (uintptr_t)d | FD_LISTENER); }
/* A reference to the UDP socket of fd, whose word is w; NULL: it is none. */
struct ds_dgram *dgram_get(int fd, uintptr_t w) DS_HIDDEN;
void fd_set_listener(int fd) DS_HIDDEN;
/* The socket of c, which the caller holds, is disconnected: c ends as if its descriptors had been
 * closed, and they name a new socket, which stays plain. In a set it keeps its place. With the lock
 * of the numbers. */
void fd_disconnected(struct conn *c) DS_HIDDEN;
void fd_set_epoll(int fd, struct epi *e) DS_HIDDEN;

#endif
