/* What entry.c and the entry of each architecture share. */
#ifndef DS_FREE_ENTRY_H
#define DS_FREE_ENTRY_H

#include "free/slot.h"

/* What is left to do behind ds_free_entered: the assembly code knows the values. */
enum rest {
	DONE,
	THREAD,	     /* clone of a thread, with a stack of its own */
	FORK,	     /* clone of a process with memory and a stack of its own */
	VFORK,	     /* a child that shares the stack, and runs first */
	VFORK_STACK, /* the same with a stack of its own */
	KERNEL,	     /* the call is the kernel's, on a copy of this stack, or from Go */
};

/* Can a child begin on the stack of clone's arguments, as THREAD or FORK? */
bool entry_begins(unsigned long flags, const long a[6]) DS_HIDDEN;

/* Before the kernel makes a child, which goes on at back. False: there is no room for it. */
bool entry_prepare(enum rest rest, const long a[6], uintptr_t back) DS_HIDDEN;

/* In the parent and in the child of FORK. */
void ds_free_forked(long pid) DS_HIDDEN;

#endif
