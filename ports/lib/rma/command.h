// command.h: operations, and the transfer of their bytes to a peer.
#ifndef EXN_RMA_COMMAND_H
#define EXN_RMA_COMMAND_H

#include "rma.h"

// command is a decoded operation.
struct command {
	RMA2_Command kind;
	unsigned spec, modifier;
	uint32_t size;
	uint64_t read, write; // addresses; an immediate PUT's value is in read
};

// rma_execute carries out an operation.
RMA2_ERROR rma_execute(RMA2_Port e, RMA2_Connection *c, const struct command *o);

// rma_present returns whether all of a range of this port's memory is registered, rma_reachable
// the same of a peer's memory.
bool rma_present(RMA2_Port e, uint64_t local, uint32_t size);
bool rma_reachable(const struct exn_grant *g, uint64_t nla, uint32_t size, bool put);

// rma_move transfers bytes between local memory, which is present, and a peer's memory. rma_store
// writes the value of an immediate PUT. Both return false if the peer has taken its memory back.
bool rma_move(RMA2_Port e, const struct exn_grant *g, uint64_t local, uint64_t nla, uint32_t size, bool put);
bool rma_store(RMA2_Port e, const struct exn_grant *g, const struct command *o);

#endif
