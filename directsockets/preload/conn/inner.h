/* Inside of this layer: a connection as this process sees it. Its files; each calls those above, or beside it:
 *
 *   wire.c rules.c fds.c stats.c clock.c   the broker's messages, rules, own descriptors, statistics, time
 *   broker.c config.c pool.c shadow.c      the broker, settings, handles and fork, the TCP socket
 *   modes.c                                where each direction is
 *   setup.c                                phases: from the shadow to a segment
 *   heir.c ready.c spin.c                  inherited, ready; looking before sleeping
 *   sleep.c                                the doorbell
 *   send.c recv.c zerocopy.c life.c        bytes, and the end
 *   sent.c                                 the order of sends on TCP and direct ones
 *
 * The phase says whether there is a segment; where each direction is, in a segment or on
 * the shadow, is in struct ds_shared (segment/arena.h).
 *
 * Locks (segment/lock.h): setup (process) before tx_lock before rx_lock (connection); arming (of the
 * process's handle of a connection) is taken alone. None is held while a thread sleeps or is in a call
 * that can be cancelled.
 */
#ifndef DS_INNER_H
#define DS_INNER_H

#include "conn/sock.h"
#include "conn/stats.h"

enum { PLAIN, EARLY, CLAIMED, GRANTED, OFFERED, UP };

struct ds_sock {
	uint8_t phase, side;
	bool no_rights; /* the peer cannot send descriptors to the bell */
	bool bell_gone; /* the bell is no longer to be waited on */
	bool waits;     /* a server: its listener stays announced for it (ds_broker_wait) */
	bool heir;      /* the program before this one in the process has made the connection (ds_heir) */
	bool stream;    /* it is a standard stream, which the C library reads and writes by itself: no segment */
	bool left;      /* this process uses it no more, and has told those that share it (ds_leave) */
	uint8_t tries;  /* offers that were not taken, looks that found no listener, sleepers that did not wake */
	uint8_t nonblock; /* 0 not known, 1 no, 2 yes */
	struct ds_shared *sh; /* NULL when PLAIN from the start */
	struct ds_seg seg;
	struct ds_entry *entry;
	int wakefd;
	uint32_t bucket, refused; /* the page's word for which there was no offer */
	uint32_t id;
	uint32_t sends;
	unsigned waited; /* turns of ds_patience */
	uint64_t moved; /* bytes, both directions, before the offer */
	uint64_t checked; /* time stamp when the bell was last looked at */
	uint64_t retry;   /* EARLY: nothing is tried before; OFFERED: the offer is repeated then, if not 0 */
	uint32_t asked;   /* the connection to the broker that has the offer */
	int offered[2];   /* OFFERED: the segment and side 1's doorbell, to be offered again; or -1 */
	unsigned lowat;
	uint64_t seen; /* messages that have arrived, when ds_edges last looked */
	struct ds_lock arming; /* guards the next three, and what this process makes of sh->leader */
	uint32_t leading;      /* the thread of this process that leads; 0: none */
	uint32_t sets_name;    /* by which the epoll sets of this process lead, if no thread does */
	unsigned sets;	       /* their armings */
	unsigned pollers;      /* threads of this process that sleep on wakefd, as another sleeper has the bell */
	struct ds_peer *peer;  /* a client: its server, if there is room for one (sent.c) */
	uint32_t noted, rang;  /* of its notes, and of ds_rings, what the segment says; with the lock of tx */
	uint64_t rings;	       /* what the peer's said when ds_has_rung looked last */
	uint64_t read;	       /* a server: when bytes were read on the shadow last, by ds_ticks */
	struct ds_spinner spinner;
	void *user;
	struct ds_info info;
	uint32_t index;
	struct ds_sock *next_free;
	bool open;
};

static inline bool ds_alone(const struct ds_sock *s)
{
	return ds_one_thread() && __atomic_load_n(&s->sh->refs, __ATOMIC_RELAXED) == 1;
}

/* Ticks of a microsecond; measured once. */
uint64_t ds_ticks_us(void) DS_HIDDEN;

/* ---- the process (pool.c) --------------------------------------------------------- */

