/* Puts jumps to the stubs of entry.c in the place of the C library's system calls. The instruction
 * is too short for a jump, so that the comparison behind it is moved:
 *
 *   0f 05                syscall               e9 .. .. .. ..   jmp stub
 *   48 3d 00 f0 ff ff    cmp $-4096, %rax  ─▶  f0 ff ff         never reached
 *   77 ..                ja error              77 ..            the stub comes back here
 *
 * All of glibc's functions that wait, read, write or change descriptors have it so. From 2.41 on,
 * those in which a thread may be cancelled end in one function, and what is patched is the call of
 * it. Nothing else is patched: not what has another form, and not where a jump of the same function
 * leads in between. A process of several threads is not patched at all: one of them may be in such
 * a call. No page can be written and executed at once: this runs with the C library's functions not
 * executable, and calls none. */
#include "hooks/patch.h"
#include "hooks/instruction.h"

#ifdef DS_PATCH
#include <cpuid.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { PAGE = 4096 };

/* Functions that make system calls which may be ours, by all their names in glibc's versions. */
static const char names[] =
	"close\0" "__close_nocancel\0" "dup2\0" "read\0" "write\0" /* NEEDED */ "fcntl64\0" /* CALLING */
	"readv\0" "writev\0" "preadv2\0" "pwritev2\0" "preadv64v2\0" "pwritev64v2\0" "recv\0" "recvfrom\0" "recvmsg\0"
	"recvmmsg\0" "send\0" "sendto\0" "sendmsg\0" "sendmmsg\0" "sendfile\0" "splice\0" "socket\0" "connect\0" "listen\0" "accept\0"
	"accept4\0" "shutdown\0" "getsockopt\0" "setsockopt\0" "dup\0" "dup3\0" "ioctl\0"
	"close_range\0" "poll\0" "ppoll\0" "select\0" "pselect\0" "epoll_create\0" "epoll_create1\0" "epoll_ctl\0" "epoll_wait\0"
	"epoll_pwait\0" "epoll_pwait2\0" "prctl\0" "syscall\0" "__read_nocancel\0" "__write_nocancel\0";
enum { FUNCTIONS = 64, READ = 3, NEEDED = 5, CALLING = NEEDED /* its work is that of a function without a name */ };

/* Does the function consist of instructions whose length is known, of which one begins at p, and
 * does none of its jumps lead to the n bytes behind that? */
static bool alone(const unsigned char *begin, size_t size, const unsigned char *p, long n)
{
	bool starts = false;

	for (const unsigned char *at = begin; at < begin + size;) {
		const struct instruction in = instruction_at(at, begin + size);

		if (!in.len || (in.to > p && in.to <= p + n))
			return false;
		starts |= at == p;
		at += in.len;
	}
	return starts;
}

/* The forms of a place: a system call, and what is moved with it. */
static const struct form {
	unsigned char size, bytes[9];
	unsigned char first, stubs; /* of them */
} forms[] = {
	{8, {0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff}, 0, STUBS_ERROR},
	{8, {0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff}, STUBS_ERROR, STUBS_TEMPLATE},
	{9, {0x0f, 0x05, 0x89, 0xc2, 0x3d, 0x00, 0xf0, 0xff, 0xff}, STUBS_ERROR + STUBS_TEMPLATE, STUBS_IOCTL},
};
enum { FORMS = sizeof forms / sizeof *forms, LONGEST = 9 };

/* A place, its form, and the number of its stub; or a call, without a form. */
struct place {
	unsigned char *at;
	const struct form *form;
	unsigned stub;
};

struct places {
	unsigned n, of[FORMS]; /* in all, and of each form */
	struct place place[STUBS + 1];
	const unsigned char *cancellable; /* by it the functions call what may be cancelled; NULL: by none */
};

/* Adds p, a place of form k, unless it is known by another name of its function. */
static void add(struct places *l, unsigned char *p, unsigned k)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->place[i].at == p)
			return;
	if (l->of[k] < forms[k].stubs)
		l->place[l->n++] = (struct place){p, &forms[k], forms[k].first + l->of[k]++};
}

/* Where an instruction of the n bytes at p, which may call or jump to what is outside of them,
 * does so first, not before from; NULL: nowhere, or there is one whose length is not known. */
static const unsigned char *call_of(const unsigned char *p, size_t n, const unsigned char *from, const unsigned char **to)
{
	struct instruction in;

	for (const unsigned char *at = p; at < p + n && (in = instruction_at(at, p + n)).len; at += in.len) {
		*to = in.to;
		if (at >= from && (*at == 0xe8 || *at == 0xe9) && (*to < p || *to >= p + n))
			return at;
	}
	return NULL;
}

/* Does the function call to? */
static bool calls(const struct ds_function *f, const unsigned char *to)
{
	const unsigned char *begin = (const unsigned char *)f->at, *called;

	for (const unsigned char *at = begin; to && (at = call_of(begin, f->size, at, &called)); at++)
		if (called == to)
			return true;
	return false;
}

