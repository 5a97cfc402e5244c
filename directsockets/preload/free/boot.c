/* How the library gets into a static program that starts, done by the program itself: it needs the
 * tracer no more (trace.c). No relocation has been applied when it begins. */
#include "free/trace.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

TRACE_EXPORT long ds_free_start(const unsigned long *stack, int end, int threads, uint32_t open, uintptr_t go);
TRACE_EXPORT void ds_free_boot(struct trace *t);

extern const Elf64_Dyn _DYNAMIC[] __attribute__((visibility("hidden")));

enum { PAGE = 4096, LOW_NUMBERS = 32, SIGNALS_SIZE = 8 };

/* Maps all segments but the code, which is there. What the file does not have is zero already. */
static long map_segments(const struct trace *t, uint64_t at)
{
	for (uint64_t i = 0; i < t->segments; i++) {
		const struct trace_segment *s = &t->segment[i];
		uint64_t skip = s->address % PAGE, end = at + s->address + s->size;
		uint64_t file_end = (end + PAGE - 1) & -(uint64_t)PAGE;

		if (i == t->code || s->size == 0)
			continue;
		long rc = trace_call(SYS_mmap, (long)(at + s->address - skip), (long)(s->size + skip), (long)s->protection,
				     MAP_PRIVATE | MAP_FIXED, (long)t->library_fd, (long)(s->offset - skip));
		if (rc < 0 && rc > -PAGE)
			return rc;
		for (volatile char *p = (volatile char *)end; s->memory > s->size && p < (volatile char *)file_end; p++)
			*p = 0;
	}
	return 0;
}

/* Applies the relocations: inject/library.go has seen that there is but one kind. */
static void relocate(uint64_t at)
{
	const Elf64_Rela *r = NULL;
	size_t n = 0;

	for (const Elf64_Dyn *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_RELA)
			r = (const void *)(at + d->d_un.d_ptr);
		else if (d->d_tag == DT_RELASZ)
			n = d->d_un.d_val / sizeof *r;
	for (; n > 0; n--, r++)
		*(volatile uint64_t *)(at + r->r_offset) = at + (uint64_t)r->r_addend;
}

/* A bit for each low number that the program has. */
static uint32_t open_numbers(void)
{
	uint32_t bits = 0;

	for (int fd = 0; fd < LOW_NUMBERS; fd++)
		if (trace_call(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0) >= 0)
			bits |= 1u << fd;
	return bits;
}

static long protect_text(const struct trace *t, int protection)
{
	return trace_call(SYS_mprotect, (long)(t->base + t->text), (long)t->text_size, protection, 0, 0, 0);
}

static void write_jump(uint64_t at, const uint8_t *bytes)
{
#ifdef __aarch64__
	*(volatile uint32_t *)at = *(const uint32_t *)(const void *)bytes;
	__asm__ volatile("dc cvau, %0\n	dsb ish\n	ic ivau, %0\n	dsb ish\n	isb" : : "r"(at) : "memory");
#else
	for (int i = 0; i < 5; i++)
		((volatile uint8_t *)at)[i] = bytes[i];
#endif
}

/* Changes the text. The library's own mapping has shown that pages may become executable after they
 * were written. */
static long write_jumps(const struct trace *t)
{
	long rc = protect_text(t, PROT_READ | PROT_WRITE);

	if (rc < 0)
		return rc;
	for (const struct trace_jump *j = (const void *)(t->base + t->table); j->at; j++)
		write_jump(t->base + j->at, j->bytes);
	if (protect_text(t, PROT_READ | PROT_EXEC) < 0)
		__builtin_trap();
	return 0;
}

static long begin(struct trace *t)
{
	uint64_t at = t->base + t->at;
	long rc = map_segments(t, at);

	trace_call(SYS_close, (long)t->library_fd, 0, 0, 0, 0, 0);
	if (rc == 0)
		rc = trace_call(SYS_mprotect, (long)(t->base + t->stubs), (long)t->stubs_size, PROT_READ | PROT_EXEC, 0, 0, 0);
	if (rc < 0)
		return rc;
	relocate(at);
	t->step = TRACE_START;
	rc = ds_free_start((const unsigned long *)t->stack, 0, 1, open_numbers(), t->go ? t->base + t->go : 0);
	return rc < 0 ? rc : write_jumps(t);
}

/* Called in place of the program's first instruction, to which it goes on. A tracer that is there
 * sees the signal at its end, which a program ignores. */
void ds_free_boot(struct trace *t)
{
	uint64_t urgent = 1ull << (SIGURG - 1);
	long rc = begin(t);

	__atomic_store_n(&t->result, rc, __ATOMIC_RELEASE);
	trace_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&urgent, 0, SIGNALS_SIZE, 0, 0);
	trace_call(SYS_tgkill, trace_call(SYS_getpid, 0, 0, 0, 0, 0, 0), trace_call(SYS_gettid, 0, 0, 0, 0, 0, 0), SIGURG, 0, 0, 0);
#ifdef __aarch64__
	__asm__ volatile("mov sp, %0\n	mov x8, %1\n	svc #0" : : "r"(t->frame), "i"(SYS_rt_sigreturn) : "memory");
#else
	__asm__ volatile("mov %0, %%rsp\n	mov %1, %%eax\n	syscall" : : "r"(t->frame), "i"(SYS_rt_sigreturn) : "memory");
#endif
	__builtin_unreachable();
}
