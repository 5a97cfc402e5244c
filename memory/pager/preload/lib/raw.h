/* System calls without errno: the agent's thread has no thread-local memory of its own. */
#ifndef PG_RAW_H
#define PG_RAW_H

#include <sys/syscall.h>

/* The system call nr. Returns what the kernel does: a negative error's number on failure. */
static inline long pg_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error "exn-mem runs on x86-64 and arm64"
#endif
}

/* Starts a thread that runs fn(arg) on the stack that ends at top, which is a multiple of 16.
 * Returns its ID, or a negative error's number. */
static inline long pg_thread(void (*fn)(void *), void *arg, char *top, unsigned long flags)
{
#if defined(__x86_64__)
	long result;
	void **sp = (void **)(void *)top;
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;

	*--sp = (void *)fn;
	*--sp = arg;
	__asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tpop %%rdi\n\tpop %%rax\n\tcall *%%rax\n\t"
			 "mov %[exit], %%eax\n\txor %%edi, %%edi\n\tsyscall\n1:"
			 : "=a"(result)
			 : "a"(SYS_clone), "D"(flags), "S"(sp), "d"(0L), "r"(r10), "r"(r8), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone;
	register long x0 __asm__("x0") = (long)flags;
	register char *x1 __asm__("x1") = top;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;
	register void *x9 __asm__("x9") = arg;
	register void (*x10)(void *) __asm__("x10") = fn;

	__asm__ volatile("svc 0\n\tcbnz x0, 1f\n\tmov x29, xzr\n\tmov x0, x9\n\tblr x10\n\tmov x8, %[exit]\n\tmov x0, xzr\n\tsvc 0\n1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9), "r"(x10), [exit] "i"(SYS_exit)
			 : "memory");
	return x0;
#else
#error "exn-mem runs on x86-64 and arm64"
#endif
}

/* Such a call of up to five arguments for rpc.h. */
#define RPC_CALL(name, ...) RPC_CALL_OF(SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0)
#define RPC_CALL_OF(nr, a, b, c, d, e, ...) pg_syscall((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define PG_CALL(nr, a, b, c, d) pg_syscall((nr), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#endif
