/* What the program's descriptors are, by number.
 *
 * A table of words, read without a lock by every call: a pointer to a struct conn
 * (a TCP socket), the mark of a listener, a pointer to a struct epi (an epoll
 * instance, epoll.h), or 0 for everything else. A conn is one kernel socket,
 * however many descriptors name it; calls under way hold a reference, and the last
 * descriptor or call closes it.
 *
 * Lock-free, so that close may be called in a signal handler. The process's
 * own: after fork each process has a copy, and sock.h's counts tell how many
 * processes share a connection. A vfork child shares the table but not the
 * descriptors, and changes nothing: see fd_vforked.
 */
#ifndef DS_FDTAB_H
#define DS_FDTAB_H

#include "conn/sock.h"

#include <stdint.h>

enum conn_state {
	CONN_NEW = 0,	/* no connection yet */
	CONN_PENDING,	/* connect is under way or, with young, the connection has hardly been used */
	CONN_SETTLING,	/* a thread makes s for a young one */
	CONN_UP,	/* s is set */
	CONN_PLAIN,	/* TCP for good, and the core does not know it */
};

struct member;

struct conn {
	struct ds_sock *s;	 /* with CONN_UP */
	int users;		 /* references: one for all descriptors, one for each call; see conn_put */
	int nfds;		 /* descriptors of this process */
	int state;		 /* enum conn_state */
	int early;		 /* real calls under way since it was young; DS_TAKEN_OVER */
	struct member *members;	 /* epoll instances it is in, under ep_lock (epoll.c) */
	int armed;		 /* members that are armed */
	int nmembers;		 /* their number, to be read without ep_lock */
	int lastfd;		 /* the descriptor that a call used last: one that is open */
	unsigned gen;		 /* fork_gen when it was made */
	int closefd;		 /* the descriptor for ds_close, if calls outlive the last */
	uint32_t next;		 /* free list: index + 1 */
	uint8_t side;		 /* 1: accepted */
	uint8_t blocking;	 /* of fd, until there is s: 0 not known, 1 blocking, 2 not */
	bool young;		 /* conn/ need not know it yet: begun is there */
	bool named;		 /* peer is there */
	bool twins;		 /* one epoll instance holds several of its descriptors */
	uint32_t blocked;	 /* sends that ran out of room: the next room is an edge */
	uint64_t cookie;	 /* SO_COOKIE once it has a bell, else 0 */
	union {
		struct ds_early begun;
		struct ds_end peer; /* what was connected to, as the program gave it */
	};
};

/* An open descriptor of c. */
static inline int conn_fd(const struct conn *c)
{
	return __atomic_load_n(&c->lastfd, __ATOMIC_RELAXED);
}

struct epi;

/* What this file reports to epoll.c. bell: c has a doorbell now. active: a call begins on c, which
 * has armed members. orphan: fd of c is about to be closed, and c has others. forget: c has no
 * descriptor any more, or is about to go. dup, close: an instance gets or loses a descriptor. */
struct fd_notices {
	void (*bell)(struct conn *c);
	void (*active)(struct conn *c);
	void (*orphan)(struct conn *c, int fd);
	void (*forget)(struct conn *c);
	void (*dup)(struct epi *e);
	void (*close)(struct epi *e, int fd);
};
/* Once, before the first descriptor. */
void fd_tell(const struct fd_notices *to) DS_HIDDEN;

/* A call on an armed conn begins. */
void conn_active(struct conn *c) DS_HIDDEN;

enum { FD_NONE = 0, FD_CONN = 1, FD_LISTENER = 2, FD_EPOLL = 3 };

extern uintptr_t *fd_tab DS_HIDDEN;
extern unsigned fd_tab_size DS_HIDDEN;
extern unsigned fd_tab_end DS_HIDDEN; /* above all descriptors that ever were ours */
extern unsigned fork_gen DS_HIDDEN;

void fd_init(void) DS_HIDDEN;

