/* System calls that the program and its libraries make by instructions of their own, not by the C
 * library: of inline assembly, of liburing, of a static part. As in a static program (inject), a
 * jump takes the place of each, and leads to a stub near the object that has it:
 *
 *   object      ... mov $nr, %eax ─ jump ─┐                              ┌─▶ next instruction
 *   stub        what was moved from before└▶ lea, lea, jump ─┐  ┌─▶ lea, what was moved from behind
 *   ds_own_entry                                             └▶─┤ ours: the hook
 *   stub                                                        └ not ours: syscall ─▶ what was moved
 *
 * A jump has five bytes, the instruction two. Preferred is a jump of two bytes to the space between
 * two functions, where one of five has room: then nothing is moved. Else the instructions behind
 * it, or those before it, are moved, where no jump leads in between.
 *
 * Of Go, which has cgo then, its one function is replaced (go.c).
 *
 * Looked at are the program, its small libraries and those with Go, once, before the program's
 * first thread makes others. What is in no function of the table for those who unwind, or in a
 * program without that table (Bun, Deno), is read from some bytes before it. If one of them cannot
 * be replaced, all sockets stay the kernel's: it may be a socket's, whose bytes would pass those in
 * memory. */
#include "hooks/go.h"
#include "hooks/instruction.h"
#include "hooks/patch.h"

#ifdef DS_PATCH
#include <emmintrin.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	PROGRAM_MOST = 256 << 20, /* bytes of text that are looked at: of the program or Go's, of another library */
	LIBRARY_MOST = 128 << 10,
	SITES = 2048,		 /* in one object */
	SHORT_JUMP = 2,
	CALL = 2, /* the length of a syscall instruction */
	OWN_STUB = 128,
	NEAREST = 64 << 10, FARTHEST = 1 << 30, /* of the stubs, from their object */
	LOWEST = 64 << 10,			/* address that a process may have: vm.mmap_min_addr as it usually is */
};

/* A place. */
struct site {
	const unsigned char *call;	  /* the instruction; NULL: begin is Go's Syscall6, and nothing is moved */
	const unsigned char *begin, *end; /* what the stub has instead, with what is moved */
	const unsigned char *via;	  /* where a short jump leads, and a long one is; NULL: it is at begin */
	const unsigned char *waits;	  /* begin is Go's call of this function, by which a goroutine waits; NULL: it is not */
	bool ends;			  /* what is moved does not come back */
};

/* A system call, in a function or in what can be read around it. */
struct found {
	const unsigned char *call;
	struct function in;
	bool named;	  /* the function is one of the table for those who unwind */
	uint32_t reached; /* bit i: a jump of four bytes' distance leads to REACH bytes before the call, and i on */
};
enum { REACH = 20 };

struct sites {
	struct ds_text text;
	bool missed; /* there is one that no jump can replace */
	unsigned n_found;
	struct found found[SITES];
	unsigned n;
	struct site at[SITES];
};

/* ---- where there are such instructions ---------------------------------------- */

/* The first two bytes from p on that may be the instruction; end: there are none. */
static const unsigned char *next_call(const unsigned char *p, const unsigned char *end)
{
	const __m128i first = _mm_set1_epi8(0x0f), second = _mm_set1_epi8(0x05);

	for (; end - p > 16; p += 16) {
		__m128i a = _mm_cmpeq_epi8(_mm_loadu_si128((const void *)p), first);
		__m128i b = _mm_cmpeq_epi8(_mm_loadu_si128((const void *)(p + 1)), second);
		unsigned both = (unsigned)_mm_movemask_epi8(_mm_and_si128(a, b));

		if (both)
			return p + __builtin_ctz(both);
	}
	for (; end - p >= CALL; p++)
		if (p[0] == 0x0f && p[1] == 0x05)
			return p;
	return end;
}

/* Is this the end of a handler, which those who unwind know by its instructions? */
static bool ends_handler(const unsigned char *begin, const unsigned char *call)
{
	static const unsigned char number[] = {15, 0, 0, 0}; /* rt_sigreturn */

	return (size_t)(call - begin) >= sizeof number && !memcmp(call - sizeof number, number, sizeof number);
}

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

/* Notes that the system call at p is not replaced: all sockets stay the kernel's. */
static void miss(struct sites *l, const unsigned char *p)
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
	miss(l, call);
}

