/* vfork: its child has our memory, but descriptors of its own, so the table is not to follow what
 * it closes or opens (fd_vforked). Parent and child are one thread to the C library: the child
 * finds the count that the parent has raised, and the parent, which does not run meanwhile, lowers
 * it.
 *
 *   parent   vfork: fd_vforks++ ─ system call ·································· fd_vforks-- ─▶
 *   child                              └─▶ return ─ close, dup2: fd_vforked() ─ exec, _exit ─┘
 *
 * Both return from the same call, and the child's stack is the parent's: so the return address
 * waits in a register. */
#include "hooks/hooks.h"

/* The same function by a name that no other library takes over. */
#define OWN \
	"	.globl	own_vfork\n" \
	"	.hidden	own_vfork\n" \
	"	.set	own_vfork, vfork\n"

#if defined(__x86_64__)
__asm__(
	"	.text\n"
	"	.globl	vfork\n"
	"	.type	vfork, @function\n"
	"vfork:\n"
	"	endbr64\n"
	"	movq	fd_thread_vforks@gottpoff(%rip), %rdx\n"
	"	addl	$1, %fs:(%rdx)\n"
	"	popq	%rdi\n"
	"	movl	$58, %eax\n"
	"	syscall\n"
	"	pushq	%rdi\n"
	"	testq	%rax, %rax\n"
	"	jz	1f\n"
	"	subl	$1, %fs:(%rdx)\n"
	"	testq	%rax, %rax\n"
	"	js	2f\n"
	"1:	ret\n"
	"2:	negl	%eax\n"
	"	pushq	%rax\n"
	"	call	__errno_location@PLT\n"
	"	popq	%rdx\n"
	"	movl	%edx, (%rax)\n"
	"	movl	$-1, %eax\n"
	"	ret\n"
	"	.size	vfork, .-vfork\n"
	OWN);
#elif defined(__aarch64__)
__asm__(
	"	.text\n"
	"	.globl	vfork\n"
	"	.type	vfork, %function\n"
	"vfork:\n"
	"	hint	#34\n" /* bti c */
	"	adrp	x2, :gottprel:fd_thread_vforks\n"
	"	ldr	x2, [x2, #:gottprel_lo12:fd_thread_vforks]\n"
	"	mrs	x3, tpidr_el0\n"
	"	add	x2, x2, x3\n"
	"	ldr	w4, [x2]\n"
	"	add	w4, w4, #1\n"
	"	str	w4, [x2]\n"
	"	mov	x0, #0x4111\n" /* CLONE_VFORK | CLONE_VM | SIGCHLD */
	"	mov	x1, #0\n"
	"	mov	x8, #220\n" /* clone */
	"	svc	#0\n"
	"	cbz	x0, 1f\n"
	"	ldr	w4, [x2]\n"
	"	sub	w4, w4, #1\n"
	"	str	w4, [x2]\n"
	"	tbnz	x0, #63, 2f\n"
	"1:	ret\n"
	"2:	stp	x29, x30, [sp, #-32]!\n"
	"	neg	w0, w0\n"
	"	str	w0, [sp, #16]\n"
	"	bl	__errno_location\n"
	"	ldr	w1, [sp, #16]\n"
	"	str	w1, [x0]\n"
	"	mov	w0, #-1\n"
	"	ldp	x29, x30, [sp], #32\n"
	"	ret\n"
	"	.size	vfork, .-vfork\n"
	OWN);
#endif

DS_START void vfork_init(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
	extern __typeof__(vfork) own_vfork DS_HIDDEN;
	void *found = ds_first("vfork");

	if (found && found != (void *)own_vfork) /* a sanitizer's, which does not come here */
		fd_doubt();
#else
	fd_doubt();
#endif
}
