/* The state of a connection that processes share after fork.
 *
 * It is in MAP_SHARED | MAP_ANONYMOUS memory: fork shares it, and the peer cannot reach it. A
 * process allocates places only in arenas that it made itself; a place is free when no process
 * refers to it. A process that is killed leaves its references behind: what it shared is not
 * reused, and an arena with nothing else is unmapped. */
#ifndef DS_ARENA_H
#define DS_ARENA_H

#include "segment/segment.h"

/* Where a direction is. Go's names are the same: SPEC 9. */
enum {
	TX_SHADOW,  /* may be promoted */
	TX_PAUSED,  /* the shadow; it may be promoted when PAUSE is consumed */
	TX_DIRECT,
	TX_ENDED,   /* SHUTDOWN was sent, and is final */
	TX_RETURNING, /* the receiver has fallen back: its unread bytes are being written to the shadow */
	TX_BACK,    /* on the shadow, for good */
	TX_BROKEN,

	RX_SHADOW = 0, /* PROMOTE has not arrived, or not again */
	RX_CATCH_UP,   /* it has: `left` bytes more come on the shadow */
	RX_DIRECT,
	RX_ENDED,      /* SHUTDOWN has arrived */
	RX_FALLEN_BACK,     /* the shadow, but the queue holds the end of the direction (SPEC 5.5) */
	RX_RETURNING,  /* the shadow; the peer has set RETURNED, and not all that it left has come */
	RX_REST,       /* the segment: what the shadow did not give before it ended */
	RX_BACK,
	RX_BROKEN,
};

/* In refs: the last process has left, and says the end. */
#define DS_ENDING (1u << 31)

struct ds_shared {
	uint32_t refs;  /* processes that have it open, and DS_ENDING; 0: free */
	uint32_t users; /* system calls under way on the shadow alone */
	uint32_t gate;  /* a thread waits for users to become 0: new ones stay out */
	uint32_t leader;     /* the sleeping thread that has the bell */
	uint32_t generation; /* incremented when a leader wakes; followers sleep on it */
	uint32_t followers;
	uint32_t cpu;
	uint32_t using; /* processes that use it, of those that do not have a segment yet (conn/sharers.c) */
	/* MSG_ZEROCOPY (conn/zerocopy.c): the number of the next send; those below zc_told are
	 * reported. From zc_own on the library completes them, before that the kernel does. */
	uint32_t zc_next, zc_told, zc_own;
	struct ds_attention attention;

	struct ds_lock tx_lock __attribute__((aligned(128)));
	uint8_t tx_mode; /* conn/state.c writes it */
	uint8_t tx_shut; /* SHUT_WR was called: what the program wants, also where the direction's lock cannot be
			  * taken, or there is no segment; the state follows when it can */
	uint64_t tx_carried; /* what PROMOTE has said: how many bytes the shadow had had before */
	/* TX_RETURNING: where in the queue it began. How many bytes of that the shadow has had, the
	 * kernel knows, also of a holder that was killed. */
	uint64_t return_slot, return_off;
	/* Of the shadow: it is on guard (conn/linger.c). No state of the direction, which moves on
	 * from TX_RETURNING as without it; written with the lock of tx. */
	uint8_t return_orphan;
	struct { int onoff, linger; } return_linger; /* on guard: the program's SO_LINGER */
	pid_t return_writer; /* who was made to write what is left there; 0: nobody */
	struct ds_tx tx;

	struct ds_lock rx_lock __attribute__((aligned(128)));
	uint8_t rx_mode; /* conn/state.c writes it, */
	uint8_t rx_before; /* and this: RX_FALLEN_BACK: where the direction was before */
	uint8_t rx_shut; /* SHUT_RD was called: as tx_shut */
	uint8_t rx_recount; /* the last holder was killed, or a jump left it: rx_read may be too small */
	uint8_t gone;    /* of the peer: its end of the doorbell is closed. What is in the queue comes before that is an
			  * event (ON_GONE), so each direction takes it in its own time */
	uint8_t owed;      /* an error that the program has not been told (ds_owe); 0: none */
	uint64_t rx_read; /* bytes read from the shadow since it was connected; from attaching on. Read without a lock, too */
	uint64_t rx_sure; /* as rx_read: up to here, what the shadow has was there before PROMOTE */
	uint64_t carried; /* what PROMOTE has said */
	uint64_t held;    /* RX_RETURNING: when the shadow has had so many bytes, it has all of the rest */
	struct ds_rx rx;
} __attribute__((aligned(128)));

/* A zeroed place with one reference; NULL: no memory. The caller serialises calls of this,
 * ds_arena_put and ds_arena_child. */
struct ds_shared *ds_arena_get(void) DS_HIDDEN;
/* This process leaves s, in one step: true if it is the last that has it open. Any caller. Then
 * ds_arena_put, with what this has returned: the place is not used any more. */
bool ds_arena_leave(struct ds_shared *s) DS_HIDDEN;
void ds_arena_put(struct ds_shared *s, bool last) DS_HIDDEN;
/* In the child of a fork: it allocates nothing in its parent's arenas. */
void ds_arena_child(void) DS_HIDDEN;

#endif
