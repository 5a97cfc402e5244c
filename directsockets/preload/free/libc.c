/* The functions of the C library that the layers call, by their names. */
#include "segment/kernel.h"

#include <elf.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* ---- memory: the compiler must not make calls of these functions from their own loops ----------
 * */

#pragma GCC optimize("no-tree-loop-distribute-patterns")
typedef uint64_t __attribute__((may_alias, aligned(1))) word64;
typedef uint32_t __attribute__((may_alias, aligned(1))) word32;
typedef uint16_t __attribute__((may_alias, aligned(1))) word16;
enum { LARGE = 512 }; /* from here on the processor's own loop is faster */

/* Up to 16 bytes, read before any is written. */
static inline void move_few(char *to, const char *from, size_t n)
{
	if (n >= 8) {
		uint64_t a = *(const word64 *)(const void *)from, b = *(const word64 *)(const void *)(from + n - 8);
		*(word64 *)(void *)to = a;
		*(word64 *)(void *)(to + n - 8) = b;
	} else if (n >= 4) {
		uint32_t a = *(const word32 *)(const void *)from, b = *(const word32 *)(const void *)(from + n - 4);
		*(word32 *)(void *)to = a;
		*(word32 *)(void *)(to + n - 4) = b;
	} else if (n >= 2) {
		uint16_t a = *(const word16 *)(const void *)from, b = *(const word16 *)(const void *)(from + n - 2);
		*(word16 *)(void *)to = a;
		*(word16 *)(void *)(to + n - 2) = b;
	} else if (n) {
		*to = *from;
	}
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	char *t = to;
	const char *f = from;

#if defined(__x86_64__)
	if (n >= LARGE && (((uintptr_t)t - (uintptr_t)f) & 4095) - 1 < 15) { /* where rep movsb is slow (ds_copy_many) */
		size_t words = n / 8;

		n %= 8;
		__asm__ volatile("rep movsq" : "+D"(t), "+S"(f), "+c"(words) : : "memory");
	} else if (n >= LARGE) {
		__asm__ volatile("rep movsb" : "+D"(t), "+S"(f), "+c"(n) : : "memory");
		return to;
	}
#endif
#if defined(__aarch64__)
	for (; n >= LARGE; n -= 64)
		__asm__ volatile("ldp	x9, x10, [%1]\n	ldp	x11, x12, [%1, #16]\n	ldp	x13, x14, [%1, #32]\n	ldp	x15, x16, [%1, #48]\n"
				 "	add	%1, %1, #64\n	add	%0, %0, #64\n"
				 "	stp	x9, x10, [%0, #-64]\n	stp	x11, x12, [%0, #-48]\n	stp	x13, x14, [%0, #-32]\n	stp	x15, x16, [%0, #-16]\n"
				 : "+r"(t), "+r"(f)
				 :
				 : "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "memory");
#endif
	for (; n > 16; n -= 16, t += 16, f += 16) {
		uint64_t a = *(const word64 *)(const void *)f, b = *(const word64 *)(const void *)(f + 8);
		*(word64 *)(void *)t = a;
		*(word64 *)(void *)(t + 8) = b;
	}
	move_few(t, f, n);
	return to;
}

void *memmove(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;

	if (t + n <= f || t >= f + n)
		return memcpy(to, from, n);
	if (t < f)
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	else
		while (n-- > 0)
			t[n] = f[n];
	return to;
}

void *memset(void *to, int c, size_t n)
{
#if defined(__x86_64__)
	void *d = to;

	__asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
#else
	char *t = to;
	const uint64_t word = (unsigned char)c * 0x0101010101010101u;

	for (; n >= sizeof word; n -= sizeof word, t += sizeof word)
		*(word64 *)(void *)t = word;
	for (; n > 0; n--)
		*t++ = (char)c;
#endif
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *p = a, *q = b;

	for (; n && *p == *q; n--, p++, q++)
		;
	return n ? *p - *q : 0;
}

void *memchr(const void *p, int c, size_t n)
{
	for (const unsigned char *at = p; n; n--, at++)
		if (*at == (unsigned char)c)
			return (void *)(uintptr_t)at;
	return NULL;
}

void *memmem(const void *in, size_t n, const void *what, size_t m)
{
	for (const char *at = in; n >= m; n--, at++)
		if (!memcmp(at, what, m))
			return (void *)(uintptr_t)at;
	return NULL;
}

/* ---- strings ------------------------------------------------------------------------------- */

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

size_t strnlen(const char *s, size_t most)
{
	size_t n = 0;

	while (n < most && s[n])
		n++;
	return n;
}

int strncmp(const char *a, const char *b, size_t n)
{
	for (; n && *a && *a == *b; n--, a++, b++)
		;
	return n ? (unsigned char)*a - (unsigned char)*b : 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }
char *strcpy(char *restrict to, const char *restrict from) { return memcpy(to, from, strlen(from) + 1); }

char *stpcpy(char *restrict to, const char *restrict from) { return strcpy(to, from) + strlen(from); }

char *strcat(char *restrict to, const char *restrict from)
{
	strcpy(to + strlen(to), from);
	return to;
}

char *strncpy(char *restrict to, const char *restrict from, size_t n)
{
	size_t len = strnlen(from, n);

	memset(to, 0, n);
	return memcpy(to, from, len);
}

char *strchr(const char *s, int c)
{
	for (;; s++)
		if (*s == (char)c)
			return (char *)(uintptr_t)s;
		else if (!*s)
			return NULL;
}

char *strrchr(const char *s, int c)
{
	char *found = NULL;

	for (char *at; (at = strchr(s, c)); s = at + 1) {
		found = at;
		if (!*at)
			break;
	}
	return found;
}

size_t strcspn(const char *s, const char *stop)
{
	size_t n = 0;

	while (s[n] && !strchr(stop, s[n]))
		n++;
	return n;
}

size_t strspn(const char *s, const char *of)
{
	size_t n = 0;

	while (s[n] && strchr(of, s[n]))
		n++;
	return n;
}

char *strstr(const char *in, const char *what) { return memmem(in, strlen(in), what, strlen(what)); }

/* The value of a digit; 99: it is none. */
static unsigned digit(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	c |= 0x20;
	return c >= 'a' && c <= 'z' ? (unsigned)(c - 'a') + 10 : 99;
}

/* All numbers that the layers read fit; what is too large becomes the largest. */
unsigned long long strtoull(const char *restrict s, char **restrict end, int base)
{
	const char *at = s + strspn(s, " \t\n\v\f\r");
	bool minus = *at == '-', any = false;
	unsigned long long v = 0;

	at += *at == '-' || *at == '+';
	if ((base == 0 || base == 16) && at[0] == '0' && (at[1] | 0x20) == 'x' && digit(at[2]) < 16)
		at += 2, base = 16;
	else if (base == 0)
		base = *at == '0' ? 8 : 10;
	for (; digit(*at) < (unsigned)base; at++, any = true)
		if (__builtin_mul_overflow(v, (unsigned)base, &v) || __builtin_add_overflow(v, digit(*at), &v))
			v = ULLONG_MAX, errno = ERANGE;
	if (end)
		*end = (char *)(uintptr_t)(any ? at : s);
	return minus ? -v : v;
}

unsigned long strtoul(const char *restrict s, char **restrict end, int base) { return strtoull(s, end, base); }
long strtol(const char *restrict s, char **restrict end, int base) { return (long)strtoull(s, end, base); }

/* ---- the process: what the kernel has put on its stack ------------------------------------------
 * */

char **environ;
static const Elf64_auxv_t *auxv;
typedef int clock_fn(clockid_t clock, struct timespec *t);
static clock_fn *vdso_gettime; /* NULL: the kernel has none */

unsigned long getauxval(unsigned long type)
{
	for (const Elf64_auxv_t *a = auxv; a && a->a_type != AT_NULL; a++)
		if (a->a_type == type)
			return a->a_un.a_val;
	return 0;
}

char *getenv(const char *name)
{
	size_t n = strlen(name);

	for (char **e = environ; e && *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}

/* The function of the kernel's own object that has this name. */
static void *vdso_function(const char *name)
{
	const Elf64_Ehdr *e = (const void *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Phdr *p = e ? (const void *)((const char *)e + e->e_phoff) : NULL;
	const Elf64_Dyn *d = NULL;
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL, *base = NULL;
	const Elf64_Word *hash = NULL;

	for (int i = 0; p && i < e->e_phnum; i++, p++)
		if (p->p_type == PT_LOAD && !base)
			base = (const char *)e - p->p_vaddr + p->p_offset;
		else if (p->p_type == PT_DYNAMIC)
			d = (const void *)((const char *)e + p->p_offset);
	for (; d && base && d->d_tag != DT_NULL; d++) {
		const void *at = base + d->d_un.d_ptr;

		if (d->d_tag == DT_SYMTAB)
			symbols = at;
		else if (d->d_tag == DT_STRTAB)
			names = at;
		else if (d->d_tag == DT_HASH)
			hash = at;
	}
	for (Elf64_Word i = 0; hash && symbols && names && i < hash[1]; i++)
		if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(names + symbols[i].st_name, name))
			return (void *)(uintptr_t)(base + symbols[i].st_value);
	return NULL;
}

void libc_begin(const unsigned long *stack, bool go) DS_HIDDEN;
void libc_begin(const unsigned long *stack, bool go)
{
	char **e = (char **)(uintptr_t)(stack + 1 + stack[0] + 1);

	environ = e;
	while (*e)
		e++;
	auxv = (const void *)(e + 1);
#if defined(__aarch64__)
	/* A handler of Go that interrupts it wants it to have been called by Go. */
	vdso_gettime = go ? NULL : (clock_fn *)vdso_function("__kernel_clock_gettime");
#else
	(void)go;
	vdso_gettime = (clock_fn *)vdso_function("__vdso_clock_gettime");
#endif
}

int getpagesize(void) { return 4096; }

/* ---- time and threads ------------------------------------------------------------------------ */

/* The kernel's function is compiled for the general registers alone, as all of the kernel. */
int clock_gettime(clockid_t clock, struct timespec *t) { return vdso_gettime ? vdso_gettime(clock, t) : (int)ds_syscall(SYS_clock_gettime, clock, t); }

#if defined(__aarch64__)
int sched_getcpu(void)
{
	unsigned cpu = 0;

	return ds_syscall(SYS_getcpu, &cpu, NULL, NULL) < 0 ? -1 : (int)cpu;
}
#else
/* The limit of this segment is the number of the CPU, below that of its node. */
int sched_getcpu(void)
{
	enum { CPU_SEGMENT = 0x7b, CPU_BITS = 0xfff };
	unsigned v;

	__asm__ volatile("lsl %1, %0" : "=r"(v) : "r"(CPU_SEGMENT));
	return (int)(v & CPU_BITS);
}
#endif

int clock_getres(clockid_t clock, struct timespec *t) { return (int)ds_syscall(SYS_clock_getres, clock, t); }

time_t time(time_t *to)
{
	struct timespec t = {0, 0};

	clock_gettime(CLOCK_REALTIME, &t);
	if (to)
		*to = t.tv_sec;
	return t.tv_sec;
}

int raise(int sig) { return (int)ds_syscall(SYS_tgkill, ds_syscall(SYS_getpid), ds_syscall(SYS_gettid), sig); }

int sigfillset(sigset_t *set)
{
	memset(set, 0xff, sizeof *set);
	return 0;
}

int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old) { return ds_syscall(SYS_rt_sigprocmask, how, set, old, 8) < 0 ? errno : 0; }

/* Nobody cancels a call of this library, no thread has handlers of fork, and it has no streams. */
void pthread_testcancel(void) {}
int pthread_setcancelstate(int state, int *old) { return (void)state, old ? *old = PTHREAD_CANCEL_ENABLE : 0, 0; }
int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) { return (void)prepare, (void)parent, (void)child, 0; }
int fflush(FILE *f) { return (void)f, 0; }

#if defined(__aarch64__)
/* The compiler calls it, where the processor's own instruction takes vector registers. */
int __popcountdi2(long v);
int __popcountdi2(long v)
{
	uint64_t n = (uint64_t)v;

	n -= n >> 1 & 0x5555555555555555u;
	n = (n & 0x3333333333333333u) + (n >> 2 & 0x3333333333333333u);
	return (int)(((n + (n >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}
#endif
