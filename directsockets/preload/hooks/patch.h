/* System calls that the C library and the program make by their own instructions. */
#ifndef DS_HOOKS_PATCH_H
#define DS_HOOKS_PATCH_H

#include "hooks/hooks.h"

#include <sys/syscall.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !defined(DS_MSAN)
#define DS_PATCH 1
#endif

#ifdef DS_PATCH
/* Stubs (entry.c) for each form of place, by what is behind the system call and is moved, and the
 * bytes of a stub. */
enum { STUBS_ERROR = 128, STUBS_TEMPLATE = 48, STUBS_IOCTL = 8, STUBS = STUBS_ERROR + STUBS_TEMPLATE + STUBS_IOCTL, STUB_SIZE = 64 };

/* The last bytes of a stub. */
struct stub_data {
	const char *caller; /* behind the system call: where its caller goes on, to those who unwind */
	const char *back;   /* behind what was moved */
};
extern char ds_stubs[] DS_HIDDEN; /* whole pages */

/* glibc's function that makes a system call in which the thread may be cancelled, from 2.41 on:
 * arguments, number; the result or -errno. It cancels a thread by where its instruction pointer
 * is, so that nothing in it can be moved: who calls it calls ds_cancellable, which calls it for
 * what is the kernel's. */
typedef long ds_cancellable_fn(long, long, long, long, long, long, long nr);
extern ds_cancellable_fn *ds_libc_cancellable DS_HIDDEN;
ds_cancellable_fn ds_cancellable DS_HIDDEN;
/* Where the program's own system calls arrive (entry.c). */
extern char ds_own_entry[] DS_HIDDEN;

/* A function, by the table for those who unwind. */
struct function {
	const unsigned char *begin, *end, *next; /* the next one's begin, its end if it is the last */
};

/* The function at p, of the table frames. Without a begin it is not known: then end is the end of
 * the one before p, or NULL; next is the begin of the one behind p, or not behind p. No lock. */
struct function function_at(const char *frames, const unsigned char *p) DS_HIDDEN;

/* Are instructions to be changed, and may they be, and can entry.c keep all registers? While the
 * process has one thread. */
bool patch_possible(void) DS_HIDDEN;

/* A change of instructions: their pages can be written and not executed from patch_begin to
 * patch_end, with all signals blocked. */
struct patch {
	const struct ds_text *text;
	int file; /* it is from, where the kernel may refuse to have what was written executed; else -1 */
	char *low;
	size_t n;
	uint64_t before; /* the signals that were blocked */
};

/* Prepares changes of text. False: it cannot be changed. patch_close ends it in any case. */
bool patch_open(struct patch *p, const struct ds_text *text) DS_HIDDEN;
void patch_close(const struct patch *p) DS_HIDDEN;

/* Begins to change the instructions from low to high. False: nothing has happened, and there is no
 * patch_end, which returns false if they had to stay as they were. */
bool patch_begin(struct patch *p, char *low, char *high) DS_HIDDEN;
bool patch_end(const struct patch *p) DS_HIDDEN;
#endif

#endif
