/* The life of a TCP socket in this process: the states of SPEC 9.6, which lifestate.c alone changes
 * (docs/design/architecture.md draws them).
 *
 * Two words have them. The layer above keeps a struct ds_life with each socket, and holds a
 * reference while it calls a function of this file. Once the connection is KNOWN it has a handle, a
 * struct ds_sock, whose word goes on from there; then the directions have states of their own
 * (state.c). A state may always be read. No lock guards the socket's word: each step is one atomic
 * exchange, so whoever changes it to SETTLING makes the handle. The lock of setup guards the steps
 * of the handle's word, except to UP and to LEFT. */
#ifndef DS_LIFE_H
#define DS_LIFE_H

#include "segment/segment.h"

#include "conn/numbers.h"
#include "conn/steps.h"

#include <stdint.h>

struct ds_sock;

/* ENDED is 0: memory that nobody has used is in it. */
enum conn_state {
	CONN_ENDED = 0,	 /* nobody has it: the socket is closed, the handle is free */

	/* the socket */
	CONN_NEW,	 /* no connection yet */
	CONN_CONNECTING, /* connect is under way; it gets a handle once that has succeeded */
	CONN_KNOWN,	 /* s is its handle, whose word says more */
	/* from here on the kernel makes the calls, which ds_life_count counts */
	CONN_UNCOUNTED,	 /* connect is under way, or it has hardly been used */
	CONN_SETTLING,	 /* a thread makes its handle */
	CONN_UNWANTED,	 /* the same, and the program has given direct sockets up meanwhile: the handle will be PLAIN */
	CONN_FORGOTTEN,	 /* it has a handle, which only keeps what processes share until the socket is closed */

	/* the socket: it has no handle; the handle: it stays on TCP */
	CONN_PLAIN,

	/* the handle */
	CONN_LEFT,	 /* this process ends, and does not count among those that share it */
	CONN_EARLY,	 /* there is no segment, and there may be one */
	CONN_CLAIMED,	 /* a server: the broker was asked for the offer */
	CONN_GRANTED,	 /* a server: the segment is mapped; it waits until no thread is in a call on the shadow */
	CONN_OFFERED,	 /* there is a segment and a doorbell; the client does not know yet whether the server has them */
	CONN_UP,	 /* each direction may be promoted */

	CONN_ANY = DS_ANY,
	CONN_NO_STEP = DS_NO_STEP,
};

/* What moves them: SPEC 9.6, by the names there. */
enum conn_event {
	CONN_ON_SOCKET, CONN_ON_ACCEPT, CONN_ON_CONNECT, CONN_ON_DEFER, CONN_ON_INHERIT, CONN_ON_CONNECTED,
	CONN_ON_HANDLE, CONN_ON_ABANDON, CONN_ON_FORGET,
	CONN_ON_MAKE, CONN_ON_EXCLUDE, CONN_ON_CLAIM, CONN_ON_GRANT, CONN_ON_SEGMENT, CONN_ON_ATTACHED, CONN_ON_LEAVE,
	CONN_ON_NONE, CONN_ON_GIVE_UP, CONN_ON_END,
};
extern const struct ds_step ds_life_steps[] DS_HIDDEN, *ds_life_table DS_HIDDEN;
extern uint32_t ds_life_missteps DS_HIDDEN;

/* What the program has done on an uncounted connection. Most connections end after a few requests
 * and stay on TCP, so the broker and the statistics need not know one from its first call on. */
struct ds_traffic {
	uint32_t sent, received; /* bytes; enough is enough */
	uint32_t sends;
	uint32_t sender; /* the name of the thread that sent last, and has received nothing since; 0: none */
	uint8_t looks;	 /* side 1: calls */
	uint8_t shut;	 /* how shutdown was called: 1 << SHUT_... */
	uint16_t bucket; /* side 1: 1 + that of its offers in the page; 0: not known yet */
	bool again;	 /* side 1: it has received after it had sent: what was done, as the counts are */
	bool options;	 /* ds_options_changed is to be called: the same */
};

enum { DS_TAKEN_OVER = 1 << 30 }; /* in calls: the handle counts them, too */

struct ds_life {
	struct ds_sock *s; /* KNOWN and FORGOTTEN */
	uint8_t state;	   /* enum conn_state */
	int calls;	   /* real calls under way that began before there was a handle; DS_TAKEN_OVER */
	uint8_t side;	   /* 1: accepted */
	uint8_t nonblock;  /* O_NONBLOCK: enum ds_nonblocking */
	bool renumbered;   /* SETTLING: a descriptor was closed: its maker asks again. No state, as it may happen any number of times, in UNWANTED too */
	unsigned gen;	   /* ds_gen when it was made */
	struct ds_traffic traffic;
	struct ds_numbered numbered; /* calls that send, or ask where the bytes are; it outlives the socket, as late ones come */
};
/* SET: a call has set it, and another thread may have cleared it at the same time: as YES for a
 * connection that is uncounted, where it tells only whether a call is likely to sleep. */
