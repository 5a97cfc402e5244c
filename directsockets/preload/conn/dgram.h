/* UDP sockets, and the flows that they send and receive by (SPEC 10).
 *
 *   dgpool.c    the sockets of the process
 *   dgshare.c   which sockets other processes have, too
 *   dgsock.c    the life of a socket; what makes it the kernel's for good; fork
 *   dgtick.c    a socket is announced, and claims what is offered to it; offers
 *   dgbroker.c  what the broker says
 *   dgeager.c   the mode for tests of programs
 *   dgout.c     flows from a socket, by destination
 *   dgsend.c    sends
 *   dgcontrol.c what a send's control messages and its socket's options ask for
 *   dgin.c      flows to a socket: which are awake; readiness
 *   dgrecv.c    receives
 *   dgshown.c   the kernel's turn, and FIONREAD
 *   dgsleep.c   threads that wait
 *   dgpeer.c    whether the other end of a flow still has its address
 *   dgstate.c   the states of a flow's two ends, and the steps between them
 *
 * Locks: setup before in before out; none is held in a call that may wait. */
#ifndef DS_DGRAM_H
#define DS_DGRAM_H

#include "conn/broker.h"
#include "conn/life.h"
#include "conn/numbers.h"

#include <netinet/in.h>
#include <string.h>

enum {
	DS_DG_FLOWS = 64,  /* to a socket, and from it */
	DS_DG_CREDIT_US = 100000, /* that a sender waits for room at most */
	DS_DG_TIDY_US = 2000000, /* between looks for flows that are over, which keep their memory */
	DS_DG_DESTS = 32,  /* destinations that a socket remembers */
	DS_DG_ALONE = 64,  /* datagrams to one of them in a row: it keeps nobody else waiting */
	DS_DG_TURN = 64,   /* datagrams of flows, after which the kernel has its turn */
	DS_DG_SETS = 4,    /* epoll sets that a socket may be in */
	DS_DG_CONTROL = 256,
	DS_DG_UNDER_BITS = 24, /* of struct ds_dg_dest's sending; */
	DS_DG_ENDED_BITS = 20, /* twice */
	DS_DG_FREE = -(1 << 30), /* added to the references of a socket that has none */
};

/* The states of a flow from a socket (SPEC 10.7). Owner: the lock of out; ds_dg_out_on moves it.
 * Whether the receiver is armed is no part of it: the sender reads that for each datagram.
 *
 *   KERNEL    there is no flow, or it is about to be freed
 *   OFFERED   the receiver has not attached: the kernel carries all
 *   UP        each datagram goes the way that the receiver says
 *   STALLED   there is no room: datagrams are dropped until the receiver takes something
 *   ENDED     there will be no flow: struct ds_dg_dest's ended says so, as such a destination has no struct
 *             ds_dg_out */
enum { DG_OUT_KERNEL, DG_OUT_OFFERED, DG_OUT_UP, DG_OUT_STALLED, DG_OUT_ENDED };

/* The states of a flow to a socket (SPEC 10.8). Owner: the lock of in; ds_dg_in_on moves it,
 * keeps the list of those that are looked at, RUNG, MEMORY and DRAINING, and has the socket's sets
 * look at each that is listed.
 *
 *   ARMED     the sender uses the kernel, and nothing is in memory
 *   RUNG      it is armed, and may hold records
 *   MEMORY    it is not armed
 *   DRAINING  the sender has lost its address, or CLOSED is stored: the socket takes what was in the ring then
 *   ENDED     it is about to be freed (ds_dg_in_sweep) */
enum { DG_IN_ARMED, DG_IN_RUNG, DG_IN_MEMORY, DG_IN_DRAINING, DG_IN_ENDED };

/* How far a socket has come as a receiver, before it has a flow (SPEC 10.9). Owner: the lock of
 * setup; ds_dg_setup_on moves it. Others look without the lock, and find out with it.
 *
 *   QUIET      the broker does not know it
 *   ANNOUNCED  LISTEN was sent, on the connection told
 *   CLAIMING   so was CLAIM, and no answer has come
 *   EXCLUDED   it takes no flows, by a rule, or as it may not ask who its senders are */
enum { DG_SETUP_QUIET, DG_SETUP_ANNOUNCED, DG_SETUP_CLAIMING, DG_SETUP_EXCLUDED };

/* What the program was shown of a socket's datagrams (MSG_PEEK, FIONREAD), and no receive has given
 * yet: the next one gives that. Owner: the lock of in; ds_dg_show and ds_dg_gave change it.
 *
 *   NOTHING   the next receive chooses
 *   KERNEL    the first one of the kernel's queue, unless another process has taken it
 *   MEMORY    the first one of the flow shown_in */
