/* Where the system calls of Go's Syscall6 arrive: a jump has taken the place of its first
 * instruction.
 *
 *   Syscall6 ── entry ─┬─ not ours: syscall ───────────────▶ its caller
 *                      └─ ours: the thread's own stack, C ─▶ its caller
 *   pollDesc.wait ── poll ─┬─ no answer is likely soon ─▶ runtime_pollWait: it is parked
 *                          └─ else: it yields ──────────▶ FD.Read, which reads again
 *
 * A goroutine's stack has no room for a hook. Go expects r14, rbp and rsp as they were and xmm15 to
 * be zero; r11, r12, r13 and r15 are free. */
#ifndef DS_HOOKS_GO_H
#define DS_HOOKS_GO_H

#include "hooks/hooks.h"

/* Where they arrive in a program of the dynamic linker, the function itself that has this syscall
 * instruction (NULL: another has it), whether the runtime waits by this one, as in Go 1.19 and
 * older, and whether the data of a program from begin to end say that it has direct sockets of its
 * own (hooks/go.c). */
extern char ds_go_entry[] DS_HIDDEN;
const unsigned char *go_function(const struct ds_text *text, const unsigned char *call) DS_HIDDEN;
bool go_waits_past(const struct ds_text *text, const unsigned char *call) DS_HIDDEN;
bool go_is_direct(const char *begin, const char *end) DS_HIDDEN;

/* The call of the runtime by which a goroutine waits, if Go's table of lines is in data from begin
 * to end, and what it calls (goline.c). NULL: it is not known. */
extern char ds_go_poll[] DS_HIDDEN;
const unsigned char *go_wait(const struct ds_text *text, const unsigned char *syscall6, const char *begin, const char *end,
			     const unsigned char **calls) DS_HIDDEN;

/* Before that function's calls arrive: it has this syscall instruction. */
void go_arrives(const unsigned char *call) DS_HIDDEN;

/* A thread's own stack. The assembly code knows where these are. */
struct go_stack {
	char *top;  /* 0: where it begins, its upper end */
	int inside; /* 8: the thread is on it */
	char *sp;   /* 16: Go's stack pointer then */
};

#if defined(__x86_64__)
/* The code of Go's entries; and how far behind the system call the jump to them is that does not
 * fit into Syscall6 (inject's goSite): behind its end, where Go's tables have nothing, and its
 * handler of SIGPROF ends the program. */
extern const char go_begin[] DS_HIDDEN, go_end[] DS_HIDDEN;
enum { GO_JUMP = 40 };

/* Where a handler is to find a thread that has this stack (NULL: none) and interrupts this library,
 * or that jump: as the kernel leaves it behind the system call of Syscall6, where Go is never
 * preempted. A fault keeps its place: the handler has the thread go on elsewhere. */
static inline bool go_where(struct ds_where *w, const ucontext_t *u, const siginfo_t *info, const struct go_stack *s, uintptr_t called)
{
	const greg_t *r = u->uc_mcontext.gregs;
	bool inside = s && s->inside;
	bool enters = (r[REG_RIP] >= (greg_t)go_begin && r[REG_RIP] < (greg_t)go_end) || r[REG_RIP] == (greg_t)(called + GO_JUMP);

	if (ds_is_fault(info) || (!inside && !enters))
		return false;
	*w = (struct ds_where){called, inside ? (uintptr_t)s->sp : (uintptr_t)r[REG_RSP]};
	return true;
}
#endif

/* Whether a system call of Go has been made, and its result or -errno; else it is the kernel's. */
struct go_outcome {
	long rc;
	long kernel;
};

/* What DS_GO_ENTRY needs: a stack for threads that have none yet, which take turns. */
#define DS_GO_FIRST \
	static char go_first_stack[16 << 10] __attribute__((used, aligned(16))); \
	static int go_first_taken __attribute__((used))

#ifdef DS_FREE
#define DS_GO_CALLS "ds_free_calls(%rip)"
#define DS_GO_ZERO "" /* this library has no vector registers */
#else
#define DS_GO_CALLS "$512"
#define DS_GO_ZERO "	xorps	%xmm15, %xmm15\n"
#endif

/* The entry by this name, in assembly. find: has r11 be the address of the thread's struct
 * go_stack, or goes to 8 if it has none; r12 and r13 are free. made: the C function
 * (struct go_outcome)(long nr, const long a[6]), on that stack. first: the one that makes a struct
 * go_stack, or returns NULL. Go: rax = number, rbx rcx rdi rsi r8 r9 = arguments; returns rax, rbx,
 * rcx = errno. */