enum ds_nonblocking { DS_NONBLOCK_UNKNOWN, DS_NONBLOCK_NO, DS_NONBLOCK_YES, DS_NONBLOCK_ASKED, DS_NONBLOCK_SET };

/* Counts forks: another process has what was made under an earlier number, too. */
extern unsigned ds_gen DS_HIDDEN;

/* The state of l, which another thread may be changing. CONN_KNOWN: s is there. */
static inline int ds_life_is(const struct ds_life *l) { return __atomic_load_n(&l->state, __ATOMIC_ACQUIRE); }
/* Is a thread making the handle of l? */
static inline bool ds_life_settles(const struct ds_life *l)
{
	int state = __atomic_load_n(&l->state, __ATOMIC_SEQ_CST);

	return state == CONN_SETTLING || state == CONN_UNWANTED;
}
/* Has l, in this state, no handle that calls may use, for good? */
static inline bool ds_life_plain(int state) { return state == CONN_PLAIN || state == CONN_FORGOTTEN; }

/* Does conn/ count the calls on l, or will it in a moment? */
static inline bool ds_life_counts(const struct ds_life *l)
{
	return __builtin_expect(ds_life_is(l) == CONN_KNOWN, 1) || (__atomic_load_n(&l->calls, __ATOMIC_ACQUIRE) & DS_TAKEN_OVER);
}

/* Adds n to a count that threads share, and returns the sum. A process of one thread needs no
 * locked instructions: a signal handler finds the addition done or not done. */
static inline int ds_add_shared(int *p, int n)
{
	if (ds_one_thread())
		return (int)ds_add_here((uint32_t *)p, (uint32_t)n);
	return __atomic_add_fetch(p, n, __ATOMIC_SEQ_CST);
}

/* Moves l: returns the state in which it was, or CONN_NO_STEP: in that there is no such step. */
int ds_life_on(struct ds_life *l, enum conn_event what) DS_HIDDEN;
/* Moves the handle s. A step that the table does not have is a fault of ours, and does nothing. */
void ds_on(struct ds_sock *s, enum conn_event what) DS_HIDDEN;

/* ds_life_begin: a socket was made, or found (CONN_ON_SOCKET), or accepted (CONN_ON_ACCEPT). No
 * other thread knows l. ds_life_inherit: s is its handle, of ds_inherited. ds_life_end: the caller
 * is about to close fd, the last descriptor of l, and no call on it is under way. */
void ds_life_begin(struct ds_life *l, enum conn_event how, enum ds_nonblocking nonblock) DS_HIDDEN;
void ds_life_inherit(struct ds_life *l, struct ds_sock *s) DS_HIDDEN;
void ds_life_end(struct ds_life *l, int fd) DS_HIDDEN;

/* connect has begun on fd of l. Returns true if l was NEW; wait: it may be UNCOUNTED from now on.
 * */
bool ds_life_connect(struct ds_life *l, bool wait) DS_HIDDEN;

/* Makes the handle of l, if it is CONNECTING or UNCOUNTED: ds_life_connected knows that it is
 * connected, ds_life_complete asks the kernel. */
void ds_life_connected(struct ds_life *l, int fd) DS_HIDDEN;
void ds_life_complete(struct ds_life *l, int fd) DS_HIDDEN;

/* Makes the handle of l if it is UNCOUNTED and connected, or waits for the thread that does so, but
 * not for ever: a handler may have interrupted a thread that the other one waits for. After a fork
 * there is none. */
void ds_life_settle(struct ds_life *l, int fd) DS_HIDDEN;

/* A descriptor of l, which was SETTLING, is about to be closed, and the layer above does not name
 * it any more: what the thread that makes the handle has asked about it does not count. */
static inline void ds_life_renumbered(struct ds_life *l) { __atomic_store_n(&l->renumbered, true, __ATOMIC_SEQ_CST); }
static inline bool ds_life_has_moved(const struct ds_life *l) { return __atomic_load_n(&l->renumbered, __ATOMIC_SEQ_CST); }

/* Gives up direct sockets for l. ds_life_demote settles l first, and moves what is direct back to
 * TCP. ds_life_leave does so for one without a handle, and returns false for others; ds_life_forget
 * for one that the layer above does not ask about any more; ds_life_abandon, in the child of a
 * fork, for one whose handle a thread of the parent was making. */
void ds_life_demote(struct ds_life *l, int fd) DS_HIDDEN;
bool ds_life_leave(struct ds_life *l) DS_HIDDEN;
void ds_life_forget(struct ds_life *l) DS_HIDDEN;
void ds_life_abandon(struct ds_life *l) DS_HIDDEN;