/* Finds the system calls of one function. */
static void find(struct sites *l, const struct function *f)
{
	struct instruction in;

	for (const unsigned char *p = f->begin; p < f->end; p += in.len) {
		in = instruction_at(p, f->end);
		if (!in.len) {
			p = next_call(p, f->end);
			if (p < f->end)
				pass_by(l, p);
			return;
		}
		if (in.kind == SYSTEM && !ends_handler(f->begin, p))
			add(l, f, p, true);
	}
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

/* Finds a system call that is in no function of the table: of assembly, or of a program without the
 * table. f has what is between two functions. Where instructions begin is seen by reading from some
 * bytes before it, one after the other: what is read wrong at first is soon read right. */
static void find_around(struct sites *l, struct function f, const unsigned char *call)
{
	enum { BEFORE = 256, STARTS = 4, BEHIND = 160 };
	const unsigned char *begin = f.begin;
	unsigned starts = 1, is = 0;
	bool doubt = false;
	struct instruction in;

	if (call - begin > BEFORE) {
		begin = call - BEFORE;
		starts = STARTS;
	}
	for (unsigned i = 0; i < starts; i++)
		is += arrives(begin + i, call, f.end, &doubt);
	if (!is || ends_handler(begin, call))
		return; /* it is within another instruction */
	for (; call - begin > BEHIND; begin += in.len ? in.len : 1)
		in = instruction_at(begin, f.end);
	f.begin = begin;
	for (begin = call; begin < f.end && begin - call < BEHIND && (in = instruction_at(begin, f.end)).len; begin += in.len)
		;
	f.end = f.next = begin;
	if (is == starts && !doubt) {
		add(l, &f, call, false);
		return;
	}
	miss(l, call);
}

/* Finds how each system call is replaced. */
static void place(struct sites *l)
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
		miss(l, c->call);
	}
}

/* Notes the system calls of an object that is too large to be changed. */
static void pass(const struct sites *l)
{
	const unsigned char *begin = (const unsigned char *)l->text.begin, *end = (const unsigned char *)l->text.end;
	struct instruction in;

	for (const unsigned char *p = begin, *call; (call = next_call(p, end)) < end; p = call + 1) {
		const struct function f = function_at(l->text.frames, call);

		for (p = f.begin; p && p < call && (in = instruction_at(p, f.end)).len;)
			p += in.len;
		if (p == call && f.end <= end)
			pass_by(l, call);
	}
}

/* ---- what takes their place ---------------------------------------------------- */

/* Writes the stub of s to b, where it is to run. False: it cannot be there. ds_own_entry knows what
 * is before the place where it comes back to. */
static bool put_stub(const struct site *s, unsigned char *b)
{
	enum { HEAD = 52 };
	static const unsigned char head[HEAD] = {
		0x48, 0x8d, 0x64, 0x24, 0x80,	      /* lea -128(%rsp), %rsp */
		0x4c, 0x8d, 0x1d, 32, 0, 0, 0,	      /* lea back(%rip), %r11 */
		0xff, 0x25, 6, 0, 0, 0,		      /* jmp *entry(%rip) */
		[40] = 0x0f, 0x05,		      /* syscall */
		0xeb, 8,			      /* jmp behind */
		0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, /* back: lea 128(%rsp), %rsp */
	};
	static const unsigned char load[] = {0x49, 0xbb};	      /* mov what it calls, %r11 */
	static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *entry(%rip) */
	const char *entry = s->call ? ds_own_entry : ds_go_entry;
	const unsigned char *after = s->call + CALL, *p;
	struct instruction in;
	unsigned n;

	if (s->waits) {
		memcpy(b, load, sizeof load);
		memcpy(b + sizeof load, &s->waits, sizeof s->waits);
		b += sizeof load + sizeof s->waits;
		entry = ds_go_poll;
	}
	if (!s->call) {
		memcpy(b, jump, sizeof jump);
		memcpy(b + sizeof jump, &entry, sizeof entry);
		return true;
	}
	for (p = s->begin; p < s->call; p += in.len, b += n) {
		in = instruction_at(p, s->call);
		if (!(n = instruction_move(&in, p, b)))
			return false;
	}
	memcpy(b, head, HEAD);
	memcpy(b + 24, &entry, sizeof entry);
	memcpy(b + 32, &after, sizeof after);
	b += HEAD;
	bool ends = false;
	for (p = after; p < s->end && !ends; p += in.len, b += n) {
		in = instruction_at(p, s->end);
		if (!(n = instruction_move(&in, p, b)))
			return false;
		ends = in.kind == LEADS || in.kind == RETURNS;
	}
	return ends || instruction_jump(b, s->end);
}

/* Memory for n bytes of stubs at an address; NULL: it is not free. */
static unsigned char *map_at(uintptr_t want, size_t n)
{
	long at = ds_kernel_call(SYS_mmap, want, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == (long)want)
		return (unsigned char *)at;
	if (at != -1) /* an old kernel's choice */
		ds_kernel_call(SYS_munmap, at, n);
	return NULL;
}

/* Memory for n bytes of stubs that jumps from the text and back can reach; NULL: none is free.
 * Below the text there may be much of its object, and the lowest addresses are free then. */
