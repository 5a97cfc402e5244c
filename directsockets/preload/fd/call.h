/* Calls under way on connections. */
#ifndef DS_CALL_H
#define DS_CALL_H

#include "fd/uncounted.h"

/* A call on a conn, on the stack of the hook. A jump that leaves it drops its reference. */
struct call {
	struct conn *c;	    /* NULL: not ours, make the real call */
	int slot;	    /* of ds_cleanup_push */
	struct conn *early; /* with c NULL: the real call is counted here */
	bool waits;	    /* call_wait comes before it */
	bool late;	    /* a handle was made, or waited for: call_fd */
	bool dgram;	    /* neither: fd is a UDP socket by now, and the hook begins anew */
};

/* Counts *k, a real call on c, which is uncounted and w. False: it has a handle, or fd is
 * another. */
static inline bool uncounted_count(struct call *k, struct conn *c, int fd, uintptr_t w)
{
	int before = ds_critical_enter();

	/* From word_held on c is fd's. If it is uncounted it stays so, or is taken over, which the
	 * count tells; but it may be another one than the caller saw, of the same number and
	 * place. */
	if (__builtin_expect(!word_held(fd, w, &c->users) || !ds_life_count(&c->life), 0)) {
		conn_put(c);
		ds_critical_leave(before);
		return false;
	}
	k->slot = ds_cleanup_push(uncounted_jumped, c);
	k->early = c;
	ds_critical_leave(before);
	return true;
}

/* call_begin takes a reference to the conn of fd, if conn/ knows it and fd is not a standard
 * stream, whose bytes the kernel moves. call_begin_any accepts such a stream too, for calls that
 * change what conn/ knows. call_end drops the reference; use CALL or CALL_ANY, so that cancellation
 * does so too. */
struct call call_begin(int fd, uintptr_t word) DS_HIDDEN;
struct call call_begin_any(int fd, uintptr_t word) DS_HIDDEN;
void call_end(struct call *k) DS_HIDDEN;

/* The descriptor by which call k, which began on fd, goes on: another thread may have closed fd
 * while the call began, and its number be another socket's. */
static inline int call_fd(const struct call *k, int fd)
{
	return __builtin_expect(k->late, 0) ? conn_still(k->early ? k->early : k->c, fd) : fd;
}

