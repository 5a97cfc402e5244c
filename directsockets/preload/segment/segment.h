/* Segments: the memory of one connection that its two ends share (SPEC 2 to 5).
 *
 * Nothing here sleeps, allocates, or knows of sockets. A struct ds_seg is this
 * process's view of a segment and does not change once made; struct ds_tx and
 * ds_rx are the positions of this end's two directions, which forked processes
 * share and the peer cannot write. One caller at a time per direction.
 *
 * Whatever the peer can write is read once into private memory and checked;
 * DS_BREACH ends the connection. What is only read is const volatile, so that a
 * load in the source is one load: the compiler neither repeats nor splits it, and
 * rejects code that drops the qualifier (-Werror). Words are read by GET and
 * ACQUIRE, bytes by ds_copy_in.
 */
#ifndef DS_SEGMENT_H
#define DS_SEGMENT_H

#include "segment/kernel.h"
#include "segment/lock.h"

#include <stddef.h>
#include <stdint.h>

enum {
	DS_SLOT = 128,
	DS_VELO_MAX = 120, /* bytes of data in a VELO message */
	DS_HEADER = 85,
	DS_CTRL = 512,    /* where the control blocks begin, and their size */
	DS_STAMPS = 1536, /* where the stamps of side 0 begin, then those of side 1, */
	DS_STAMP_RING = 128, /* and how many each has */
	DS_QUEUES = 4096, /* where the queues begin */
	DS_MIN_SLOTS = 16,
	DS_MAX_SLOTS = 4096,
	DS_MIN_RING = 65536,
	DS_MAX_RING = 1 << 30,
	DS_MAX_RMA = 8 << 20, /* bytes that one RMA_INFO announces */
	DS_RMA_INFO = 28,     /* bytes of its payload */
};

/* Tags of messages (SPEC 3). */
enum { DS_VELO = 1, DS_VELO_LAST, DS_INFO, DS_AVAIL, DS_SHUTDOWN, DS_DEMOTE, DS_PROMOTE, DS_REGION, DS_PAUSE };

/* Bits of the attention word (SPEC 2.2). */
enum { DS_ARM_RX = 1, DS_ARM_TX = 2, DS_FALLEN_BACK = 4, DS_CLOSED = 8, DS_RESET = 16, DS_RETURNED = 32, DS_STANDS = 64, DS_OFF = 128 };

/* The word state, and bits of the word flags. */
enum { DS_NONE, DS_OFFERED, DS_ATTACHED, DS_WITHDRAWN };
enum { DS_EXPEDITED = 1, DS_RELAYED = 4, DS_HARDWARE = 16, DS_TAKES = 32, DS_HEEDS = 64, DS_LATE = 128, DS_PAUSES = 256, DS_HOLDS = 512 };

/* What calls return instead of a number of bytes. */
enum {
	DS_AGAIN = -1,   /* nothing to read, or no room */
	DS_END = -2,     /* the sender has shut this direction down */
	DS_DEMOTED = -3, /* this direction continues on the shadow */
	DS_STOPPED = -4, /* the receiver has fallen back (return to TCP) or has closed (SPEC 5.7), or the network is cut */
	DS_BREACH = -5,  /* the peer broke the rules */
	DS_FAULT = -6,   /* the program's memory is not mapped: EFAULT */
	DS_PAUSED = -7,	 /* this direction continues on the shadow, and may be promoted again */
};

/* Counters of a connection in the order of SPEC 6.3. */
enum {
	DS_C_SENT, DS_C_RECEIVED, DS_C_SENT_SHADOW, DS_C_RECEIVED_SHADOW,
	DS_C_TX_VELO, DS_C_TX_VELO_LAST, DS_C_TX_INFO, DS_C_TX_AVAIL, DS_C_TX_SHUTDOWN, DS_C_TX_DEMOTE,
	DS_C_RX_VELO, DS_C_RX_VELO_LAST, DS_C_RX_INFO, DS_C_RX_AVAIL, DS_C_RX_SHUTDOWN, DS_C_RX_DEMOTE,
	DS_C_RING_USED, DS_C_RING, DS_C_SLEEPS, DS_C_WAKES, DS_C_SPINS_FOUND, DS_C_SPINS_VAIN,
	DS_C_ZC_SENT, DS_C_ZC_RECEIVED,
	DS_COUNTERS
};

struct ds_slot {
	uint64_t status;
	uint8_t payload[DS_VELO_MAX];
};