static unsigned char *map_near(const struct ds_text *text, size_t n)
{
	const uintptr_t low = (uintptr_t)text->begin & ~(uintptr_t)(PAGE - 1);
	unsigned char *at = NULL;

	for (uintptr_t far = NEAREST; far <= FARTHEST && !at && low >= far + n; far *= 2)
		at = map_at(low - far - n, n);
	for (uintptr_t up = LOWEST; low <= FARTHEST && !at && up + n <= low; up *= 2)
		at = map_at(up, n);
	return at;
}

/* Writes the jump that takes the place of s, whose stub can be executed. False: it stays as it
 * was. */
static bool put_jump(const struct patch *change, const struct site *s, const unsigned char *stub)
{
	struct patch p = *change;
	unsigned char *begin = (unsigned char *)(uintptr_t)s->begin, *at = (unsigned char *)(uintptr_t)(s->via ? s->via : s->begin);
	unsigned char *end = at > begin ? at + JUMP : begin + JUMP;

	if (!patch_begin(&p, (char *)begin, (char *)end))
		return false;
	instruction_jump(at, stub);
	if (s->waits)
		*at = CALL_CODE;
	if (s->via) {
		begin[0] = 0xeb;
		begin[1] = (unsigned char)(s->via - s->end);
	}
	return patch_end(&p);
}

/* Has the places that were found come to this library, if instructions may be changed. What stays
 * as it was is missed. Go's function is not: without its place, its sockets are the kernel's. */
static void patch(struct sites *l, bool possible)
{
	const size_t n = (l->n * OWN_STUB + PAGE - 1) & ~(size_t)(PAGE - 1);
	bool fits[SITES] = {false};
	struct patch change;
	unsigned char *stubs = NULL;

	if (possible && patch_open(&change, &l->text) && (stubs = map_near(&l->text, n))) {
		for (unsigned i = 0; i < l->n; i++)
			fits[i] = put_stub(&l->at[i], stubs + i * OWN_STUB);
		if (ds_kernel_call(SYS_mprotect, stubs, n, PROT_READ | PROT_EXEC) != 0)
			stubs = NULL;
	}
	for (unsigned i = 0; i < l->n; i++) {
		const struct site *s = &l->at[i];

		if ((!stubs || !fits[i] || !put_jump(&change, s, stubs + i * OWN_STUB)) && s->call)
			miss(l, s->call);
	}
	if (possible)
		patch_close(&change);
}

/* ---- the objects ----------------------------------------------------------------- */

/* A loaded object's segments. */
struct segments {
	const ElfW(Phdr) *p;
	unsigned long n;
	const char *base;
	bool needs;			  /* other libraries, as what has C does */
	const unsigned char *init, *fini; /* functions: where GNU's linker puts all code between; NULL: there are none */
};

/* Finds those of m, which is the program or a library. False: it is the kernel's or the dynamic
 * linker, or has none. */
static bool segments_of(const struct link_map *m, bool program, struct segments *s)
{
	const ElfW(Ehdr) *e = (const void *)m->l_addr;

	if (!program && (!e || m->l_addr == getauxval(AT_SYSINFO_EHDR) || m->l_addr == getauxval(AT_BASE)))
		return false;
	s->base = (const char *)m->l_addr;
	s->p = (const void *)(program ? getauxval(AT_PHDR) : m->l_addr + e->e_phoff);
	s->n = program ? getauxval(AT_PHNUM) : e->e_phnum;
	s->needs = false;
	s->init = s->fini = NULL;
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
		s->needs |= d->d_tag == DT_NEEDED;
		if (d->d_tag == DT_INIT)
			s->init = (const unsigned char *)s->base + d->d_un.d_ptr;
		if (d->d_tag == DT_FINI)
			s->fini = (const unsigned char *)s->base + d->d_un.d_ptr;
	}
	return s->p != NULL;
}

/* Does a note say that it is Go's (.note.go.buildid)? */
static bool has_go(const struct segments *s)
{
	struct {
		ElfW(Nhdr) head;
		char name[4];
	} note;

	for (const ElfW(Phdr) *p = s->p; p < s->p + s->n; p++) {
		const char *at = s->base + p->p_vaddr, *end = at + p->p_filesz;

		while (p->p_type == PT_NOTE && end - at >= (ptrdiff_t)sizeof note) {
			memcpy(&note, at, sizeof note);
			if (note.head.n_namesz == sizeof note.name && !memcmp(note.name, "Go", sizeof "Go"))
				return true;
			at += sizeof note.head + ((note.head.n_namesz + 3) & ~3u) + ((note.head.n_descsz + 3) & ~3u);
		}
	}
	return false;
}

