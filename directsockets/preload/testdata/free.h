/* What programs share that have their system calls made by libexnds-free.so, as one does whose
 * places have been patched: they map the library by themselves. */
#include <arpa/inet.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From ds_free_entry or ds_free_go. */
void *entry, *go_entry;
static bool by_go;

/* A place in C: as the stubs of package inject. */
long place(long nr, long a, long b, long c, long d, long e, long f);
__asm__(
	"	.text\n"
	"	.globl	place\n"
	"place:\n"
	"	movq	%rdi, %rax\n"
	"	movq	%rsi, %rdi\n"
	"	movq	%rdx, %rsi\n"
	"	movq	%rcx, %rdx\n"
	"	movq	%r8, %r10\n"
	"	movq	%r9, %r8\n"
	"	movq	8(%rsp), %r9\n"
	"	addq	$-128, %rsp\n"
	"	leaq	1f(%rip), %r11\n"
	"	jmp	*entry(%rip)\n"
	"1:	subq	$-128, %rsp\n"
	"	ret\n");

/* Go's Syscall6, with registers as Go has them: the result, or -errno; *kept: whether those are
 * that it keeps. */
struct go_result {
	long r1, r2, err, kept;
};
void go_call(long nr, const long a[6], struct go_result *r);
__asm__(
	"	.globl	go_call\n"
	"go_call:\n"
	"	pushq	%rbx\n"
	"	pushq	%rbp\n"
	"	pushq	%r12\n"
	"	pushq	%r13\n"
	"	pushq	%r14\n"
	"	pushq	%r15\n"
	"	pushq	%rdx\n"
	"	movq	%rdi, %rax\n"
	"	movq	%rsi, %r12\n"
	"	movq	(%r12), %rbx\n"
	"	movq	8(%r12), %rcx\n"
	"	movq	16(%r12), %rdi\n"
	"	movq	24(%r12), %rsi\n"
	"	movq	32(%r12), %r8\n"
	"	movq	40(%r12), %r9\n"
	"	movl	$0x1234, %r14d\n"
	"	movl	$0x5678, %ebp\n"
	"	pxor	%xmm15, %xmm15\n"
	"	call	*go_entry(%rip)\n"
	"	popq	%rdx\n"
	"	movq	%rax, (%rdx)\n"
	"	movq	%rbx, 8(%rdx)\n"
	"	movq	%rcx, 16(%rdx)\n"
	"	movq	%xmm15, %rax\n"
	"	subq	$0x1234, %r14\n"
	"	subq	$0x5678, %rbp\n"
	"	orq	%r14, %rax\n"
	"	orq	%rbp, %rax\n"
	"	movq	%rax, 24(%rdx)\n"
	"	popq	%r15\n"
	"	popq	%r14\n"
	"	popq	%r13\n"
	"	popq	%r12\n"
	"	popq	%rbp\n"
	"	popq	%rbx\n"
	"	ret\n");

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

/* The same: checks that the call keeps the registers that the kernel keeps. */
static long place_kept(long nr, const long a[6])
{
	register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
	long rc = nr, di = a[0], si = a[1], dx = a[2];

	__asm__ volatile("addq $-128, %%rsp\n	leaq 1f(%%rip), %%r11\n	jmp *entry(%%rip)\n1:	subq $-128, %%rsp"
			 : "+a"(rc), "+D"(di), "+S"(si), "+d"(dx), "+r"(r10), "+r"(r8), "+r"(r9)
			 :
			 : "rcx", "r11", "memory", "cc");
	if (di != a[0] || si != a[1] || dx != a[2] || r10 != a[3] || r8 != a[4] || r9 != a[5]) {
		fprintf(stderr, "call %ld: registers lost\n", nr);
		_exit(1);
	}
	return rc;
}