#define CALL_BY(k, fd, begin, ...) \
	__attribute__((cleanup(call_end))) struct call k = {.slot = -1}; \
	do { \
		uintptr_t w_ = fd_word(fd); \
		if (__builtin_expect(w_ != 0, 0)) { \
			k = begin(fd, w_, ##__VA_ARGS__); \
			fd = call_fd(&k, fd); \
		} \
	} while (0)
#define CALL(k, fd) CALL_BY(k, fd, call_begin)
/* For the calls that programs make most: if w, a descriptor's word, is 0, PASS jumps to the real
 * function, after few instructions. The rest of such a call is a function of its own, OURS, so that
 * the jump comes before any register is saved; there, CALL_OF is CALL_BY with the word known. */
#define PASS(w, name, ...) \
	if (__builtin_expect((w) == 0 && __atomic_load_n(&ds_real_ready, __ATOMIC_ACQUIRE), 1)) \
	return REAL_NOW(name)(__VA_ARGS__)
#define OURS static __attribute__((noinline))
#define CALL_OF(k, fd, w, begin, ...) \
	__attribute__((cleanup(call_end))) struct call k = begin(fd, w, ##__VA_ARGS__); \
	fd = call_fd(&k, fd)
#define CALL_ANY(k, fd) CALL_BY(k, fd, call_begin_any)

/* As CALL, of a call that sleeps until there is data, or room, if waits: it waits first for a
 * handle that another thread makes. */
struct call call_waiting(int fd, uintptr_t word, bool waits) DS_HIDDEN;
#define CALL_WAITING(k, fd, waits) CALL_BY(k, fd, call_waiting, waits)

/* As CALL, but leaves an uncounted conn as it is, if the real call can do no harm: it does not
 * sleep where another thread might want to make the connection direct. call_sent and call_received
 * count what that call returned. */
struct call call_uncounted(int fd, uintptr_t word, bool waits) DS_HIDDEN;
#define CALL_UNCOUNTED(k, fd, waits) CALL_BY(k, fd, call_uncounted, waits)
/* The same for a receive, which may wait where there are other threads, too: not for long, in
 * call_wait, which the hook calls with its descriptor next. That says which one to use from there
 * on, and may leave the conn to conn/. False: -1 and EINTR. */
struct call call_uncounted_in(int fd, uintptr_t word, bool waits) DS_HIDDEN;
bool call_waited(struct call *k, int *fd) DS_HIDDEN;
static inline bool call_wait(struct call *k, int *fd) { return __builtin_expect(!k->waits, 1) || call_waited(k, fd); }
enum { CALL_WAIT_MS = 10 }; /* how long the kernel waits for an uncounted conn, where there are other threads */
static inline ssize_t call_sent(const struct call *k, ssize_t rc)
{
	if (__builtin_expect(k->early != NULL, 0) && rc > 0)
		ds_traffic_sent(&k->early->life.traffic, (size_t)rc);
	return rc;
}
static inline ssize_t call_received(const struct call *k, ssize_t rc)
{
	if (__builtin_expect(k->early != NULL, 0) && rc > 0)
		ds_traffic_received(&k->early->life.traffic, k->early->life.side, (size_t)rc);
	return rc;
}
/* The kernel is about to send for call k, by fd: true, and *by ends that. False: fd, which was not
 * of a connection of ours, or one that stays on TCP, is another file by now, and the hook begins
 * anew. */
bool call_by_kernel_where_threads(const struct call *k, int *fd, struct ds_by_number *by) DS_HIDDEN;
static inline bool call_by_kernel(const struct call *k, int *fd, struct ds_by_number *by)
{
	return __builtin_expect(ds_one_thread(), 1) || call_by_kernel_where_threads(k, fd, by);
}
/* What real returns, which sends by fd for call k; or again, if the hook begins anew. */
#define KERNEL_SENDS(k, fd, real, again) \
	({ \
		DS_BY_NUMBER(by_); \
		call_by_kernel(&(k), &(fd), &by_) ? call_sent(&(k), real) : (again); \
	})
/* As CALL_UNCOUNTED, in a process of one thread and on a conn that was made non-blocking and that
 * no fork has shared: the real call cannot sleep, no other thread can make the conn direct
 * meanwhile, and a signal is deferred to its end. So it need not be counted. q.c is NULL where that
 * is not so. */
struct quick {
	struct conn *c;
	int before; /* of ds_critical_enter */
};
static inline struct quick quick_begin(int fd, uintptr_t w)
{
	struct conn *c = word_conn(w);

	if (!c || conn_is(c) != CONN_UNCOUNTED || __atomic_load_n(&c->life.nonblock, __ATOMIC_RELAXED) != DS_NONBLOCK_YES || c->life.gen != ds_gen ||
	    !ds_one_thread() || ds_ripe(&c->life.traffic, c->life.side, fd))
		return (struct quick){NULL, 0};
	int before = ds_critical_enter();
	if (__builtin_expect(fd_word(fd) == w && conn_is(c) == CONN_UNCOUNTED, 1))
		return (struct quick){c, before};
	ds_critical_leave(before);
	return (struct quick){NULL, 0};
}
static inline void quick_end(struct quick *q)
{
	if (q->c)
		ds_critical_leave(q->before);
}
static inline ssize_t quick_sent(const struct quick *q, ssize_t rc)
{
	if (__builtin_expect(rc > 0, 1))
		ds_traffic_sent(&q->c->life.traffic, (size_t)rc);
	return rc;
}
static inline ssize_t quick_received(const struct quick *q, ssize_t rc)
{
	if (__builtin_expect(rc > 0, 1))
		ds_traffic_received(&q->c->life.traffic, q->c->life.side, (size_t)rc);
	return rc;
}
#define QUICK(q, fd, w) __attribute__((cleanup(quick_end))) struct quick q = quick_begin(fd, w)

/* As call_begin_any, but leaves an uncounted conn as it is. */
struct call call_uncounted_any(int fd, uintptr_t word) DS_HIDDEN;

#endif