/* Real calls on l while it has no handle: ds_life_count counts one that begins (false: it must not;
 * l has a handle now, or is no connection yet), ds_life_uncount one that has ended. ds_life_moved
 * counts bytes. Between the two ds_life_shuts comes before a shutdown and ds_life_has_shut after
 * it; ds_life_options if the call has set what ds_options_changed asks for. */
static inline bool ds_life_count(struct ds_life *l)
{
	int state = ds_life_is(l);

	if (__builtin_expect(state < CONN_UNCOUNTED, 0))
		return false;
	if (__builtin_expect(ds_add_shared(&l->calls, 1) & DS_TAKEN_OVER, 0)) {
		ds_add_shared(&l->calls, -1);
		return false;
	}
	return true;
}
void ds_life_uncount_known(struct ds_life *l) DS_HIDDEN;
static inline void ds_life_uncount(struct ds_life *l)
{
	if (__builtin_expect(ds_add_shared(&l->calls, -1) & DS_TAKEN_OVER, 0))
		ds_life_uncount_known(l);
}
void ds_life_shuts(struct ds_life *l, int how) DS_HIDDEN;
void ds_life_has_shut(struct ds_life *l) DS_HIDDEN;
void ds_life_options(struct ds_life *l, int fd) DS_HIDDEN;

/* O_NONBLOCK was set (fcntl, FIONBIO), or perhaps cleared. */
static inline void ds_life_flags(struct ds_life *l, bool set)
{
	__atomic_store_n(&l->nonblock, set ? DS_NONBLOCK_SET : DS_NONBLOCK_UNKNOWN, __ATOMIC_SEQ_CST);
}
/* Is a call on l likely not to sleep, for all that is known without asking the kernel? */
static inline bool ds_life_nonblock(const struct ds_life *l)
{
	uint8_t is = __atomic_load_n(&l->nonblock, __ATOMIC_RELAXED);

	return is == DS_NONBLOCK_YES || is == DS_NONBLOCK_SET;
}

/* ---- uncounted.c ------------------------------------------------------------------ */

/* May a connection be UNCOUNTED? A client's also in a process that has not looked for a broker
 * (defer): one that sends a request and ends never needs to. */
bool ds_may_wait(void) DS_HIDDEN;
bool ds_may_defer(void) DS_HIDDEN;
/* Does a call on a connection that was accepted wait for its segment (EXNET_DS_WAIT)? */
bool ds_tests_wait(void) DS_HIDDEN;
/* Has so much happened on a connection, whose descriptor is fd, that it needs a handle? Not on one
 * that was accepted, before so many calls, ds_little bytes, or a receive after a send. */
enum { DS_LOOKS = 16 };
extern uint64_t ds_little DS_HIDDEN;
bool ds_ripe_ask(struct ds_traffic *t, int side, int fd) DS_HIDDEN;
static inline bool ds_ripe(struct ds_traffic *t, int side, int fd)
{
	unsigned looks = __atomic_load_n(&t->looks, __ATOMIC_RELAXED) + 1u;

	if (side == 0 || looks >= DS_LOOKS || __atomic_load_n(&t->again, __ATOMIC_RELAXED) ||
	    (uint64_t)__atomic_load_n(&t->sent, __ATOMIC_RELAXED) + __atomic_load_n(&t->received, __ATOMIC_RELAXED) >= ds_little)
		return ds_ripe_ask(t, side, fd);
	__atomic_store_n(&t->looks, (uint8_t)looks, __ATOMIC_RELAXED);
	return false;
}

/* Bytes were sent, or received. About right is enough, and so is what fits. */
static inline uint32_t ds_most(uint64_t sum) { return sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX; }
static inline void ds_traffic_sent(struct ds_traffic *t, size_t n)
{
	__atomic_store_n(&t->sender, ds_me(), __ATOMIC_RELAXED);
	__atomic_store_n(&t->sent, ds_most(__atomic_load_n(&t->sent, __ATOMIC_RELAXED) + (uint64_t)n), __ATOMIC_RELAXED);
	__atomic_store_n(&t->sends, __atomic_load_n(&t->sends, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}
static inline void ds_traffic_received(struct ds_traffic *t, int side, size_t n)
{
	__atomic_store_n(&t->sender, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&t->received, ds_most(__atomic_load_n(&t->received, __ATOMIC_RELAXED) + (uint64_t)n), __ATOMIC_RELAXED);
	if (side == 1 && __atomic_load_n(&t->sends, __ATOMIC_RELAXED))
		__atomic_store_n(&t->again, true, __ATOMIC_RELAXED);
}

#endif