/* Has the text Go's function? Not each of Go's objects has the note. */
static bool has_go_function(const struct ds_text *text)
{
	const unsigned char *end = (const unsigned char *)text->end;

	for (const unsigned char *p = (const unsigned char *)text->begin; (p = next_call(p, end)) < end; p++)
		if (go_function(text, p))
			return true;
	return false;
}

/* Finds where goroutines wait, by the data of Go's object. Without it they sleep at once. */
static void find_wait(struct sites *l, const struct segments *s, const unsigned char *syscall6)
{
	const unsigned char *at, *waits;

	for (unsigned long i = 0; i < s->n && l->n < SITES; i++) {
		const char *data = s->base + s->p[i].p_vaddr;

		if (s->p[i].p_type != PT_LOAD || (s->p[i].p_flags & PF_X) || !(at = go_wait(&l->text, syscall6, data, data + s->p[i].p_filesz, &waits)))
			continue;
		l->at[l->n++] = (struct site){.begin = at, .end = at + JUMP, .waits = waits};
		return;
	}
}

/* Does it have direct sockets by Go's package? */
static bool is_direct(const struct segments *s)
{
	for (unsigned long i = 0; i < s->n; i++) {
		const char *at = s->base + s->p[i].p_vaddr;

		if (s->p[i].p_type == PT_LOAD && s->p[i].p_flags == PF_R && go_is_direct(at, at + s->p[i].p_filesz))
			return true;
	}
	return false;
}

/* Finds the instructions of an object, and its table of functions. False: they are not to be
 * changed, as those of the C library and this one. */
static bool text_of(const struct segments *s, const char *file, struct ds_text *text)
{
	const char *const known[] = {(const char *)(uintptr_t)gnu_get_libc_version, (const char *)(uintptr_t)text_of};

	*text = (struct ds_text){.file = file, .base = s->base};
	for (const ElfW(Phdr) *p = s->p; p < s->p + s->n; p++) {
		const char *at = s->base + p->p_vaddr;

		if (p->p_type == PT_GNU_EH_FRAME)
			text->frames = at;
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		if (text->begin || (p->p_flags & PF_W))
			return false;
		text->begin = at;
		text->end = at + p->p_filesz;
		text->off = (off_t)p->p_offset;
	}
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i] >= text->begin && known[i] < text->end)
			return false;
	return text->begin;
}

/* Finds the places of an object. Its segment may begin with the file's head and hold data: then
 * what is in no function is code from init to fini alone. Go without cgo stays as it is: it sets
 * the FS base, by which C finds the variables of a thread. If it is a PIE, the linker loads this
 * library all the same. */
static void find_all(struct sites *l, const struct segments *s)
{
	const unsigned char *begin = (const unsigned char *)l->text.begin, *end = (const unsigned char *)l->text.end, *go;
	const unsigned char *code = l->text.off == 0 ? s->init : begin, *code_end = l->text.off == 0 ? s->fini : end;
	enum { UNSEEN, OF_C, OF_GO } of = UNSEEN;
	struct function f = {0};

	for (const unsigned char *p = begin; (p = next_call(p, end)) < end; p = f.begin && f.end > p ? f.end : p + 1) {
		f = function_at(l->text.frames, p);
		if (f.begin >= begin && f.end <= end) {
			find(l, &f);
			continue;
		}
		if (of == UNSEEN)
			of = has_go_function(&l->text) ? OF_GO : OF_C;
		if (of == OF_C && !f.begin && p >= code && p < code_end) {
			find_around(l, (struct function){f.end > code ? f.end : code, f.next > p && f.next < code_end ? f.next : code_end, NULL}, p);
		} else if (s->needs && (go = go_function(&l->text, p)) && l->n < SITES && !is_direct(s)) {
			l->at[l->n++] = (struct site){.begin = go, .end = go + JUMP};
			go_arrives(p);
			find_wait(l, s, go);
			fd_doubt(); /* Go's own way to make a child that shares this memory does not come here */
		}
	}
	place(l);
}

/* Before the program runs: has the places of all objects come to this library. */
__attribute__((constructor)) DS_START static void patch_own(void)
{
	static struct sites l; /* one thread */
	const bool possible = patch_possible();
	const struct link_map *m = ds_env_off("EXNET_PATCH") ? NULL : _r_debug.r_map;
	struct segments s;

	for (bool program = true; m; m = m->l_next, program = false) {
		l.n = l.n_found = 0;
		if (!segments_of(m, program, &s) || !text_of(&s, m->l_name, &l.text))
			continue;
		if (l.text.end - l.text.begin <= (program || has_go(&s) ? PROGRAM_MOST : LIBRARY_MOST))
			find_all(&l, &s);
		else if (ds_explains()) /* it takes its time */
			pass(&l);
		if (l.n > 0)
			patch(&l, possible);
	}
	if (l.missed)
		fd_seal();
	if (l.missed && ds_explains())
		ds_tell_broker();
}
#endif
