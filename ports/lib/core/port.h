// port.h: a port of the node, as velo2 and rma2 use it: messages to the node, grants of peers,
// and arriving messages. ../../SPEC.md has the layouts.
//
// A port belongs to one thread at a time.
#ifndef EXN_PORT_H
#define EXN_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flow.h"
#include "state.h"

enum { EXN_VERSION = 1, EXN_VELO = 1, EXN_RMA = 2, EXN_FDS = 4 };

enum exn_op {
	EXN_OPEN = 1,
	EXN_CONNECT = 2,
	EXN_PROTECT = 3,
	EXN_REGISTER = 4,
	EXN_MEMBER = 5,
	EXN_REACH = 6,
	EXN_TRANSFER = 7,
	EXN_FLOW = 16,
	EXN_GONE = 17,
};

// How a request ends. The first values are the node's (package wire), the last two the library's.
enum exn_status {
	EXN_OK = 0,
	EXN_BAD_VERSION = 1,
	EXN_NO_PORT = 2,
	EXN_DENIED = 3,
	EXN_FULL = 4,
	EXN_NO_NODE = 5,
	EXN_INVALID = 6,
	EXN_IN_USE = 7,
	EXN_NO_DAEMON = 100, // no node runs here, or it belongs to another user
	EXN_NO_MEMORY = 101, // mmap or malloc failed
};

struct exn_msg {
	uint16_t op, status;
	uint32_t number;
	uint16_t node, vpid, unit, reserved;
	uint64_t a, b, c, d;
};

// The memory of an RMA port: the locks, then pages. The table beside it has an entry for each
// page of addresses; peers can only read it.
#define EXN_PAGE 4096ul
#define EXN_PAGES (1ul << 18)
#define EXN_LOCKS 16384u
#define EXN_TABLE (EXN_PAGES * 8)
#define EXN_ARENA_OFF (2ul << 20)
#define EXN_MEMORY (EXN_ARENA_OFF + EXN_PAGES * EXN_PAGE)

// Entries of the table: 0 is nothing, n in the lowest bits is page n-1 of the memory.
#define EXN_ENTRY_PAGE ((1ull << 19) - 1)
#define EXN_ONE_NODE (1ull << 19) // only for one node, in the 16 bits from EXN_NODE
#define EXN_NODE 20
#define EXN_NO_READ (1ull << 36)
#define EXN_NO_WRITE (1ull << 37)
#define EXN_GENERATION 40 // the bits from here on repeat the address's
#define EXN_FLOW_BUSY 512u // in a flow: operations that run on memory that has a generation
#define EXN_FLOW_OWN 520u  // in one from another host: this port's operations, which the node carries out

// An entry for a page that stays in the program's own memory, which the node reads and writes:
// bits 0 to 19 of the page number begin at EXN_PLACE_LOW, the 16 bits above them at
// EXN_PLACE_HIGH.
#define EXN_IN_PLACE (1ull << 39)
#define EXN_PLACE_LOW 19
#define EXN_PLACE_HIGH 40

// The window of an RMA port's memory: the node takes from it what it writes to such pages, and
// leaves in it what it has read from them.
#define EXN_WINDOW (1ul << 20)
#define EXN_WINDOW_SIZE (1u << 20)

// What a port counts in its page, for "exn-tun status --ports".
enum exn_counter { EXN_SENT, EXN_RECEIVED, EXN_PUT_BYTES, EXN_GET_BYTES, EXN_WAITS, EXN_ERRORS, EXN_REGISTERED, EXN_COUNTERS };

// A peer whose memory this port may use.
struct exn_grant {
	struct exn_grant *next;
	uint16_t node, vpid, self; // self: this port's node
	enum exn_peer_state state;
	bool far;        // what the peer is, and no state: on another host, where the node carries out what the flow asks for
	unsigned handles; // of the program; without one it is freed when the peer has ended
	int bell;        // wakes the peer
	uint64_t base;   // first address of its memory
	uint8_t *memory; // of an RMA port
	const uint64_t *table;
	struct exn_flow out;
};

// The members of a multicast group that have opened a VPID. A port keeps one list for each group
// and VPID until it is closed.
struct exn_group {
	struct exn_group *next;
	uint16_t number, vpid;
	uint64_t asked; // when the node was asked for the members, in ns; 0: never
	uint64_t nodes; // of the group
	struct exn_grant **members;
	unsigned count, room;
};

