/* Where a program's system calls arrive: from the places where its own code made them.
 *
 *   static C   stub: rsp lowered by 128, r11 = where to go on ─▶ ds_free_entry ─┬─ not ours: syscall ─▶ r11
 *                                                                               └─ ours: entered ─────▶ r11
 *   Go         Syscall6 ─▶ ds_free_go (hooks/go.h)
 *              pollDesc.wait ─▶ ds_free_poll ─┬─ no answer is likely soon ─▶ runtime_pollWait: it is parked
 *                                             └─ else: it yields ─▶ FD.Read, which reads again
 *
 * To a place in C this is one instruction, which changes rax, rcx and r11 alone. The library is
 * compiled for the general registers, so that the others need not be kept.
 *
 * A call that makes a thread, or a child on another stack or on this one, returns twice. The kernel
 * is called when nothing of the hook is on the stack, and the address to return to lies where both
 * find it: below the new stack's end, or in the slot. All places that make threads come here, in C:
 * so the library knows whether there is one thread. */
#include "free/signal.h"
#include "free/slot.h"
#include "hooks/go.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

/* What is left to do behind entered: the assembly code knows the values. */
enum rest {
	DONE,
	THREAD,	     /* clone of a thread, with a stack of its own */
	FORK,	     /* clone of a process with memory and a stack of its own */
	VFORK,	     /* a child that shares the stack, and runs first */
	VFORK_STACK, /* the same with a stack of its own */
	KERNEL,	     /* the call is the kernel's, on a copy of this stack, or from Go */
};
struct outcome {
	long rc; /* the result, or -errno; unless DONE the number of the call */
	long rest;
};

/* What clone, clone3 or vfork is to make; DONE: rc has an error; KERNEL: a process on a copy of
 * this stack. */
static enum rest makes(long nr, const long a[6], long *rc)
{
	const struct clone_args *how = (const struct clone_args *)a[0];
	bool three = nr == SYS_clone3;

	if (three && ((size_t)a[1] < CLONE_ARGS_SIZE_VER0 || !ds_readable(how, CLONE_ARGS_SIZE_VER0)))
		return KERNEL; /* which says what is wrong */
	unsigned long flags = nr == SYS_vfork ? CLONE_VM | CLONE_VFORK : three ? how->flags : (unsigned long)a[0];
	bool stack = nr != SYS_vfork && (three ? how->stack : (unsigned long)a[1]);

	if (!stack && !(flags & CLONE_VM))
		return KERNEL;
	if (three && stack) { /* callers try clone then */
		*rc = -ENOSYS;
		return DONE;
	}
	if ((flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK))
		return stack ? VFORK_STACK : VFORK;
	if (!stack || !ds_writable((const char *)a[1] - 136, 8)) {
		*rc = -EINVAL;
		return DONE;
	}
	return flags & CLONE_VM ? THREAD : FORK;
}

/* Prepares a call that returns twice, from the place where back is. */
static struct outcome twice(long nr, const long a[6], uintptr_t back)
{
	long rc = nr;
	enum rest rest = makes(nr, a, &rc);

	switch (rest) {
	case FORK:
		fork_prepare();
		__attribute__((fallthrough));
	case THREAD:
		if (rest == THREAD) {
			if (!slot_set(slot_here()))
				return (struct outcome){-EAGAIN, DONE};
			slot_threads();
		}
		*(uintptr_t *)((char *)a[1] - 136) = back;
		break;
	case VFORK:
	case VFORK_STACK:
		if (fd_vforks == SLOT_VFORKS)
			return (struct outcome){-EAGAIN, DONE};
		slot_here()->back[fd_vforks++] = back;
		break;
	default:
		break;
	}
	return (struct outcome){rc, rest};
}

/* In the parent and in the child of FORK. */
void ds_free_forked(long pid) DS_HIDDEN;
void ds_free_forked(long pid)
{
	if (pid == 0)
		fork_child();
	else
		fork_parent((pid_t)pid);
}

long ds_free_calls;

static bool is_clone(long nr) { return nr == SYS_clone || nr == SYS_clone3 || nr == SYS_vfork; }