/* A system call by the library, as syscall(2). */
static long call(long nr, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = {a, b, c, d, e, f};
	long rc;

	if (by_go) {
		struct go_result r;

		go_call(nr, args, &r);
		if (r.kept || (r.err ? r.r1 != -1 || r.r2 : r.r2 != c)) {
			fprintf(stderr, "call %ld: results %ld %ld %ld, registers lost: %lx\n", nr, r.r1, r.r2, r.err, r.kept);
			_exit(1);
		}
		rc = r.err ? -r.err : r.r1;
	} else {
		rc = nr == SYS_read || nr == SYS_write || nr == SYS_epoll_ctl ? place_kept(nr, args) : place(nr, a, b, c, d, e, f);
	}
	if (rc < 0 && rc > -4096) {
		errno = (int)-rc;
		return -1;
	}
	return rc;
}
#define CALL(nr, a, b, c) call(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)

/* Maps the library, applies its relocations and begins it. threads: the C library is to make
 * threads, in places that do not come to the library, as Go does. */
static void load(const char *path, const unsigned long *stack, bool threads)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	long (*start)(const unsigned long *, int, int, uint32_t, bool) = NULL;
	const Elf64_Rela *rela = NULL;
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL;
	size_t size = 0, nrela = 0, nsymbols = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(path);
	const char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	const Elf64_Ehdr *e = (const void *)file;
	const Elf64_Phdr *p = (const void *)(file + e->e_phoff);
	for (int i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_LOAD)
			size = p[i].p_vaddr + p[i].p_memsz;
	char *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < e->e_phnum; i++) {
		int prot = (p[i].p_flags & PF_R ? PROT_READ : 0) | (p[i].p_flags & PF_W ? PROT_WRITE : 0) | (p[i].p_flags & PF_X ? PROT_EXEC : 0);
		size_t head = p[i].p_vaddr % 4096, end = p[i].p_vaddr + p[i].p_filesz;
		char *at = base + p[i].p_vaddr - head;

		if (p[i].p_type == PT_TLS || (p[i].p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
			fail("a segment that must not be");
		if (p[i].p_type != PT_LOAD)
			continue;
		if (mmap(at, head + p[i].p_memsz, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ||
		    mmap(at, head + p[i].p_filesz, prot, MAP_PRIVATE | MAP_FIXED, fd, (off_t)(p[i].p_offset - head)) == MAP_FAILED)
			fail("mmap");
		if (prot & PROT_WRITE && end % 4096)
			memset(base + end, 0, 4096 - end % 4096);
	}
	close(fd);
	const Elf64_Shdr *s = (const void *)(file + e->e_shoff);
	for (int i = 0; i < e->e_shnum; i++)
		if (s[i].sh_type == SHT_RELA)
			rela = (const void *)(file + s[i].sh_offset), nrela = s[i].sh_size / sizeof *rela;
		else if (s[i].sh_type == SHT_DYNSYM)
			symbols = (const void *)(file + s[i].sh_offset), nsymbols = s[i].sh_size / sizeof *symbols, names = file + s[s[i].sh_link].sh_offset;
	for (size_t i = 0; i < nrela; i++) {
		if (ELF64_R_TYPE(rela[i].r_info) != R_X86_64_RELATIVE)
			fail("a relocation that must not be");
		*(uint64_t *)(void *)(base + rela[i].r_offset) = (uint64_t)(base + rela[i].r_addend);
	}
	for (size_t i = 1; i < nsymbols; i++) {
		const char *name = names + symbols[i].st_name;
		void *at = base + symbols[i].st_value;

		if (!symbols[i].st_shndx)
			fail(name);
		if (!strcmp(name, "ds_free_start"))
			start = (long (*)(const unsigned long *, int, int, uint32_t, bool))at;
		else if (!strcmp(name, "ds_free_entry"))
			entry = at;
		else if (!strcmp(name, "ds_free_go"))
			go_entry = at;
		else if (!strcmp(name, "ds_free_version") && *(uint32_t *)at != 7)
			fail("version");
	}
	if (!start || !entry || !go_entry)
		fail("a symbol is missing");
	errno = (int)-start(stack, 0, 1, UINT32_MAX, threads);
	if (errno)
		fail("ds_free_start");
	by_go = threads;
	close((int)CALL(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
	by_go = false;
}

static void all(int fd, bool out, unsigned char *p, long n)
{
	while (n > 0) {
		long rc = out ? CALL(SYS_write, fd, p, n) : CALL(SYS_read, fd, p, n);

		if (rc <= 0)
			fail(out ? "write" : "read");
		p += rc;
		n -= rc;
	}
}
