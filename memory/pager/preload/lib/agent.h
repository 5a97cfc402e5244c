/* The agent: a thread beside the program's own, which moves pages when the pager says so. */
#ifndef PG_AGENT_H
#define PG_AGENT_H

#include "wire.h"

#include <stdint.h>

enum {
	PG_STACK = 16 * PG_PAGE,
	PG_WATCH = 2 * PG_PAGE, /* the stack of the agent's watcher */
	PG_SLOTS = 1 << 14, /* pages that can wait in the area */
};

/* The library's own memory. It has pages of its own, which are never paged: the agent must not
 * wait for the pager, who waits for the agent. The first page is kept by fork, the rest is not. */
struct pg_area {
	char path[108];     /* of the pager's socket */
	uint32_t adopted;   /* the pager has this process, or has its parent */
	uint32_t ready;     /* a futex: 1 the agent has its userfaultfd */
	uint32_t ended;     /* a thread is ending the process */
	uint32_t thread;    /* the agent's ID; 0: it has ended. The pager reads it */
	char pad[PG_PAGE - 124];
	union {
		uint64_t token; /* a child finds here what the pager wrote */
		char first[PG_PAGE];
	} mark;
	char watch[PG_WATCH];
	char stack[PG_STACK];
	char slots[]; /* PG_SLOTS pages */
};

#define PG_AREA_SIZE (sizeof(struct pg_area) + (uint64_t)PG_SLOTS * PG_PAGE)

/* What the agent's thread runs. arg is the area. It returns if the pager refuses the process. Else
 * a thread of its own, the watcher, ends the process when the pager dies: the agent itself may be
 * in a call then that waits for the pager. */
int pg_agent(void *arg);

#endif
