/* Code that comes into the program while it runs, and not by the dynamic linker. */
#ifndef DS_HOOKS_MADE_H
#define DS_HOOKS_MADE_H

#include "hooks/hooks.h"

/* The n bytes at p have these rights now, as mprotect's. If they may be executed, looks at them
 * for system calls; keeps errno. */
void code_made(const void *p, size_t n, int how) DS_HIDDEN;

/* The same after mmap with these flags. It looks only at a file's pages that cannot be written:
 * others have no code yet. */
void code_mapped(const void *p, size_t n, int how, int flags) DS_HIDDEN;

/* The first system call from p on, before end, as far as that can be read; NULL: there is
 * none. */
const unsigned char *code_call(const unsigned char *p, const unsigned char *end) DS_HIDDEN;

/* All sockets are the kernel's from now on, for a call at this place of a file. */
void code_stay(const char *file, uint64_t at) DS_HIDDEN;

#endif
