/* The inside of this layer: a connection as this process sees it. Each file calls those above or
 * beside it:
 *
 *   env.c wire.c rules.c fds.c    variables, broker messages, rules, own descriptors,
 *   stats.c clock.c               statistics, time
 *   sharers.c                     processes that share a connection without a segment
 *   broker.c listeners.c          the broker, listeners,
 *   config.c pool.c shadow.c      settings, handles and fork, the TCP socket
 *   numbers.c                     calls by a number that dup2 may be changing
 *   modes.c gate.c                where each direction is; calls on the shadow alone
 *   lifestate.c                   the states of a connection's life
 *   begin.c uncounted.c life.c    sockets that connect, accept, listen; the life of a connection
 *   habit.c offer.c setup.c       when to offer; offers; from the shadow to a segment
 *   inherited.c ready.c spin.c    inherited connections, readiness, spinning before sleeping
 *   bell.c sleep.c                the doorbell; sleeping until a connection is ready
 *   send.c recv.c recvbefore.c    bytes
 *   zerocopy.c
 *   linger.c end.c                SO_LINGER; the end of a connection
 *
 * The state says whether there is a segment; where each direction is, in a segment or on
 * the shadow, is in struct ds_shared (segment/arena.h).
 *
 * Locks (segment/lock.h): setup (process) before tx_lock before rx_lock (connection); arming (of
 * the process's handle of a connection) is taken alone. None is held while a thread sleeps for
 * longer than 2 ms (ds_kernel_ended; ds_gate_get 1 ms) or is in a call that can be cancelled.
 */
#ifndef DS_INNER_H
#define DS_INNER_H

#include "conn/sock.h"
#include "conn/stats.h"

enum { SHARER_NONE, SHARER_UNUSED, SHARER_USED }; /* see sharers.c */

struct ds_sock {
	uint8_t state;  /* enum conn_state; lifestate.c writes it */
	uint8_t side;
	/* No states of the connection's life, since each holds in several of them: */
	bool no_rights; /* of the bell: the peer cannot send descriptors to it */
	bool bell_gone; /* of the bell: this process has read its end, and need not wait on it. What follows
			 * from the peer's end is said by sh->gone to the directions, whose states
			 * change */
	bool waits;     /* of the listener: it stays announced for this server (ds_broker_wait) */
	bool inherited; /* where it comes from: the program before this one in the process (ds_inherited) */
	bool stream;    /* of its descriptors: one is a standard stream, which the C library reads and writes by
			 * itself; no segment while that is so */
	uint8_t sharer; /* SHARER_x: a life of its own, of which sharers.c is the owner, */
	int pair[2];    /* and its sockets */
	int granted;    /* GRANTED: the segment, for those that share it; -1: none */
	uint8_t tries;  /* offers not taken, looks that found no listener, sleepers that did not wake */
	struct ds_shared *sh; /* NULL when PLAIN from the start */
	struct ds_seg seg;
	struct ds_entry *entry;
	int wakefd;
	int leadfd; /* wakes a thread that leads: ds_nudge; or -1 */
	uint32_t bucket, refused; /* refused: the page's word when there was no offer for it */
	uint32_t id;
	uint32_t sends;
	int64_t waited; /* ns, in ds_test_wait */
	uint64_t moved; /* bytes, both directions, before the offer */
	uint64_t checked; /* when the bell was last looked at, by ds_ticks */
	uint64_t retry;   /* EARLY: nothing is tried before; OFFERED: the offer is repeated then, if not 0 */
	uint32_t asked;   /* the connection to the broker that has the offer, or the claim */
	uint8_t not_taken; /* why the offer was last not taken */
	int offered[2];   /* OFFERED: the segment and side 1's doorbell, to be offered again; or -1 */
	unsigned lowat;
	uint64_t seen; /* messages that have arrived, when ds_edges last looked */
	struct ds_lock arming; /* guards the next three, and what this process makes of sh->leader */
	uint32_t leading;      /* the thread of this process that leads; 0: none */
	bool leads_rx;	       /* that thread sleeps for what is received */
	unsigned sets;	       /* armings of the epoll sets of this process: they lead by its name, if no thread does */
	unsigned pollers;      /* threads of this process that sleep on wakefd, because another sleeper has the bell */
	uint32_t rang;	       /* last value of ds_rings that was published; guarded by the lock of tx */
	uint64_t full;	       /* since when the queue is full of few bytes, and the peer takes none; 0: it is not so */
	uint64_t full_at;      /* what the peer had consumed then; both are guarded by the lock of tx */
	struct ds_spinner spinner;
	struct ds_yield yield;
	struct ds_life *life;
	struct ds_info info;
	uint32_t index;
	struct ds_sock *next_free;
};

