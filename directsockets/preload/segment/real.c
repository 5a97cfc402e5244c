#include "segment/real.h"

#include <errno.h>
#include <sys/syscall.h>

DS_START_DATA struct ds_real ds_real;
DS_START_DATA bool ds_real_ready;
DS_START_DATA const char *ds_single_thread = "";
__thread int ds_marked __attribute__((tls_model("initial-exec")));
extern char __libc_single_threaded __attribute__((weak)); /* not musl's */

/* The linker puts what is written right behind the last of what is only read, at the next page, but
 * at the place within it where that ended. This section is the last one, and ends at the begin of a
 * page: so what the dynamic linker writes and DS_START_DATA share a page, whatever lies before. */
__asm__(".pushsection .exception_ranges, \"a\"\n\t.p2align 12\n\t.byte 0\n\t.popsection");

/* ---- system calls ------------------------------------------------------------------ */

DS_START_DATA ds_kernel_fn *ds_kernel = ds_kernel_call;

#if defined(__x86_64__)
__asm__(
	"	.text\n"
	"	.globl	ds_kernel_call\n"
	"	.hidden	ds_kernel_call\n"
	"	.type	ds_kernel_call, @function\n"
	"ds_kernel_call:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	movq	%rdi, %rax\n"
	"	movq	%rsi, %rdi\n"
	"	movq	%rdx, %rsi\n"
	"	movq	%rcx, %rdx\n"
	"	movq	%r8, %r10\n"
	"	movq	%r9, %r8\n"
	"	movq	8(%rsp), %r9\n"
	"	syscall\n"
	"	cmpq	$-4096, %rax\n"
	"	ja	1f\n"
	"	ret\n"
	"1:	negl	%eax\n"
	"	pushq	%rax\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call	__errno_location@PLT\n"
	"	popq	%rdx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	movl	%edx, (%rax)\n"
	"	movq	$-1, %rax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	ds_kernel_call, .-ds_kernel_call\n");
#elif defined(__aarch64__)
__asm__(
	"	.text\n"
	"	.globl	ds_kernel_call\n"
	"	.hidden	ds_kernel_call\n"
	"	.type	ds_kernel_call, %function\n"
	"ds_kernel_call:\n"
	"	.cfi_startproc\n"
	"	hint	#34\n" /* bti c */
	"	mov	x8, x0\n"
	"	mov	x0, x1\n"
	"	mov	x1, x2\n"
	"	mov	x2, x3\n"
	"	mov	x3, x4\n"
	"	mov	x4, x5\n"
	"	mov	x5, x6\n"
	"	svc	#0\n"
	"	cmn	x0, #4095\n"
	"	b.hs	1f\n"
	"	ret\n"
	"1:	stp	x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	neg	w0, w0\n"
	"	str	w0, [sp, #16]\n"
	"	bl	__errno_location\n"
	"	ldr	w1, [sp, #16]\n"
	"	str	w1, [x0]\n"
	"	mov	x0, #-1\n"
	"	ldp	x29, x30, [sp], #32\n"
	"	.cfi_def_cfa_offset 0\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	ds_kernel_call, .-ds_kernel_call\n");
#else
/* The C library's, by a name of this library's own. */
long ds_kernel_call(long nr, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return REAL(syscall, nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif

/* ---- the C library's functions ----------------------------------------------------- */

#ifndef __GLIBC__
/* The calls preadv2 and pwritev2, which musl has since 1.2.5. No lock. */
static ssize_t kernel_preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return ds_syscall(SYS_preadv2, fd, iov, n, off, 0, flags);
}

/* See kernel_preadv2. */
static ssize_t kernel_pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return ds_syscall(SYS_pwritev2, fd, iov, n, off, 0, flags);
}
#endif

DS_START void ds_real_init(void)
{
#define X(result, name, args) #name "\0"
	static const char names[] = DS_REAL(X) DS_REAL_OPTIONAL(X);
#undef X
	int saved = errno;

	_Static_assert(sizeof ds_real <= DS_NEXT_MOST * sizeof(void *), "too many functions");
	/* Threads that come here at once store the same values, while others read them. */
	ds_next_all(names, (void **)(void *)&ds_real, sizeof ds_real / sizeof(void *));
#ifndef __GLIBC__
	if (!REAL_NOW(preadv2))
		__atomic_store_n(&ds_real.preadv2, kernel_preadv2, __ATOMIC_RELAXED);
	if (!REAL_NOW(pwritev2))
		__atomic_store_n(&ds_real.pwritev2, kernel_pwritev2, __ATOMIC_RELAXED);
#endif
	if (&__libc_single_threaded)
		__atomic_store_n(&ds_single_thread, &__libc_single_threaded, __ATOMIC_RELAXED);
	__atomic_store_n(&ds_real_ready, true, __ATOMIC_RELEASE);
	errno = saved;
}