/* Settings; tunable by EXNET_DS_SENDS, _BYTES, _SLOTS, _RING, _EXPEDITED, _WAIT (ms), _WELCOME (ms), for tests and those who measure. */
struct ds_config {
	unsigned sends, slots, wait, welcome;
	uint64_t bytes, ring;
	unsigned max_slots; /* EXNET_DS_MAX_SLOTS, EXNET_DS_MAX_RING: what a server takes of a client */
	uint64_t max_ring;
	bool expedite;  /* EXNET_DS_EXPEDITED: sleepers call membarrier, so that wakers need no fence */
	bool expedited; /* and this process is registered for it */
	bool explain; /* EXNET_EXPLAIN: connections that stay TCP are told of, too */
};
extern struct ds_config ds_config DS_HIDDEN;
/* Reads the settings: true once, at the first call. With the lock of setup. */
bool ds_start(void) DS_HIDDEN;

void ds_patience(struct ds_sock *s, int fd) DS_HIDDEN;
/* The lock of setup: guards the handles, the broker and the statistics. False: it was not taken, as this thread has it
 * (DS_NESTED), or, of try, as any thread has: what it was wanted for is not done, and the connection stays on TCP. */
bool ds_setup_try(void) DS_HIDDEN;
bool ds_setup_lock(void) DS_HIDDEN;
void ds_setup_unlock(void) DS_HIDDEN;
/* Calls run(arg) with the lock of setup held: now, or when this thread, which has it, gives it back. */
void ds_setup_do(void (*run)(void *arg), void *arg) DS_HIDDEN;

struct ds_sock *ds_handle(void) DS_HIDDEN;
void ds_handle_put(struct ds_sock *s) DS_HIDDEN;
struct ds_sock *ds_by_id(uint32_t id) DS_HIDDEN;
/* Connected to a broker, for the first time or again. */
void ds_met(void) DS_HIDDEN;
/* May the process have one segment more? It has. Both ends of s, its segment and its bell, are given up. */
bool ds_segment_room(void) DS_HIDDEN;
void ds_segment_made(void) DS_HIDDEN;
void ds_drop(struct ds_sock *s) DS_HIDDEN;
/* The offer of s, if there is one, is not repeated: what was kept for that goes. */
void ds_offer_once(struct ds_sock *s) DS_HIDDEN;
/* Keeps the segment and side 1's doorbell, which it takes, to offer them again. False: there are too many. */
bool ds_offer_keep(struct ds_sock *s, int segment, int bell) DS_HIDDEN;
/* What the broker says of an offer. */
void ds_refused(uint32_t id, int reason) DS_HIDDEN;
/* s, a server, is direct or never will be. */
void ds_decided(struct ds_sock *s) DS_HIDDEN;
/* Offers a segment for s, a client in phase EARLY, if that can be now. Offers it again, in phase OFFERED, if it is
 * time to. With the lock of setup. */
void ds_offer(struct ds_sock *s, int fd) DS_HIDDEN;
void ds_offer_again(struct ds_sock *s, int fd) DS_HIDDEN;
/* Both ends of the segment of s are known: what is left is to say so. */
void ds_offered(struct ds_sock *s) DS_HIDDEN;
/* Shuts the gate, or says that a thread is busy and has it tried later. */
bool ds_gate_get(struct ds_sock *s) DS_HIDDEN;
/* Calls notices->rung. */
void ds_tell_rung(struct ds_sock *s) DS_HIDDEN;

/* Fields of a connection that threads read or write without a common lock. */
#define DS_GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define DS_SET(field, v) __atomic_store_n(&(field), v, __ATOMIC_RELAXED)

/* The phase, by who has not the lock of setup. */
static inline int ds_phase_of(const struct ds_sock *s) { return __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE); }

static inline void ds_phase(struct ds_sock *s, int p) { __atomic_store_n(&s->phase, p, __ATOMIC_RELEASE); }

/* Has no other process the connection open? */
static inline bool ds_single(const struct ds_sock *s) { return __atomic_load_n(&s->sh->refs, __ATOMIC_ACQUIRE) == 1; }