enum { DG_SHOWN_NOTHING, DG_SHOWN_KERNEL, DG_SHOWN_MEMORY };

/* What moves them. */
enum {
	DG_ON_OFFER, DG_ON_ATTACHED, DG_ON_REFUSED, DG_ON_FULL, DG_ON_ROOM, DG_ON_GONE, DG_ON_LEAVE, /* out */
	DG_ON_RING, DG_ON_WAKE, DG_ON_ARM, DG_ON_EMPTY, DG_ON_DROP,				     /* in */
	DG_ON_MOVED, DG_ON_CLOSE,								     /* both */
	DG_ON_LISTEN, DG_ON_EXCLUDE, DG_ON_CLAIM, DG_ON_GRANT, DG_ON_NONE, DG_ON_FORGET,	     /* set-up, and DG_ON_REFUSED */
	DG_NO_STEP = DS_NO_STEP,
};
extern const struct ds_step ds_dg_out_steps[] DS_HIDDEN, ds_dg_in_steps[] DS_HIDDEN, ds_dg_setup_steps[] DS_HIDDEN;
extern uint32_t ds_dg_missteps DS_HIDDEN;

/* A flow to a socket. */
struct ds_dg_in {
	struct ds_dgseg seg;
	int alive;	/* end of the liveness pair */
	uint8_t state;	/* DG_IN_ARMED: a new one */
	bool used;	/* since the kernel was last asked who has the sender's address: says when to ask */
	bool sampled;	/* control is what the kernel says with a datagram of this sender: what data there is */
	uint64_t cookie; /* that of the sender's socket: as the broker knows it or, if it does not say, the kernel when the flow began */
	uint64_t read;	/* by_kernel, as it was before the last receive */
	uint64_t early; /* since when a record waits for datagrams by the kernel, in ds_ticks; 0: none does */
	uint64_t enough; /* once so many have come by the kernel, its queue holds none from before that */
	struct ds_entry *entry;
	uint64_t *counters;
	uint16_t length;
	uint8_t control[DS_DG_CONTROL] __attribute__((aligned(8)));
};

#define DS_DG_UNKNOWN (1ull << 63)

/* A flow from a socket. */
struct ds_dg_out {
	struct ds_dgseg seg;
	int alive; /* its end of the liveness pair; whoever has the offer has the other one */
	bool open;     /* its place is taken */
	uint8_t state; /* DG_OUT_KERNEL: a new one */
	bool reliable; /* by a rule its sender waits for room: said by the offer, and never changed */
	bool shared;   /* other sockets may send from the same address, and the receiver counts theirs, too:
			* lost stays unknown. Said by the offer: it begins anew if that changes */
	bool brief;    /* the send that is under way must not block */
	bool alone;    /* its socket has sent the last datagrams to this receiver alone */
	uint8_t tos, ttl; /* of its datagrams on arrival */
	uint32_t id;
	uint64_t lost;	   /* how many of by_kernel never come; DS_DG_UNKNOWN. Below 0 if the receiver had some before */
	uint64_t last;	   /* when it last sent by the kernel, in ds_ticks */
	uint64_t unsettled; /* datagrams by the kernel since it was settled */
	uint64_t behind;    /* how many the receiver had taken when it was last waited for */
	uint64_t waited;    /* when it last waited for the receiver in vain, in ds_ticks */
	uint32_t backoff;   /* it waits again after this many times WAIT_US (dgout.c); 0: at once */
	uint64_t checked;  /* when the liveness pair was last looked at */
	uint64_t looked;   /* when the kernel was last asked who has the receiver's address; 0: not yet */
	uint64_t cookie;   /* of the socket that had it before the offer */
	uint64_t spare;	   /* how long it may wait for room, in ds_ticks */
	uint64_t stuck;	   /* DG_OUT_STALLED: consumed when a datagram was dropped */
	bool refused;	   /* the broker has said so, with the lock of setup: the next look finds this event */
	uint8_t why;	   /* of the statistics: why the broker refused it, or 0 */
	struct ds_entry *entry;
	uint64_t *counters;
};

/* A destination of a socket. */
struct ds_dg_dest {
	uint8_t addr[16];
	uint16_t port;
	uint8_t tries;
	/* DG_OUT_ENDED, by a rule, the address or the kernel. No state of its own: a state is that
	 * of a struct ds_dg_out, which such a destination has not. */
	bool ended;
	/* A jump left a send by the kernel, which by_kernel has or has not. No state of the
	 * flow: the jump has no lock. Who has that of out finds this next: it begins anew. */
	bool unknown;
	uint32_t sent;	/* lately */
	uint64_t since; /* in ds_ticks: when that began; when to try again */
	uint64_t by_kernel; /* datagrams since there is a flow, of sends that have ended */
	/* The datagrams of sends by the kernel that threads of the process are making, in the low
	 * bits; then of those that have ended and are not in by_kernel yet (ds_dg_ended): sent, and
	 * refused by the kernel. The receiver may have counted those sent or under way in place of
	 * one that is still on its way. */
	uint64_t sending;
	struct ds_dg_out *flow;
};

