// rma.h: types and functions that the files of librma2 share.
#ifndef EXN_RMA_H
#define EXN_RMA_H

#include "../core/port.h"
#include "rma2.h"

#define API __attribute__((visibility("default")))

enum {
	RMA_MTU = 496,             // payload of a packet (thesis 3.2.1.2)
	RMA_MAX_TRANSFER = 8 << 20,
	RMA_QUEUE = 256 * 1024,    // default size of the notification queue, in bytes
	RMA_QUEUE_MAX = 16 << 20,
};

// An entry of the notification queue. It is in the list of waiting entries, of those that the
// program holds, or of free ones.
struct entry {
	RMA2_Notification noti; // must be the first
	struct entry *prev, *next;
	RMA2_Port port;
};

// A page of the program that peers can reach.
struct shared_page {
	uintptr_t page; // number; 0: the slot is free
	uint32_t file;  // page in the port's memory, or IN_PLACE
	uint32_t uses;  // regions
};

// Runs of free pages, in order. A port has two: of addresses, and of its memory.
struct runs {
	struct run {
		uint32_t first, count;
	} *list;
	size_t count, room;
};

// What was given up while the node, or a peer, may still use it.
struct held_run {
	struct held_run *next;
	uint64_t round; // of the port, until which the table had it
	struct runs *of;
	struct run run;
};

struct rma2_connection {
	RMA2_Connection *next;
	struct exn_grant *grant;
	uint16_t node, vpid;
	unsigned options;
};

struct rma2_endpoint {
	struct exn_port port;
	RMA2_Connection *connections;
	struct entry waiting, taken; // heads of lists
	struct entry *free;
	struct chunk *chunks; // of entries
	size_t entries, entries_max;
	RMA2_Replay_Buffer_Mode replay;

	// What the program has registered; the table in shared memory is for peers.
	void **where; // for each page of addresses: the program's page; NULL: none
	struct runs addresses, pages;
	struct held_run *held, **held_end; // the oldest first
	uint32_t generation; // of the next region that has one: 1 to 2^24-1
	uint64_t file;                     // the number of the file that is the port's memory
	struct rma2_endpoint *next_open;
	size_t warm; // bytes of memory that is mapped beforehand
	struct shared_page *shared;
	size_t shared_count, shared_room; // room is a power of two
	struct cached *cache;
	RMA2_Descriptor *descriptors; // free ones
};

// rma_memory_init prepares an endpoint's memory. It returns false without memory.
bool rma_memory_init(RMA2_Port port);
void rma_memory_free(RMA2_Port port);

// rma_local returns where the first of size bytes of this port's memory are, and in run how many
// are contiguous. It returns NULL if they are not registered.
void *rma_local(RMA2_Port port, RMA2_NLA nla, uint32_t size, uint32_t *run);

// rma_remote returns where the first of size bytes of a peer's memory are, for a PUT or a GET,
// and in run how many are contiguous. It returns NULL if they are not registered, or not for
// that.
uint8_t *rma_remote(const struct exn_grant *g, RMA2_NLA nla, uint32_t size, bool put, uint32_t *run);

// rma_in_place returns whether the first of size bytes of a peer's memory are in pages that stay
// in its program, and in run how many are contiguous.
bool rma_in_place(const struct exn_grant *g, RMA2_NLA nla, uint32_t size, uint32_t *run);

// Notifications: rma_noti makes one and rma_note queues it here. rma_room waits until a peer's
// queue has room for n, and rma_tell writes them there; size is the size of the whole operation.
void rma_queue_init(RMA2_Port port);
void rma_queue_free(RMA2_Port port);
RMA2_Notification rma_noti(const RMA2_Connection *c, unsigned type, unsigned command, unsigned mode);
RMA2_ERROR rma_note(RMA2_Port port, RMA2_Notification n);
RMA2_ERROR rma_room(RMA2_Port port, RMA2_Connection *c);
void rma_tell(RMA2_Port port, RMA2_Connection *c, RMA2_Notification n, uint32_t size);
void rma_peer_gone(struct exn_port *p, uint16_t node, uint16_t vpid);

// rma_registers does a PUT or GET of a node's registers, 8 bytes each.
bool rma_registers(RMA2_Port port, RMA2_Connection *c, RMA2_NLA addr, uint64_t *words, uint32_t count, bool write);

static inline RMA2_Notification rma_noti_error(RMA2_Notification n, unsigned error)
{
	n.word1.value |= (uint64_t)error << 61;
	return n;
}

#endif