/* ---- what is sent on TCP beside (sent.c) ------------------------------------------------ */

/* A server, and the sends to it on TCP: words of the control block, a time and the client's port. */
struct ds_peer {
	uint8_t addr[16];
	uint16_t port;
	unsigned users;	 /* connections; with the lock of setup */
	bool told;	 /* something was said to it: else nobody asks what is noted */
	uint32_t notes;	 /* made, or under way no more */
	uint64_t sent[DS_SENT];
};

/* s, a client, begins and ends to have a server: with the lock of setup. True if that is told of sends; then it is
 * noted that s has sent nothing yet, if it has not, and there is room for that. */
bool ds_peer_get(struct ds_sock *s) DS_HIDDEN;
void ds_peer_made(struct ds_sock *s) DS_HIDDEN;
void ds_peer_put(struct ds_sock *s) DS_HIDDEN;
/* In the child of a fork: what the parent sends on what both have is not known. */
void ds_peer_fork_child(void) DS_HIDDEN;
/* Is there something to be said before a direct send? Says it. With the lock of tx. */
static inline bool ds_sent_news(const struct ds_sock *s)
{
	return DS_GET(ds_rings) != s->rang || (s->peer && DS_GET(s->peer->notes) != s->noted);
}
void ds_sent_tell(struct ds_sock *s) DS_HIDDEN;

/* ---- the shadow (shadow.c) ---------------------------------------------------------- */

bool ds_address(const struct sockaddr_storage *a, uint8_t *to, uint16_t *port) DS_HIDDEN;
bool ds_is_tcp(int fd) DS_HIDDEN;
/* The class of fd, one of whose ends has this address: the DSCP of its packets; 0: none. Sets it. */
unsigned ds_class(int fd, const uint8_t end[16]) DS_HIDDEN;
void ds_class_set(int fd, const uint8_t end[16], unsigned class) DS_HIDDEN;
/* The segment says the class of s. With the lock of setup. */
static inline void ds_class_say(struct ds_sock *s, int fd) { ds_seg_class(&s->seg, ds_class(fd, s->info.addr[1])); }
bool ds_addresses(int fd, int side, struct ds_info *info) DS_HIDDEN;
ssize_t ds_real_send(int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t ds_real_recv(int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
/* The same, as users of the shadow. DS_CHANGED, and nothing done: meanwhile the direction has been promoted; early: or
 * the connection, which had no segment, has got one. */
enum { DS_CHANGED = -2 };
ssize_t ds_shadow_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t ds_shadow_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags, bool early) DS_HIDDEN;

/* A cursor at the beginning of iov, of DS_MAX_RW bytes at most, as in the kernel; false and errno: a length or an address
 * that cannot be. The vector that it stands at, and at most max of it. On by n bytes. */
bool ds_cursor(struct ds_cursor *c, const struct iovec *iov, int n) DS_HIDDEN;
struct iovec ds_here(const struct ds_cursor *c, size_t max) DS_HIDDEN;
void ds_skip(struct ds_cursor *c, size_t n) DS_HIDDEN;
/* The first limit bytes that the cursor stands before, as vectors for the kernel; their number. What they do not hold is
 * left for the next call. */
enum { DS_VECTORS = 32 };
int ds_vectors(const struct ds_cursor *c, size_t limit, struct iovec v[DS_VECTORS]) DS_HIDDEN;

enum { DS_INQ = 0x541B, DS_OUTQ = 0x5411 }; /* SIOCINQ, SIOCOUTQ */

/* A call on the shadow alone, into the kernel: begin; the call; end. While one is under way no
 * segment is attached and no direction promoted. Who may be left by a jump uses ds_use_begin (sock.h). */
void ds_users_begin(struct ds_sock *s) DS_HIDDEN;
void ds_users_end(struct ds_sock *s) DS_HIDDEN;
/* True if nobody is in such a call, nor will be until ds_gate_open. */
bool ds_gate_shut(struct ds_sock *s) DS_HIDDEN;
/* The same, and wakes those who sleep in such a call and can be woken; waits for them a moment. */
bool ds_gate_clear(struct ds_sock *s) DS_HIDDEN;
void ds_gate_open(struct ds_sock *s) DS_HIDDEN;

/* Where a direction is, and other small things of struct ds_shared, also without its lock. */
static inline int ds_mode(const uint8_t *m) { return __atomic_load_n(m, __ATOMIC_RELAXED); }

/* Has s a segment? */
static inline bool ds_has_segment(const struct ds_sock *s)
{
	return __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE) >= OFFERED;
}

