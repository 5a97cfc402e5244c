/* Which system calls an object makes by its own instructions, and where a jump takes the place of
 * each. A jump has five bytes, the instruction two. Preferred is a jump of two bytes to the space
 * between two functions, where one of five has room: then nothing is moved. Else the instructions
 * behind it, or those before it, are moved, where no jump leads in between. */
#include "hooks/around.h"
#include "hooks/sites.h"

#ifdef DS_PATCH
#include <emmintrin.h>
#include <string.h>

enum { SHORT_JUMP = 2 };
enum { REACH = 20 };

/* Do all jumps of c's function go elsewhere than behind from, before to? Those by a table, or from
 * another part of the function, are not seen: such a function has no jumps by a register, and
 * c->reached has the rest. What is read around a call has other functions' jumps as well. */
static bool unreached(const struct found *c, const unsigned char *from, const unsigned char *to)
{
	const struct function *f = &c->in;
	struct instruction in;

	for (const unsigned char *p = from + 1; p < to; p++)
		if (c->reached >> (p - c->call + REACH) & 1)
			return false;
	for (const unsigned char *p = f->begin; p < f->end; p += in.len) {
		in = instruction_at(p, f->end);
		if (!in.len || (c->named && in.kind == RETURNS && in.opcode == 0xff) || (in.to > from && in.to < to))
			return false;
	}
	return true;
}

/* Notes at each call near to that a jump leads to it. */
static void reach(struct sites *l, const unsigned char *to)
{
	unsigned low = 0, high = l->n_found;

	while (low < high) { /* the first call that is not before to - JUMP */
		unsigned middle = (low + high) / 2;

		if ((uintptr_t)l->found[middle].call + JUMP <= (uintptr_t)to)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < l->n_found && (uintptr_t)l->found[low].call <= (uintptr_t)to + REACH; low++)
		l->found[low].reached |= 1u << (to - l->found[low].call + REACH);
}

/* Looks anywhere for bytes like those of a jump of four bytes' distance that leads near a call. */
static void reach_all(struct sites *l)
{
	enum { GRAIN = 32, BITS = 1 << 16 }; /* of the filter: a bit for each GRAIN bytes of text, in turn */
	static uint64_t filter[BITS / 64];
	const unsigned char *begin = (const unsigned char *)l->text.begin, *end = (const unsigned char *)l->text.end;
	const __m128i even = _mm_set1_epi8((char)0xfe), high = _mm_set1_epi8((char)0xf0), jumps = _mm_set1_epi8((char)0xe8),
		      branches = _mm_set1_epi8((char)0x80), zero = _mm_set1_epi8(0x0f);

	memset(filter, 0, sizeof filter);
	for (unsigned i = 0; i < l->n_found; i++)
		for (const unsigned char *p = l->found[i].call - REACH; p < l->found[i].call + JUMP + GRAIN; p += GRAIN) {
			uintptr_t bit = (uintptr_t)p / GRAIN % BITS;

			filter[bit / 64] |= 1ull << bit % 64;
		}
	for (const unsigned char *p = begin + 1; p < end; p += 16) {
		unsigned both = 0xffff;

		if (end - p >= 16) {
			__m128i v = _mm_loadu_si128((const void *)p), before = _mm_loadu_si128((const void *)(p - 1));
			__m128i a = _mm_cmpeq_epi8(_mm_and_si128(v, even), jumps);
			__m128i b = _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(v, high), branches), _mm_cmpeq_epi8(before, zero));

			both = (unsigned)_mm_movemask_epi8(_mm_or_si128(a, b));
		}
		for (; both; both &= both - 1) {
			const unsigned char *at = p + 1 + __builtin_ctz(both), *to;
			int32_t far;

			if (end - at < (ptrdiff_t)sizeof far)
				break;
			memcpy(&far, at, sizeof far);
			to = at + sizeof far + far;
			uintptr_t bit = (uintptr_t)to / GRAIN % BITS;
			if (filter[bit / 64] >> bit % 64 & 1)
				reach(l, to);
		}
	}
}

/* Has a place of l any byte from from on, before to? */
static bool taken(const struct sites *l, const unsigned char *from, const unsigned char *to)
{
	for (unsigned i = 0; i < l->n; i++) {
		const struct site *s = &l->at[i];

		if ((from < s->end && to > s->begin) || (s->via && from < s->via + JUMP && to > s->via))
			return true;
	}
	return false;
}

/* A jump of two bytes to the space behind the function. */
static bool by_space(const struct sites *l, const struct found *c, struct site *s)
{
	const struct function *f = &c->in;
	const unsigned char *back = s->call + SHORT_JUMP, *via = f->end;
	struct instruction in;

	s->begin = s->call;
	s->end = back;
	for (const unsigned char *p = f->end; p < f->next; p += in.len) {
		in = instruction_at(p, f->next);
		if (!in.fills)
			return false;
	}
	while (via < f->next && taken(l, via, via + 1))
		via++;
	s->via = via;
	return f->next - via >= JUMP && via - back <= 127 && !taken(l, s->begin, s->end);
}

