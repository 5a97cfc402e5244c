/* The messages of ../SPEC.md. */
#ifndef EXNMEM_MESSAGE_H
#define EXNMEM_MESSAGE_H

#include <stdint.h>

#include "rpc.h"

enum { MESSAGE_VERSION = 1, MESSAGE_SIZE = 64 };

enum { OP_BORROW = 1, OP_RETURN = 2, OP_REVOKE = 3, OP_GONE = 4, OP_GET = 5, OP_PUT = 6, OP_ZERO = 7 };

/* The window of a lease of another host. No operation crosses from one part to the next. */
enum { WINDOW_SLOTS = 64, WINDOW_SLOT = 256 << 10, PART_SIZE = 1 << 30 };

enum {
	STATUS_OK,
	STATUS_VERSION,
	STATUS_FULL,
	STATUS_LIMIT,
	STATUS_NO_NODE,
	STATUS_NO_LENDER,
	STATUS_INVALID,
	STATUS_HUGE,
	STATUS_BUSY,
	STATUS_NO_LEASE,
	STATUS_REVOKED,
	STATUS_EXPIRED,
	STATUS_LOST,
	STATUS_MEMORY,
};

enum { FLAG_NODE = 1, FLAG_HUGE = 2, FLAG_FAR = 4 };

/* message is in the byte order of this machine; all that exnet runs on are little endian. */
struct message {
	uint16_t op, status;
	uint32_t number;
	uint16_t node, flags;
	uint32_t account;
	uint64_t a, b, c, d, e, f;
};

_Static_assert(sizeof(struct message) == MESSAGE_SIZE, "SPEC.md, 1");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "SPEC.md: all numbers are little endian");

/* message_send sends a message, unless the node has ended. */
static inline bool message_send(int conn, const struct message *m) {
	return rpc_send(conn, m, sizeof(*m), NULL, 0, 0) == MESSAGE_SIZE;
}

#endif