/* Makes a system call that may be ours: of this thread, which has a slot. */
static long made(long nr, const long a[6])
{
	long rc;

	if (nr == SYS_exit) {
		slot_leave();
		for (;;)
			__asm__ volatile("syscall" : : "a"(nr), "D"(a[0]) : "rcx", "r11", "memory");
	}
	if (nr == SYS_rt_sigaction)
		rc = signal_call(a);
	else if (!every_call(nr, a, &rc))
		rc = ds_kernel_call(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	return rc == -1 ? -errno : rc;
}

/* A system call of a place in C, which goes on at back. */
struct outcome ds_free_entered(long nr, const long a[6], uintptr_t back) DS_HIDDEN;
struct outcome ds_free_entered(long nr, const long a[6], uintptr_t back)
{
	if (!slot_here() && !slot_find())
		return (struct outcome){-ENOMEM, DONE};
	/* The program may have jumped out of a handler: nobody told this library. */
	if (ds_self.level > 0)
		ds_jump(__builtin_frame_address(0));
	if (is_clone(nr)) {
		struct outcome o = twice(nr, a, back);

		if (o.rest != KERNEL)
			return o;
	}
	return (struct outcome){made(nr, a), DONE};
}

/* A system call of Go's Syscall6, on the thread's own stack. */
struct go_outcome ds_free_of_go(long nr, const long a[6]) DS_HIDDEN;
struct go_outcome ds_free_of_go(long nr, const long a[6])
{
	long rc = nr;

	if (ds_one_thread())
		slot_threads();
	if (is_clone(nr) && makes(nr, a, &rc) != KERNEL)
		return (struct go_outcome){nr, true};
	/* A child of vfork does not come back, and its parent has the same slot. */
	if (nr == SYS_execve || nr == SYS_execveat || nr == SYS_exit || nr == SYS_exit_group)
		slot_here()->go.inside = 0;
	return (struct go_outcome){made(nr, a), false};
}

/* Is a goroutine that found nothing to read on fd to yield and read again, rather than to sleep? On
 * the thread's own stack. */
int ds_free_yields(int fd) DS_HIDDEN;
int ds_free_yields(int fd)
{
	CALL(k, fd);
	return k.c && ds_yields(k.c->life.s);
}

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
struct go_stack *ds_free_first(void) DS_HIDDEN;
struct go_stack *ds_free_first(void) { return slot_find() ? &slot_here()->go : NULL; }

__asm__(
	"	.text\n"
	"	.hidden	ds_own_ways, fd_tab, fd_tab_size, fd_thread_vforks, slot_fsgsbase\n"
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
	"	movq	%rsp, %rsi\n" /* the arguments, as an array */
	"	movq	8(%rbp), %rdx\n"
	"	movl	%eax, %edi\n"
	"	andq	$-16, %rsp\n"
	"	call	ds_free_entered\n"
	"	movq	%rdx, %rcx\n"
	"	leaq	-48(%rbp), %rsp\n"
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
	"11:	movq	%gs:" SLOT_NONE_TEXT "+32(,%r11,8), %r11\n"
	"	jmp	*%r11\n"
	"	.size	ds_free_entry, .-ds_free_entry\n"

	DS_GO_ENTRY("ds_free_go", FIND, "ds_free_of_go", "ds_free_first")

	/* runtime_pollWait(rax = *pollDesc, rbx = mode), which is at r11, of goroutine r14. */
	"	.globl	ds_free_poll\n"
	"	.p2align 6\n"
	"	.type	ds_free_poll, @function\n"
	"ds_free_poll:\n"
	"	cmpl	$'r', %ebx\n"
	"	jne	9f\n"
	"	cmpq	$0, ds_free_calls(%rip)\n"
	"	je	9f\n"
	"	movl	8(%rax), %edi\n" /* pollDesc.fd */
	"	cmpl	fd_tab_size(%rip), %edi\n"
	"	jae	9f\n"
	"	movq	fd_tab(%rip), %rcx\n"
	"	cmpq	$0, (%rcx,%rdi,8)\n"
	"	je	9f\n"
	"	pushq	%r11\n"
	"	pushq	%rbx\n"
	"	pushq	%rax\n"
	FIND
	"	cmpl	$0, 8(%r11)\n"
	"	jne	8f\n"
	"	movl	$1, 8(%r11)\n"
	"	movq	%r11, %r13\n"
	"	movq	%rsp, %r12\n"
	"	movq	(%r11), %rsp\n"
	"	call	ds_free_yields\n"
	"	movq	%r12, %rsp\n"
	"	movl	$0, 8(%r13)\n"
	"	testl	%eax, %eax\n"
	"	jz	8f\n"
	"	addq	$24, %rsp\n"
	"	movq	$-1314, 16(%r14)\n" /* stackPreempt, to g.stackguard0: the next function yields */
	"	xorl	%eax, %eax\n" /* pollNoError: read again */
	"	ret\n"
	"8:	popq	%rax\n"
	"	popq	%rbx\n"
	"	popq	%r11\n"
	"9:	jmp	*%r11\n"
	"	.size	ds_free_poll, .-ds_free_poll\n");
