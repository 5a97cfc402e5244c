/* System calls that the C library makes by its own instructions come here: from its names that a
 * plugin has bound past this library (RTLD_DEEPBIND, dlsym), from its streams and threads, from
 * syscall(2). patch.c has put a jump where those instructions were.
 *
 *   C library   ... mov $nr, %eax ─ jump ─┐                          ┌─▶ jump over what was moved
 *   stub (one for each place)             └▶ lea, push, jump ─┐  ┌─▶ cmp ─┘
 *   ds_entry                                                  └▶─┤ not ours: syscall ─▶ back
 *                                                                └ ours: all registers kept, ds_entered ─▶ back
 *
 * To the C library this is one instruction, which changes rax, rcx and r11 alone. Whoever unwinds
 * the stack from a hook finds the C library's function as its caller.
 *
 * Instructions of the program's own (sites.c) have stubs that make the kernel's calls themselves,
 * on the program's stack. So a call that returns twice (vfork) or never (exit) leaves ds_own_entry
 * first.
 */
#include "hooks/patch.h"

#ifdef DS_PATCH
#include <errno.h>
#include <pthread.h>

/* A stub begins with the stack of the C library's function, which may use 128 bytes below it. Its
 * last bytes are a struct stub_data, which patch.c writes. */
#define STUB(compare) \
	"	.p2align 6\n" \
	"	addq	$-128, %rsp\n" \
	"	leaq	1f(%rip), %r11\n" \
	"	jmp	ds_entry\n" \
	"1:	subq	$-128, %rsp\n" \
	"	" compare "\n" \
	"	jmp	*2f+8(%rip)\n" \
	"	.org	1b+32\n" \
	"2:	.quad	0, 0\n"
#define STUBS_OF(count, compare) "	.rept	" #count "\n" STUB(compare) "	.endr\n"

/* The bytes that xsave needs for what the compiler may use: x87, SSE, AVX, AVX-512. */
#define XAREA "2752"
#define XMASK "0xe7"

/* Where the caller goes on, to those who unwind: at r11+32, or r11-12 for an instruction of the
 * program's own. */
#define CALLER_LIBC "	.cfi_escape 0x10, 0x10, 2, 0x7b, 32\n"
#define CALLER_OWN "	.cfi_escape 0x10, 0x10, 2, 0x7b, 0x74\n"

/* The call is the kernel's: from 1 with r11 on the stack. It is made here, or by the stub. */
#define KERNEL_LIBC \
	"1:	popq	%r11\n" \
	"	.cfi_adjust_cfa_offset -8\n" \
	"2:	pushq	%r11\n" /* the kernel's */ \
	"	.cfi_adjust_cfa_offset 8\n" \
	"	syscall\n" \
	"	popq	%r11\n" \
	"	.cfi_adjust_cfa_offset -8\n" \
	BACK(CALLER_LIBC)
#define KERNEL_OWN \
	"1:	popq	%r11\n" \
	"	.cfi_adjust_cfa_offset -8\n" \
	"2:	leaq	-4(%r11), %r11\n" \
	"	.cfi_remember_state\n" \
	"	leaq	136(%rsp), %rsp\n" \
	"	.cfi_def_cfa_offset 0\n" \
	"	.cfi_escape 0x10, 0x10, 2, 0x7b, 0x78\n" \
	"	jmp	*%r11\n"
#define BACK(caller) \
	"	.cfi_remember_state\n" \
	"	leaq	8(%rsp), %rsp\n" \
	"	.cfi_def_cfa_offset 128\n" \
	caller \
	"	jmp	*%r11\n"

/* A thread may end when it has no stack any more. */
#define BEGIN_OWN \
	"	cmpl	$60, %eax\n" \
	"	jne	0f\n" \
	"	syscall\n" \
	"0:\n"
/* The hook has left the call to the kernel. */
#define END_OWN \
	"	testl	%ecx, %ecx\n" \
	"	jnz	2b\n"