struct ds_ctrl {
	uint64_t consumed, freed, taken, left;
	uint8_t pad0[96];
	uint32_t attention, cpu, state, flags;
	uint64_t fallback_slot;
	uint32_t fallback_off, class;
	uint32_t cut; /* the broker's: the network does not carry the shadow any more */
	uint32_t user_timeout;
	uint8_t pad1[88];
	uint64_t sink_seq, sink_slot;
	uint32_t sink_region, sink_len;
	uint64_t sink_off;
	uint8_t pad2[96];
	uint64_t claim_seq;
	uint64_t rings; /* SPEC 2.5 */
	uint8_t pad3[112];
};

_Static_assert(sizeof(struct ds_slot) == DS_SLOT, "slot");
_Static_assert(sizeof(struct ds_ctrl) == DS_CTRL, "control block");
_Static_assert(offsetof(struct ds_ctrl, attention) == 128, "attention");
_Static_assert(offsetof(struct ds_ctrl, fallback_off) == 152, "fallback_off");
_Static_assert(offsetof(struct ds_ctrl, class) == 156, "class");
_Static_assert(offsetof(struct ds_ctrl, cut) == 160, "cut");
_Static_assert(offsetof(struct ds_ctrl, user_timeout) == 164, "user_timeout");
_Static_assert(offsetof(struct ds_ctrl, sink_seq) == 256, "sink_seq");
_Static_assert(offsetof(struct ds_ctrl, claim_seq) == 384, "claim_seq");
_Static_assert(offsetof(struct ds_ctrl, rings) == 392, "rings");

/* Whose segment it is, from the header. IPv4 as ::ffff:a.b.c.d; ports in host order. */
struct ds_info {
	uint8_t nonce[16];
	uint8_t addr[2][16];
	uint16_t port[2];
};

/* This process's view of a segment. */
struct ds_seg {
	uint8_t *mem;
	size_t size;
	uint64_t ring;
	uint64_t window; /* how many of its bytes this side has under way at most */
	uint32_t slots;
	unsigned shift; /* log2 of slots */
	int side;       /* 0 client, 1 server */
	int bell;       /* doorbell; -1: none */
	unsigned reserve; /* slots that data leaves free, for SHUTDOWN and DEMOTE */
	bool expedited; /* this process calls membarrier whenever it arms */
	struct ds_ctrl *own;
	const volatile struct ds_ctrl *peer;
	struct ds_slot *txq; /* to read from it see sent_slot */
	const volatile struct ds_slot *rxq;
	uint8_t *txring;
	const volatile uint8_t *rxring;
	uint64_t *txstamps; /* SPEC 2.4 */
	const volatile uint64_t *rxstamps;
	uint64_t *counters; /* DS_COUNTERS words */
	const uint8_t *off; /* not 0: the broker has switched the connection off (SPEC 6.3) */
	struct ds_info info;
};

/* How copies go into the ring. */
enum ring_way {
	RING_THROUGH, /* through the caches, timed */
	RING_PAST,    /* past them */
	RING_AGAIN,   /* through them, not timed: the ring's lines are in no cache yet */
};

/* The outbound direction. */
struct ds_tx {
	uint64_t count; /* messages sent */
	uint64_t put;   /* sum of advances */
	uint64_t off;   /* where the next chunk begins in the ring */
	/* put and off after message number count: see ds_tx_recover. */
	uint64_t next_put, next_off;
	uint64_t consumed, freed; /* of the peer, as last read and checked */
	uint64_t turn;	 /* the count at which pages may be given back: see give_back */
	uint64_t turned; /* when that was last looked at, by ds_ticks */
	uint64_t kept;	 /* the first page, counted from the beginning, that was not given back */
	uint32_t way;	 /* an enum ring_way; ds_ring_fill decides */
	uint32_t slow;	 /* RING_THROUGH: slow copies, less what fast ones have made of them */
	int64_t left;	 /* else: bytes until the next way */
	uint64_t span; /* how many bytes of the ring are in use; 0: those that are at first */
	uint64_t paused; /* the number of the last PAUSE */
};

/* The inbound direction. pos[cur] counts, so that a process that dies between two
 * stores leaves a whole position behind. */
