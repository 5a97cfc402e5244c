/* Calls that unmap memory: what is known of its pages is forgotten (segment/memory.h). Calls that
 * make it executable (made.c). An allocator may call them before this library is initialised. */
#include "hooks/made.h"

#include <sys/mman.h>
#include <sys/syscall.h>

/* Are the next functions known, so that REAL works? No lock. */
static inline bool begun(void) { return __atomic_load_n(&ds_real_ready, __ATOMIC_ACQUIRE); }

EXPORT int munmap(void *p, size_t n)
{
	int rc = begun() ? REAL(munmap, p, n) : (int)ds_kernel_call(SYS_munmap, p, n);

	ds_memory_gone(p, n);
	return rc;
}

EXPORT int mprotect(void *p, size_t n, int how)
{
	int rc = begun() ? REAL(mprotect, p, n, how) : (int)ds_kernel_call(SYS_mprotect, p, n, how);

	if ((how & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE))
		ds_memory_gone(p, n);
	if (rc == 0)
		code_made(p, n, how);
	return rc;
}

/* The last argument is there with MREMAP_FIXED and MREMAP_DONTUNMAP only; reading it is
 * harmless. */
EXPORT void *mremap(void *p, size_t old, size_t new, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	void *to = va_arg(ap, void *);
	va_end(ap);
	void *rc = begun() ? REAL(mremap, p, old, new, flags, to) : (void *)ds_kernel_call(SYS_mremap, p, old, new, flags, to);

	ds_memory_gone(p, old);
	if (flags & MREMAP_FIXED)
		ds_memory_gone(to, new);
	return rc;
}

/* A mapping without all rights may lie where free has unmapped memory, or replace a mapping. */
EXPORT void *mmap(void *p, size_t n, int how, int flags, int fd, off_t off)
{
	void *rc = begun() ? REAL(mmap, p, n, how, flags, fd, off) : (void *)ds_kernel_call(SYS_mmap, p, n, how, flags, fd, off);

	if (rc != MAP_FAILED && ((flags & MAP_FIXED) || (how & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE)))
		ds_memory_gone(rc, n);
	if (rc != MAP_FAILED)
		code_mapped(rc, n, how, flags);
	return rc;
}
ALIAS(mmap64, mmap);