/* The entry by this name. */
#define ENTRY(name, ways, caller, at, begin, kernel, entered, end) \
	"	.p2align 6\n" \
	"	.type	" name ", @function\n" \
	name ":\n" \
	"	.cfi_startproc simple\n" \
	"	.cfi_def_cfa rsp, 128\n" \
	caller \
	begin \
	"	pushq	" at "(%r11)\n" \
	"	.cfi_def_cfa_offset 136\n" \
	"	.cfi_offset rip, -136\n" \
	"	cmpl	$511, %eax\n" \
	"	ja	2f\n" \
	"	movl	%eax, %ecx\n" \
	"	pushq	%r11\n" \
	"	.cfi_adjust_cfa_offset 8\n" \
	DS_WAY(ways, "%rcx") \
	kernel \
	"	.cfi_restore_state\n" \
	"	.cfi_def_cfa_offset 144\n" \
	DS_WAY_IF_ANY \
	"3:	movq	ds_thread_marked@gottpoff(%rip), %rcx\n" \
	"	cmpl	$0, %fs:(%rcx)\n" \
	"	jne	1b\n" \
	"	pushq	%rbp\n" \
	"	.cfi_adjust_cfa_offset 8\n" \
	"	.cfi_rel_offset rbp, 0\n" \
	"	movq	%rsp, %rbp\n" \
	"	.cfi_def_cfa_register rbp\n" \
	"	pushq	%rbx\n" \
	"	.cfi_rel_offset rbx, -8\n" \
	"	pushq	%r9\n" \
	"	pushq	%r8\n" \
	"	pushq	%r10\n" \
	"	pushq	%rdx\n" \
	"	pushq	%rsi\n" \
	"	pushq	%rdi\n" \
	"	movq	%rsp, %rsi\n" /* the arguments, as an array */ \
	"	movl	%eax, %ebx\n" \
	"	subq	$" XAREA ", %rsp\n" \
	"	andq	$-64, %rsp\n" \
	"	xorl	%eax, %eax\n" \
	"	leaq	512(%rsp), %rdi\n" \
	"	movl	$8, %ecx\n" \
	"	cld\n" \
	"	rep	stosq\n" \
	"	movl	$" XMASK ", %eax\n" \
	"	xorl	%edx, %edx\n" \
	"	xsave64	(%rsp)\n" \
	"	movl	%ebx, %edi\n" \
	"	call	" entered "\n" \
	"	movq	%rdx, %rcx\n" \
	"	movq	%rax, %rbx\n" \
	"	movl	$" XMASK ", %eax\n" \
	"	xorl	%edx, %edx\n" \
	"	xrstor64 (%rsp)\n" \
	"	movq	%rbx, %rax\n" \
	"	leaq	-56(%rbp), %rsp\n" \
	"	popq	%rdi\n" \
	"	popq	%rsi\n" \
	"	popq	%rdx\n" \
	"	popq	%r10\n" \
	"	popq	%r8\n" \
	"	popq	%r9\n" \
	"	popq	%rbx\n" \
	"	.cfi_restore rbx\n" \
	"	popq	%rbp\n" \
	"	.cfi_restore rbp\n" \
	"	.cfi_def_cfa rsp, 144\n" \
	"	popq	%r11\n" \
	"	.cfi_adjust_cfa_offset -8\n" \
	end \
	BACK(caller) \
	"	.cfi_endproc\n" \
	"	.size	" name ", .-" name "\n"

__asm__(
	"	.pushsection .ds_stubs, \"ax\", @progbits\n"
	"	.globl	ds_stubs\n"
	"	.hidden	ds_stubs, ds_entry, ds_own_entry, ds_ways, ds_own_ways, ds_thread_marked, ds_entered, ds_own_entered, fd_tab, fd_tab_size\n"
	"	.globl	ds_own_entry\n"
	"	.p2align 12\n"
	"ds_stubs:\n"
	"	.cfi_startproc simple\n"
	/* The C library's stack begins at rsp, but from the 4th byte of a stub to the 20th at
	 * rsp+128: breg7 0; breg16 -4; const1u 48; and; lit0; eq; lit7; shl; plus. */
	"	.cfi_escape 0x0f, 12, 0x77, 0, 0x80, 0x7c, 0x08, 48, 0x1a, 0x30, 0x29, 0x37, 0x24, 0x22\n"
	/* Its function goes on where the 48th byte says: breg16 0; const1s -64; and; const1u 48;
	 * plus. */
	"	.cfi_escape 0x10, 0x10, 8, 0x80, 0, 0x09, 0xc0, 0x1a, 0x08, 48, 0x22\n"
	STUBS_OF(128, ".byte 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff")	/* cmp $-4096, %rax */
	STUBS_OF(48, ".byte 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff")	/* cmp $-4095, %rax */
	STUBS_OF(8, ".byte 0x89, 0xc2, 0x3d, 0x00, 0xf0, 0xff, 0xff")	/* mov %eax, %edx; cmp $-4096, %eax */
	"	.cfi_endproc\n"
	"	.p2align 12\n"
	"	.popsection\n"
	"	.text\n"
	ENTRY("ds_entry", "ds_ways", CALLER_LIBC, "32", "", KERNEL_LIBC, "ds_entered", "")
	ENTRY("ds_own_entry", "ds_own_ways", CALLER_OWN, "-12", BEGIN_OWN, KERNEL_OWN, "ds_own_entered", END_OWN));