/* A jump over what is behind the instruction. */
static bool by_behind(const struct sites *l, const struct found *c, struct site *s)
{
	s->begin = s->call;
	s->end = s->call + CALL;
	s->via = NULL;
	s->ends = false;
	while (s->end - s->begin < JUMP) {
		struct instruction in = instruction_at(s->end, (const unsigned char *)l->text.end);

		if (s->ends ? !in.fills : in.kind == UNKNOWN || in.kind == SYSTEM || in.kind == FIXED || in.kind == CALLS)
			return false;
		s->end += in.len;
		s->ends |= in.kind == LEADS || in.kind == RETURNS;
	}
	return !taken(l, s->begin, s->end) && unreached(c, s->begin, s->begin + JUMP);
}

/* A jump over what is before the instruction. */
static bool by_before(const struct sites *l, const struct found *c, struct site *s)
{
	struct instruction in;

	s->begin = NULL;
	s->end = s->call + CALL;
	s->via = NULL;
	s->ends = false;
	for (const unsigned char *p = c->in.begin; p < s->call; p += in.len) {
		in = instruction_at(p, c->in.end);
		if (in.kind != STILL && in.kind != RELATIVE)
			s->begin = NULL;
		else if (s->end - p >= JUMP)
			s->begin = p;
	}
	return s->begin && !taken(l, s->begin, s->end) && unreached(c, s->begin, s->end);
}

/* Notes that nobody sees the system call at p: what it sends passes the bytes in memory. */
static void pass_by(const struct sites *l, const unsigned char *p)
{
	ds_missed(DS_MISS_PASSES, l->text.file, (uint64_t)((const char *)p - l->text.base));
}

void calls_missed(struct sites *l, const unsigned char *p)
{
	ds_missed(DS_MISS_STAYS, l->text.file, (uint64_t)((const char *)p - l->text.base));
	l->missed = true;
}

/* Notes a system call. */
static void add(struct sites *l, const struct function *f, const unsigned char *call, bool named)
{
	if (l->n_found < SITES) {
		l->found[l->n_found++] = (struct found){.call = call, .in = *f, .named = named};
		return;
	}
	calls_missed(l, call);
}

void calls_find(struct sites *l, const struct function *f)
{
	struct instruction in;

	for (const unsigned char *p = f->begin; p < f->end; p += in.len) {
		in = instruction_at(p, f->end);
		if (!in.len) {
			p = around_next(p, f->end);
			if (p < f->end)
				pass_by(l, p);
			return;
		}
		if (in.kind == SYSTEM && !around_ends_handler(f->begin, p))
			add(l, f, p, true);
	}
}

void calls_find_around(struct sites *l, struct function f, const unsigned char *call)
{
	enum { BEHIND = 160 };
	const unsigned char *begin;
	const enum around is = around_call(f.begin, call, f.end, &begin);
	struct instruction in;

	if (is == NO_CALL)
		return;
	if (l->text.frames && !around_sets_number(begin, call, f.end))
		return; /* data between functions, such as a cipher's tables */
	for (; call - begin > BEHIND; begin += in.len ? in.len : 1)
		in = instruction_at(begin, f.end);
	f.begin = begin;
	for (begin = call; begin < f.end && begin - call < BEHIND && (in = instruction_at(begin, f.end)).len; begin += in.len)
		;
	f.end = f.next = begin;
	if (is == IS_CALL) {
		add(l, &f, call, false);
		return;
	}
	calls_missed(l, call);
}

void calls_place(struct sites *l)
{
	if (l->n_found > 0)
		reach_all(l);
	for (unsigned i = 0; i < l->n_found; i++) {
		const struct found *c = &l->found[i];
		struct site s = {.call = c->call};

		if (l->n < SITES && (by_space(l, c, &s) || by_behind(l, c, &s) || by_before(l, c, &s))) {
			l->at[l->n++] = s;
			continue;
		}
		calls_missed(l, c->call);
	}
}

void calls_pass(const struct sites *l)
{
	const unsigned char *begin = (const unsigned char *)l->text.begin, *end = (const unsigned char *)l->text.end;
	struct instruction in;

	for (const unsigned char *p = begin, *call; (call = around_next(p, end)) < end; p = call + 1) {
		const struct function f = function_at(l->text.frames, call);

		for (p = f.begin; p && p < call && (in = instruction_at(p, f.end)).len;)
			p += in.len;
		if (p == call && f.end <= end)
			pass_by(l, call);
	}
}
#endif