struct ds_rx {
	struct ds_pos {
		uint64_t count; /* messages consumed whole */
		uint64_t freed;
		uint32_t off; /* bytes consumed of the message after those */
	} pos[2];
	uint32_t cur;
	uint64_t consumed, freed; /* as last given back */
	uint64_t start; /* the message that is PROMOTE, or will be: 0, then the one after a PAUSE */
	uint64_t bare;	/* messages without data before that */
	struct ds_pos left; /* where what ds_rx_left has added up begins */
	int next; /* what the last ds_rx_recv found after the bytes it took, if they did not fill c: a result of it */
};

/* The attention word of this end, and the last arming of the peer that was rung for. */
struct ds_attention {
	uint32_t word;
	uint32_t rung; /* number << 8 | 1, 0: none */
	struct ds_lock lock; /* of word */
};

/* A place in an iovec. */
struct ds_cursor {
	const struct iovec *v;
	int n;
	size_t off;  /* in v[0] */
	size_t left; /* in all */
	uint64_t at; /* what is sent from it counts as sent then, by ds_ticks (SPEC 2.4); 0: now */
};

/* The size of a segment, and where its first ring begins. */
size_t ds_seg_size(uint32_t slots, uint64_t ring, size_t *rings) DS_HIDDEN;

/* As ftruncate, but fails with EFBIG where that would kill the program (RLIMIT_FSIZE). */
int ds_truncate(int fd, size_t size) DS_HIDDEN;

/* May a ring, or a new flow, take n bytes more? Not if half of the memory of a control group would
 * be in use then, by whichever process. It looks at most every 10 ms; without a limit, every
 * second. */
bool ds_memory_room(uint64_t n) DS_HIDDEN;

/* Maps the size bytes of fd, which ds_unmap counts back; NULL: it failed. ds_mapped: how many bytes
 * of them this process has. */
uint8_t *ds_map(int fd, size_t size) DS_HIDDEN;
void ds_unmap(uint8_t *p, size_t size) DS_HIDDEN;
size_t ds_mapped(void) DS_HIDDEN;
/* Maps a memfd of one's own for writing; NULL: there is no memory for it. */
uint8_t *ds_map_new(int fd, size_t size) DS_HIDDEN;
/* A page of a queue of this process has been filled, slow: by a connection that sends little. May
 * the process give pages back now, by ds_ticks? That takes some 30 us and more, as both ends fault
 * them in again, and of many busy connections each is slow. Any caller. */
bool ds_may_give(uint64_t now, bool slow) DS_HIDDEN;
/* Until when this process is busy, by ds_ticks: a page filled and pages given back count for a time
 * each. */
extern uint64_t ds_busy DS_HIDDEN;
/* Are pages of 4 KiB given out when they are touched, so that one may be given back? */
bool ds_map_lazy(void) DS_HIDDEN;
/* ds_map_strict: the kernel promises no more memory than there is; ds_map_new takes all at once. */
bool ds_map_strict(void) DS_HIDDEN;

/* Makes the segment of info: a sealed memfd in *fd (close-on-exec), mapped in seg for
 * side 0, state OFFERED. 0, or -1 and errno. */
int ds_seg_create(struct ds_seg *seg, const struct ds_info *info, uint32_t slots, uint64_t ring, int *fd) DS_HIDDEN;

/* Maps the segment that a peer's descriptor fd names, as side. 0, or -1: refused. fd stays the
 * caller's. */
int ds_seg_map(struct ds_seg *seg, int fd, int side) DS_HIDDEN;

/* The view of side of the size bytes at mem. -1: the header is invalid. */
int ds_seg_view(struct ds_seg *seg, uint8_t *mem, size_t size, int side) DS_HIDDEN;

/* Writes the header. */
void ds_seg_header(uint8_t *mem, const struct ds_info *info, uint32_t slots, uint64_t ring) DS_HIDDEN;
void ds_seg_unmap(struct ds_seg *seg) DS_HIDDEN;

/* Registers this process for membarrier, once; true if it is. */
bool ds_expedite(void) DS_HIDDEN;
/* Stores this side's flags: what this library knows. */
void ds_seg_flags(struct ds_seg *seg) DS_HIDDEN;
/* Stores them and its state, and rings if that is asked for. */
void ds_seg_state(struct ds_seg *seg, struct ds_attention *a, uint32_t state) DS_HIDDEN;
uint32_t ds_seg_peer_state(const struct ds_seg *seg) DS_HIDDEN;
uint32_t ds_seg_peer_attention(const struct ds_seg *seg) DS_HIDDEN;
/* Does the connection go back to TCP, and why? DS_BACK_SWITCH: an operator has switched it off. */
enum { DS_BACK_NETWORK = 1, DS_BACK_SWITCH };
static inline int ds_seg_back(const struct ds_seg *g)
{
	if (__atomic_load_n(&g->peer->cut, __ATOMIC_RELAXED))
		return DS_BACK_NETWORK;
	return (__atomic_load_n(&g->peer->attention, __ATOMIC_RELAXED) & DS_OFF) || __atomic_load_n(g->off, __ATOMIC_RELAXED) ? DS_BACK_SWITCH : 0;
}
/* Tells the peer whether the broker has switched the connection off, if that has changed. Any
 * caller. */