struct ds_dgram {
	int users;  /* references: one for all descriptors, one for each call; first (dgpool.c) */
	struct ds_numbered numbered; /* its sends by the kernel */
	int nfds;
	/* A socket's life is short: its place is free, or open; then, for good, hard, and it is
	 * freed. The states of its flows say the rest. What follows is what the program has set,
	 * and no state: an option can be set at any time, and taken back. */
	bool open;
	uint8_t family;
	bool hard;  /* it is the kernel's for good */
	uint8_t why; /* of the statistics, for that */
	uint8_t nonblock; /* enum ds_nonblocking */
	bool connected; /* the program has called connect */
	bool wants;  /* its options ask for control data */
	bool trains; /* UDP_GRO */
	bool hears; /* IP_RECVERR: it hears of refusals though it is not connected */
	bool asks; /* a send by the kernel may have been refused: the next call that flows may serve
		    * asks for that error first. A hint: the kernel has the state */
	bool held;   /* an option holds datagrams back: UDP_CORK, or MSG_MORE was used */
	uint8_t tos, ttl; /* what its options say; 0: the default */
	uint16_t train; /* UDP_SEGMENT */
	uint32_t bound; /* SO_RCVBUF, if the program has set it */
	uint32_t relatives; /* processes that may have it, too: a set (dgshare.c) */
	uint32_t id, serial;
	uint32_t next;

	/* Announcing and claiming, with the lock of setup. refused is the page's word when the
	 * broker had no offer: it says when to ask again. */
	uint8_t setup;
	uint16_t port;
	uint32_t bucket, refused, told, received, last; /* last: a descriptor of it */
	uint64_t retry;
	struct ds_info ends;
	struct ds_entry *line; /* with --explain: what is told of it, as no flow leads from it */

	struct ds_lock in;
	int sleepers; /* threads in a call on the shadow that may wait, */
	int uncounted; /* or have taken a datagram from there, and not counted it: the queue is not known to be dry */
	/* The epoll sets that it is in: the layer above keeps all of this but *asleep, how many
	 * sleep in the set, and what has the lock of in, *of's: when a flow is listed, the place
	 * is put before those at *live, unless it is queued. */
	struct ds_dg_set {
		const uint32_t *asleep; /* NULL: none */
		struct ds_dg_set **live, *next;
		struct ds_dgram *of;
		bool queued; /* it is in one of these lists: what a list says, and no state */
		void *set;
		int fd;
		bool off; /* EPOLLONESHOT: it was told. As the kernel's entry says, which nobody can read */
		uint16_t idle; /* looks that found nothing */
		uint32_t events;
		uint64_t data, seen;
	} sets[DS_DG_SETS];
	unsigned nin, nlisted, turn, streak;
	unsigned yielded; /* ds_dg_moment that receives have left to threads which were woken: never less */
	uint8_t shown;
	struct ds_dg_in *shown_in;
	uint64_t past; /* of ds_dg_arrivals: what flows have had that are no more */
	uint64_t looked; /* when the kernel was last asked about the senders, in ds_ticks */
	uint64_t swept;  /* and when flows that are over were last looked for */
	uint64_t credit, credited; /* how long it may wait for senders that publish, and when that was */
	uint64_t napped; /* when its nap for a record that waits began, in ds_ticks; 0: it takes none */
	unsigned row; /* about how many datagrams of flows come until there is none */
	unsigned awake; /* flows that are */
	/* No flow is armed for a bell any more, and none takes records that wait for datagrams by
	 * the kernel (AFTER). Once set it stays: a property of the socket, and no state of a flow.
	 * Either several threads have waited for the socket: one that sleeps does not hear what
	 * woke another. Or another socket may take its address (SO_REUSEADDR, SO_REUSEPORT): the
	 * bell, or the datagram that a record waits for, would reach that one. */
	bool no_bells;
	uint64_t by_kernel; /* datagrams that the kernel has brought while it has flows */
	uint64_t glanced; /* when a call that does not wait last called ds_dg_await_kernel */
	uint32_t gone; /* how many of the datagrams that the kernel has dropped flows have counted as lost */
	struct ds_dg_in *flows[DS_DG_FLOWS], *list[DS_DG_FLOWS];