/* Has the function a place? */
static bool has_place(const struct places *l, const struct ds_function *f)
{
	bool has = calls(f, l->cancellable);

	for (unsigned i = 0; i < l->n && !has; i++)
		has = (const char *)l->place[i].at - f->at < (ptrdiff_t)f->size && (const char *)l->place[i].at >= f->at;
	return has;
}

/* Has each of the first functions of f a place? Without those that close descriptors, a number that
 * the C library closes would stay ours; streams need read and write. */
static bool has_needed(const struct places *l, const struct ds_function *f)
{
	unsigned found = 0;

	for (unsigned k = 0; k < NEEDED; k++)
		found += has_place(l, &f[k]);
	return found == NEEDED;
}

/* Finds the places of one function. */
static void find(struct places *l, unsigned char *begin, size_t size)
{
	for (size_t i = 0; i < size; i++)
		for (unsigned k = 0; k < FORMS; k++)
			if (i + forms[k].size <= size && !memcmp(begin + i, forms[k].bytes, forms[k].size) &&
			    alone(begin, size, begin + i, forms[k].size - 1))
				add(l, begin + i, k);
}

struct function function_at(const char *frames, const unsigned char *p)
{
	static const char form[4] = {1, 0x1b, 0x03, 0x3b};
	const int32_t *head = (const void *)frames;
	struct function f = {0};

	if (!head || memcmp(head, form, sizeof form) != 0)
		return f;
	const struct {
		int32_t begin, entry; /* from head on */
	} *table = (const void *)(head + 3);
	uint32_t low = 0, high = (uint32_t)head[2];
	while (low < high) { /* the first that begins behind p */
		uint32_t middle = low + (high - low) / 2;

		if ((const unsigned char *)frames + table[middle].begin <= p)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < (uint32_t)head[2])
		f.next = (const unsigned char *)frames + table[low].begin;
	if (!low)
		return f;
	const unsigned char *begin = (const unsigned char *)frames + table[low - 1].begin;
	/* Its length, that of its head, where it begins and how long it is. */
	const int32_t *entry = (const void *)(frames + table[low - 1].entry);
	if ((const unsigned char *)&entry[2] + entry[2] != begin)
		return f;
	f.end = begin + (uint32_t)entry[3];
	if (p < f.end)
		f.begin = begin;
	if (!f.next)
		f.next = f.end;
	return f;
}

/* The bytes of the function that begins at p; 0: it is not known. */
static size_t size_of(const struct ds_text *text, const unsigned char *p)
{
	const struct function f = function_at(text->frames, p);

	return f.begin == p ? (size_t)(f.end - f.begin) : 0;
}

/* Finds the places of the functions that this one calls. */
static void find_called(struct places *l, const struct ds_text *text, const unsigned char *begin, size_t size)
{
	struct instruction in;

	for (const unsigned char *at = begin; at < begin + size && (in = instruction_at(at, begin + size)).len; at += in.len) {
		size_t n = in.to && (in.to < begin || in.to >= begin + size) ? size_of(text, in.to) : 0;

		if (n && (const char *)in.to >= text->begin && (const char *)in.to + n <= text->end)
			find(l, (unsigned char *)(uintptr_t)in.to, n);
	}
}

/* Does an instruction of the n bytes at p call the kernel, as far as their lengths are known? */
static bool calls_kernel(const unsigned char *p, size_t n)
{
	struct instruction in;

	for (const unsigned char *at = p; at < p + n && (in = instruction_at(at, p + n)).len; at += in.len)
		if (in.kind == SYSTEM)
			return true;
	return false;
}

/* Finds the call of the function that makes all calls which may be cancelled (2.41 on): read has no
 * system call of its own, nor has what read calls, which calls that function and makes an error of
 * its result. */
static void find_cancellable(struct places *l, const struct ds_text *text, const struct ds_function *read)
{
	const unsigned char *outer, *inner, *begin = (const unsigned char *)read->at, *at;
	size_t n;

	if (!begin || calls_kernel(begin, read->size) || !call_of(begin, read->size, begin, &outer) || !(n = size_of(text, outer)) ||
	    calls_kernel(outer, n))
		return;
	at = call_of(outer, n, outer, &inner);
	if (!at || *at != 0xe8 || !(n = size_of(text, inner)) || !calls_kernel(inner, n))
		return;

	/* Each of the arguments is the number of a call that does no harm. */
	ds_libc_cancellable = (ds_cancellable_fn *)(uintptr_t)inner;
	if (ds_libc_cancellable(SYS_getppid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_sched_yield, SYS_getpid) !=
	    ds_syscall(SYS_getpid))
		return;
	l->cancellable = outer;
	l->place[l->n++] = (struct place){(unsigned char *)(uintptr_t)at, NULL, 0};
}

/* Is a page's right to be executed, once it was written, a matter of rules? */
static bool rules(void)
{
	return ds_syscall(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != 0 || kernel_access("/sys/fs/selinux/enforce", F_OK) == 0;
}

#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66
#endif

bool patch_possible(void)
{
	unsigned a, b, c = 0, d;

	return !ds_env_off("EXNET_PATCH") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) && ds_one_thread() && ds_syscall(SYS_prctl, PR_GET_MDWE, 0, 0, 0, 0) <= 0;
}

