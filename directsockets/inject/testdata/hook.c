/* A library that counts the system calls which come to it, passes them to the kernel, and answers
 * getppid(0x6578) by their number. */
#define SYM __attribute__((visibility("default")))

SYM const unsigned ds_free_version = 5;
static unsigned long counts[4096]; /* zeros */
static __attribute__((used)) unsigned long *calls = &counts[1]; /* relocated */
static __attribute__((used)) unsigned long vforked;

/* Is fd open? */
static int is_open(long fd)
{
	long rc = 72; /* fcntl */

	__asm__ volatile("syscall" : "+a"(rc) : "D"(fd), "S"(1L /* F_GETFD */) : "rcx", "r11", "memory");
	return rc >= 0;
}

/* EXN_TEST_FAIL=N: start fails so. EXN_TEST_FAIL=o: it fails by 1, and 1 more for each of the first
 * descriptors of which open is wrong. */
SYM long ds_free_start(const unsigned long *stack, int end, int threads, unsigned open, int go)
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

__asm__(".text\n"
	".globl ds_free_go, ds_free_entry, ds_free_poll\n"
	"ds_free_poll: jmp *%r11\n"
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
