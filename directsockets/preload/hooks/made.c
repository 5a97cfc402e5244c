/* Code that the program makes while it runs, or maps by itself: of a JIT, of a loader of its
 * own, of a program that was packed (UPX). What it calls the kernel by does not come to this
 * library, and no jump can take the place of an instruction that the program may write again. So
 * memory is looked at when it becomes executable, and if it has a system call, all sockets stay
 * the kernel's. What is written to memory that can be executed already is not seen. */
#include "hooks/made.h"
#include "hooks/around.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	PIECE = 64 << 10,
	MOST = 64 << 20, /* bytes that are looked at in all: some JITs make their code executable again and again */
};

static size_t looked;

#if defined(__x86_64__)
/* The first system call from p on; code is read from begin on. end: there is none. */
static const unsigned char *call_from(const unsigned char *begin, const unsigned char *p, const unsigned char *end)
{
	const unsigned char *from;

	for (; (p = around_next(p, end)) < end; p++) {
		enum around is = around_call(begin, p, end, &from);

		if (is != NO_CALL && (around_sets_number(from, p, end) || (is == IS_CALL && from == begin)))
			return p;
	}
	return end;
}
#elif defined(__aarch64__)
/* The first system call from p on, a word of its own. end: there is none. */
static const unsigned char *call_from(const unsigned char *begin, const unsigned char *p, const unsigned char *end)
{
	enum { WORD = 4 };
	static const unsigned char svc[WORD] = {0x01, 0x00, 0x00, 0xd4};

	(void)begin;
	for (p = (const unsigned char *)(((uintptr_t)p + WORD - 1) & ~(uintptr_t)(WORD - 1)); end - p >= WORD; p += WORD)
		if (!memcmp(p, svc, WORD))
			return p;
	return end;
}
#else
/* What one is on other machines is not known. */
static const unsigned char *call_from(const unsigned char *begin, const unsigned char *p, const unsigned char *end)
{
	(void)begin, (void)p;
	return end;
}
#endif

/* A file may end before its mapping. */
const unsigned char *code_call(const unsigned char *p, const unsigned char *end)
{
	const unsigned char *begin = p, *to, *call;

	for (; p < end; p = to) {
		to = end - p > PIECE ? p + PIECE : end;
		if (!ds_readable(p, (size_t)(to - p))) {
			to = end - p > PAGE ? p + PAGE : end;
			if (!ds_readable(p, (size_t)(to - p))) {
				begin = to;
				continue;
			}
		}
		if ((call = call_from(begin, p > begin ? p - 1 : p, to)) < to)
			return call;
	}
	return NULL;
}

/* Is it the C library's? Some programs change that (UCX, of MPI). */
static bool of_libc(const unsigned char *p)
{
#ifdef DS_FREE
	return (void)p, false;
#else
	struct ds_text text;

	return ds_libc_functions("", NULL, 0, &text) && (const char *)p >= text.begin && (const char *)p < text.end;
#endif
}

void code_stay(const char *file, uint64_t at)
{
	ds_missed(DS_MISS_STAYS, file, at);
	fd_seal();
	if (ds_explains())
		ds_tell_broker();
}

void code_made(const void *p, size_t n, int how)
{
	const unsigned char *begin = p, *call = begin;
	int saved = errno;

	if (!(how & PROT_EXEC) || n == 0 || fd_is_sealed() || fd_vforked() || __atomic_fetch_add(&looked, n, __ATOMIC_RELAXED) >= MOST)
		return;
	/* What can only be executed may have one. Java takes a page that it can write and
	 * execute: that can be read as well. */
	if (how & (PROT_READ | PROT_WRITE))
		call = code_call(begin, begin + (n < MOST ? n : MOST));
	if (call && !of_libc(call))
		code_stay("code that it made", (uintptr_t)call);
	errno = saved;
}

void code_mapped(const void *p, size_t n, int how, int flags)
{
	if (!(flags & MAP_ANONYMOUS) && !(how & PROT_WRITE))
		code_made(p, n, how);
}