	struct ds_lock out;
	uint64_t tidied; /* when flows that are over were last looked for */
	unsigned nout, run; /* run: datagrams in a row to the same destination, */
	const struct ds_dg_dest *to; /* this one */
	uint64_t wait_left, earned; /* how long it may still wait for receivers, in ds_ticks, as of then */
	struct ds_dg_dest peer; /* of a connected socket */
	struct ds_dg_dest dests[DS_DG_DESTS];
};

/* ---- the pool (dgpool.c) ------------------------------------------------------------ */

/* A UDP socket of the program. NULL: no memory. It has one reference, for one descriptor. */
struct ds_dgram *ds_dg_new(int family, int nonblock) DS_HIDDEN;
/* Its place is free. */
void ds_dg_free(struct ds_dgram *d) DS_HIDDEN;
/* Calls fn for each socket that is open. No lock. */
void ds_dg_each(void (*fn)(struct ds_dgram *d, void *arg), void *arg) DS_HIDDEN;
/* The name of the socket at a place, or of another name; it has had so many names. */
static inline uint32_t ds_dg_id(uint32_t place, uint32_t serial) { return 0xc0000000u | (serial & 0x1fff) << 16 | (place & 0xffff); }
/* NULL: none is open by that name. */
struct ds_dgram *ds_dg_by_id(uint32_t id) DS_HIDDEN;
/* The address of a, of len bytes, as flows have it. False: it is none of an IP socket of d. */
bool ds_dg_address(const struct ds_dgram *d, const void *a, socklen_t len, uint8_t addr[16], uint16_t *port) DS_HIDDEN;
/* Around a fork: no socket is made or freed meanwhile. ds_dg_pool_hold: are there any? */
bool ds_dg_pool_hold(void) DS_HIDDEN;
void ds_dg_pool_let_go(bool child) DS_HIDDEN;
/* Gives an entry of the statistics back. Any lock may be held. */
void ds_dg_entry_put(struct ds_entry *e, int why) DS_HIDDEN;

/* ---- sockets (dgsock.c) ------------------------------------------------------------- */

static inline void ds_dg_hold(struct ds_dgram *d) { ds_add_shared(&d->users, 1); }
/* Drops a reference; ds_dg_end: the last one is dropped, and whoever claims d frees it. */
void ds_dg_end(struct ds_dgram *d) DS_HIDDEN;
static inline void ds_dg_put(struct ds_dgram *d)
{
	if (__builtin_expect(ds_add_shared(&d->users, -1) == 0, 0))
		ds_dg_end(d);
}
/* From now on all of its datagrams go by the kernel. What has come is still read. */
void ds_dg_harden(struct ds_dgram *d, int why) DS_HIDDEN;
/* It is connected to another peer, or to none. */
void ds_dg_connected(struct ds_dgram *d, const struct sockaddr *addr, socklen_t len) DS_HIDDEN;
/* The program has set an option. */
void ds_dg_option(struct ds_dgram *d, int fd, int level, int name, const void *value, socklen_t len) DS_HIDDEN;
/* May no other process have d? If one had it, reads the options that this one may have set, and the
 * peer. With the lock of setup. */
bool ds_dg_alone(struct ds_dgram *d, int fd) DS_HIDDEN;
/* A process is about to be made, and was made: pid as fork returned it. With the lock of setup.
 * Between the two no socket is made or freed. */
void ds_dg_forking(void) DS_HIDDEN;
void ds_dg_forked(int pid) DS_HIDDEN;
/* In either of two processes, after a fork that ds_dg_forking did not know of: both have all
 * sockets, for good. With the lock of setup, or alone. */
void ds_dg_forked_unprepared(bool child) DS_HIDDEN;
/* May another process have d? Looks whether those that might have ended. DG_UNREAD: they have, and
 * ds_dg_alone has not read yet what they may have set. With the lock of setup. */
enum { DG_ALONE, DG_UNREAD, DG_SHARED };
int ds_dg_shared(struct ds_dgram *d) DS_HIDDEN;
void ds_dg_was_read(struct ds_dgram *d) DS_HIDDEN;
/* The program that this process executes inherits d: other processes that have it hear of its end,
 * and not of this call. */
void ds_dg_inherited(struct ds_dgram *d) DS_HIDDEN;
/* All sockets may be had by the process that has the other end of fd, of a pair of sockets; -1: by
 * one that never ends. With the lock of setup. */
void ds_dg_add_relative(int fd) DS_HIDDEN;

/* ---- the broker (dgtick.c, dgbroker.c) ---------------------------------------------- */

/* Of the broker's page (SPEC 6.2): how many flows are on offer; by port, how many sockets take
 * flows, NULL: there is no page, or --explain asks about each socket. */