static inline bool ds_alone(const struct ds_sock *s)
{
	return ds_one_thread() && __atomic_load_n(&s->sh->refs, __ATOMIC_RELAXED) == 1;
}

/* Ticks of a microsecond; measured once, by the first that asks. */
uint64_t ds_ticks_us_ask(void) DS_HIDDEN;
extern uint64_t ds_per_us DS_HIDDEN;
static inline uint64_t ds_ticks_us(void)
{
	uint64_t known = __atomic_load_n(&ds_per_us, __ATOMIC_RELAXED);

	return __builtin_expect(known != 0, 1) ? known : ds_ticks_us_ask();
}

/* ---- the process (pool.c) --------------------------------------------------------- */

/* Settings, which EXNET_DS_SENDS, _BYTES, _SLOTS, _RING, _EXPEDITED, _WAIT (ms) and _WELCOME (ms)
 * change, for tests and measurements. */
struct ds_config {
	unsigned sends, slots, wait, welcome;
	uint64_t bytes;
	uint64_t ring; /* 0: the default */
	unsigned max_slots; /* EXNET_DS_MAX_SLOTS, EXNET_DS_MAX_RING: what a server takes of a client */
	uint64_t max_ring;
	bool expedite;  /* EXNET_DS_EXPEDITED: sleepers call membarrier, so that wakers need no fence */
	bool expedited; /* and this process is registered for it */
	bool fixed;   /* sends or bytes is set, and does not grow (habit.c) */
	bool explain; /* EXNET_EXPLAIN: connections that stay TCP are listed, too */
};
extern struct ds_config ds_config DS_HIDDEN;
/* Reads the settings: true once, at the first call. With the lock of setup. */
bool ds_start(void) DS_HIDDEN;

void ds_test_wait(struct ds_sock *s, int fd) DS_HIDDEN;
/* With the lock of setup: makes the handle of the connection fd, whose connect has succeeded
 * (side 0), or which accept returned (1). NULL: it stays plain TCP for good (not TCP, no broker, no
 * memory), or another thread has closed a descriptor of l meanwhile (ds_life_has_moved). l is NULL
 * if none can. */
struct ds_sock *ds_make(int fd, int side, const struct ds_life *l) DS_HIDDEN;
/* The lock of setup: guards the handles, the broker and the statistics. False: not taken, because
 * this thread holds it (DS_NESTED) or, for try, any thread does; the caller skips its work, and the
 * connection stays on TCP. */
bool ds_setup_try(void) DS_HIDDEN;
bool ds_setup_lock(void) DS_HIDDEN;
void ds_setup_unlock(void) DS_HIDDEN;
/* What who has the lock of setup does before it unlocks, and makes NULL: sockets have become the
 * kernel's, and are to be announced no more. */
extern void (*ds_setup_due)(void) DS_HIDDEN;
/* Calls run(arg) with the lock of setup held: now or, if this thread holds it already, when it
 * releases it. */
void ds_setup_do(void (*run)(void *arg), void *arg) DS_HIDDEN;

struct ds_sock *ds_handle(void) DS_HIDDEN;
void ds_handle_put(struct ds_sock *s) DS_HIDDEN;
struct ds_sock *ds_by_id(uint32_t id) DS_HIDDEN;
/* Connects to the broker that has come after the last one, which is to see the connections that
 * this process has, and may switch them off. Not in a child that has not looked for a broker
 * itself. With no lock of a direction. */
void ds_broker_follow(void) DS_HIDDEN;
/* Connected to a broker, for the first time or again. */
void ds_broker_is_new(void) DS_HIDDEN;
/* ds_segment_room: the process may have one more segment, and what it takes; offers: as ds_room.
 * ds_segment_made counts it. ds_drop releases the segment and the bell of s. */
