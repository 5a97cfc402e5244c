/* The entries on amd64. A stub of a place in C has lowered rsp by 128, and r11 is where to go on.
 * Behind a call that returns twice the address to return to lies where both find it: below the new
 * stack's end, or in the slot. */
#if defined(__x86_64__)
#include "free/entry.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

bool entry_begins(unsigned long flags, const long a[6]) { return (void)flags, ds_writable((const char *)a[1] - 136, 8); }

bool entry_prepare(enum rest rest, const long a[6], uintptr_t back)
{
	if (rest == VFORK || rest == VFORK_STACK) {
		if (fd_vforks == SLOT_VFORKS)
			return false;
		slot_here()->back[fd_vforks++] = back;
		return true;
	}
	if (rest == THREAD && !slot_set(slot_here()))
		return false;
	*(uintptr_t *)((char *)a[1] - 136) = back;
	return true;
}

/* Before Go's handler: is the thread elsewhere to it? Behind it ds_where_swap has the thread go on
 * where it was. */
bool ds_free_elsewhere(ucontext_t *u, struct ds_where *w, const siginfo_t *info) DS_HIDDEN;
bool ds_free_elsewhere(ucontext_t *u, struct ds_where *w, const siginfo_t *info)
{
	const struct thread_slot *s = slot_here();

	if (!go_where(w, u, info, s ? &s->go : NULL, ds_free_called))
		return false;
	ds_where_swap(u, w);
	return true;
}

/* Hooks that the entry calls by itself: each takes what the system call takes, and an int holds its
 * result. */
static void *const hooks[DS_WAYS] __attribute__((used)) = {
#define X(name) [SYS_##name] = (void *)name,
	X(read) X(write) X(readv) X(writev) X(recvfrom) X(sendto) X(recvmsg) X(sendmsg) X(epoll_wait) X(epoll_ctl)
#undef X
};
_Static_assert(offsetof(struct ds_thread, level) == 12, "as the entry has it");

/* The thread's slot. */
#define FIND \
	"	movq	%gs:" SLOT_NONE_TEXT ", %r11\n" \
	"	testq	%r11, %r11\n" \
	"	jz	8f\n" \
	"	movq	%fs:0, %r12\n" \
	"	cmpq	%r12, 16(%r11)\n" \
	"	jne	8f\n" \
	"	addq	$24, %r11\n"
DS_GO_FIRST;