/* Adds n to a count that threads share, and returns the sum. A process of one thread needs no
 * locked instructions: a signal handler finds the addition done or not done. */
static inline int fd_add(int *p, int n)
{
	if (ds_one_thread())
		return (int)ds_add_here((uint32_t *)p, (uint32_t)n);
	return __atomic_add_fetch(p, n, __ATOMIC_SEQ_CST);
}

/* fd_after_fork notes the process's new ID. fd_vforked: true in a vfork child, which shares our
 * memory. fd_vforks counts those of this thread, which shares the count with them, that still run.
 * Other ways to make a process leave a doubt, *fd_sure false: by fd_doubt, or by the kernel, which
 * empties that page in the child of a fork. Then fd_is_another asks the kernel. */
void fd_after_fork(void) DS_HIDDEN;
void fd_doubt(void) DS_HIDDEN;
bool fd_is_another(void) DS_HIDDEN;
pid_t fd_pid(void) DS_HIDDEN; /* this process; asks the kernel in a vfork child, and in doubt */
extern __thread int fd_vforks __attribute__((tls_model("initial-exec"))) DS_HIDDEN;
extern bool *fd_sure DS_HIDDEN;
static inline bool fd_vforked(void)
{
	return __builtin_expect(fd_vforks > 0, 0) || (__builtin_expect(!__atomic_load_n(fd_sure, __ATOMIC_RELAXED), 0) && fd_is_another());
}

static inline uintptr_t fd_word(int fd)
{
	return (unsigned)fd < fd_tab_size ? __atomic_load_n(&fd_tab[fd], __ATOMIC_ACQUIRE) : 0;
}

static inline int fd_kind(int fd)
{
	return (int)(fd_word(fd) & 3);
}

static inline struct epi *word_epi(uintptr_t w)
{
	return (w & 3) == FD_EPOLL ? (struct epi *)(w & ~(uintptr_t)3) : NULL;
}

static inline struct conn *word_conn(uintptr_t w)
{
	return (w & 3) == FD_CONN ? (struct conn *)(w & ~(uintptr_t)3) : NULL;
}

/* A call on a conn, on the stack of the hook. A jump that leaves it drops its reference. */
struct call {
	struct conn *c;	    /* NULL: not ours, make the real call */
	int slot;	    /* of ds_cleanup_push */
	struct conn *early; /* with c NULL: the real call is counted here */
};

/* call_begin takes a reference to the conn of fd, if conn/ knows it and fd is not a standard
 * stream, whose bytes the kernel moves. call_begin_any accepts such a stream too, for calls that
 * change what conn/ knows. call_end drops the reference; use CALL or CALL_ANY, so that cancellation
 * does so too. */
struct call call_begin(int fd, uintptr_t word) DS_HIDDEN;
struct call call_begin_any(int fd, uintptr_t word) DS_HIDDEN;
void call_end(struct call *k) DS_HIDDEN;