#define DS_GO_ENTRY(name, find, made, first) \
	"	.p2align 6\n" \
	"	.globl	" name "\n" \
	"	.hidden	" made ", " first "\n" \
	"	.type	" name ", @function\n" \
	name ":\n" \
	"	movq	%rsi, %r10\n" \
	"	movq	%rdi, %rdx\n" \
	"	movq	%rcx, %rsi\n" \
	"	movq	%rbx, %rdi\n" \
	"	cmpq	" DS_GO_CALLS ", %rax\n" \
	"	jae	1f\n" \
	DS_WAY("ds_own_ways", "%rax") \
	"1:	syscall\n" \
	"2:	cmpq	$-4096, %rax\n" \
	"	ja	5f\n" \
	"	movq	%rdx, %rbx\n" \
	"	xorl	%ecx, %ecx\n" \
	"	ret\n" \
	"5:	negq	%rax\n" \
	"	movq	%rax, %rcx\n" \
	"	movq	$-1, %rax\n" \
	"	xorl	%ebx, %ebx\n" \
	"	ret\n" \
	DS_WAY_IF_ANY \
	"3:	" find \
	"6:	cmpl	$0, 8(%r11)\n" /* a handler that has interrupted a hook */ \
	"	jne	1b\n" \
	"	movq	%rsp, 16(%r11)\n" \
	"	movl	$1, 8(%r11)\n" \
	"	movq	%r11, %r13\n" \
	"	movq	%rsp, %r12\n" \
	"	movq	(%r11), %rsp\n" \
	"	pushq	%r9\n" \
	"	pushq	%r8\n" \
	"	pushq	%r10\n" \
	"	pushq	%rdx\n" \
	"	pushq	%rsi\n" \
	"	pushq	%rdi\n" \
	"	movl	%eax, %edi\n" \
	"	movq	%rsp, %rsi\n" \
	"	call	" made "\n" \
	"	movq	%rdx, %rcx\n" \
	"	popq	%rdi\n" \
	"	popq	%rsi\n" \
	"	popq	%rdx\n" \
	"	popq	%r10\n" \
	"	popq	%r8\n" \
	"	popq	%r9\n" \
	"	movq	%r12, %rsp\n" \
	"	movl	$0, 8(%r13)\n" \
	DS_GO_ZERO \
	"	testl	%ecx, %ecx\n" \
	"	jnz	1b\n" \
	"	jmp	2b\n" \
	/* A thread without a stack: on the one that all share for this. */ \
	"7:	movq	%rax, %r13\n" \
	"	movl	$24, %eax\n" /* sched_yield */ \
	"	syscall\n" \
	"	movq	%r13, %rax\n" \
	"8:	movl	$1, %r11d\n" \
	"	xchgl	%r11d, go_first_taken(%rip)\n" \
	"	testl	%r11d, %r11d\n" \
	"	jnz	7b\n" \
	"	movq	%rsp, %r12\n" \
	"	leaq	go_first_stack+16384(%rip), %rsp\n" \
	"	pushq	%rax\n" \
	"	pushq	%rdi\n" \
	"	pushq	%rsi\n" \
	"	pushq	%rdx\n" \
	"	pushq	%r10\n" \
	"	pushq	%r8\n" \
	"	pushq	%r9\n" \
	"	subq	$8, %rsp\n" \
	"	call	" first "\n" \
	"	movq	%rax, %r11\n" \
	"	addq	$8, %rsp\n" \
	"	popq	%r9\n" \
	"	popq	%r8\n" \
	"	popq	%r10\n" \
	"	popq	%rdx\n" \
	"	popq	%rsi\n" \
	"	popq	%rdi\n" \
	"	popq	%rax\n" \
	"	movq	%r12, %rsp\n" \
	"	movl	$0, go_first_taken(%rip)\n" \
	DS_GO_ZERO \
	"	testq	%r11, %r11\n" \
	"	jnz	6b\n" \
	"	movq	$-12, %rax\n" /* ENOMEM */ \
	"	jmp	2b\n" \
	"	.size	" name ", .-" name "\n"

/* The entry by this name, in assembly, in place of runtime_pollWait(rax = *pollDesc, rbx = mode),
 * which is at r11, of goroutine r14. unless: goes to 8 if the library has not begun. find: as
 * above. yields: the C function (int)(int fd), on the thread's own stack. */
#define DS_GO_POLL(name, unless, find, yields) \
	"	.globl	" name "\n" \
	"	.p2align 6\n" \
	"	.hidden	" yields "\n" \
	"	.type	" name ", @function\n" \
	name ":\n" \
	"	movq	%r11, %r15\n" \
	"	cmpl	$'r', %ebx\n" \
	"	jne	8f\n" \
	unless \
	"	movl	8(%rax), %edi\n" /* pollDesc.fd */ \
	"	cmpl	fd_tab_size(%rip), %edi\n" \
	"	jae	8f\n" \
	"	movq	fd_tab(%rip), %rcx\n" \
	"	cmpq	$0, (%rcx,%rdi,8)\n" \
	"	je	8f\n" \
	find \
	"	cmpl	$0, 8(%r11)\n" \
	"	jne	8f\n" \
	"	movq	%rsp, 16(%r11)\n" \
	"	movl	$1, 8(%r11)\n" \
	"	movq	%r11, %r13\n" \
	"	movq	%rsp, %r12\n" \
	"	movq	(%r11), %rsp\n" \
	"	pushq	%rax\n" \
	"	pushq	%rax\n" \
	"	call	" yields "\n" \
	"	movl	%eax, %ecx\n" \
	"	popq	%rax\n" \
	"	movq	%r12, %rsp\n" \
	"	movl	$0, 8(%r13)\n" \
	DS_GO_ZERO \
	"	testl	%ecx, %ecx\n" \
	"	jz	8f\n" \
	"	movq	$-1314, 16(%r14)\n" /* stackPreempt, to g.stackguard0: the next function yields */ \
	"	xorl	%eax, %eax\n" /* pollNoError: read again */ \
	"	ret\n" \
	"8:	jmp	*%r15\n" \
	"	.size	" name ", .-" name "\n"

#endif
