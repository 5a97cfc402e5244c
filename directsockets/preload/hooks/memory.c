/* Calls that unmap memory: what is known of its pages is forgotten (segment/memory.h). An allocator
 * may call them before this library is initialised. */
#include "hooks/hooks.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* The system call itself, while the C library's functions cannot be looked up yet. As syscall. */
static long raw(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long rc;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long rc __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(rc) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
#else
	return ds_syscall(nr, a, b, c, d, e, f);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
	if (rc < 0 && rc > -4096) {
		errno = (int)-rc;
		return -1;
	}
	return rc;
#endif
}

/* Are the next functions known, so that REAL works? No lock. */
static inline bool begun(void) { return __atomic_load_n(&ds_real_ready, __ATOMIC_ACQUIRE); }

EXPORT int munmap(void *p, size_t n)
{
	int rc = begun() ? REAL(munmap)(p, n) : (int)raw(SYS_munmap, (long)p, (long)n, 0, 0, 0, 0);

	ds_memory_gone(p, n);
	return rc;
}

EXPORT int mprotect(void *p, size_t n, int how)
{
	int rc = begun() ? REAL(mprotect)(p, n, how) : (int)raw(SYS_mprotect, (long)p, (long)n, how, 0, 0, 0);

	if ((how & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE))
		ds_memory_gone(p, n);
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
	void *rc = begun() ? REAL(mremap)(p, old, new, flags, to) : (void *)raw(SYS_mremap, (long)p, (long)old, (long)new, flags, (long)to, 0);

	ds_memory_gone(p, old);
	if (flags & MREMAP_FIXED)
		ds_memory_gone(to, new);
	return rc;
}

/* A mapping without all rights may lie where free has unmapped memory, or replace a mapping. */
EXPORT void *mmap(void *p, size_t n, int how, int flags, int fd, off_t off)
{
	void *rc = begun() ? REAL(mmap)(p, n, how, flags, fd, off) : (void *)raw(SYS_mmap, (long)p, (long)n, how, flags, fd, off);

	if (rc != MAP_FAILED && ((flags & MAP_FIXED) || (how & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE)))
		ds_memory_gone(rc, n);
	return rc;
}
ALIAS(mmap64, mmap);