void ds_seg_tell_off(struct ds_seg *, struct ds_attention *) DS_HIDDEN;
static inline void ds_seg_heed(struct ds_seg *g, struct ds_attention *a)
{
	if (__builtin_expect(!__atomic_load_n(g->off, __ATOMIC_RELAXED) != !(__atomic_load_n(&a->word, __ATOMIC_RELAXED) & DS_OFF), 0))
		ds_seg_tell_off(g, a);
}
/* Does the peer understand PAUSE? */
bool ds_seg_peer_pauses(const struct ds_seg *seg) DS_HIDDEN;
/* Is the peer's end that of a node, in place of a program on another host? */
bool ds_seg_peer_relayed(const struct ds_seg *seg) DS_HIDDEN;
/* Is the peer a node that has PAUSE from the far program, and has not told it that this was
 * consumed? Then all that was sent is in the queue, and nothing follows. */
bool ds_seg_peer_holds(const struct ds_seg *seg) DS_HIDDEN;
/* Does the peer look at the segment, which this side has attached to, or knows to be attached to? A
 * node does when it has heard so from the client's host. */
bool ds_seg_peer_looks(const struct ds_seg *seg) DS_HIDDEN;
/* True if RDMA hardware that joins the two hosts is the reason for that, and not a rule. */
bool ds_seg_peer_hardware(const struct ds_seg *seg) DS_HIDDEN;
/* True if that node resets the connection since nothing was acknowledged for so long. */
bool ds_seg_peer_late(const struct ds_seg *seg) DS_HIDDEN;
/* Stores the class, 0 to 63, of what this side sends, and the TCP_USER_TIMEOUT, in ms, of its
 * shadow. */
void ds_seg_tell(struct ds_seg *seg, unsigned class, unsigned user_timeout) DS_HIDDEN;
/* 1 + the CPU that the peer last ran on; 0 unknown. */
uint32_t ds_seg_peer_cpu(const struct ds_seg *seg) DS_HIDDEN;
void ds_seg_cpu(struct ds_seg *seg, uint32_t cpu) DS_HIDDEN;
/* Before a message: stores how often this side has rung bells (SPEC 2.5). Only the sender calls
 * it. */
void ds_seg_rang(struct ds_seg *seg, uint64_t rings) DS_HIDDEN;
/* What the peer says: a number that changes when it rings bells. */
uint64_t ds_seg_peer_rings(const struct ds_seg *seg) DS_HIDDEN;
/* How often this process has rung bells. */
extern uint32_t ds_rings DS_HIDDEN;

/* Sending. ds_tx_promote sends PROMOTE, after carried bytes on the shadow: 0 or DS_STOPPED. */
int ds_tx_promote(struct ds_seg *, struct ds_tx *, struct ds_attention *, uint64_t carried) DS_HIDDEN;
/* The same, also where the connection is switched off: PAUSE has to follow. */
int ds_tx_promote_to_pause(struct ds_seg *, struct ds_tx *, struct ds_attention *, uint64_t carried) DS_HIDDEN;
/* Sends as much of c as fits and can be read; the number of bytes, or DS_AGAIN, DS_STOPPED,
 * DS_BREACH, DS_FAULT. */
ssize_t ds_tx_send(struct ds_seg *, struct ds_tx *, struct ds_attention *, struct ds_cursor *c) DS_HIDDEN;
/* Are n bytes so few that senders who share the direction send all of them or none? waits: a sender
 * who waits until it can. ds_tx_fits: is there room for such n, or can nothing be sent? There is
 * whenever ds_tx_room says 1. */
bool ds_tx_whole(const struct ds_seg *, const struct ds_tx *, size_t n, bool waits) DS_HIDDEN;
bool ds_tx_fits(struct ds_seg *, struct ds_tx *, size_t n) DS_HIDDEN;
/* The same in VELO messages, for a sender about to sleep because the ring is full (thesis 5.5.3.2,
 * SPEC 4.1); DS_AGAIN also if the ring is not what is full. */
