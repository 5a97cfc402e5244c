/* Flows: the memory in which one UDP socket sends datagrams to another (SPEC 10).
 *
 * A segment carries one direction, and the sending side makes it. The receiver's UDP socket is the
 * doorbell: while the receiver sleeps, its flow is armed, and datagrams go through the kernel.
 *
 *   sender     busy = 1; is it armed? ── no ──▶ a record in the ring; busy = 0
 *                                    └─ yes ─▶ busy = 0; sendto
 *   receiver   armed = 1; wait until busy is 0; look at the ring; sleep in the kernel
 *
 * So while a flow is armed its ring does not change, and what it holds is older than what the
 * kernel has of that sender. Armed for a bell, it changes after a datagram by the kernel that is
 * to wake the receiver: what follows that one says so (AFTER). Nothing here sleeps, allocates, or
 * knows of sockets. One caller at a time for each side. What the other side can write is read once
 * and checked. */
#ifndef DS_DGRAM_SEG_H
#define DS_DGRAM_SEG_H

#include "segment/segment.h"

enum {
	DS_DG_RING = 4096,  /* where the ring begins */
	DS_DG_UNIT = 64,    /* records begin at multiples of it */
	DS_DG_HEAD = 16,    /* bytes before a record's payload, */
	DS_DG_AFTER_LEN = 8, /* and AFTER's */
	DS_DG_MAX = 65507,
	DS_DG_MIN_RING = 1 << 17,
	DS_DG_MAX_RING = 1 << 22,
	DS_DG_LAG = 1 << 14,  /* what a receiver has consumed and not given back, without a bound */
	DS_DG_NEAR = 1 << 14, /* a flow that is quiet uses no more of its ring */
	DS_DG_OVERHEAD = 640, /* what a datagram takes of SO_RCVBUF besides its own bytes */
	DS_DG_SLOT = 112,     /* a datagram of so many bytes counts as a VELO message */
};

/* Tags of records. */
enum { DS_DG_DATAGRAM = 1, DS_DG_WRAP, DS_DG_TRAIN };

/* Bits of the receiver's flags, and of the sender's. */
enum { DS_DG_TRAINS = 1, DS_DG_TAKES_AFTER = 2, DS_DG_CLOSED = 4, DS_DG_FINAL = 8 };
enum { DS_DG_LEFT = 1 };

/* How a receiver is armed: not, for all, or for one datagram by the kernel, which wakes it. */
enum { DS_DG_AWAKE, DS_DG_ALL, DS_DG_BELL };

/* The bit of a record's status that says AFTER. */
#define DS_DG_AFTER (1u << 17)

/* The control blocks (SPEC 10.2). */
struct ds_dg_sender {
	uint64_t by_kernel, dropped;
	uint8_t pad[48];
	uint32_t busy, flags, cpu;
};
struct ds_dg_receiver {
	uint64_t consumed;
	uint8_t pad[56];
	uint32_t armed, flags;
	uint64_t taken, dry;
	uint32_t bound, state, cpu;
};
_Static_assert(offsetof(struct ds_dg_sender, busy) == 64, "busy");
_Static_assert(offsetof(struct ds_dg_receiver, armed) == 64, "armed");
_Static_assert(offsetof(struct ds_dg_receiver, taken) == 72, "taken");
_Static_assert(offsetof(struct ds_dg_receiver, state) == 92, "state");

struct ds_dgseg {
	uint8_t *mem, *ring;
	size_t size;
	uint64_t bytes; /* of the ring: a power of two */
	struct ds_info info;
	union { /* of the other side */
		const volatile struct ds_dg_sender *from;
		const volatile struct ds_dg_receiver *to;
	};
	union { /* of this one */
		struct ds_dg_sender *out;
		struct ds_dg_receiver *in;
	};
	uint64_t at; /* what is put, or consumed */
	uint64_t lag; /* the receiver: how much that is consumed it keeps, at most */
	uint64_t known; /* the receiver: consumed, as it was given back; the sender: as last read and checked, */
	uint64_t moved; /* the sender: when that has changed, in ds_ticks, */
	uint64_t looked; /* and where it was when it last looked whether nothing is under way; */
	uint64_t paid, cost; /* with a bound: what is not consumed, from there on, costs so much */
	uint64_t told; /* how many it may have sent by the kernel, as the last record with AFTER says; */
	uint64_t base; /* and how many of those were lost, when that was first known; the receiver: as the sender says */
	uint64_t taken; /* the receiver: datagrams of the sender that came by the kernel, */
	uint64_t lost;	/* and how many it takes for lost, beside base; */
	uint64_t given_up; /* how often it has changed that; */
	uint64_t seen; /* records before it have been seen, if not taken; */
	uint64_t stop; /* and it takes none from here on; */
	uint64_t lap[2]; /* when it came to the beginning of the ring last, and before that, in ds_ticks */
	bool broken; /* the other side broke the rules */
	bool takes_trains; /* the receiver: it has said TRAINS. Its flags lie where the sender can write */
};

/* What a record says besides its bytes. */
struct ds_dg_meta {
	uint32_t len;
	uint16_t train; /* the size of each datagram of a train; 0: it is one datagram */
	uint8_t tos, ttl;
	uint64_t stamp;
	uint32_t takes; /* the receiver: of the ring */
	bool after; /* the sender: lost is known, and so are these: */
	uint64_t kernel, under, lost; /* datagrams by the kernel; more by sends that are under way; those that never come */
	bool there, stale; /* the last of them has come or never will; it was to wake the receiver long
			    * ago, which has taken nothing since */
};

/* Makes the segment of info, with a ring of so many bytes: a sealed memfd in *fd (close-on-exec),
 * mapped for the sender. 0, or -1 and errno. */