/* May this side promote its direction? */
static inline bool ds_may_promote(const struct ds_sock *s)
{
	return __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE) == UP;
}

/* O_NONBLOCK of fd. */
bool ds_nonblock(struct ds_sock *s, int fd) DS_HIDDEN;

/* What the kernel has counted on the shadow: bytes written by the program, bytes read
 * by it. False if the connection is not established any more, or cannot be asked. */
bool ds_kernel_sent(int fd, int side, uint64_t *n) DS_HIDDEN;
bool ds_kernel_read(int fd, uint64_t *n) DS_HIDDEN;


/* With the direction's lock held: */
void ds_break(struct ds_sock *s) DS_HIDDEN;        /* a breach */
void ds_tx_is(struct ds_sock *s, int mode) DS_HIDDEN; /* and rx_is: change of mode, statistics */
void ds_say_direct(struct ds_sock *s) DS_HIDDEN;          /* to the statistics, with what it goes through */
void ds_rx_is(struct ds_sock *s, int mode) DS_HIDDEN;
/* Looks for PROMOTE, FROZEN, CLOSED; brings tx_mode and rx_mode up to date. May write to the
 * shadow what is to be rolled back, as far as it takes it. */
void ds_tx_update(struct ds_sock *s, int fd) DS_HIDDEN;
void ds_rx_update(struct ds_sock *s, int fd) DS_HIDDEN;
/* Without the lock: rolls back if the peer has frozen. For whoever waits for anything else. */
void ds_tx_attend(struct ds_sock *s, int fd) DS_HIDDEN;
/* Has the peer closed its end, or gone? */
bool ds_left(struct ds_sock *s) DS_HIDDEN;
/* Is the peer's end of the doorbell closed? Asks the kernel if that was not done lately. Returns ds_ticks as of now. */
uint64_t ds_check_bell(struct ds_sock *s, bool now) DS_HIDDEN;

/* Events that concern a direction. */
enum { RX_EVENTS = POLLIN | POLLRDNORM, TX_EVENTS = POLLOUT | POLLWRNORM };

/* Sleeps until s may be ready for events: 0, or -1 and EINTR or EAGAIN (deadline, in ns of
 * CLOCK_MONOTONIC; 0: none). timed: the program has set a timeout, after which signals are told always. */
int ds_wait(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed) DS_HIDDEN;
/* The same; before, which is called when looking was in vain, may find something to do instead of sleeping: true, and
 * it is as if something had come. */
int ds_wait_or(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed, bool (*before)(void *), void *arg) DS_HIDDEN;
int64_t ds_now(void) DS_HIDDEN;
/* The deadline of SO_RCVTIMEO or SO_SNDTIMEO, from now; 0: none. */
int64_t ds_deadline(int fd, int option) DS_HIDDEN;

/* Takes the lock of a direction; false: a signal handler interrupted its holder. */
static inline bool ds_tx_take(struct ds_sock *s, bool alone)
{
	int how = ds_lock(&s->sh->tx_lock, alone);

	if (__builtin_expect(how == DS_INHERITED, 0) && ds_has_segment(s))
		ds_tx_recover(&s->seg, &s->sh->tx);
	return how != DS_NESTED;
}

static inline bool ds_rx_take(struct ds_sock *s, bool alone) { return ds_lock(&s->sh->rx_lock, alone) != DS_NESTED; }

/* ds_zerocopy_done. */
static inline bool ds_zerocopy_left(const struct ds_sock *s)
{
	const struct ds_shared *h = s->sh;

	return h && __atomic_load_n(&h->zc_own, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&h->zc_told, __ATOMIC_ACQUIRE) != __atomic_load_n(&h->zc_next, __ATOMIC_ACQUIRE);
}

#endif