/* Between the C library's and a hook's idea of where a thread may be cancelled: the C library lets
 * it be cancelled at any instruction now, if at all. A hook is cancelled where it waits. */
struct cancelled {
	bool known, any;
	int before;
};

/* Has the thread be cancelled as a hook expects it. */
static void cancel_begin(struct cancelled *c)
{
	int type;

	c->known = !ds_one_thread() && pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0;
	c->any = c->known && type == PTHREAD_CANCEL_ASYNCHRONOUS;
	if (c->known && !c->any)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c->before);
}

/* Has it be cancelled as before. */
static void cancel_end(struct cancelled *c)
{
	if (c->any)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	else if (c->known)
		pthread_setcancelstate(c->before, NULL);
}

typedef bool by_number(long nr, const long a[6], long *rc);

/* Makes the system call by a hook, if it belongs to this library: true, and *rc as the kernel's,
 * the result or -errno. What a hook calls is the kernel's. */
static __attribute__((noinline)) bool hooked(by_number *hook, long nr, const long a[6], long *rc)
{
	int saved = errno;
	DS_MARK(before);

	/* A child that shares this memory has descriptors of its own: one that the C library has
	 * made, and nobody has counted (posix_spawn). A sealed process may not ask. */
	bool ours = (fd_is_sealed() || !fd_shares_memory()) && hook(nr, a, rc);
	if (ours && *rc == -1)
		*rc = -errno;
	errno = saved;
	return ours;
}

/* A system call, in six registers. It may be cancelled at any instruction here, so that nothing is
 * left to clean up. */
DS_HIDDEN long ds_entered(long nr, const long a[6]);
long ds_entered(long nr, const long a[6])
{
	struct cancelled cancelled;
	int saved = errno;
	long rc;

	cancel_begin(&cancelled);
	if (!hooked(hooked_call, nr, a, &rc) && (rc = ds_kernel_call(nr, a[0], a[1], a[2], a[3], a[4], a[5])) == -1)
		rc = -errno;
	cancel_end(&cancelled);
	errno = saved;
	return rc;
}

/* What becomes of a system call of the program's own. The C library does not see it. */
struct outcome {
	long rc; /* the result or -errno; if it is the kernel's, the number of the call */
	long kernel;
};
DS_HIDDEN struct outcome ds_own_entered(long nr, const long a[6]);
struct outcome ds_own_entered(long nr, const long a[6])
{
	struct cancelled cancelled;
	long rc;

	cancel_begin(&cancelled);
	bool ours = hooked(every_call, nr, a, &rc);
	cancel_end(&cancelled);
	return (struct outcome){ours ? rc : nr, !ours};
}

ds_cancellable_fn *ds_libc_cancellable;

/* May the call be this library's? As DS_WAY. */
static bool may_be_ours(long nr, int fd)
{
	switch ((unsigned long)nr < DS_WAYS ? ds_ways[nr] : NEVER) {
	case NEVER: return false;
	case BY_DESCRIPTOR: return fd_word(fd) != 0;
	case IF_ANY: return fd_tab_size != 0;
	}
	return true;
}

/* Unlike a stub, this is a function to its caller. Whoever cancels the thread finds it where a hook
 * waits, or in the C library's own function. */
long ds_cancellable(long a, long b, long c, long d, long e, long f, long nr)
{
	const long all[6] = {a, b, c, d, e, f};
	long rc;

	if (!ds_marked && may_be_ours(nr, (int)a) && hooked(hooked_call, nr, all, &rc))
		return rc;
	return ds_libc_cancellable(a, b, c, d, e, f, nr);
}
#endif
