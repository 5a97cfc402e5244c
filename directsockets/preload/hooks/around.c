#include "hooks/around.h"

#ifdef __x86_64__
#include <string.h>
#ifndef DS_FREE
#include <emmintrin.h>
#endif

const unsigned char *around_next(const unsigned char *p, const unsigned char *end)
{
#ifndef DS_FREE
	const __m128i first = _mm_set1_epi8(0x0f), second = _mm_set1_epi8(0x05);

	for (; end - p > 16; p += 16) {
		__m128i a = _mm_cmpeq_epi8(_mm_loadu_si128((const void *)p), first);
		__m128i b = _mm_cmpeq_epi8(_mm_loadu_si128((const void *)(p + 1)), second);
		unsigned both = (unsigned)_mm_movemask_epi8(_mm_and_si128(a, b));

		if (both)
			return p + __builtin_ctz(both);
	}
#endif
	for (; end - p >= 2; p++)
		if (p[0] == 0x0f && p[1] == 0x05)
			return p;
	return end;
}

bool around_ends_handler(const unsigned char *begin, const unsigned char *call)
{
	static const unsigned char number[] = {15, 0, 0, 0}; /* rt_sigreturn */

	return (size_t)(call - begin) >= sizeof number && !memcmp(call - sizeof number, number, sizeof number);
}

/* Reads from p until call, or to behind it. Is it an instruction then? *doubt: what is just before
 * it is none. */
static bool arrives(const unsigned char *p, const unsigned char *call, const unsigned char *end, bool *doubt)
{
	enum { DOUBTFUL = 64 }; /* bytes behind what is no instruction may be read wrong */
	struct instruction in;

	for (; p < call; p += in.len ? in.len : 1) {
		in = instruction_at(p, end);
		*doubt |= !in.len && call - p <= DOUBTFUL;
	}
	return p == call;
}

enum around around_call(const unsigned char *begin, const unsigned char *call, const unsigned char *end, const unsigned char **from)
{
	enum { BEFORE = 256, STARTS = 4 };
	unsigned starts = 1, is = 0;
	bool doubt = false;

	if (call - begin > BEFORE) {
		begin = call - BEFORE;
		starts = STARTS;
	}
	for (unsigned i = 0; i < starts; i++)
		is += arrives(begin + i, call, end, &doubt);
	*from = begin;
	if (!is || around_ends_handler(begin, call))
		return NO_CALL;
	return is == starts && !doubt ? IS_CALL : MAYBE_CALL;
}

bool around_sets_number(const unsigned char *begin, const unsigned char *call, const unsigned char *end)
{
	enum { NEAR = 32, NUMBERS = 512, WIDE = 0x48 };
	struct instruction in;
	uint32_t n;

	for (const unsigned char *p = begin; p < call; p += in.len ? in.len : 1) {
		in = instruction_at(p, end);
		if (!in.len || call - p > NEAR)
			continue;
		const unsigned char *o = p + (*p == WIDE);
		if ((*o == 0xb8 && p + in.len == o + 5) || (o > p && o[0] == 0xc7 && o[1] == 0xc0)) { /* mov $n, %eax or %rax */
			memcpy(&n, p + in.len - sizeof n, sizeof n);
			if (n < NUMBERS)
				return true;
		}
		if (in.len == 2 && p[0] == 0x31 && p[1] == 0xc0) /* xor %eax, %eax */
			return true;
		if (o > p && o[0] == 0x89 && (o[1] & 0xc7) == 0xc0) /* mov %r.., %rax */
			return true;
	}
	return false;
}
#endif
