// pages.h: the pages of the program that peers can reach.
#ifndef EXN_RMA_PAGES_H
#define EXN_RMA_PAGES_H

#include "rma.h"

// Runs of free pages. rma_runs_take takes n in a row, the first that there are; -1: there are
// none. rma_runs_give gives them back; without memory for one more run they are lost until the
// port is closed.
bool rma_runs_init(struct runs *r);
int64_t rma_runs_take(struct runs *r, uint32_t n);
void rma_runs_give(struct runs *r, uint32_t first, uint32_t n);

// rma_pages_acquire has n pages of the program reached by peers, and counts a use of each;
// rma_pages_release ends a use. False: they are not there, or nobody can reach them.
bool rma_pages_acquire(RMA2_Port e, uintptr_t page, uint32_t n);
void rma_pages_release(RMA2_Port e, uintptr_t page, uint32_t n);

// rma_pages_open and rma_pages_close begin and end a port.
void rma_pages_open(RMA2_Port e);
void rma_pages_close(RMA2_Port e);

// rma_pages_entry is the entry of the table for a page that was acquired.
uint64_t rma_pages_entry(RMA2_Port e, uintptr_t page);

#endif