bool ds_segment_room(bool offers) DS_HIDDEN;
void ds_segment_made(void) DS_HIDDEN;
void ds_drop(struct ds_sock *s) DS_HIDDEN;
/* Closes the segment that was kept for those that share s. */
void ds_granted_close(struct ds_sock *s) DS_HIDDEN;
/* Repeats the offer of s no more, and releases what was kept for that. */
void ds_offer_once(struct ds_sock *s) DS_HIDDEN;
/* Are so many offers kept that the broker would not take another? */
bool ds_offers_full(void) DS_HIDDEN;
/* Takes the segment and side 1's doorbell, and keeps them to offer them again. False: there are too
 * many. */
bool ds_offer_keep(struct ds_sock *s, int segment, int bell) DS_HIDDEN;
/* What the broker says about an offer. */
void ds_refused(uint32_t id, int reason) DS_HIDDEN;
/* The server s is direct, or never will be. */
void ds_decided(struct ds_sock *s) DS_HIDDEN;
/* ds_offer offers a segment for the client s, which is EARLY, if it can now; ds_offer_again repeats
 * the offer of one that is OFFERED when it is due. With the lock of setup. */
void ds_offer(struct ds_sock *s, int fd) DS_HIDDEN;
void ds_offer_again(struct ds_sock *s, int fd) DS_HIDDEN;
/* The segment of s and both of its bells exist: it is OFFERED, and the bell is reported. */
void ds_offered(struct ds_sock *s) DS_HIDDEN;
/* Is a client that has sent so often, or moved so many bytes, to be offered a segment? */
bool ds_worth(uint64_t sends, uint64_t moved) DS_HIDDEN;
/* s ends, which says something of those to come. With the lock of setup. */
void ds_habit(const struct ds_sock *s) DS_HIDDEN;
/* Shuts the gate; false if a thread is in a call on the shadow: try again later. */
bool ds_gate_get(struct ds_sock *s) DS_HIDDEN;
/* What ds_tell was told; NULL: nothing. */
extern const struct ds_notices *ds_above DS_HIDDEN;
void ds_tell_rung(struct ds_sock *s) DS_HIDDEN;
/* What happened is known at this end alone, so nobody rings. ds_nudge: threads of this process that
 * poll the wakefd or the leadfd look again. ds_wake_all: so do epoll sets, and those that sleep on
 * the generation. */
void ds_nudge(struct ds_sock *s) DS_HIDDEN;
void ds_wake_all(struct ds_sock *s) DS_HIDDEN;
static inline int ds_still(struct ds_sock *s, int fd) { return ds_above ? ds_above->still(s, fd) : fd; }

/* Fields of a connection that threads read or write without a common lock. */
#define DS_GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define DS_SET(field, v) __atomic_store_n(&(field), v, __ATOMIC_RELAXED)

/* What s cannot do now, it tries again in 10 ms. */
static inline void ds_retry_soon(struct ds_sock *s) { DS_SET(s->retry, ds_ticks() + 10000 * ds_ticks_us()); }

/* The state, for callers without the lock of setup. */
static inline int ds_state_of(const struct ds_sock *s) { return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE); }

/* Has somebody the handle s? */
static inline bool ds_open(const struct ds_sock *s) { return ds_state_of(s) != CONN_ENDED; }

/* True if no other process has the connection open. */
static inline bool ds_single(const struct ds_sock *s) { return __atomic_load_n(&s->sh->refs, __ATOMIC_ACQUIRE) == 1; }

/* ---- processes that share a connection without a segment (sharers.c) ------------------------- */

/* With the lock of setup: may this process give s a segment, because no other one has it, or uses
 * it? ds_sharer_take does so, when it is about to: false, it may not any more. ds_sharer_end: this
 * process leaves it. */
bool ds_sharer_free(const struct ds_sock *s) DS_HIDDEN;
bool ds_sharer_take(struct ds_sock *s, int segment, int bell) DS_HIDDEN;
/* The same process drops the segment that it meant to take. */
void ds_sharer_drop(struct ds_sock *s) DS_HIDDEN;
void ds_sharer_end(struct ds_sock *s) DS_HIDDEN;
/* This process will not use s again: as ds_sharer_end, but writes memory only. */
void ds_sharer_leave(struct ds_sock *s) DS_HIDDEN;
/* Before a fork: those that will have s are not counted until they use it. */
void ds_sharer_pair(struct ds_sock *s) DS_HIDDEN;
/* At a fork, with by = 1: the child is counted as its parent is; -1: there is none. */
void ds_sharer_fork(struct ds_sock *s, int by) DS_HIDDEN;
/* This process has not used s since a fork. ds_sharer_count: from now on it does; false: another
 * one has made s direct, and ds_sharer_map maps the segment and returns its doorbell, or false. No
 * lock; the other two with that of setup. */
