/* What the library and the pager say to each other, over a SOCK_SEQPACKET socket: the library's
 * hello with its userfaultfd, the pager's answer, then commands and replies in turn. All numbers
 * are the machine's own: both ends run on it. ../wire.go has the same. */
#ifndef PG_WIRE_H
#define PG_WIRE_H

#include <stdint.h>

enum {
	PG_MAGIC = 0x6d656d31, /* of this version of what is said */
	PG_ENTRIES = 64,       /* of a command */
	PG_PAGE = 4096,
};

/* The first message. */
struct pg_hello {
	uint32_t magic;
	uint32_t why;      /* no userfaultfd: the error's number; else 0, and a descriptor comes with it */
	uint64_t token;    /* of a child of fork whose parent is paged: what the pager wrote; else 0 */
	uint64_t base;     /* where the library's own memory begins, which is not to be paged */
	uint64_t slots;    /* where its slots begin */
	uint64_t end;      /* where both end */
};

/* The pager's answer to it. With a token, the child's userfaultfd comes with it. */
struct pg_welcome {
	uint32_t magic;
	uint32_t refused; /* not 0: the process goes on unpaged */
};

enum { PG_MOVE = 1, PG_DROP = 2, PG_OWN = 3 };

/* PG_MOVE moves count pages at address into the slots that begin at slot, for each entry. PG_DROP
 * gives count slots from slot on back to the system. PG_OWN makes pages that
 * were shared since a fork the process's own, as a write to each would. */
struct pg_command {
	uint32_t op, entries;
	struct pg_entry {
		uint64_t address;
		uint32_t slot, count;
	} entry[PG_ENTRIES];
};

/* How many pages of each entry were moved, from its start, and why no more. */
struct pg_reply {
	uint32_t op, entries;
	struct pg_done {
		uint32_t count;
		int32_t error;
	} done[PG_ENTRIES];
};

#endif