/* Where a place jumps or calls to. */
static const char *target(const struct place *p)
{
	return p->form ? ds_stubs + p->stub * STUB_SIZE : (const char *)(uintptr_t)&ds_cancellable;
}

/* Tells the stubs from where they are reached. False: they cannot be executed any more. */
static bool connect_stubs(const struct places *l)
{
	enum { BYTES = (STUBS * STUB_SIZE + PAGE - 1) & ~(PAGE - 1) };

	if (ds_kernel_call(SYS_mprotect, ds_stubs, BYTES, PROT_READ | PROT_WRITE) != 0)
		return false;
	for (unsigned i = 0; i < l->n; i++) {
		char *end = ds_stubs + (l->place[i].stub + 1) * STUB_SIZE, *p = (char *)l->place[i].at;

		if (l->place[i].form)
			((struct stub_data *)(void *)end)[-1] = (struct stub_data){p + 2, p + l->place[i].form->size};
	}
	return ds_kernel_call(SYS_mprotect, ds_stubs, BYTES, PROT_READ | PROT_EXEC) == 0;
}

/* Writes the jumps. Calls nothing of the C library. */
__attribute__((optimize("no-tree-loop-distribute-patterns"))) static void put(const struct places *l)
{
	for (unsigned i = 0; i < l->n; i++) {
		unsigned char *p = l->place[i].at;
		const char *to = target(&l->place[i]);
		int32_t far = (int32_t)(to - (const char *)p - 5);
		if (l->place[i].form)
			p[0] = 0xe9;
		*(int32_t __attribute__((aligned(1), may_alias)) *)(p + 1) = far;
	}
}

void patch_close(const struct patch *p)
{
	if (p->file >= 0)
		ds_kernel_call(SYS_close, p->file);
}

bool patch_open(struct patch *p, const struct ds_text *text)
{
	*p = (struct patch){.text = text, .file = -1};
	return !rules() || (p->file = kernel_open(*text->file ? text->file : "/proc/self/exe", O_RDONLY | O_CLOEXEC)) >= 0;
}

bool patch_begin(struct patch *p, char *low, char *high)
{
	uint64_t all = ~0ull;

	p->low = (char *)((uintptr_t)low & ~(uintptr_t)(PAGE - 1));
	p->n = ((size_t)(high - p->low) + PAGE - 1) & ~(size_t)(PAGE - 1);
	ds_kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &p->before, sizeof all);
	if (ds_kernel_call(SYS_mprotect, p->low, p->n, PROT_READ | PROT_WRITE) == 0)
		return true;
	ds_kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &p->before, NULL, sizeof p->before);
	return false;
}

/* The pages of the file lie there again, unchanged. */
static bool restore(const struct patch *p)
{
	const off_t at = p->text->off + (p->low - p->text->begin);

	return p->file >= 0 && ds_syscall(SYS_mmap, p->low, p->n, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, p->file, at) == (long)p->low;
}

bool patch_end(const struct patch *p)
{
	const bool done = ds_kernel_call(SYS_mprotect, p->low, p->n, PROT_READ | PROT_EXEC) == 0;

	if (!done && !restore(p))
		__builtin_trap(); /* rules() has said that this cannot be */
	ds_kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, &p->before, NULL, sizeof p->before);
	return done;
}

/* Patches what was found in the C library. Returns whether that was done. */
static bool patch(const struct places *l, const struct ds_text *text)
{
	char *low = (char *)l->place[0].at, *high = low;
	struct patch change;
	bool done = false;

	for (unsigned i = 0; i < l->n; i++) {
		char *p = (char *)l->place[i].at;

		const char *to = target(&l->place[i]);

		if (to - (p + 5) != (int32_t)(to - (p + 5)))
			return false;
		low = p < low ? p : low;
		high = p > high ? p : high;
	}
	if (patch_open(&change, text) && connect_stubs(l) && patch_begin(&change, low, high + LONGEST)) {
		put(l);
		done = patch_end(&change);
	}
	patch_close(&change);
	return done;
}

/* Before the program runs: has the system calls of the C library come to this library, where that
 * can be done. */
__attribute__((constructor)) DS_START static void patch_libc(void)
{
	struct ds_function f[FUNCTIONS] = {{NULL, 0}};
	struct places l = {0};
	struct ds_text text;

	if (!patch_possible() || !ds_libc_functions(names, f, FUNCTIONS, &text))
		return;
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (f[i].at >= text.begin && f[i].at + f[i].size <= text.end)
			find(&l, (unsigned char *)(uintptr_t)f[i].at, f[i].size);
	if (f[CALLING].at)
		find_called(&l, &text, (const unsigned char *)f[CALLING].at, f[CALLING].size);
	find_cancellable(&l, &text, &f[READ]);
	bool patched = has_needed(&l, f) && patch(&l, &text);
	if (patched)
		fd_streams_seen();
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (f[i].at && !(patched && has_place(&l, &f[i])) && calls_kernel((const unsigned char *)f[i].at, f[i].size))
			ds_missed(DS_MISS_PASSES, text.file, (uint64_t)(f[i].at - text.base));
}
#endif
