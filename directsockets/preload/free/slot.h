/* The slots of threads: what the library without a C library knows of each.
 *
 * The GS base, which neither Go nor glibc nor musl use, is 0 or leads to a slot: at gs:SLOT_NONE is
 * the slot. Where it is 0, that is the address SLOT_NONE itself, where a page of zeros is. So no
 * instruction is needed that a machine may lack (fsgsbase).
 *
 * A new thread begins with its parent's GS base. A program of C makes threads by places that lead
 * to the library, which sets it to 0 (entry.c). Go makes them elsewhere. There a slot says whose it
 * is, by the word at the FS base, which a signal handler finds as well:
 *
 *   GS base   the word       a thread of Go
 *   0         any            has no slot, or has ended
 *   a slot's  as the slot's  has this slot
 *   a slot's  another        is new, with its parent's slot
 *
 * To a libc the word is its own address. To Go alone it is m.tls[1] (runtime2.go), which Go does
 * not use: 0 in a new thread. slot_find writes the slot's address there.
 *
 * arm64 has one such register, TPIDR_EL0. A libc's threads have two words there, the second of
 * which no libc uses: it is the slot's address. Go without cgo leaves the register 0: then it is 8
 * below the slot, whose first word is its own address, so that the second word is the same. A new
 * thread of a libc has a TPIDR_EL0 of its own, of which entry_arm64.c has made the second word 0.
 * One of Go has its parent's, until the stub of runtime.clone has made it 0.
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
	uintptr_t word;		     /* 16: what its thread, of Go, has at the FS base; arm64: its TPIDR_EL0 */
	struct go_stack go;	     /* 24 */
	uintptr_t back[SLOT_VFORKS]; /* 48: where vfork returns to, the innermost last; arm64: what returns twice */
	int twice;		     /* arm64: how many of these there are */
	struct owned owned;
	int err; /* the thread's errno */
	char copies[] __attribute__((aligned(64)));
};

/* Makes the slot of this thread, or finds it, and sets the GS base. False: there is no memory,
 * slot_set has failed, or this Go uses the word itself. Any thread, a handler too; no lock. */
bool slot_find(void) DS_HIDDEN;

/* Where a thread without a slot finds a page of zeros: below all that linkers place. */
#define SLOT_NONE 0x100000
#define SLOT_NONE_TEXT "0x100000"

/* Whether the program is Go's, and whether threads may set their GS base without the kernel. */
extern bool slot_of_go DS_HIDDEN, slot_fsgsbase DS_HIDDEN;

/* Maps the page of zeros, before the first slot. 0, or -errno. Until slot_begun there is one
 * thread, which may have no FS base yet. */
long slot_begin(bool fsgsbase) DS_HIDDEN;
void slot_begun(bool go) DS_HIDDEN;

/* Has this thread's GS base lead to a slot; NULL: to the page of zeros. False: a filter of the
 * program's (seccomp) forbids it. */
bool slot_set(const struct thread_slot *s) DS_HIDDEN;

/* What the GS base, or the second word at TPIDR_EL0, leads to. */
#if defined(__aarch64__)
static inline uintptr_t slot_word(void)
{
	uintptr_t word;

	__asm__ volatile("mrs %0, tpidr_el0" : "=r"(word));
	return word;
}

static inline struct thread_slot *slot_at_base(void)
{
	uintptr_t word = slot_word();

	return word ? ((struct thread_slot *const *)word)[1] : NULL;
}

/* The slot of this thread; NULL: it has none yet. */
static inline struct thread_slot *slot_here(void) { return slot_at_base(); }
#else
static inline struct thread_slot *slot_at_base(void)
{
	struct thread_slot *s;

	__asm__ volatile("movq %%gs:" SLOT_NONE_TEXT ", %0" : "=r"(s));
	return s;
}

/* The word at the FS base. A thread of Go has one. */
static inline uintptr_t slot_word(void)
{
	uintptr_t word;

	__asm__ volatile("movq %%fs:0, %0" : "=r"(word));
	return word;
}

/* The slot of this thread; NULL: it has none yet. */
static inline struct thread_slot *slot_here(void)
{
	struct thread_slot *s = slot_at_base();

	return s && (!slot_of_go || s->word == slot_word()) ? s : NULL;
}
#endif

/* From now on the process may have more than one thread: before it makes the second. Go has several
 * before the first call. */
void slot_threads(void) DS_HIDDEN;

/* Where Go's Syscall6 comes back from the kernel. */
extern uintptr_t ds_free_called DS_HIDDEN;

/* Calls of a number from here on are the kernel's: 0, all of them, until the library has begun. */
extern long ds_free_calls DS_HIDDEN;

/* This thread ends: its slot is another's, and it may not use it any more. A child of vfork, which
 * ends, has its parent's. */
void slot_leave(void) DS_HIDDEN;

#endif