ssize_t ds_tx_fill(struct ds_seg *, struct ds_tx *, struct ds_attention *, struct ds_cursor *c) DS_HIDDEN;
/* Sends SHUTDOWN, DEMOTE or PAUSE. 0: it is final; DS_STOPPED: return to TCP first; DS_AGAIN: no
 * room (none was reserved); DS_BREACH. */
int ds_tx_end(struct ds_seg *, struct ds_tx *, struct ds_attention *, int tag) DS_HIDDEN;
/* After PAUSE: has the peer consumed it, so that the direction may be promoted again? */
bool ds_tx_resumed(struct ds_seg *, struct ds_tx *, struct ds_attention *) DS_HIDDEN;
/* The peer has fallen back: has it done so before it consumed the last PAUSE? */
bool ds_tx_left_paused(struct ds_seg *, const struct ds_tx *) DS_HIDDEN;
/* 1: there is enough room to wake a sender; 0: there is not; DS_STOPPED, DS_BREACH. */
int ds_tx_room(struct ds_seg *, struct ds_tx *) DS_HIDDEN;
/* About how many bytes were sent that the peer has not consumed. */
uint64_t ds_tx_queued(struct ds_seg *, struct ds_tx *) DS_HIDDEN;
/* Has the peer, which is gone, left data unread? *sent: when the first of that was sent, in
 * ds_ticks; 0: it is not known. *left: a process of the peer has found it when it ended. Any
 * caller. */
bool ds_tx_unread(struct ds_seg *, const struct ds_tx *, uint64_t *sent, bool *left) DS_HIDDEN;
/* Returning to TCP (SPEC 5.5). ds_tx_return_begin says RETURNED and finds where in the queue the
 * unconsumed bytes begin: 0 or DS_BREACH. ds_tx_return then passes every byte from there on to out,
 * in order; out returns how many it took, or -1. 0: all; DS_AGAIN: not all, continue later at *slot
 * and *off; DS_BREACH. Sets *ended if the direction was shut down. */
int ds_tx_return_begin(struct ds_seg *, struct ds_tx *, struct ds_attention *, uint64_t *slot, uint64_t *off) DS_HIDDEN;
int ds_tx_return(struct ds_seg *, struct ds_tx *, uint64_t *slot, uint64_t *off,
	       ssize_t (*out)(void *, const void *, size_t), void *arg, bool *ended) DS_HIDDEN;
/* After a holder of this direction's lock has died: completes or discards what it was doing.
 * ds_tx_recover returns the tag of the last message, 0: none. ds_tx_stands: that, SHUTDOWN, DEMOTE
 * or PAUSE, is final (0), or void: DS_STOPPED. ds_rx_recover: on the shadow, PROMOTE is to be found
 * again, and PAUSE is consumed. Both say again what the peer may not have been told. */
unsigned ds_tx_recover(struct ds_seg *, struct ds_tx *, struct ds_attention *) DS_HIDDEN;
int ds_tx_stands(struct ds_seg *, struct ds_attention *, unsigned tag) DS_HIDDEN;
void ds_rx_recover(struct ds_seg *, struct ds_rx *, struct ds_attention *, bool shadow) DS_HIDDEN;

/* Receiving. */
/* PROMOTE has arrived: 1 and how many bytes the shadow carries before; 0: not yet; or DS_BREACH. */
int ds_rx_promoted(struct ds_seg *, struct ds_rx *, uint64_t *carried) DS_HIDDEN;
/* Receives as much as there is and c takes: the number of bytes, or DS_AGAIN, DS_END, DS_DEMOTED
 * (these two each time from then on), DS_BREACH, DS_FAULT. peek consumes nothing, discard copies
 * nothing. */
ssize_t ds_rx_recv(struct ds_seg *, struct ds_rx *, struct ds_attention *, struct ds_cursor *c, bool peek,
		   bool discard) DS_HIDDEN;
/* How many messages with data have arrived since the beginning, 56 bits; *seen: messages of any
 * kind at the last look. Any caller. */
uint64_t ds_rx_arrived(struct ds_seg *, struct ds_rx *, uint64_t *seen) DS_HIDDEN;
/* When the first message was sent that is unread and newer than told, a count of ds_rx_arrived, in
 * ds_ticks. It is the peer's claim; 0: it makes none. Any caller. */