extern const uint32_t *ds_udp_offers DS_HIDDEN;
extern const uint16_t *ds_udp_receivers DS_HIDDEN;
static inline bool ds_udp_offered(void) { return __atomic_load_n(__atomic_load_n(&ds_udp_offers, __ATOMIC_ACQUIRE), __ATOMIC_ACQUIRE) != 0; }
/* After a datagram was received: announces d, claims what is offered to it. */
void ds_dg_tick_slow(struct ds_dgram *d, int fd) DS_HIDDEN;
static inline void ds_dg_tick(struct ds_dgram *d, int fd)
{
	int setup = __atomic_load_n(&d->setup, __ATOMIC_RELAXED);
	bool told = setup != DG_SETUP_QUIET && __atomic_load_n(&d->told, __ATOMIC_RELAXED) == ds_broker_connection();

	if (__atomic_load_n(&d->hard, __ATOMIC_RELAXED) || setup == DG_SETUP_EXCLUDED)
		return;
	if (!told || setup == DG_SETUP_CLAIMING || ds_udp_offered())
		ds_dg_tick_slow(d, fd);
}
/* Without a reference: is a datagram from d to addr (NULL: to its peer) the kernel's? No flow leads
 * from d, and nobody takes flows at that port. False: this is not known. */
static inline __attribute__((always_inline)) bool ds_dg_plain(const struct ds_dgram *d, const struct sockaddr *addr, socklen_t len)
{
	const uint16_t *receivers = __atomic_load_n(&ds_udp_receivers, __ATOMIC_ACQUIRE);
	in_port_t port;

	if (__atomic_load_n(&d->hard, __ATOMIC_RELAXED))
		return true;
	if (!receivers || __atomic_load_n(&d->nout, __ATOMIC_RELAXED))
		return false;
	if (!addr)
		return !__atomic_load_n(receivers + __atomic_load_n(&d->peer.port, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	uintptr_t at = (uintptr_t)addr, last = at + sizeof(struct sockaddr_in) - 1;
	if (len < sizeof(struct sockaddr_in) || at >> DS_PAGE_SHIFT != last >> DS_PAGE_SHIFT || !ds_page_known(at >> DS_PAGE_SHIFT, false))
		return false;
	memcpy(&port, (const uint8_t *)addr + offsetof(struct sockaddr_in, sin_port), sizeof port);
	return !__atomic_load_n(receivers + ntohs(port), __ATOMIC_RELAXED);
}
/* For tests of programs: EXNET_DS_SENDS=0 with EXNET_DS_WAIT, in ms. Sockets are announced when
 * there is a send or a receive of the process, a send that finds no flow waits so long for one,
 * also made by what the process itself answers, and a receive waits so long before it sleeps. */
extern unsigned ds_dg_eager DS_HIDDEN;
void ds_dg_settings(void) DS_HIDDEN;
/* Announces d, and claims what is offered to it. With no lock. */
void ds_dg_eager_tick(struct ds_dgram *d, int fd) DS_HIDDEN;
/* May the next datagram to a destination go through a flow? Offers one if there is none. */
bool ds_dg_eager_flow(struct ds_dgram *d, int fd, const uint8_t addr[16], uint16_t port) DS_HIDDEN;
/* May another socket have the address of fd, too (SO_REUSEADDR, SO_REUSEPORT)? */
bool ds_dg_shareable(int fd) DS_HIDDEN;
/* Reads what fd's options say of the datagrams of o. */
void ds_dg_marks(struct ds_dg_out *o, int fd) DS_HIDDEN;
/* Offers a flow to a destination. With no lock. */
void ds_dg_offer(struct ds_dgram *d, int fd, const uint8_t addr[16], uint16_t port) DS_HIDDEN;
/* What the broker says. With the lock of setup. True: it was about a UDP socket. granted takes both
 * descriptors then. */
bool ds_dg_granted(const struct ds_message *m, int segment, int alive) DS_HIDDEN;
bool ds_dg_none(uint32_t id) DS_HIDDEN;
bool ds_dg_refused(uint32_t id, int reason) DS_HIDDEN;
/* The socket that d was is no more: tells the broker. With the lock of setup. */
void ds_dg_unlisten(struct ds_dgram *d) DS_HIDDEN;

/* ---- flows out (dgout.c) ------------------------------------------------------------ */

/* With the lock of out: the place of a destination. */
struct ds_dg_dest *ds_dg_dest(struct ds_dgram *d, const uint8_t addr[16], uint16_t port) DS_HIDDEN;
/* Its flow if that may carry a datagram now; NULL: the kernel. */
struct ds_dg_out *ds_dg_flow(struct ds_dgram *d, struct ds_dg_dest *dest) DS_HIDDEN;
/* Ends the flow of dest, as what has happened says; that of all: ds_dg_leave. With the lock of
 * out. */
void ds_dg_out_end(struct ds_dgram *d, struct ds_dg_dest *dest, int what, int why) DS_HIDDEN;
void ds_dg_leave(struct ds_dgram *d, int why) DS_HIDDEN;
struct ds_dg_out *ds_dg_out_by_id(uint32_t id) DS_HIDDEN;
struct ds_dg_out *ds_dg_out_new(void) DS_HIDDEN;
void ds_dg_out_put(struct ds_dg_out *o) DS_HIDDEN;

/* Counts in by_kernel what sends to dest have sent that have ended. Returns how many datagrams are
 * under way. */
unsigned ds_dg_ended(struct ds_dg_dest *dest) DS_HIDDEN;

/* ---- sends (dgsend.c) --------------------------------------------------------------- */

/* Sends the message h, of the library's own making, with the vectors of the program, which can be
 * read: the number of bytes; -1 and errno; DS_DG_KERNEL: the kernel shall; or DS_DG_ANEW: nothing
 * is sent, and the number is another file's. With DS_DG_KERNEL a send by the kernel has begun. If
 * it is to a destination, ds_dg_has_sent ends it: the kernel has sent n datagrams, of so many
 * bytes; else ds_by_number_end. A jump out of it ends it, too. */
struct ds_dg_sent {
	struct ds_number number; /* by which the program sends; the caller sets it */
	struct ds_by_number kernel;
	struct ds_dg_dest *to; /* where it goes; NULL: to no destination, or none is under way */
	unsigned n; /* its datagrams */
	int slot;
	uint8_t addr[16];
	uint16_t port;
	uint16_t train; /* UDP_SEGMENT, of the socket or of this send */
	bool known; /* the flow counts it */
};
enum { DS_DG_KERNEL = -2, DS_DG_ANEW = -3 };
ssize_t ds_dg_sendmsg(struct ds_dgram *d, int fd, const struct msghdr *h, int flags, struct ds_dg_sent *s) DS_HIDDEN;
void ds_dg_has_sent(struct ds_dgram *d, struct ds_dg_sent *s, unsigned n, size_t bytes) DS_HIDDEN;
/* The thread is cancelled in it. */
void ds_dg_cancelled(struct ds_dg_sent *s) DS_HIDDEN;
/* What the control messages of a send to an address ask for; *s has what the socket says. False:
 * the kernel makes it. */
struct ds_dg_says {
	int tos, ttl; /* -1: as the socket has it */
	uint16_t train;
	bool sourced;
	uint8_t source[16];
};
bool ds_dg_control(const struct ds_dgram *d, const struct msghdr *h, const uint8_t to[16], struct ds_dg_says *s) DS_HIDDEN;
/* Has the kernel an error of a send, which comes before what flows carry? Takes it: errno. */
bool ds_dg_failed(struct ds_dgram *d, int fd) DS_HIDDEN;
/* How long the sender may wait for the receiver, in ds_ticks: what it has saved, and its call
 * allows. */
uint64_t ds_dg_spare(const struct ds_dg_out *o) DS_HIDDEN;
/* There is no room. Waits as long as the receiver goes on taking, or the sender has time to spare;
 * false: the datagram is dropped. A receiver that took nothing all that time is not waited for
 * again until it does. */
bool ds_dg_room(struct ds_dg_out *o) DS_HIDDEN;
/* Waits, not for long, until the flow's receiver has taken all, so that what the kernel carries
 * comes after. False: it has not. */
bool ds_dg_drained(struct ds_dg_out *o) DS_HIDDEN;
/* The kernel has sent a datagram to an address (NULL: to the peer), where d has no flows. */
void ds_dg_counted(struct ds_dgram *d, int fd, const void *to, socklen_t len) DS_HIDDEN;

/* ---- states (dgstate.c) ------------------------------------------------------------- */

void ds_dg_out_on(struct ds_dg_out *o, int what) DS_HIDDEN;
void ds_dg_setup_on(struct ds_dgram *d, int what) DS_HIDDEN;
void ds_dg_in_on(struct ds_dgram *d, struct ds_dg_in *f, int what) DS_HIDDEN;
/* Has the set of s look at its socket. With the lock of in. */
void ds_dg_enqueue(struct ds_dg_set *s) DS_HIDDEN;

/* With the lock of in: the program was shown the next datagram of f, or has got it; NULL: of the
 * kernel's. */
void ds_dg_show(struct ds_dgram *d, struct ds_dg_in *f) DS_HIDDEN;
void ds_dg_gave(struct ds_dgram *d, const struct ds_dg_in *f) DS_HIDDEN;
/* The flow that has what the program was shown; NULL: none has. */
struct ds_dg_in *ds_dg_shown(struct ds_dgram *d) DS_HIDDEN;

/* ---- flows in (dgin.c) -------------------------------------------------------------- */

/* With the lock of in. */
bool ds_dg_add(struct ds_dgram *d, struct ds_dg_in *f) DS_HIDDEN;
void ds_dg_in_close(struct ds_dgram *d, struct ds_dg_in *f, int why) DS_HIDDEN;
/* The same, as another socket has the sender's address, or none has. */
void ds_dg_in_moved(struct ds_dgram *d, struct ds_dg_in *f) DS_HIDDEN;
/* Nobody reads what is in the flows of d any more. */
void ds_dg_in_drop_all(struct ds_dgram *d) DS_HIDDEN;
void ds_dg_in_close_all(struct ds_dgram *d, int why) DS_HIDDEN;
/* Forgets flows that are over. With the lock of setup, too: a child that is made meanwhile would
 * free what is half freed. */
void ds_dg_in_sweep(struct ds_dgram *d) DS_HIDDEN;
/* The flow of a source; NULL: there is none. */
struct ds_dg_in *ds_dg_from(struct ds_dgram *d, const uint8_t addr[16], uint16_t port) DS_HIDDEN;
/* Arms all flows that are awake, and waits for those that are publishing. */
void ds_dg_arm_all(struct ds_dgram *d) DS_HIDDEN;
/* Has no flow armed for a bell, from now on. What is in the rings is found by the next look. */
void ds_dg_end_bells(struct ds_dgram *d) DS_HIDDEN;
/* Arms all flows that are awake for the caller, who is counted as one that waits. With more than
 * one bells end. */
void ds_dg_arm_waiting(struct ds_dgram *d) DS_HIDDEN;
/* What do records have that wait for a datagram by the kernel? DG_RESTS: there are none. DG_LOOKS:
 * fd has one, which another thread may take: the caller does not sleep, but asks the kernel.
 * DG_NAPS: fd has none: the caller looks again after ds_dg_moment. If none has come for a while,
 * the records are due. */
enum { DG_RESTS, DG_LOOKS, DG_NAPS };
int ds_dg_await_kernel(struct ds_dgram *d, int fd) DS_HIDDEN;
/* Has the kernel no datagram for fd? Takes no error of the socket's, which is the program's. */
bool ds_dg_is_empty(int fd) DS_HIDDEN;
/* What the kernel has dropped at fd, before d has a flow, is no flow's. With the lock of in. */
void ds_dg_forget_drops(struct ds_dgram *d, int fd) DS_HIDDEN;
/* With no lock: between two such looks. */
void ds_dg_moment(void) DS_HIDDEN;
/* Reads by_kernel of the flows that are awake; notes that a receive after that found nothing. */
void ds_dg_before(struct ds_dgram *d) DS_HIDDEN;
void ds_dg_found_nothing(struct ds_dgram *d) DS_HIDDEN;
/* O_NONBLOCK of fd. */
bool ds_dg_nonblocking(struct ds_dgram *d, int fd) DS_HIDDEN;
/* f wakes, if nobody sleeps in the kernel for d. */
void ds_dg_wake(struct ds_dgram *d, struct ds_dg_in *f) DS_HIDDEN;
/* The same for one that has just come, if the kernel has nothing for fd. */
void ds_dg_eager_wake(struct ds_dgram *d, struct ds_dg_in *f, int fd) DS_HIDDEN;
/* n datagrams of f have come by the kernel. */
void ds_dg_took(struct ds_dgram *d, struct ds_dg_in *f, unsigned n) DS_HIDDEN;
/* The flow with the record that is next; NULL: there is none. */
struct ds_dg_in *ds_dg_pick(struct ds_dgram *d) DS_HIDDEN;

/* Without a lock: has some flow a record, by a look? */
bool ds_dg_peeked(struct ds_dgram *d) DS_HIDDEN;
/* The same for a call that does not wait for what the kernel is late with: now and then it looks
 * whether that is lost. With the lock of in; with none: ds_dg_due. */
bool ds_dg_overdue(struct ds_dgram *d, int fd) DS_HIDDEN;
bool ds_dg_due(struct ds_dgram *d, int fd) DS_HIDDEN;
/* Is something to be read from its flows? */
bool ds_dg_ready(struct ds_dgram *d) DS_HIDDEN;
/* A number that changes when something arrives through its flows. */
uint64_t ds_dg_arrivals(struct ds_dgram *d) DS_HIDDEN;
/* ---- threads that wait (dgsleep.c) -------------------------------------------------- */

/* How many threads sleep in the kernel for d, or are about to? */
static inline unsigned ds_dg_waiting(const struct ds_dgram *d)
{
	unsigned n = (unsigned)__atomic_load_n(&d->sleepers, __ATOMIC_SEQ_CST);

	for (int i = 0; i < DS_DG_SETS; i++) {
		const uint32_t *of = __atomic_load_n(&d->sets[i].asleep, __ATOMIC_RELAXED);
		if (of)
			n += __atomic_load_n(of, __ATOMIC_SEQ_CST);
	}
	return n;
}
/* A thread is about to wait in the kernel for d, and has waited. */
static inline void ds_dg_sleeper(struct ds_dgram *d, int n) { ds_add_shared(&d->sleepers, n); }
/* The same for a call that has a reference, which a jump out of it drops. Returns the argument of
 * ds_dg_awoke. */
int ds_dg_asleep(struct ds_dgram *d) DS_HIDDEN;
void ds_dg_awoke(struct ds_dgram *d, int slot) DS_HIDDEN;
/* Arms the flows of d for a thread that is counted as one that waits for the socket, fd, or for a
 * set: DG_RESTS, DG_LOOKS or DG_NAPS. */
int ds_dg_rest(struct ds_dgram *d, int fd) DS_HIDDEN;
/* The same, but naps. False: DG_LOOKS. */
bool ds_dg_sleep(struct ds_dgram *d, int fd) DS_HIDDEN;

/* ---- of all ------------------------------------------------------------------------- */

/* Microseconds, in ds_ticks. */
uint64_t ds_dg_ticks(unsigned us) DS_HIDDEN;
/* Datagrams of this process, for tests: sent through flows, by the kernel to receivers that there
 * are flows to, received through flows, by the kernel from senders of flows. */
extern uint64_t ds_dg_moved[4] DS_HIDDEN;
/* How many flows to sockets of this process there have been. */
extern uint32_t ds_dg_flows DS_HIDDEN;

/* ---- the other end's address (dgpeer.c) --------------------------------------------- */

/* May this process ask the kernel about sockets (AF_NETLINK)? 0, or errno. */
int ds_dg_may_ask(void) DS_HIDDEN;
/* In the child of a fork: the socket by which it asks is the parent's. */
void ds_dg_peer_child(void) DS_HIDDEN;
/* Asks the kernel for the number (SO_COOKIE) of the socket that would get a datagram. False: none
 * would, or it does not say. Of this network namespace. */
bool ds_dg_reached(const uint8_t from[16], uint16_t from_port, const uint8_t to[16], uint16_t to_port, uint64_t *cookie) DS_HIDDEN;
/* Has the receiver its address still? Asks ten times a second at most. With the lock of
 * out. */
bool ds_dg_stands(struct ds_dg_out *o, uint64_t now) DS_HIDDEN;
/* Ends the flows that have moved and whose senders have lost their addresses: asks ten times a
 * second at most. What is in their rings now is still read. With the lock of in. */
void ds_dg_in_check(struct ds_dgram *d) DS_HIDDEN;

/* ---- what is next (dgshown.c) ------------------------------------------------------- */

/* It is the kernel's turn. Has it a datagram? DG_TURN_NOTHING also if that one's sender has records
 * that come before it: *f is the flow. DG_TURN_ERROR: errno, which this look has taken. */
enum { DG_TURN_NOTHING, DG_TURN_KERNEL, DG_TURN_ERROR };
int ds_dg_turn(struct ds_dgram *d, int fd, struct ds_dg_in **f) DS_HIDDEN;
/* FIONREAD: the size of the next datagram, if that is a flow's; -1: the kernel knows. No lock. */
int ds_dg_next_size(struct ds_dgram *d, int fd) DS_HIDDEN;

/* ---- receives (dgrecv.c) ------------------------------------------------------------ */

/* As recvmsg into h, whose name, if any, and control are checked, with the vectors of the program:
 * -1 and errno, or the number of bytes. */
ssize_t ds_dg_recvmsg(struct ds_dgram *d, int fd, struct msghdr *h, int flags) DS_HIDDEN;
/* When a thread that spins for datagrams first asks the kernel, in ds_ticks. If others want its CPU
 * that is at once: it would yield before, and the kernel's queue may fill up meanwhile. */
struct ds_spin;
uint64_t ds_dg_first_ask(const struct ds_spin *s) DS_HIDDEN;
/* Has it flows to it, or may it get some by a receive? */
static inline bool ds_dg_inward(const struct ds_dgram *d) { return __atomic_load_n(&d->nin, __ATOMIC_RELAXED) != 0; }

#endif
