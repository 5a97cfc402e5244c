// pages.h: the program's pages that peers can reach.
#ifndef EXN_RMA_PAGES_H
#define EXN_RMA_PAGES_H

#include "rma.h"

// Runs of free pages. rma_runs_take returns the first of the lowest n in a row, or -1 if there
// are none. rma_runs_give returns pages; without memory for one more run, they are lost until the
// port is closed.
bool rma_runs_init(struct runs *r);
int64_t rma_runs_take(struct runs *r, uint32_t n);
void rma_runs_give(struct runs *r, uint32_t first, uint32_t n);

// rma_give returns pages of a port like rma_runs_give. As long as the node or a peer may still use
// them, for an operation that it has begun, nobody gets them. The table has them no more.
void rma_give(RMA2_Port e, struct runs *r, uint32_t first, uint32_t n);

// rma_take_addresses returns n addresses in a row, or -1. It waits a tenth of a second for what is
// held.
int64_t rma_take_addresses(RMA2_Port e, uint32_t n);

// rma_pages_acquire makes n pages of the program reachable and counts a use of each;
// rma_pages_release ends a use. They return false if the pages do not exist, or cannot be made
// reachable.
bool rma_pages_acquire(RMA2_Port e, uintptr_t page, uint32_t n);
void rma_pages_release(RMA2_Port e, uintptr_t page, uint32_t n);

// rma_pages_trim gives pages of the port's memory that nobody uses back to the system, if they are
// so far up that they are not soon used again.
void rma_pages_trim(RMA2_Port e, uint32_t file, uint32_t n);

// rma_pages_open is called for a new port, rma_pages_close for one that ends.
void rma_pages_open(RMA2_Port e);
void rma_pages_close(RMA2_Port e);

// rma_pages_entry returns the table's entry for an acquired page.
uint64_t rma_pages_entry(RMA2_Port e, uintptr_t page);

#endif