struct exn_port {
	int sock, bell, memory_fd;
	uint8_t *page, *memory;
	uint64_t *table;
	uint16_t unit, node, vpid;
	uint64_t base;
	uint32_t number;
	uint64_t events; // seen so far
	unsigned idle;   // takes that found nothing
	uint64_t round;  // of looks who uses its memory
	enum exn_port_state state;
	// Whether the node can access this program's memory. It is asked once, and what it says
	// stays true: no state.
	enum { EXN_NOT_ASKED, EXN_CAN, EXN_CANNOT } reach;
	struct exn_inflow {
		uint16_t node, vpid;
		enum exn_peer_state state;
		bool far; // what the peer is, and no state: on another host
		struct exn_flow flow;
	} *in;
	struct exn_left { // the flow of a far port that has ended, in this list as long as the node works on this port's memory
		struct exn_left *next;
		struct exn_flow flow;
	} *left;
	unsigned in_count, in_room, turn;
	struct exn_grant *grants;
	struct exn_group *groups;
	// Called when a peer has ended; may be NULL.
	void (*gone)(struct exn_port *, uint16_t node, uint16_t vpid);
	void *owner; // for gone
};

// exn_port_open opens a port of a unit at the node of this network namespace, or at the one whose
// socket $EXN_PORTS names. vpid is the VPID to open; 0: any.
enum exn_status exn_port_open(struct exn_port *p, int unit, uint16_t vpid);
void exn_port_close(struct exn_port *p);

// exn_port_connect returns the grant of a peer. Each peer has one, which stays until the port is
// closed, or until a call of this function after the peer has ended and no handle is left.
enum exn_status exn_port_connect(struct exn_port *p, uint16_t node, uint16_t vpid, struct exn_grant **g);

// exn_port_group returns a group: the nodes whose ports with the VPID receive a message to it. It
// asks the node for the members if the list is old, or if now is set. EXN_INVALID: there is no
// such group.
enum exn_status exn_port_group(struct exn_port *p, uint16_t number, uint16_t vpid, bool now, struct exn_group **out);

// exn_port_ask sends m, waits for the answer, and stores it in m. fds gets the answer's
// descriptors, -1 for none; the caller closes them.
enum exn_status exn_port_ask(struct exn_port *p, struct exn_msg *m, int fds[EXN_FDS]);

// exn_port_reach lets the node read and write this program's memory for peers, as far as the
// table permits. It returns false if the node cannot.
bool exn_port_reach(struct exn_port *p);

// exn_port_transfer asks the peer's node to copy at most EXN_WINDOW_SIZE bytes between the window
// of this port's memory and pages that stay in their program. It returns false if they are no
// longer registered.
bool exn_port_transfer(struct exn_port *p, const struct exn_grant *g, uint64_t nla, uint32_t size, bool put);

// exn_port_take takes the next message from any peer. It copies at most the slot's payload to
// data. It returns false if there is none.
bool exn_port_take(struct exn_port *p, void *data, uint64_t *word, uint16_t *node, uint16_t *vpid);

// exn_port_idle begins a round, in which it looks who uses memory of this port: a peer, where that
// has a generation, or the node, for ports on other hosts and for this one's operations on theirs.
// It returns the last round by which each has been seen to use none, in this round or since: nobody
// uses any more what the table has not had since the round before.
uint64_t exn_port_idle(struct exn_port *p);

// exn_port_sleep waits until a message or news of the node arrives. It polls for a while first.
void exn_port_sleep(struct exn_port *p);

// exn_port_arm makes the port's bell and socket readable when a message or news of the node arrives
// from now on. It returns false if something is there already.
bool exn_port_arm(struct exn_port *p);

// exn_port_commit publishes the slot that the caller has filled in a grant's flow, and wakes the
// peer.
void exn_port_commit(struct exn_port *p, struct exn_grant *g, uint64_t word);

// exn_port_wait waits a little for a peer whose flow is full; round begins at 0. It returns false
// if the peer or the node has ended.
bool exn_port_wait(struct exn_port *p, struct exn_grant *g, unsigned *round);

// exn_gone returns whether a peer has ended.
static inline bool exn_gone(const struct exn_grant *g)
{
	return g->state != EXN_THERE;
}

// exn_dead returns whether the node of a port has ended.
static inline bool exn_dead(const struct exn_port *p)
{
	return p->state == EXN_DEAD;
}

static inline void exn_count(struct exn_port *p, enum exn_counter c, int64_t n)
{
	uint64_t *w = (uint64_t *)(p->page + 128) + c;
	__atomic_store_n(w, __atomic_load_n(w, __ATOMIC_RELAXED) + (uint64_t)n, __ATOMIC_RELAXED);
}

#endif
