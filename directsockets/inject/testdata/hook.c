/* A library that counts the system calls which come to it, passes them to the kernel, and answers
 * getppid(0x6578) by their number. */
#define SYM __attribute__((visibility("default")))

SYM const unsigned ds_free_version = 7;
static unsigned long counts[4096]; /* zeros */
static __attribute__((used)) unsigned long *calls = &counts[1]; /* relocated */
static __attribute__((used)) unsigned long vforked;

/* For the tracer (free/trace.c). */
void *memset(void *to, int c, unsigned long n)
{
	for (volatile char *p = to; n > 0; n--)
		*p++ = (char)c;
	return to;
}

void *memcpy(void *to, const void *from, unsigned long n)
{
	const char *f = from;

	for (volatile char *p = to; n > 0; n--)
		*p++ = *f++;
	return to;
}

/* Is fd open? */
static int is_open(long fd)
{
#ifdef __aarch64__
	register long nr __asm__("x8") = 25, rc __asm__("x0") = fd, get __asm__("x1") = 1; /* fcntl, F_GETFD */

	__asm__ volatile("svc #0" : "+r"(rc) : "r"(nr), "r"(get) : "memory");
#else
	long rc = 72; /* fcntl */

	__asm__ volatile("syscall" : "+a"(rc) : "D"(fd), "S"(1L /* F_GETFD */) : "rcx", "r11", "memory");
#endif
	return rc >= 0;
}

/* EXN_TEST_FAIL=N: start fails so. EXN_TEST_FAIL=o: it fails by 1, and 1 more for each of the first
 * descriptors of which open is wrong. */
SYM long ds_free_start(const unsigned long *stack, int end, int threads, unsigned open, unsigned long go)
{
	unsigned long argc = stack[0];
	const char *const *env = (const char *const *)(stack + argc + 2);

	for (; *env; env++) {
		const char *p = "EXN_TEST_FAIL=", *e = *env;
		for (; *p && *p == *e; p++, e++)
			;
		if (!*p && *e == 'o') {
			long n = 1;
			for (int fd = 0; fd < 32; fd++)
				n += is_open(fd) != (int)(open >> fd & 1);
			return -n;
		}
		if (!*p)
			return -(*e - '0');
	}
	return 0;
}

#ifdef __aarch64__
/* It counts in x16 and x17, has x0 be the answer, and goes to 1, or to 2 if the call is the
 * kernel's. */
#define WORK \
	"	stp x9, x10, [sp, #-16]!\n" \
	"	adrp x16, calls\n	ldr x16, [x16, :lo12:calls]\n" \
	"3:	ldaxr x9, [x16]\n	add x9, x9, #1\n	stlxr w10, x9, [x16]\n	cbnz w10, 3b\n" \
	"	sub x10, x8, #173\n	cbnz x10, 2f\n	mov x10, #0x6578\n	sub x10, x0, x10\n	cbnz x10, 2f\n" \
	"1:	mov x0, x9\n	ldp x9, x10, [sp], #16\n"

__asm__(".text\n"
	".globl ds_free_go, ds_free_entry, ds_free_poll, ds_free_behind\n"
	"ds_free_poll: br x16\n"
	"ds_free_behind: ret\n"
	"ds_free_go:\n"
	WORK
	"	add x17, x17, #4\n	br x17\n"
	"2:	ldp x9, x10, [sp], #16\n	br x17\n"
	/* The stub makes the calls that return twice. */
	"ds_free_entry:\n"
	"	sub x16, x8, #220\n	cbz x16, 4f\n	sub x16, x8, #435\n	cbz x16, 4f\n"
	WORK
	"	ret\n"
	"2:	ldp x9, x10, [sp], #16\n"
	"4:	add x30, x30, #12\n	ret\n");
#else
__asm__(".text\n"
	".globl ds_free_go, ds_free_entry, ds_free_poll, ds_free_signal\n"
	"ds_free_poll: ds_free_signal: jmp *%r11\n"
	"ds_free_go:\n"
	"	mov %rsi, %r10\n	mov %rdi, %rdx\n	mov %rcx, %rsi\n	mov %rbx, %rdi\n"
	"	call work\n"
	"	cmp $0xfffffffffffff001, %rax\n	jae 1f\n	mov %rdx, %rbx\n	xor %ecx, %ecx\n	ret\n"
	"1:	neg %rax\n	mov %rax, %rcx\n	mov $-1, %rax\n	xor %ebx, %ebx\n	ret\n"
	/* A child on a stack of its own finds there where to go on; one of vfork in a variable. */
	"ds_free_entry:\n"
	"	cmp $435, %eax\n	je 5f\n"
	"	cmp $58, %eax\n	je 4f\n"
	"	cmp $56, %eax\n	jne 3f\n	test %rsi, %rsi\n	je 3f\n"
	"	mov %r11, -136(%rsi)\n	push %r11\n	syscall\n	test %rax, %rax\n	jne 1f\n"
	"	lea -128(%rsp), %rsp\n	jmp *-8(%rsp)\n"
	"1:	pop %r11\n	jmp *%r11\n"
	"3:	push %r11\n	call work\n	pop %r11\n	jmp *%r11\n"
	"4:	mov %r11, vforked(%rip)\n	syscall\n	mov vforked(%rip), %r11\n	jmp *%r11\n"
	"5:	mov $-38, %rax\n	jmp *%r11\n" /* callers try clone then */
	"work:\n"
	"	push %rax\n"
	"	mov calls(%rip), %rcx\n	lock incq (%rcx)\n"
	"	cmp $110, %eax\n	jne 2f\n	cmp $0x6578, %edi\n	jne 2f\n"
	"	pop %rcx\n	mov calls(%rip), %rcx\n	mov (%rcx), %rax\n	ret\n"
	"2:	pop %rax\n	syscall\n	ret\n");
#endif
