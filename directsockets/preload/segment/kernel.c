/* System calls, by an instruction of this library. */
#include "segment/real.h"

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