uint64_t ds_rx_stamp(struct ds_seg *, struct ds_rx *, uint64_t told) DS_HIDDEN;
/* This process ends its use of the connection: says how much has arrived. Any caller. */
void ds_rx_leaves(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* True if the last message that has arrived is SHUTDOWN. It is the peer's claim: for POLLRDHUP
 * beside unread data. */
bool ds_rx_ends(struct ds_seg *, struct ds_rx *, uint64_t *seen) DS_HIDDEN;
/* True if the queue holds SHUTDOWN, DEMOTE or PAUSE. */
bool ds_rx_over(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* True if nothing was consumed after PROMOTE. */
bool ds_rx_bare(const struct ds_rx *) DS_HIDDEN;
/* True if there is a message. Any caller may ask, as for the next one. */
bool ds_rx_there(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* True if there is one that has bytes, by the peer's claim. */
bool ds_rx_bytes(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* True if ds_rx_recv may find something now. */
bool ds_rx_hint(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* True if the peer has freed anything since the last look. */
bool ds_tx_hint(struct ds_seg *, struct ds_tx *) DS_HIDDEN;
/* Consumes the SHUTDOWN, DEMOTE or, pause, PAUSE that was found. */
void ds_rx_finish(struct ds_seg *, struct ds_rx *, struct ds_attention *, bool pause) DS_HIDDEN;
/* How many messages were consumed. Any thread; no lock. */
static inline uint64_t ds_rx_messages(const struct ds_rx *r)
{
	return __atomic_load_n(&r->pos[__atomic_load_n(&r->cur, __ATOMIC_ACQUIRE) & 1].count, __ATOMIC_RELAXED);
}
/* What ds_rx_recv would find: 1 data, or DS_AGAIN, DS_END, DS_DEMOTED, DS_PAUSED, DS_BREACH. */
int ds_rx_look(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* Where the next bytes are that can be read, at most limit of them, in at most max vectors: how
 * many. The peer can change these bytes, and must not see what has been made of them. */
int ds_rx_vectors(struct ds_seg *, struct ds_rx *, struct iovec *v, int max, size_t limit) DS_HIDDEN;
/* Bytes that can be read. */
uint64_t ds_rx_readable(struct ds_seg *, struct ds_rx *) DS_HIDDEN;
/* Falls back (SPEC 5.5). 1: fallen back; 0: fallen back, but the end of the direction is in the
 * queue, and it must be decided who reads first; DS_AGAIN: not fallen back, since the queue ends
 * the direction: read it. */
int ds_seg_fall_back(struct ds_seg *, struct ds_rx *, struct ds_attention *) DS_HIDDEN;
/* Adds up the data that the peer, which has set RETURNED, has left in the queue, n bytes, and finds
 * what PROMOTE says if that was not read: 1; 0: the direction was never promoted; DS_BREACH. */
int ds_rx_left(struct ds_seg *, struct ds_rx *, uint64_t *carried, uint64_t *n) DS_HIDDEN;
/* Passes over n bytes of it, and PROMOTE: 0; DS_BREACH: there are fewer. A second call changes
 * nothing: an heir may not know of the first. */
int ds_rx_forward(struct ds_seg *, struct ds_rx *, uint64_t n) DS_HIDDEN;

/* Sets and clears bits of this side's attention word. Setting ARM_x begins a new arming;
 * the caller runs ds_fence before it looks. Any caller. */
void ds_attend(struct ds_seg *, struct ds_attention *, uint32_t set, uint32_t clear) DS_HIDDEN;
/* The holder of a lock was killed, perhaps after it had noted what it says, or had published
 * something, and before the peer was told: tells it. */
void ds_attend_again(struct ds_seg *, struct ds_attention *) DS_HIDDEN;
/* After something was published: rings the peer if it is armed for any of want. */
void ds_ring(struct ds_seg *, struct ds_attention *, uint32_t want) DS_HIDDEN;

/* The sleeper's barrier (SPEC 4.5), of one segment. */
void ds_fence(const struct ds_seg *) DS_HIDDEN;

static inline void ds_bump(uint64_t *counters, int counter, uint64_t n)
{
	__atomic_store_n(&counters[counter], __atomic_load_n(&counters[counter], __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline void ds_count(struct ds_seg *g, int counter, uint64_t n) { ds_bump(g->counters, counter, n); }

/* The rest of this layer's interface. */
#include "segment/arena.h"
#include "segment/dgram.h"
#include "segment/memory.h"

#endif