#define CALL_BY(k, fd, begin, ...) \
	__attribute__((cleanup(call_end))) struct call k = {NULL, -1, NULL}; \
	do { \
		uintptr_t w_ = fd_word(fd); \
		if (__builtin_expect(w_ != 0, 0)) \
			k = begin(fd, w_, ##__VA_ARGS__); \
	} while (0)
#define CALL(k, fd) CALL_BY(k, fd, call_begin)
#define CALL_ANY(k, fd) CALL_BY(k, fd, call_begin_any)

/* As CALL, but leaves a young conn as it is, if the real call can do no harm: it does not sleep
 * where another thread might want to make the connection direct. call_sent and call_received count
 * what that call returned. */
struct call call_young(int fd, uintptr_t word, bool waits) DS_HIDDEN;
#define CALL_YOUNG(k, fd, waits) CALL_BY(k, fd, call_young, waits)
static inline ssize_t call_sent(const struct call *k, ssize_t rc)
{
	if (__builtin_expect(k->early != NULL, 0) && rc > 0)
		ds_early_moved(&k->early->begun, k->early->side, (size_t)rc, 0);
	return rc;
}
static inline ssize_t call_received(const struct call *k, ssize_t rc)
{
	if (__builtin_expect(k->early != NULL, 0) && rc > 0)
		ds_early_moved(&k->early->begun, k->early->side, 0, (size_t)rc);
	return rc;
}
/* As call_begin_any, but leaves a young conn as it is. If the early call is shutdown, call_shuts
 * comes before it, and call_has_shut after it; call_set_options if it has set what
 * ds_options_changed asks for. */
struct call call_young_any(int fd, uintptr_t word) DS_HIDDEN;
void call_shuts(const struct call *k, int how) DS_HIDDEN;
void call_has_shut(const struct call *k) DS_HIDDEN;
void call_set_options(const struct call *k, int fd) DS_HIDDEN;

/* References without the record, for poll and epoll; NULL if fd is none. Any state. conn_get hands
 * a young one to conn/, conn_peek leaves it. */
struct conn *conn_get(int fd) DS_HIDDEN;
struct conn *conn_peek(int fd) DS_HIDDEN;
void conn_hold(struct conn *c) DS_HIDDEN;
void conn_put(struct conn *c) DS_HIDDEN;

/* fd is a new TCP socket. NULL: no memory, it stays plain. No reference is held. */
struct conn *conn_new(int fd, enum conn_state state) DS_HIDDEN;

/* fd is a new connection, accepted, of which conn/ need not know yet; blocking: as in struct
 * conn. */
struct conn *conn_accepted(int fd, uint8_t blocking) DS_HIDDEN;

/* Hands all young ones to conn/; servers alone. */
void conn_settle_all(bool servers) DS_HIDDEN;

/* For the program that a child of vfork is about to execute: whether there are young ones; those
 * whose cookie it is, or is not to be had, stay on TCP. */
bool conn_any_young(void) DS_HIDDEN;
void conn_leave_young(uint64_t cookie) DS_HIDDEN;

/* fd is a connection inherited by exec (ds_heir). NULL: it stays plain. No reference is held. */
struct conn *conn_heir(int fd, int side) DS_HIDDEN;

/* c is connected: s is what the core made of it, or NULL. */
void conn_up(struct conn *c, int fd, struct ds_sock *s) DS_HIDDEN;

/* If the connect under way has completed, hands c to conn/. conn_connected: it has. */
void conn_completed(struct conn *c, int fd) DS_HIDDEN;
void conn_connected(struct conn *c, int fd) DS_HIDDEN;

/* Gives up direct sockets for c for good. */
void conn_demote(struct conn *c, int fd) DS_HIDDEN;

/* Calls fn for each conn that is up, with a reference held; conn_each_held also for those that
 * fd_forget has left. */
void conn_each(void (*fn)(struct conn *c, void *arg), void *arg) DS_HIDDEN;
void conn_each_held(void (*fn)(struct conn *c, void *arg), void *arg) DS_HIDDEN;

/* From now on the program's calls on fd are the kernel's. The connection, which is on TCP, stays
 * open. */
void fd_forget(int fd) DS_HIDDEN;

/* fd is about to be closed, or replaced by dup2. If another call is using its last
 * conn, a copy of the descriptor stays open until that ends. */
void fd_closing(int fd) DS_HIDDEN;

/* newfd has become a duplicate of oldfd, which fd_word says is w; no standard stream is to be
 * carried (dup.c). */
void fd_copy(int newfd, uintptr_t w) DS_HIDDEN;

/* fd is another descriptor of c, made behind the table's back. */
void fd_set_conn(int fd, struct conn *c) DS_HIDDEN;

void fd_set_listener(int fd) DS_HIDDEN;
void fd_set_epoll(int fd, struct epi *e) DS_HIDDEN;

#endif
