/* The entries on arm64. They come back to the stub, which has the instruction that calls the kernel
 * as well: there all registers are the program's, and a call that returns twice, or that the kernel
 * repeats, needs nothing of the library.
 *
 *   stub of C    0 keeps x16, x17 and x30 on the stack, and calls ds_free_entry
 *               12 gets them back ─▶ behind the place         the call has been made
 *               24 gets them back, svc ─▶ behind the place
 *               40 gets them back, svc, ds_free_behind ─▶ behind the place
 *   stub of Go   0 x17 = the address of 8; jumps to ds_free_go
 *                8 svc
 *               12 ─▶ behind the place                        the call has been made
 *
 * A place of C keeps all registers but x0, and the flags. Syscall6 keeps x18, x28, x29, x30 and sp,
 * alone. */
#if defined(__aarch64__)
#include "free/entry.h"

#include <sched.h>

/* A thread has a TPIDR_EL0 of its own: it must not find its parent's slot. */
bool entry_begins(unsigned long flags, const long a[6]) { return !(flags & CLONE_VM) || ((flags & CLONE_SETTLS) && ds_writable((void *)a[3], 16)); }

bool entry_prepare(enum rest rest, const long a[6], uintptr_t back)
{
	struct thread_slot *s = slot_here();

	(void)back;
	if (rest == THREAD) {
		((uintptr_t *)a[3])[1] = 0; /* a thread that has ended may have had the memory */
		return true;
	}
	if (s->twice == SLOT_VFORKS)
		return false;
	s->back[s->twice++] = rest;
	if (rest != FORK)
		fd_vforks++;
	return true;
}

/* The kernel has made the call that was prepared last. A child of vfork has its parent's slot. */
void ds_free_returned(long pid) DS_HIDDEN;
void ds_free_returned(long pid)
{
	struct thread_slot *s = slot_here();

	if (s->back[s->twice - 1] == FORK) {
		s->twice--;
		ds_free_forked(pid);
	} else if (pid != 0) {
		s->twice--;
		fd_vforks--;
	}
}

#define AT(variable) "	adrp	x16, " variable "\n"
#define LO(variable) "[x16, :lo12:" variable "]\n"
/* Is call x8 with first argument x0 ours? As DS_WAY; x16 and xN change, the flags do not. */
#define WAY(N) \
	"	mov	w" N ", w8\n" \
	AT("ds_free_calls") \
	"	ldr	x16, " LO("ds_free_calls") \
	"	sub	x16, x" N ", x16\n" \
	"	tbz	x16, #63, 1f\n" \
	AT("ds_own_ways") \
	"	add	x16, x16, :lo12:ds_own_ways\n" \
	"	ldrb	w16, [x16, x" N "]\n" \
	"	cbz	w16, 1f\n" \
	"	sub	w16, w16, #1\n" \
	"	cbnz	w16, 4f\n" \
	AT("fd_tab_size") \
	"	add	x16, x16, :lo12:fd_tab_size\n" \
	"	ldar	w16, [x16]\n" /* fd_tab was written before */ \
	"	mov	w" N ", w0\n" \
	"	sub	x16, x" N ", x16\n" \
	"	tbz	x16, #63, 1f\n" \
	AT("fd_tab") \
	"	ldr	x16, " LO("fd_tab") \
	"	ldr	x16, [x16, x" N ", lsl #3]\n" \
	"	cbnz	x16, 3f\n"
#define WAY_IF_ANY \
	"4:	sub	w16, w16, #2\n" \
	"	cbnz	w16, 3f\n" \
	AT("fd_tab_size") \
	"	ldr	w16, " LO("fd_tab_size") \
	"	cbz	w16, 1b\n"

/* What a function in C may change, but for x0, x16 and x17. The arguments are an array at sp. */
#define KEEP \
	"	sub	sp, sp, #160\n" \
	"	stp	x0, x1, [sp]\n" \
	"	stp	x2, x3, [sp, #16]\n" \
	"	stp	x4, x5, [sp, #32]\n" \
	"	stp	x6, x7, [sp, #48]\n" \
	"	stp	x8, x9, [sp, #64]\n" \
	"	stp	x10, x11, [sp, #80]\n" \
	"	stp	x12, x13, [sp, #96]\n" \
	"	stp	x14, x15, [sp, #112]\n" \
	"	stp	x18, x30, [sp, #128]\n" \
	"	mrs	x16, nzcv\n" \
	"	str	x16, [sp, #144]\n"