static inline bool ds_sharer_unused(const struct ds_sock *s) { return __builtin_expect(DS_GET(s->sharer) == SHARER_UNUSED, 0); }
bool ds_sharer_count(struct ds_sock *s) DS_HIDDEN;
bool ds_sharer_map(struct ds_sock *s, int *bell) DS_HIDDEN;
/* Has setup.c told what the broker says. With the lock of setup. */
void ds_setup_broker(void) DS_HIDDEN;

/* ---- the shadow (shadow.c) ---------------------------------------------------------- */

bool ds_address(const struct sockaddr_storage *a, uint8_t *to, uint16_t *port) DS_HIDDEN;
bool ds_is_tcp(int fd) DS_HIDDEN;
/* The class of fd, one of whose ends has this address: the DSCP of its packets; 0: none. Sets
 * it. */
unsigned ds_class(int fd, const uint8_t end[16]) DS_HIDDEN;
/* TCP_USER_TIMEOUT of fd, in ms; 0: none. */
unsigned ds_user_timeout(int fd) DS_HIDDEN;
void ds_class_set(int fd, const uint8_t end[16], unsigned class) DS_HIDDEN;
/* Writes to the segment of s what a node that carries it does for its packets: their class, and how
 * long they may be repeated. With the lock of setup. */