__asm__(
	"	.text\n"
	"	.hidden	ds_own_ways, fd_tab, fd_tab_size, fd_thread_vforks, slot_fsgsbase, slot_of_go, ds_free_calls\n"
	"	.hidden	ds_selves, __errno_location\n"
	"	.hidden	ds_free_entered, ds_free_forked, ds_free_elsewhere, ds_where_swap, go_begin, go_end\n"
	"	.globl	ds_free_entry\n"
	"	.p2align 6\n"
	"	.type	ds_free_entry, @function\n"
	"ds_free_entry:\n"
	"	cmpq	ds_free_calls(%rip), %rax\n"
	"	jae	14f\n"
	"	pushq	%r11\n"
	DS_WAY("ds_own_ways", "%rax")
	"1:	popq	%r11\n"
	"2:	pushq	%r11\n" /* the kernel's */
	"	syscall\n"
	"	popq	%r11\n"
	"	jmp	*%r11\n"
	DS_WAY_IF_ANY
	"3:	pushq	%rbp\n"
	"	movq	%rsp, %rbp\n"
	"	pushq	%r9\n"
	"	pushq	%r8\n"
	"	pushq	%r10\n"
	"	pushq	%rdx\n"
	"	pushq	%rsi\n"
	"	pushq	%rdi\n"
	"	andq	$-16, %rsp\n"
	/* ds_free_entered does no more for a thread that is in no handler and has a slot. Without
	 * Go that is its own. */
	"	cmpb	$0, slot_of_go(%rip)\n"
	"	jne	16f\n"
	"	movq	%gs:" SLOT_NONE_TEXT "+8, %rcx\n"
	"	testq	%rcx, %rcx\n"
	"	jz	16f\n"
	"	leaq	ds_selves+12(%rip), %r11\n" /* the level */
	"	cmpl	$0, (%r11,%rcx)\n"
	"	jne	16f\n"
	"	leaq	hooks(%rip), %r11\n"
	"	movq	(%r11,%rax,8), %r11\n"
	"	testq	%r11, %r11\n"
	"	jz	16f\n"
	"	movq	%r10, %rcx\n"
	"	call	*%r11\n"
	"	xorl	%ecx, %ecx\n" /* DONE */
	"	cltq\n"
	"	cmpl	$-1, %eax\n"
	"	jne	18f\n"
	"	call	__errno_location\n"
	"	xorl	%ecx, %ecx\n"
	"	movslq	(%rax), %rax\n"
	"	negq	%rax\n"
	"	jmp	18f\n"
	"16:	leaq	-48(%rbp), %rsi\n" /* the arguments, as an array */
	"	movq	8(%rbp), %rdx\n"
	"	movl	%eax, %edi\n"
	"	call	ds_free_entered\n"
	"	movq	%rdx, %rcx\n"
	"18:	leaq	-48(%rbp), %rsp\n"
	"	popq	%rdi\n"
	"	popq	%rsi\n"
	"	popq	%rdx\n"
	"	popq	%r10\n"
	"	popq	%r8\n"
	"	popq	%r9\n"
	"	popq	%rbp\n"
	"	popq	%r11\n"
	"	testl	%ecx, %ecx\n"
	"	jnz	5f\n"
	"	jmp	*%r11\n"
	"5:	cmpl	$2, %ecx\n"
	"	ja	8f\n"
	/* THREAD and FORK: a signal leaves the 128 bytes below rsp alone. */
	"	leaq	-128(%rsi), %rsi\n"
	"	movq	%r11, -8(%rsp)\n"
	"	je	7f\n"
	"	syscall\n"
	"	leaq	128(%rsi), %rsi\n"
	"	testq	%rax, %rax\n"
	"	jnz	6f\n"
	"	cmpb	$0, slot_fsgsbase(%rip)\n" /* a new thread has no slot: its GS base is 0 */
	"	jz	12f\n"
	"	xorl	%ecx, %ecx\n"
	"	wrgsbase %rcx\n"
	"6:	jmp	*-8(%rsp)\n"
	"12:	leaq	-8(%rsp), %rsp\n"
	"	pushq	%rdi\n"
	"	pushq	%rsi\n"
	"	movl	$158, %eax\n" /* arch_prctl */
	"	movl	$0x1001, %edi\n" /* ARCH_SET_GS */
	"	xorl	%esi, %esi\n"
	"	syscall\n"
	"	testl	%eax, %eax\n"
	"	jnz	13f\n"
	"	popq	%rsi\n"
	"	popq	%rdi\n"
	"	popq	%r11\n"
	"	jmp	*%r11\n"
	"13:	ud2\n" /* no: the parent could, in twice */
	/* Not begun: the kernel's, and a child with a stack of its own finds where to go on there.
	 * Callers of clone3 try clone then. */
	"14:	cmpq	$435, %rax\n"
	"	je	15f\n"
	"	cmpq	$56, %rax\n" /* clone */
	"	jne	2b\n"
	"	testq	%rsi, %rsi\n"
	"	jz	2b\n"
	"	movq	%r11, -136(%rsi)\n"
	"	movq	%r11, -8(%rsp)\n"
	"	leaq	-128(%rsi), %rsi\n"
	"	syscall\n"
	"	leaq	128(%rsi), %rsi\n"
	"	jmp	*-8(%rsp)\n"
	"15:	movq	$-38, %rax\n" /* ENOSYS */
	"	jmp	*%r11\n"
	"7:	syscall\n"
	"	leaq	128(%rsi), %rsi\n"
	"	leaq	-8(%rsp), %rsp\n"
	"	pushq	%rax\n"
	"	pushq	%rbp\n"
	"	movq	%rsp, %rbp\n"
	"	pushq	%r9\n"
	"	pushq	%r8\n"
	"	pushq	%r10\n"
	"	pushq	%rdx\n"
	"	pushq	%rsi\n"
	"	pushq	%rdi\n"
	"	movq	%rax, %rdi\n"
	"	andq	$-16, %rsp\n"
	"	call	ds_free_forked\n"
	"	leaq	-48(%rbp), %rsp\n"
	"	popq	%rdi\n"
	"	popq	%rsi\n"
	"	popq	%rdx\n"
	"	popq	%r10\n"
	"	popq	%r8\n"
	"	popq	%r9\n"
	"	popq	%rbp\n"
	"	popq	%rax\n"
	"	popq	%r11\n"
	"	jmp	*%r11\n"
	/* VFORK and VFORK_STACK: the child finds the parent's slot, with one more vfork. */
	"8:	cmpl	$4, %ecx\n"
	"	je	9f\n"
	"	syscall\n"
	"	jmp	10f\n"
	"9:	addq	$-128, %rsi\n"
	"	syscall\n"
	"	leaq	128(%rsi), %rsi\n"
	"10:	leaq	fd_thread_vforks(%rip), %rcx\n"
	"	addq	%gs:" SLOT_NONE_TEXT "+8, %rcx\n"
	"	movl	(%rcx), %r11d\n"
	"	testq	%rax, %rax\n"
	"	jz	11f\n"
	"	decl	(%rcx)\n"
	"11:	movq	%gs:" SLOT_NONE_TEXT "+40(,%r11,8), %r11\n"
	"	jmp	*%r11\n"
	"	.size	ds_free_entry, .-ds_free_entry\n"

	"go_begin:\n"
	DS_GO_ENTRY("ds_free_go", FIND, "ds_free_of_go", "ds_free_first")

	DS_GO_POLL("ds_free_poll", "	cmpq	$0, ds_free_calls(%rip)\n	je	8f\n", FIND, "ds_go_yields")
	"go_end:\n"

	/* runtime.sigtrampgo(rax = signal, rbx = siginfo_t, rcx = ucontext_t), at r11. */
	"	.globl	ds_free_signal\n"
	"	.p2align 6\n"
	"	.type	ds_free_signal, @function\n"
	"ds_free_signal:\n"
	"	subq	$72, %rsp\n" /* what is called may keep its arguments in the first 24 bytes */
	"	movq	%rax, 48(%rsp)\n"
	"	movq	%rcx, 56(%rsp)\n"
	"	movq	%r11, 64(%rsp)\n"
	"	movq	%rcx, %rdi\n"
	"	leaq	24(%rsp), %rsi\n"
	"	movq	%rbx, %rdx\n"
	"	call	ds_free_elsewhere\n"
	"	testb	%al, %al\n"
	"	movq	48(%rsp), %rax\n"
	"	movq	56(%rsp), %rcx\n"
	"	movq	64(%rsp), %r11\n"
	"	jz	1f\n"
	"	call	*%r11\n"
	"	movq	56(%rsp), %rdi\n"
	"	leaq	24(%rsp), %rsi\n"
	"	call	ds_where_swap\n"
	"	addq	$72, %rsp\n"
	"	ret\n"
	"1:	addq	$72, %rsp\n"
	"	jmp	*%r11\n"
	"	.size	ds_free_signal, .-ds_free_signal\n");
#endif
