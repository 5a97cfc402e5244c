/* Memory of threads that nobody tells when they end: each has a piece, which another takes after
 * it. Pieces are never unmapped. The word tid is the only state: 0, nobody's; else whose. */
#ifndef DS_HOOKS_OWNED_H
#define DS_HOOKS_OWNED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

/* A piece begins with it. */
struct owned {
	struct owned *next; /* of all pieces */
	int tid;
};

/* All pieces of a kind. */
struct owned_list {
	struct owned *first;
	int made, look_at; /* how many; at how many one looks for threads that have ended, 0: OWNED_LEAST */
	pid_t process;	   /* whose threads they are; 0: nobody has one yet */
};
enum { OWNED_LEAST = 16 };

static inline int owned_tid(const struct owned *o) { return __atomic_load_n(&o->tid, __ATOMIC_ACQUIRE); }

/* A piece for the thread tid, which is the caller: one whose thread has ended, else a new one by
 * make, which returns it zero, or NULL. *fresh: it is new. NULL: there is no memory. Any thread, a
 * handler too; no lock, no errno, no thread-local storage. */
struct owned *owned_get(struct owned_list *l, int tid, struct owned *(*make)(void), bool *fresh) __attribute__((visibility("hidden")));

/* Memory: a guard, a stack of OWNED_STACK bytes, and n bytes. Returns the upper end of the
 * stack, where the n bytes begin; NULL: there is none. */
enum { OWNED_STACK = 256 << 10 };
char *owned_map(size_t n) __attribute__((visibility("hidden")));

/* A system call with three arguments: the result, or -errno. */
static inline long owned_call(long nr, long a, long b, long c)
{
#if defined(__aarch64__)
	register long number __asm__("x8") = nr, rc __asm__("x0") = a, second __asm__("x1") = b, third __asm__("x2") = c;

	__asm__ volatile("svc #0" : "+r"(rc) : "r"(number), "r"(second), "r"(third) : "memory");
	return rc;
#else
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return rc;
#endif
}

/* Maps n bytes of anonymous memory: its address, or -errno. */
static inline long owned_mmap(long at, size_t n, long prot, long how)
{
#if defined(__aarch64__)
	register long number __asm__("x8") = SYS_mmap, rc __asm__("x0") = at, size __asm__("x1") = (long)n, right __asm__("x2") = prot;
	register long flags __asm__("x3") = MAP_PRIVATE | MAP_ANONYMOUS | how, fd __asm__("x4") = -1, from __asm__("x5") = 0;

	__asm__ volatile("svc #0" : "+r"(rc) : "r"(number), "r"(size), "r"(right), "r"(flags), "r"(fd), "r"(from) : "memory");
	return rc;
#else
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | how, fd __asm__("r8") = -1, from __asm__("r9") = 0;
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(SYS_mmap), "D"(at), "S"(n), "d"(prot), "r"(flags), "r"(fd), "r"(from) : "rcx", "r11", "memory");
	return rc;
#endif
}

#endif