static inline void ds_node_tell(struct ds_sock *s, int fd) { ds_seg_tell(&s->seg, ds_class(fd, s->info.addr[1]), ds_user_timeout(fd)); }
bool ds_addresses(int fd, int side, struct ds_info *info) DS_HIDDEN;
ssize_t ds_real_send(int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t ds_real_recv(int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
/* What a read into iov tells where the shadow says end of file: 0, or -1 and the error that is
 * owed, once. */
ssize_t ds_end(struct ds_sock *s, const struct iovec *iov, int n) DS_HIDDEN;
/* Reads from the shadow what belongs before the segment's data: bytes, 0 at the end of file, or -1
 * and errno; ESTALE: the direction has changed, look again. With the lock of rx. */
ssize_t ds_recv_before(struct ds_sock *s, int fd, struct ds_cursor *c, int flags) DS_HIDDEN;

/* ds_cursor: a cursor at the beginning of iov, of at most DS_MAX_RW bytes as in the kernel; false
 * and errno: an impossible length or address. ds_here: the vector at the cursor, at most max bytes.
 * ds_skip: moves it by n bytes. */
bool ds_cursor_of(struct ds_cursor *c, const struct iovec *iov, int n) DS_HIDDEN;
/* True if the n bytes at p are where the kernel lets a program have memory. */
static inline bool ds_user_range(const void *p, size_t n) { return n <= DS_USER_END && (uintptr_t)p <= DS_USER_END - n; }
static inline bool ds_cursor(struct ds_cursor *c, const struct iovec *iov, int n)
{
	if (__builtin_expect(n != 1 || iov->iov_len > DS_MAX_RW || !ds_user_range(iov->iov_base, iov->iov_len), 0))
		return ds_cursor_of(c, iov, n);
	/* Zeroes that cover two fields would delay the reads that follow: each has its own. */
	*c = (struct ds_cursor){.v = iov, .n = 1, .off = 0, .left = iov->iov_len, .at = 0};
	return true;
}
struct iovec ds_here(const struct ds_cursor *c, size_t max) DS_HIDDEN;
void ds_skip(struct ds_cursor *c, size_t n) DS_HIDDEN;
/* The next limit bytes after the cursor as vectors for the kernel, and their number. What does not
 * fit is left for the next call. */
enum { DS_VECTORS = 32 };
int ds_vectors(const struct ds_cursor *c, size_t limit, struct iovec v[DS_VECTORS]) DS_HIDDEN;

enum { DS_INQ = 0x541B, DS_OUTQ = 0x5411, DS_ATMARK = 0x8905 }; /* SIOCINQ, SIOCOUTQ, SIOCATMARK */

/* True if the program has shut receiving down. If it has shut both directions down and has read
 * all, what the peer sends from now on goes to the shadow, where the kernel answers with a reset.
 * Takes the lock of rx. */
bool ds_reads_nothing(struct ds_sock *s, int fd) DS_HIDDEN;

/* When the end of fd, whose peer is gone, came on the shadow, in ds_ticks: surely not before. 0: it
 * has not. */
uint64_t ds_kernel_ended(int fd) DS_HIDDEN;

/* Where a direction is, and other small things of struct ds_shared, also without its lock. */
static inline int ds_mode(const uint8_t *m) { return __atomic_load_n(m, __ATOMIC_RELAXED); }

/* True if s has a segment. */
static inline bool ds_has_segment(const struct ds_sock *s)
{
	return ds_state_of(s) >= CONN_OFFERED;
}

/* True if this side may promote its direction. */
static inline bool ds_may_promote(const struct ds_sock *s)
{
	return ds_state_of(s) == CONN_UP && ds_seg_peer_looks(&s->seg);
}

/* O_NONBLOCK of fd. */
bool ds_nonblock(struct ds_sock *s, int fd) DS_HIDDEN;

/* What the kernel has counted on the shadow: bytes that the program has written, bytes that it has
 * read. False if the connection is no longer established, or cannot be asked. */
bool ds_kernel_sent(int fd, int side, uint64_t *n) DS_HIDDEN;
bool ds_kernel_read(int fd, uint64_t *n) DS_HIDDEN;
/* Is urgent data what the shadow has next? A read that has got bytes already ends before it, and
 * sockatmark says so. */
bool ds_shadow_at_mark(int fd) DS_HIDDEN;
/* As ds_kernel_read, also when the connection has ended. noted: as read of ds_shadow_given. */
bool ds_shadow_read(int fd, uint64_t noted, uint64_t *n) DS_HIDDEN;
/* The same of a connection that is closed, whose peer has moved to the segment after carried bytes:
 * the shadow has no more, so what exceeds them is its end of file. */
bool ds_shadow_read_up_to(int fd, uint64_t carried, uint64_t *n) DS_HIDDEN;
/* How many bytes have come on the shadow in all, read or not, and whether no more will: its end of
 * file or a reset came, which does not count. read: how many the library knows to be read. False:
 * the kernel does not say. */
bool ds_shadow_given(int fd, uint64_t read, uint64_t *n, bool *ended) DS_HIDDEN;
/* Has the shadow failed (reset, timed out), and had no end of file come before? read: as above. */
bool ds_shadow_failed(int fd, uint64_t read) DS_HIDDEN;

/* ---- calls on the shadow alone (gate.c) --------------------------------------------- */

/* Around a system call on the shadow alone. While one is under way no segment is attached and no
 * direction promoted. A caller that a jump may leave uses ds_use_begin (sock.h). */
void ds_users_begin(struct ds_sock *s) DS_HIDDEN;
void ds_users_end(struct ds_sock *s) DS_HIDDEN;
/* True if no thread is in such a call, and none will enter one before ds_gate_open. */
bool ds_gate_shut(struct ds_sock *s) DS_HIDDEN;
/* As ds_gate_shut, but wakes threads that sleep in such a call, where possible, and waits us for
 * them. */
bool ds_gate_clear(struct ds_sock *s, unsigned us) DS_HIDDEN;
void ds_gate_open(struct ds_sock *s) DS_HIDDEN;
/* ds_real_recv by a descriptor that s has. */
ssize_t ds_still_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
/* ds_real_send and ds_real_recv, as such calls. DS_CHANGED: nothing was done, since the direction
 * has been promoted meanwhile or, with early, the connection has got a segment. */
enum { DS_CHANGED = -2 };
ssize_t ds_shadow_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t ds_shadow_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags, bool early) DS_HIDDEN;

/* ---- the directions (state.c, modes.c) ---------------------------------------------- */

/* With the direction's lock held: */
void ds_break(struct ds_sock *s) DS_HIDDEN;           /* ends s after a breach */
/* Ends both directions of s with an error and closes its doorbell; why: DS_WHY_x. */
void ds_break_for(struct ds_sock *s, int why) DS_HIDDEN;
/* Ends the outbound direction of s by a reset that comes after the peer's end: EPIPE. */
void ds_break_tx(struct ds_sock *s) DS_HIDDEN;
/* Both directions are on the shadow for good, which has nothing to do with what was sent before. */
void ds_back(struct ds_sock *s) DS_HIDDEN;
/* What moves a direction from one state to another: SPEC 9.4 and 9.5, by the names there. */
enum {
	ON_PROMOTE, ON_REACHED, ON_CUT, ON_SHUTDOWN, ON_DEMOTE, ON_PAUSE, ON_RESUME, ON_GONE, ON_FALL_BACK, ON_QUEUE, ON_RETURNED,
	ON_HELD, ON_ENDED, ON_READ,
	ON_FALLEN_BACK, ON_LEAVE, ON_WRITTEN, ON_FAILED, ON_KILLED,
};
enum { RX_BEFORE = 0xfe }; /* in ds_rx_steps: the state before ON_FALL_BACK */
extern const struct ds_step ds_rx_steps[] DS_HIDDEN, ds_tx_steps[] DS_HIDDEN;
/* Moves a direction. A step that the table does not have is a fault of ours, and ends s. */
void ds_on_rx(struct ds_sock *s, int what) DS_HIDDEN;
void ds_on_tx(struct ds_sock *s, int what) DS_HIDDEN;
void ds_rx_caught_up(struct ds_sock *s) DS_HIDDEN;
/* The last holder of the direction's lock was killed, or a jump left it: finishes its step. */
void ds_tx_inherit(struct ds_sock *s) DS_HIDDEN;
void ds_rx_inherit(struct ds_sock *s) DS_HIDDEN;
int ds_why_back(const struct ds_sock *s) DS_HIDDEN;   /* why s goes back to TCP, if this process does not say so */
void ds_say_mode(struct ds_sock *s) DS_HIDDEN;        /* tells the statistics where s is */
void ds_say_again(struct ds_sock *s) DS_HIDDEN;       /* tells statistics that are new to s, which has a segment, where it is */
/* Looks for PROMOTE, FALLEN_BACK and CLOSED, and updates tx_mode and rx_mode. Returns to TCP
 * as much as it takes without waiting. */
void ds_tx_update(struct ds_sock *s, int fd) DS_HIDDEN;
void ds_rx_update(struct ds_sock *s, int fd) DS_HIDDEN;
/* The inbound direction returns to TCP (returning.c). With the lock of rx: stops reading the queue,
 * unless the peer has ended the direction. */
void ds_rx_fall_back(struct ds_sock *s) DS_HIDDEN;
/* Moves on from RX_FALLEN_BACK, RX_RETURNING and RX_REST. */
void ds_rx_returning(struct ds_sock *s, int fd) DS_HIDDEN;
/* Are there bytes in the segment that the program has not read, here or on the shadow? With the
 * lock of rx. */
bool ds_segment_unread(struct ds_sock *s) DS_HIDDEN;
/* Does the direction take its bytes from the segment? */
static inline bool ds_rx_from_segment(const struct ds_sock *s)
{
	int mode = ds_mode(&s->sh->rx_mode);

	return mode == RX_DIRECT || mode == RX_REST;
}
/* RX_CATCH_UP: how many bytes more come on the shadow. With the lock of rx. */
static inline uint64_t ds_rx_ahead(const struct ds_shared *h) { return h->carried - h->rx_read; }
/* Do all bytes of an outbound direction in that state go to the shadow? */
static inline bool ds_goes_by_shadow(int tx) { return tx == TX_BACK || tx <= TX_PAUSED; }
/* Moves the direction from the shadow to the segment, if it may; pauses: for PAUSE, which has to
 * follow. With the lock of tx. */
bool ds_promote(struct ds_sock *s, int fd, bool pauses) DS_HIDDEN;
/* Without the lock: returns to TCP if the peer has fallen back, and pauses if the connection is
 * switched off. For callers that wait for something else. */
void ds_tx_attend(struct ds_sock *s, int fd) DS_HIDDEN;
/* A queue that is full of small messages holds much less than TCP's buffers. There are programs
 * whose two ends both send much before they read: so a sender that has few bytes under way, and has
 * waited for nothing for DS_STALL ns, goes back to the shadow, which has room. So does one with
 * TCP_USER_TIMEOUT, which the kernel keeps there. */
enum { DS_STALL = 250000000, DS_FEW = 65536 };
/* With the lock of tx, which is direct and has no room: it goes back to the shadow, if now says so,
 * or the peer has taken none of few bytes for DS_STALL ns. True: it has. */
bool ds_tx_gives_up(struct ds_sock *s, int fd, bool now) DS_HIDDEN;
/* Checks whether the peer has closed its end of the doorbell, or the shadow, fd, has failed: always
 * with now, else only if that was not done lately. Returns ds_ticks. */
uint64_t ds_check_peer_at(struct ds_sock *s, int fd, uint64_t t) DS_HIDDEN;
static inline uint64_t ds_check_peer(struct ds_sock *s, int fd, bool now)
{
	uint64_t t = ds_ticks();

	return !now && t - DS_GET(s->checked) < ds_ticks_us() * 10000 ? t : ds_check_peer_at(s, fd, t);
}

/* Is fd another connection's? Its number was closed and used again behind our back. */
bool ds_is_others(const struct ds_sock *s, int fd) DS_HIDDEN;

/* linger.c, with the lock of tx. ds_linger_guard: the direction is returning. If no process at the
 * other end has the segment any more, the shadow may be all that is left there, and must not end
 * well while bytes are missing: until they are written, whoever closes it, or is killed, resets
 * it. The same holds if a node was the other end, however it went: the far program has another
 * segment, or none. ds_linger_free: they are, and the shadow ends as the program wants it to
 * again. ds_linger_resets: the program's SO_LINGER has close reset the connection. */
void ds_linger_guard(struct ds_sock *s, int fd) DS_HIDDEN;
void ds_linger_free(struct ds_sock *s, int fd) DS_HIDDEN;
bool ds_linger_resets(struct ds_sock *s, int fd) DS_HIDDEN;
/* How long the program has close wait, in s; 0: not. Takes the lock of tx. */
int ds_linger_seconds(struct ds_sock *s, int fd) DS_HIDDEN;
/* Are there bytes that nobody at the other end can take from the segment, and the shadow has not
 * taken? */
static inline bool ds_left_behind(const struct ds_sock *s) { return ds_mode(&s->sh->tx_mode) == TX_RETURNING && ds_mode(&s->sh->return_orphan); }

/* Events that concern a direction. */
enum { RX_EVENTS = POLLIN | POLLRDNORM, TX_EVENTS = POLLOUT | POLLWRNORM };

/* Sleeps until s may be ready for events: 0, or -1 and EINTR or EAGAIN (deadline, in ns of
 * CLOCK_MONOTONIC; 0: none). timed: the program has set a timeout, so a signal always ends the
 * sleep. */
int ds_wait(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed) DS_HIDDEN;
/* The same, but calls before(arg) when it has found nothing: if that returns true, it has done
 * something, and ds_wait_or returns as if something had come. */
int ds_wait_or(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed, bool (*before)(void *), void *arg) DS_HIDDEN;
int64_t ds_now(void) DS_HIDDEN;
/* The deadline of SO_RCVTIMEO or SO_SNDTIMEO, from now; 0: none. */
int64_t ds_deadline(int fd, int option) DS_HIDDEN;

/* Takes the lock of a direction; false: a signal handler interrupted its holder. */
static inline bool ds_tx_take(struct ds_sock *s, bool alone)
{
	int how = ds_lock(&s->sh->tx_lock, alone);

	if (__builtin_expect(how == DS_INHERITED, 0) && ds_has_segment(s))
		ds_tx_inherit(s);
	return how != DS_NESTED;
}

static inline bool ds_rx_take(struct ds_sock *s, bool alone)
{
	int how = ds_lock(&s->sh->rx_lock, alone);

	if (__builtin_expect(how == DS_INHERITED, 0) && ds_has_segment(s))
		ds_rx_inherit(s);
	return how != DS_NESTED;
}

/* ds_zerocopy_done. */
static inline bool ds_zerocopy_left(const struct ds_sock *s)
{
	const struct ds_shared *h = s->sh;

	return h && __atomic_load_n(&h->zc_own, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&h->zc_told, __ATOMIC_ACQUIRE) != __atomic_load_n(&h->zc_next, __ATOMIC_ACQUIRE);
}

#endif