#define GET_BACK \
	"	ldr	x1, [sp, #144]\n" \
	"	msr	nzcv, x1\n" \
	"	ldp	x0, x1, [sp]\n" \
	"	ldp	x2, x3, [sp, #16]\n" \
	"	ldp	x4, x5, [sp, #32]\n" \
	"	ldp	x6, x7, [sp, #48]\n" \
	"	ldp	x8, x9, [sp, #64]\n" \
	"	ldp	x10, x11, [sp, #80]\n" \
	"	ldp	x12, x13, [sp, #96]\n" \
	"	ldp	x14, x15, [sp, #112]\n" \
	"	ldp	x18, x30, [sp, #128]\n" \
	"	add	sp, sp, #160\n"

/* x9 = the thread's struct go_stack, or goes to none. */
#define FIND(none) \
	"	mrs	x9, tpidr_el0\n" \
	"	cbz	x9, " none "\n" \
	"	ldr	x9, [x9, #8]\n" \
	"	cbz	x9, " none "\n" \
	"	add	x9, x9, #24\n"

/* A stack for threads that have none yet, which take turns. */
static char go_first_stack[16 << 10] __attribute__((used, aligned(16)));
static int go_first_taken __attribute__((used));

__asm__(
	"	.text\n"
	"	.hidden	ds_own_ways, fd_tab, fd_tab_size, ds_free_calls\n"
	"	.hidden	ds_free_entered, ds_free_returned, ds_free_of_go, ds_free_first, ds_go_yields\n"
	"	.globl	ds_free_entry\n"
	"	.p2align 6\n"
	"	.type	ds_free_entry, %function\n"
	"ds_free_entry:\n"
	WAY("17")
	"1:	add	x30, x30, #12\n" /* the kernel's */
	"	ret\n"
	WAY_IF_ANY
	"3:\n"
	KEEP
	"	mov	w0, w8\n"
	"	mov	x1, sp\n"
	"	mov	x2, x30\n"
	"	bl	ds_free_entered\n"
	"	mov	x16, x0\n"
	"	mov	w17, w1\n"
	GET_BACK
	"	cbnz	w17, 5f\n"
	"	mov	x0, x16\n"
	"	ret\n"
	"5:	sub	w17, w17, #1\n" /* THREAD is 1 */
	"	cbz	w17, 1b\n"
	"	add	x30, x30, #28\n" /* FORK, VFORK, VFORK_STACK */
	"	ret\n"
	"	.size	ds_free_entry, .-ds_free_entry\n"

	"	.globl	ds_free_behind\n"
	"	.p2align 4\n"
	"	.type	ds_free_behind, %function\n"
	"ds_free_behind:\n"
	KEEP
	"	bl	ds_free_returned\n"
	GET_BACK
	"	ret\n"
	"	.size	ds_free_behind, .-ds_free_behind\n"

	"	.globl	ds_free_go\n"
	"	.p2align 6\n"
	"	.type	ds_free_go, %function\n"
	"ds_free_go:\n"
	WAY("9")
	"1:	br	x17\n" /* the kernel's */
	WAY_IF_ANY
	"3:\n"
	FIND("8f")
	"6:	ldr	w10, [x9, #8]\n"
	"	cbnz	w10, 1b\n" /* a handler that has interrupted a hook */
	"	mov	w10, #1\n"
	"	str	w10, [x9, #8]\n"
	"	mov	x10, sp\n"
	"	ldr	x11, [x9]\n"
	"	sub	x11, x11, #96\n"
	"	stp	x0, x1, [x11]\n"
	"	stp	x2, x3, [x11, #16]\n"
	"	stp	x4, x5, [x11, #32]\n"
	"	stp	x8, x17, [x11, #48]\n"
	"	stp	x10, x30, [x11, #64]\n"
	"	stp	x9, x18, [x11, #80]\n"
	"	mov	sp, x11\n"
	"	mov	w0, w8\n"
	"	mov	x1, sp\n"
	"	bl	ds_free_of_go\n"
	"	mov	x16, x0\n"
	"	mov	x12, x1\n"
	"	ldp	x0, x1, [sp]\n"
	"	ldp	x2, x3, [sp, #16]\n"
	"	ldp	x4, x5, [sp, #32]\n"
	"	ldp	x8, x17, [sp, #48]\n"
	"	ldp	x10, x30, [sp, #64]\n"
	"	ldp	x9, x18, [sp, #80]\n"
	"	mov	sp, x10\n"
	"	str	wzr, [x9, #8]\n"
	"	cbnz	x12, 1b\n"
	"	mov	x0, x16\n"
	"2:	add	x17, x17, #4\n"
	"	br	x17\n"
	/* A thread without a stack: on the one that all share for this. */
	"7:	mov	x13, x0\n"
	"	mov	x14, x8\n"
	"	mov	x8, #124\n" /* sched_yield */
	"	svc	#0\n"
	"	mov	x8, x14\n"
	"	mov	x0, x13\n"
	"8:	adrp	x16, go_first_taken\n"
	"	add	x16, x16, :lo12:go_first_taken\n"
	"	mov	w10, #1\n"
	"9:	ldaxr	w11, [x16]\n"
	"	stxr	w12, w10, [x16]\n"
	"	cbnz	w12, 9b\n"
	"	cbnz	w11, 7b\n"
	"	adrp	x11, go_first_stack\n"
	"	add	x11, x11, :lo12:go_first_stack\n"
	"	add	x11, x11, #4, lsl #12\n" /* its end */
	"	sub	x11, x11, #96\n"
	"	stp	x0, x1, [x11]\n"
	"	stp	x2, x3, [x11, #16]\n"
	"	stp	x4, x5, [x11, #32]\n"
	"	stp	x8, x17, [x11, #48]\n"
	"	mov	x10, sp\n"
	"	stp	x10, x30, [x11, #64]\n"
	"	str	x18, [x11, #80]\n"
	"	mov	sp, x11\n"
	"	bl	ds_free_first\n"
	"	mov	x9, x0\n"
	"	ldp	x0, x1, [sp]\n"
	"	ldp	x2, x3, [sp, #16]\n"
	"	ldp	x4, x5, [sp, #32]\n"
	"	ldp	x8, x17, [sp, #48]\n"
	"	ldp	x10, x30, [sp, #64]\n"
	"	ldr	x18, [sp, #80]\n"
	"	mov	sp, x10\n"
	"	adrp	x16, go_first_taken\n"
	"	add	x16, x16, :lo12:go_first_taken\n"
	"	stlr	wzr, [x16]\n"
	"	cbnz	x9, 6b\n"
	"	mov	x0, #-12\n" /* ENOMEM */
	"	b	2b\n"
	"	.size	ds_free_go, .-ds_free_go\n"

	/* runtime_pollWait(x0 = *pollDesc, x1 = mode), which is at x16, of goroutine x28. */
	"	.globl	ds_free_poll\n"
	"	.p2align 6\n"
	"	.type	ds_free_poll, %function\n"
	"ds_free_poll:\n"
	"	cmp	w1, #'r'\n"
	"	b.ne	9f\n"
	"	adrp	x10, ds_free_calls\n"
	"	ldr	x10, [x10, :lo12:ds_free_calls]\n"
	"	cbz	x10, 9f\n"
	"	ldr	w11, [x0, #8]\n" /* pollDesc.fd */
	"	adrp	x10, fd_tab_size\n"
	"	add	x10, x10, :lo12:fd_tab_size\n"
	"	ldar	w10, [x10]\n"
	"	cmp	w11, w10\n"
	"	b.hs	9f\n"
	"	adrp	x10, fd_tab\n"
	"	ldr	x10, [x10, :lo12:fd_tab]\n"
	"	ldr	x10, [x10, x11, lsl #3]\n"
	"	cbz	x10, 9f\n"
	FIND("9f")
	"	ldr	w10, [x9, #8]\n"
	"	cbnz	w10, 9f\n"
	"	mov	w10, #1\n"
	"	str	w10, [x9, #8]\n"
	"	mov	x12, sp\n"
	"	ldr	x10, [x9]\n"
	"	sub	x10, x10, #64\n"
	"	stp	x0, x1, [x10]\n"
	"	stp	x16, x30, [x10, #16]\n"
	"	stp	x9, x12, [x10, #32]\n"
	"	str	x18, [x10, #48]\n"
	"	mov	sp, x10\n"
	"	mov	w0, w11\n"
	"	bl	ds_go_yields\n"
	"	mov	w11, w0\n"
	"	ldp	x0, x1, [sp]\n"
	"	ldp	x16, x30, [sp, #16]\n"
	"	ldp	x9, x12, [sp, #32]\n"
	"	ldr	x18, [sp, #48]\n"
	"	mov	sp, x12\n"
	"	str	wzr, [x9, #8]\n"
	"	cbz	w11, 9f\n"
	"	mov	x9, #-1314\n" /* stackPreempt, to g.stackguard0: the next function yields */
	"	str	x9, [x28, #16]\n"
	"	mov	x0, #0\n" /* pollNoError: read again */
	"	ret\n"
	"9:	br	x16\n"
	"	.size	ds_free_poll, .-ds_free_poll\n");
#endif