int ds_dg_create(struct ds_dgseg *g, const struct ds_info *info, uint64_t ring, int *fd) DS_HIDDEN;
/* Maps the segment that a sender's descriptor fd names. 0, or -1: refused. fd stays the
 * caller's. */
int ds_dg_map(struct ds_dgseg *g, int fd) DS_HIDDEN;
/* The view of the size bytes at mem, as sender or as receiver. -1: the header is invalid. */
int ds_dg_view(struct ds_dgseg *g, uint8_t *mem, size_t size, bool sender) DS_HIDDEN;
/* Writes the header. */
void ds_dg_header(uint8_t *mem, const struct ds_info *info, uint64_t ring) DS_HIDDEN;
void ds_dg_unmap(struct ds_dgseg *g) DS_HIDDEN;

/* ---- the sender (dgtx.c) ------------------------------------------------------------ */

enum { DS_DG_SENT, DS_DG_FULL, DS_DG_ARMED, DS_DG_OVER, DS_DG_FAULT };

/* Sends the m->len bytes at the cursor as one record: DS_DG_SENT, and the cursor is behind
 * them; else nothing was sent: DS_DG_FULL, there is no room; DS_DG_ARMED, the receiver
 * sleeps; DS_DG_OVER, the receiver has closed, or broke the rules; DS_DG_FAULT, the bytes
 * cannot be read. */
int ds_dg_send(struct ds_dgseg *g, const struct ds_dg_meta *m, struct ds_cursor *c) DS_HIDDEN;
/* Tells that one more datagram was dropped. */
void ds_dg_drop(struct ds_dgseg *g) DS_HIDDEN;
/* How much of what was sent the receiver has not consumed, in bytes of the ring. */
uint64_t ds_dg_queued(struct ds_dgseg *g) DS_HIDDEN;
/* The receiver has taken all that was sent by the kernel, n datagrams, as far as it says: lost of
 * them will never come. */
bool ds_dg_settled(const struct ds_dgseg *g, uint64_t n, uint64_t lost) DS_HIDDEN;
/* The receiver has found the kernel's queue empty after all of the n datagrams were sent. *taken:
 * how many it has had, with those from before the flow that were in its queue when it attached. */
bool ds_dg_dry(const struct ds_dgseg *g, uint64_t n, uint64_t *taken) DS_HIDDEN;
uint32_t ds_dg_state(const struct ds_dgseg *g) DS_HIDDEN;
bool ds_dg_closed(const struct ds_dgseg *g) DS_HIDDEN;
bool ds_dg_armed(const struct ds_dgseg *g) DS_HIDDEN;
/* May the sender, who knows how many were lost, send though it is not settled? */
bool ds_dg_unsettled_too(const struct ds_dgseg *g) DS_HIDDEN;

/* ---- the receiver (dgrx.c) ---------------------------------------------------------- */

/* Is there a record that is due, or a breach to be found? One that says AFTER is not due before
 * what its sender has sent by the kernel has come, or is taken for lost. */
bool ds_dg_there(const struct ds_dgseg *g) DS_HIDDEN;
/* Is there one that is not due? */
bool ds_dg_early(const struct ds_dgseg *g) DS_HIDDEN;
/* How many datagrams by the kernel are missing before the next record; 0: it is due, or none. */
uint32_t ds_dg_missing(const struct ds_dgseg *g) DS_HIDDEN;
/* Takes what such a one waits for for lost, and returns how many datagrams that are. */
uint32_t ds_dg_give_up(struct ds_dgseg *g) DS_HIDDEN;
/* One more datagram of the sender came by the kernel. */
void ds_dg_count(struct ds_dgseg *g) DS_HIDDEN;
/* The receive queue was empty, after the sender had sent so many by the kernel. */
void ds_dg_was_dry(struct ds_dgseg *g, uint64_t by_kernel) DS_HIDDEN;
/* The next datagram: what it says, and where its bytes are, which the sender can change. False:
 * there is none, and *m is 0. It stays there until ds_dg_take. */
bool ds_dg_next(struct ds_dgseg *g, struct ds_dg_meta *m, const volatile uint8_t **bytes) DS_HIDDEN;
/* Copies n bytes at from, which ds_dg_next has found. */
void ds_dg_copy(void *to, const volatile uint8_t *from, size_t n) DS_HIDDEN;
void ds_dg_take(struct ds_dgseg *g, const struct ds_dg_meta *m) DS_HIDDEN;
/* Bounds what may wait in the ring (SPEC 10.5). 0: the ring's size does. */
void ds_dg_bound(struct ds_dgseg *g, uint32_t bound) DS_HIDDEN;
/* Says whether the sender may write records that wait for datagrams by the kernel (AFTER). */
void ds_dg_take_after(struct ds_dgseg *g, bool takes) DS_HIDDEN;
/* Ends the flow: this side takes what is there, which the sender sees as consumed, and no more. */
void ds_dg_close(struct ds_dgseg *g) DS_HIDDEN;
/* A number that changes when a record arrives. */
uint64_t ds_dg_arrived(struct ds_dgseg *g) DS_HIDDEN;
/* The stamp of the record that is next, by the sender's claim, but none of before there was room
 * for it. */
uint64_t ds_dg_stamp(const struct ds_dgseg *g) DS_HIDDEN;
void ds_dg_arm(struct ds_dgseg *g, uint32_t how) DS_HIDDEN;
/* Is it armed for a bell? */
bool ds_dg_rung(const struct ds_dgseg *g) DS_HIDDEN;
bool ds_dg_busy(const struct ds_dgseg *g) DS_HIDDEN;
bool ds_dg_left(const struct ds_dgseg *g) DS_HIDDEN;
uint64_t ds_dg_by_kernel(const struct ds_dgseg *g) DS_HIDDEN;

#endif
