/* The C library's own system calls. */
#ifndef DS_HOOKS_PATCH_H
#define DS_HOOKS_PATCH_H

#include "hooks/hooks.h"

#include <sys/syscall.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(DS_MSAN)
#define DS_PATCH 1
#endif

#ifdef DS_PATCH
/* Places of the C library that can be patched, by the instruction behind the system call, which is
 * moved: of the first kind STUBS_FIRST. The stubs (entry.c) have 16 bytes times three each. */
enum { STUBS_FIRST = 128, STUBS_SECOND = 48, STUBS = STUBS_FIRST + STUBS_SECOND, STUB_SIZE = 48 };

struct stub_data {
	const char *caller; /* behind the system call: where its caller goes on, to those who unwind */
	const char *back;   /* behind what was moved */
};
extern struct stub_data ds_stub_data[STUBS] DS_HIDDEN;
extern const char ds_stubs[] DS_HIDDEN;
#endif

#endif
