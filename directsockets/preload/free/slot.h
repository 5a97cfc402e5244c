/* The slots of threads: what the library without a C library knows of each.
 *
 * The GS base, which neither Go nor glibc nor musl use, is the address of the thread's slot. A new
 * thread begins with its parent's, so a slot says by the FS base whose it is:
 *
 *   GS base   FS base        the thread
 *   0         any            has no slot, or has ended
 *   a slot's  as the slot's  has this slot
 *   a slot's  another        is new, with its parent's slot; or has moved its own FS base
 *
 * A slot lies above its thread's stack for Go (owned.h).
 */
#ifndef DS_SLOT_H
#define DS_SLOT_H

#include "hooks/go.h"
#include "hooks/owned.h"
#include "segment/real.h"

enum { SLOT_VFORKS = 4 }; /* children of vfork within each other */

struct thread_slot {
	/* entry.c knows where these are. */
	struct thread_slot *self;	     /* 0 */
	uintptr_t distance;	     /* 8: of the copies, from their templates */
	uintptr_t fs;		     /* 16: the FS base of its thread */
	struct go_stack go;	     /* 24 */
	uintptr_t back[SLOT_VFORKS]; /* 40: where vfork returns to, the innermost last */
	struct owned owned;
	int err; /* the thread's errno */
	char copies[] __attribute__((aligned(64)));
};

/* Makes the slot of this thread, or finds it: the GS base is its address. False: there is no
 * memory. Any thread, a handler too; no lock. */
bool slot_find(void) DS_HIDDEN;

/* The slot of this thread; NULL: it has none yet. */
static inline struct thread_slot *slot_here(void)
{
	struct thread_slot *s = (struct thread_slot *)__builtin_ia32_rdgsbase64();

	return s && s->fs == __builtin_ia32_rdfsbase64() ? s : NULL;
}

/* From now on the process may have more than one thread: before it makes the second. Go has several
 * before the first call. */
void slot_threads(void) DS_HIDDEN;

/* Calls of a number from here on are the kernel's: 0, all of them, until the library has begun. */
extern long ds_free_calls DS_HIDDEN;

/* This thread ends: its slot is another's, and it may not use it any more. A child of vfork, which
 * ends, has its parent's. */
void slot_leave(void) DS_HIDDEN;

#endif
