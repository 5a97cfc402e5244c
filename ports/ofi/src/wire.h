// wire.h: what the two ends of a connection send each other. A connection is made over TCP (cm.c);
// from then on everything goes by VELO messages to the mailboxes of the two domains, and by GETs of
// what those announce. All numbers are little endian. docs/libfabric.md describes the protocol.
#ifndef EXFI_WIRE_H
#define EXFI_WIRE_H

#include <stdint.h>

enum {
	VELO_MAX = 120,
	HEAD = 8,                  // bytes of struct head
	INLINE = VELO_MAX - HEAD,  // what one message carries: 112
	WINDOW = 96,               // messages on their way that need credit
	TELL = WINDOW / 3,         // credit is returned when so many were used
	CHUNK_MAX = 8 << 20,       // as a GET (thesis 3.2)
	FAR_CHUNK = 512 << 10,     // to a peer on another host
	FAR_CHUNK_OLD = 256 << 10, // to one that has not said CM_LARGE
	FAR_PIECES = 4096,         // to there, up to so many bytes go by VELO alone
	DIRECT_MAX = 1 << 20,      // of a chunk that is read directly
	DIRECT_MIN = 16 << 10,     // writes and answers to reads that are
	PLACE_MIN = 128 << 10,     // writes and reads that the initiator copies itself
	PLACE_MAX = 1 << 20,       // of them, by one call
	GRANTS = 32,               // regions that a peer may be granted at a time
	CREDIT_BYTES = 48 << 10,   // of a ring, for which credit is returned: of the smallest ring, too
	OUTSTANDING = 256,         // reads and writes of an endpoint that wait for an answer
};

enum op {
	OP_MSG = 1,    // a whole message; with F_DATA the first 8 bytes are the immediate data
	OP_BEGIN = 2,  // struct begin, then the first bytes
	OP_PIECE = 3,  // more bytes
	OP_CHUNK = 4,  // struct chunk: more bytes, to be got
	OP_CREDIT = 5, // struct credit
	OP_DONE = 6,   // struct done: a write has ended, or a read was refused
	OP_CLOSE = 7,  // the sender closes its endpoint
	OP_GRANT = 8,  // struct grant
};

// Flags of a head.
enum {
	F_DATA = 1, // the message has immediate data
	F_ASK = 2,  // return credit at once
	F_DIRECT = 4, // the chunk is in the sender's program, at the address nla
	F_PLACED = 8, // of a K_WRITE: all of it is in the target's memory
};

// What OP_BEGIN begins.
enum kind {
	K_SEND = 1,
	K_WRITE = 2,
	K_READ = 3,   // nothing follows
	K_RESULT = 4, // of a read: what was read follows
};

// A message begins with this.
struct head {
	uint32_t id;     // the receiving endpoint, as it said itself
	uint16_t credit; // how many of the receiver's messages the sender has used so far
	uint8_t op, flags;
};

struct begin {
	uint8_t kind, reserved[3];
	uint32_t cookie; // of a write or read, for its answer
	uint64_t length, data;
	uint64_t addr, key; // of a write or read
	uint64_t nla, after; // of the first chunk, as in struct chunk
	uint32_t size, reserved2;
};

struct chunk {
	uint64_t nla;   // where in the sender's registered memory
	uint64_t after; // the position in the sender's ring after it; 0: it is not in the ring
	uint32_t size, reserved;
};

struct credit {
	uint64_t ring; // the sender of this has got all chunks up to this position
};

struct done {
	uint32_t cookie, error; // error: 0, or FI_E...
};

// A region of the sender's program to which the receiver may copy, or from which, itself (place.c).
struct grant {
	uint64_t key, base, size; // base: the address of its first byte for peers
	uint64_t at;              // where that is in the program
	uint64_t gate;            // a page: the grant holds as long as it is there
	uint32_t rights, reserved;
};

enum { GRANT_WRITE = 1, GRANT_READ = 2, GRANT_TELL = 4 }; // TELL: of writes the target hears

// What goes over TCP while a connection is made.
enum { CM_MAGIC = 0x46494e58, CM_VERSION = 2, CM_DATA = 256, CM_BACKLOG = 128 };
enum cm_type { CM_REQUEST = 1, CM_ACCEPT = 2, CM_REJECT = 3, CM_READY = 4, CM_CLOSE = 5 };

struct cm_head {
	uint32_t magic;
	uint8_t version, type;
	uint16_t length; // of the user's data, which follows
	uint16_t node, velo, rma, flags; // flags: CM_READS, CM_PLACES, CM_LARGE
	uint32_t id; // of the endpoint
	// Who may read this process finds a random word there, and behind it 1 while this end
	// writes to the other's memory.
	uint32_t pid;
	uint64_t word_at, word; // word of CM_CLOSE: how many messages the sender has sent by its mailbox
};

// The sender can read the receiver's program; it knows OP_GRANT; it takes chunks of FAR_CHUNK; it
// says CM_CLOSE before it closes.
enum { CM_READS = 1, CM_PLACES = 2, CM_LARGE = 4, CM_CLOSES = 8 };

_Static_assert(sizeof(struct head) == HEAD, "head");
_Static_assert(sizeof(struct begin) == 64, "begin");
_Static_assert(sizeof(struct grant) == 48, "grant");
_Static_assert(sizeof(struct cm_head) == 40, "cm_head");

#endif
