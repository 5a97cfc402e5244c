/* The C library's own system calls. */
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
#endif

#endif
